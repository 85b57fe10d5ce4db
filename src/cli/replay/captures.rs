//! Captures in the API: their paths, their pages, and how their values are printed.

use serde_json::Value;

use super::super::client::ApiClient;
use super::super::failure::CommandFailure;
use crate::bounds;
use crate::id::RequestId;

pub(super) const CAPTURES: &str = "/v1/router/replay";

/// The path of one capture.
pub(super) fn path(id: &str) -> Result<String, CommandFailure> {
    match RequestId::parse(id) {
        Some(id) => Ok(format!("{CAPTURES}/{id}")),
        None => {
            Err(CommandFailure::Usage("the id of a capture is `req_` and 26 characters".to_owned()))
        }
    }
}

/// Calls `each` with the summary of each capture, newest first, `limit` at most. Returns how many
/// captures the gateway could not read.
pub(super) fn for_each_summary(
    client: &ApiClient,
    query: &[(&'static str, String)],
    limit: u64,
    mut each: impl FnMut(&Value) -> Result<(), CommandFailure>,
) -> Result<u64, CommandFailure> {
    let (mut left, mut after, mut unreadable) = (limit, None::<String>, 0);
    while left > 0 {
        let mut query = query.to_vec();
        query.push(("limit", left.min(bounds::PAGE_MAX as u64).to_string()));
        query.extend(after.take().map(|after| ("after", after)));
        let page = client.get(CAPTURES, &query)?.ok()?.json()?;
        for summary in page.get("data").and_then(Value::as_array).into_iter().flatten() {
            each(summary)?;
            left = left.saturating_sub(1);
        }
        unreadable += page.get("unreadable").and_then(Value::as_u64).unwrap_or(0);
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(unreadable)
}

/// A JSON value as text; `-` for null and for none.
pub(super) fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The text of a number below `pointer`, 0 if there is none.
pub(super) fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// US dollars; `-` for an unknown amount.
pub(super) fn dollars(amount: Option<f64>) -> String {
    amount.map_or_else(|| "-".to_owned(), |amount| format!("${amount:.6}"))
}

pub(super) fn target(value: Option<&Value>) -> String {
    pair(value, "provider", '/', "model")
}

pub(super) fn rule(decision: Option<&Value>) -> String {
    pair(decision, "recipe", '.', "rule")
}

fn pair(value: Option<&Value>, first: &str, separator: char, second: &str) -> String {
    match value.filter(|value| value.is_object()) {
        Some(value) => format!("{}{separator}{}", text(value.get(first)), text(value.get(second))),
        None => "-".to_owned(),
    }
}
