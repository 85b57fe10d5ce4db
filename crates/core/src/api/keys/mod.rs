//! API keys: the same endpoints on every interface, of which the path tells which. `K` stands for
//! the path of a collection. No call grants more than the caller has.

mod change;
mod collection;
mod create;
mod patch;
mod permission;
mod read;
mod record;
mod repeat;
mod revoke;
mod rotate;
mod usage;

pub use create::create;
pub use patch::patch;
pub use read::{PARAMETERS, get, list};
pub use revoke::revoke;
pub use rotate::rotate;
