//! From a capture to what is written of it: without credentials, without what the server document keeps out.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{PROXY_AUTHENTICATE, WWW_AUTHENTICATE};

use super::echo::{REDACTED, Secrets};
use super::query::without_credentials;
use super::record::{Bodies, Capture, Head};
use super::redact::Redactor;
use super::scrub::{self, Request};
use super::values;
use crate::bounds;
use crate::secret::is_credential;
use crate::store::CaptureRow;

/// A capture that is ready to be written.
pub(crate) struct PreparedCapture {
    /// Its row in the index.
    pub(crate) row: CaptureRow,
    /// The head, as JSON.
    pub(crate) head: Vec<u8>,
    /// The bodies; empty where they are not kept.
    pub(crate) bodies: Bodies,
}

/// What is written of a capture; `None` for one that cannot be.
pub(crate) fn ready(capture: &Capture, redactor: &Redactor) -> Option<PreparedCapture> {
    let mut head = capture.head.clone();
    head.request_headers.retain(|(name, value)| is_kept(name, value));
    head.response_headers.retain(|(name, value)| is_challenge(name) || is_kept(name, value));
    take_from_inputs(&mut head, &is_kept);
    head.client_request_id.take_if(|id| values::is_credential(id));
    // That of a request had none left when it came; one from a file may have.
    head.query = head.query.and_then(|query| without_credentials(&query));
    let (mut bodies, mut secrets, mut answer) =
        (Bodies::default(), Secrets::default(), capture.bodies.response.clone());
    if head.request_captured {
        let Request { scrubbed, secrets: found, lacks_tools } =
            scrub::scrub_request(&capture.bodies.request, head.request_truncated);
        (bodies.request, secrets) = (scrubbed.body, found);
        if scrubbed.redacted {
            head.lacks_of_request();
        }
        if lacks_tools && !answer.is_empty() {
            answer = Bytes::new();
            head.lacks_of_answer();
        }
    }
    if !secrets.is_empty() {
        without(&mut head, &secrets);
    }
    bodies.response = scrub::scrub_answer(&mut head, answer, &secrets);
    redactor.redact(&mut head, &mut bodies);
    let ready = of(&head, bodies)?;
    match std::str::from_utf8(&ready.head).map(|said| redactor.veil().redact(said)) {
        // A client may have put a key where a name belongs: whatever quotes that has it too.
        Ok(Cow::Owned(said)) => match serde_json::from_str(&said) {
            Ok(head) => of(&head, ready.bodies),
            // A key of the environment that is a word of the head's own.
            Err(_) => Some(ready),
        },
        _ => Some(ready),
    }
}

/// Whether a header is no credential: by its name, of those that come from a file too, nor by its value.
fn is_kept(name: &str, value: &str) -> bool {
    !is_credential(&name.to_ascii_lowercase()) && !values::is_credential(value)
}

/// Whether it is a header by which a provider's refusal names the scheme that it wants.
fn is_challenge(name: &str) -> bool {
    name.eq_ignore_ascii_case(WWW_AUTHENTICATE.as_str())
        || name.eq_ignore_ascii_case(PROXY_AUTHENTICATE.as_str())
}

/// Takes the values out of the headers that the decision looked at. Their names stay: where one was decided on it is known that it
/// had a value, and that nobody can decide so again.
fn take_from_inputs(head: &mut Head, is_kept: &dyn Fn(&str, &str) -> bool) {
    let headers = head.inputs.iter_mut().flat_map(|inputs| &mut inputs.request.headers);
    headers
        .filter(|(name, value)| !is_kept(name, value))
        .for_each(|(_, value)| REDACTED.clone_into(value));
}

/// Takes out of a head what else quotes these.
fn without(head: &mut Head, secrets: &Secrets) {
    let is_free = |value: &str| secrets.hide_whole(value.as_bytes()).is_none();
    head.request_headers.retain(|(_, value)| is_free(value));
    head.response_headers.retain(|(_, value)| is_free(value));
    take_from_inputs(head, &|_, value| is_free(value));
    // It may be cut off.
    head.client_request_id.take_if(|id| secrets.hide(id.as_bytes()).is_some());
    head.query.take_if(|query| secrets.hide(query.as_bytes()).is_some());
    head.error.take_if(|error| !is_free(error));
}

/// What is written of a head that is fit to be, and its bodies.
fn of(head: &Head, bodies: Bodies) -> Option<PreparedCapture> {
    if bodies.request.len().saturating_add(bodies.response.len()) > bounds::CAPTURE_QUEUE_BYTES {
        return None;
    }
    Some(PreparedCapture { row: row(head), head: serde_json::to_vec(head).ok()?, bodies })
}

/// What the index is told of a capture.
fn row(head: &Head) -> CaptureRow {
    let decision = head.decision.as_ref();
    CaptureRow {
        id: head.id.clone(),
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner.clone(),
        key: head.key.clone(),
        alias: match decision {
            Some(decision) => decision.alias.clone(),
            None => asked_for(head),
        },
        recipe: decision.map(|decision| decision.recipe.clone()),
        provider: head.served.as_ref().map(|served| served.provider.to_string()),
        model: head.served.as_ref().map(|served| served.model.to_string()),
        decided_provider: decision.map(|decision| decision.provider.clone()),
        decided_model: decision.map(|decision| decision.model.clone()),
        status: head.status,
        state: head.state.as_str().to_owned(),
        replay_of: head.replay_of.clone(),
        shadow_of: head.shadow_of.clone(),
    }
}

/// The name that was asked for, where nothing was decided. A key that somebody put there by mistake
/// is none.
fn asked_for(head: &Head) -> Option<String> {
    let name = &head.inputs.as_ref()?.request.name;
    (!name.is_empty() && !values::is_credential(name)).then(|| name.clone())
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
