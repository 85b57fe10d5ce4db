//! An upgrade: a new process, `rerouter serve --upgrade`, takes over from the one that runs, and no
//! connection is refused. They talk over a socket in the data directory, in lines:
//!
//! ```text
//! the new one (successor.rs)          the running one (predecessor.rs)
//! reads and checks its documents
//! HELLO                           →   refuses mutations, and waits for those under way
//!                                 ←   Offer, with the listeners and the data directory's locks
//! opens the store, loads its tables
//! READY                           →   from here on it looks into the store before it checks a
//!                                     credential, and refuses mutations for good
//!                                 ←   Reports
//! accepts connections, and changes    accepts no connections; ends with its last request
//! ```
//!
//! Until READY either of them may give up by closing the connection, and the running one goes on as
//! before. After it both write to the store, by SQLite's own locking: each has an active segment of
//! captures of its own, the new one removes none while the other lives, and each has its own grants
//! of budgets. With PostgreSQL they are two gateways of a cluster.
//!
//! The connection stays open until the running one ends, however it does, which tells the new one
//! of its end. Until then the new one hands over to nobody.

mod predecessor;
mod successor;
mod wire;

pub(super) use predecessor::{Offering, run};
pub(super) use successor::{Takeover, take_over};

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use rerouter_store::NodeReport;

/// The first line of a new process. The number changes with the protocol.
const HELLO: &str = "rerouter upgrade 2";
/// The line of a new process that can serve.
const READY: &str = "ready";

/// How long the new process waits for each line.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long the running one waits until the new one has loaded its tables. Meanwhile it refuses
/// mutations.
const LOAD_TIME: Duration = Duration::from_secs(60);

/// Where a running gateway listens for the next one.
fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("upgrade.sock")
}

/// What comes with the descriptors, or why none come.
type Offer = Result<Offered, String>;

#[derive(Serialize, Deserialize)]
struct Offered {
    /// The descriptors are these listeners, and the locks of the data directory.
    listeners: Vec<SocketAddr>,
    /// The running process: its number, and its name where gateways share the store.
    process: u32,
    name: Option<String>,
}

/// Heartbeats of nodes, with their age.
type Reports = Vec<(NodeReport, Duration)>;
