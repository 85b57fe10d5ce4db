//! Agents. AGENT has its own keys: if AGENT is enforced, these pages ask for one.

mod form;
mod list;
mod one;

pub(super) use list::{blank, create, list};
pub(super) use one::{change, delete, show};
