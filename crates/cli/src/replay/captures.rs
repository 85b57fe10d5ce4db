//! Captures in the API: their paths, and how their values are printed.

use serde_json::Value;

use super::super::failure::{CommandFailure, Result};
use super::super::records::text;
use rerouter_base::id::RequestId;

pub(crate) const CAPTURES: &str = "/v1/router/replay";

pub(super) fn path(id: &str) -> Result<String> {
    match RequestId::parse(id) {
        Some(id) => Ok(format!("{CAPTURES}/{id}")),
        None => {
            Err(CommandFailure::Usage("the id of a capture is `req_` and 26 characters".to_owned()))
        }
    }
}

/// US dollars; `-` for an unknown amount.
pub(crate) fn dollars(amount: Option<f64>) -> String {
    amount.map_or_else(|| "-".to_owned(), |amount| format!("${amount:.6}"))
}

pub(crate) fn target(value: Option<&Value>) -> String {
    pair(value, "provider", '/', "model")
}

pub(crate) fn rule(decision: Option<&Value>) -> String {
    pair(decision, "recipe", '.', "rule")
}

fn pair(value: Option<&Value>, first: &str, separator: char, second: &str) -> String {
    match value.filter(|value| value.is_object()) {
        Some(value) => format!("{}{separator}{}", text(value.get(first)), text(value.get(second))),
        None => "-".to_owned(),
    }
}
