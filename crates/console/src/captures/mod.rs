//! Captures: the list, one capture with its conversation and the reasons of its decision, and two
//! captures side by side.

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
pub(super) mod values;

use rerouter_base::url::encode;

/// The address of a capture's page, or with `below` of a path under it.
fn address(id: &str, below: &str) -> String {
    format!("/console/captures/{}{below}", encode(id))
}

fn compared(a: &str, b: &str) -> String {
    address(a, &format!("/compare/{}", encode(b)))
}
