//! Redacts texts of a head that the client, an agent's author or the routing document wrote. Ids,
//! times and the gateway's own words are not redacted.

use http::header::{PROXY_AUTHENTICATE, WWW_AUTHENTICATE};
use serde_json::{Map, Value};

use super::credentials::{self, without_credentials};
use super::rules::{REDACTED, Replacements};
use crate::capture::record::Head;
use rerouter_base::secret;
use rerouter_routing::Inputs;

/// Paths of these texts in the head's JSON. `*` matches each element or member, `#` the names of
/// the members.
const OF_REQUEST: &str = "request_headers client_request_id query error \
    inputs/request/model inputs/request/name inputs/request/agent/name inputs/request/needs \
    inputs/request/headers \
    inputs/request/untranslatable/*/* inputs/principal/models inputs/principal/labels \
    inputs/principal/user_labels inputs/keywords/# inputs/health/# inputs/health/*/node/models \
    inputs/health/*/node/abilities/# decision/provider decision/model decision/recipe \
    decision/rule decision/alias decision/plan/*/* decision/candidates/*/provider \
    decision/candidates/*/model decision/trace/*/* attempts/*/* served/provider served/model \
    usage/modes/*";
const OF_ANSWER: &str = "response_headers usage/unknown";
/// Paths of the names on which the decision depends.
const NAMES: &str = "inputs/request/model inputs/request/name inputs/request/agent/name \
    decision/plan/*/* decision/recipe decision/rule";
/// Paths of further texts that the conditions of a routing document may test.
const SIGNALS: &str = "inputs/request/headers inputs/principal/labels inputs/principal/user_labels \
    inputs/health/#";

/// Removes other values that are credentials by their name or value. A header that the decision
/// used keeps its name, so that an evaluation knows that it had a value.
pub(super) fn remove_credentials(head: &mut Head) {
    let decided_on = head.inputs.iter_mut().flat_map(|inputs| &mut inputs.request.headers);
    decided_on
        .filter(|(name, value)| is_secret(name, value))
        .for_each(|(_, value)| REDACTED.clone_into(value));
    head.client_request_id.take_if(|id| credentials::is_credential(id));
    head.query = head.query.take().and_then(|query| without_credentials(&query));
}

/// Whether a header is a credential by its name or value.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    secret::is_credential(&name.to_ascii_lowercase()) || credentials::is_credential(value)
}

/// Whether the header names the authentication scheme that a provider wants.
pub(super) fn is_challenge(name: &str) -> bool {
    [WWW_AUTHENTICATE, PROXY_AUTHENTICATE]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_str()))
}

/// Whether [`remove_credentials`] may change any part of a head besides its headers.
pub(super) fn may_hold_credentials(head: &Head) -> bool {
    let mut decided_on = head.inputs.iter().flat_map(|inputs| &inputs.request.headers);
    decided_on.any(|(name, value)| is_secret(name, value))
        || head.client_request_id.as_deref().is_some_and(credentials::is_credential)
        || head
            .query
            .as_deref()
            .is_some_and(|query| without_credentials(query).as_deref() != Some(query))
}

/// Makes the replacements in a head, and notes that in it. `None` if the head cannot be written as
/// JSON.
pub(super) fn redact(mut head: Head, rules: &Replacements<'_>) -> Option<Head> {
    let mut value = serde_json::to_value(&head).ok()?;
    let of_answer = visit_all(&mut value, OF_ANSWER, &|text| rules.text(text));
    let of_request = visit_all(&mut value, OF_REQUEST, &|text| rules.text(text));
    if of_answer || of_request {
        head = serde_json::from_value(value).ok()?;
    }
    if of_answer {
        head.lacks_of_answer();
    }
    if of_request {
        head.lacks_of_request();
    }
    Some(head)
}

/// Whether a name on which the decision depends was removed from the head.
pub fn lost_names(head: &Head) -> bool {
    head.redacted && has_lost(head, NAMES)
}

/// Whether a text that conditions may test was removed from the head, or from a header of `inputs`.
pub fn lost_signals(head: &Head, inputs: &Inputs) -> bool {
    // The value of a header is removed from the inputs without setting `redacted`.
    let mut seen = inputs.request.headers.values();
    seen.any(|value| value == REDACTED) || (head.redacted && has_lost(head, SIGNALS))
}

/// Whether a text was removed from a value of a redacted capture.
pub fn lost_text(value: &Value) -> bool {
    visit(&mut value.clone(), "", &|text| text.contains(REDACTED).then(String::new))
}

fn has_lost(head: &Head, paths: &str) -> bool {
    let lost = |text: &str| text.contains(REDACTED).then(String::new);
    serde_json::to_value(head).is_ok_and(|mut value| visit_all(&mut value, paths, &lost))
}

/// Returns the replacement of a text; `None` if the text stays.
type Substitute<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Changes the texts at these paths. Returns whether any was changed.
fn visit_all(value: &mut Value, paths: &str, change: Substitute<'_>) -> bool {
    paths.split(' ').fold(false, |changed, path| visit(value, path, change) | changed)
}

fn visit(value: &mut Value, path: &str, change: Substitute<'_>) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match (first, value) {
        ("", Value::String(text)) => change(text).map(|changed| *text = changed).is_some(),
        ("#", Value::Object(fields)) => rename(fields, change),
        ("" | "*", Value::Array(items)) => {
            items.iter_mut().fold(false, |changed, item| visit(item, rest, change) | changed)
        }
        ("" | "*", Value::Object(fields)) => {
            let renamed = first.is_empty() && rename(fields, change);
            let values = fields.values_mut();
            values.fold(renamed, |changed, value| visit(value, rest, change) | changed)
        }
        (name, value) => value.get_mut(name).is_some_and(|value| visit(value, rest, change)),
    }
}

fn rename(fields: &mut Map<String, Value>, change: Substitute<'_>) -> bool {
    let mut changed = false;
    let renamed = std::mem::take(fields).into_iter().map(|(name, value)| {
        let other = change(&name);
        changed |= other.is_some();
        (other.unwrap_or(name), value)
    });
    *fields = renamed.collect();
    changed
}
