//! Captures: the list of requests as they end, one of them with its conversation and the reasons of
//! its decision, and two side by side.

pub(super) mod compare;
pub(super) mod conversation;
mod curl;
mod decision;
mod diff;
mod filters;
#[cfg(test)]
mod fixtures;
pub(super) mod list;
pub(super) mod one;
pub(super) mod text;
mod timeline;
mod values;

use rerouter_base::url::encode;

/// The address of a capture's page, or of something below it.
fn address(id: &str, below: &str) -> String {
    format!("/console/captures/{}{below}", encode(id))
}

/// The address of two captures side by side.
fn compared(a: &str, b: &str) -> String {
    address(a, &format!("/compare/{}", encode(b)))
}
