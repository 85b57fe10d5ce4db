//! API keys: the same endpoints on every interface, chosen by the path. In these comments `K` means
//! the path of a collection. No call grants more than the caller has.

mod change;
mod collection;
mod create;
mod patch;
mod permission;
mod read;
mod record;
mod revoke;
mod rotate;
mod usage;

#[cfg(test)]
pub(super) use create::KEY_DESCENT;
pub(super) use create::create;
pub(super) use patch::patch;
pub(super) use read::{get, list};
pub(super) use revoke::revoke;
pub(super) use rotate::rotate;
