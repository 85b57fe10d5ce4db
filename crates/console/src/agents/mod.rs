//! Agents. AGENT has keys of its own: where it is enforced, its pages ask for one.

mod form;
mod list;
mod one;

pub(super) use list::{blank, create, list};
pub(super) use one::{change, delete, show};
