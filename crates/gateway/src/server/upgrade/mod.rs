//! An upgrade: a new process, `rerouter serve --upgrade`, takes over from the running one, and no
//! connection is refused. The two talk over a socket in the data directory, in lines:
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
//! Until READY either process may give up by closing the connection, and the running one goes on as
//! before. After READY both write to the store, which SQLite's locking allows: each has its own
//! active segment of captures, the new one removes no segment while the other lives, and each has
//! its own holds of budgets. With PostgreSQL they are two gateways of a cluster.
//!
//! The connection stays open until the old process ends, for whatever reason; its close tells the
//! new process of the end. Until then the new process hands over to no other.

mod predecessor;
mod successor;
mod wire;

pub(super) use predecessor::{Offering, listen, run};
pub(super) use successor::{Takeover, take_over};

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use rerouter_store::NodeReport;

/// The first line of a new process. Its number changes with the protocol.
const HELLO: &str = "rerouter upgrade 2";
/// The line of a new process that is able to serve.
const READY: &str = "ready";
/// The line that asks for more descriptors, and the line that they come with.
const MORE: &str = "more";

/// How long the new process waits for each line.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long the running process waits for the new one to load its tables. Meanwhile it refuses
/// mutations.
const LOAD_TIME: Duration = Duration::from_secs(60);

/// The path of the socket on which a running gateway waits for its successor.
fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("upgrade.sock")
}

/// The line that comes with the descriptors, or the reason why none come.
type Offer = Result<Offered, String>;

#[derive(Serialize, Deserialize)]
struct Offered {
    /// The address of each listening socket. Their descriptors come first, then the locks of the
    /// data directory.
    listeners: Vec<SocketAddr>,
    /// How many further lines with descriptors may be asked for.
    #[serde(default)]
    more: usize,
    /// Id of the running process.
    process: u32,
    name: Option<String>,
}

/// The last heartbeats of nodes, and the age of each.
type Reports = Vec<(NodeReport, Duration)>;
