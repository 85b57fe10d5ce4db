//! The store: everything durable except the bodies of captures. Its API is async. A mutation is
//! acknowledged when it is on the disk and the tables in memory have followed it. The store does
//! not decide who may do what.
//!
//! `handle.rs` opens a store, and `transaction.rs` has the common part of all mutations. Each noun,
//! such as users or keys, has a file with its methods and statements; `rows/` has the rows and
//! reads them. Statements pass through `sql.rs`, so these files are the same for all databases.
//! [`backend`] selects the database; code for one database is only in `sqlite/` and `postgres/`.
//! `steps.rs` creates the tables. The index of captures ([`CaptureIndex`]) is in `captures/`.
//! [`Faults`] wrap the work that is passed to a database, so that tests can make it fail.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// The scenario of a test is read from top to bottom, so a test function may be long.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod agents;
mod attempts;
mod audit;
mod audit_query;
mod audit_retention;
mod backend;
mod captures;
mod changes;
mod cluster;
mod columns;
mod data_dir;
mod directory_names;
mod document_texts;
mod documents;
mod error;
mod faults;
mod handle;
mod handover;
mod holders;
mod key_changes;
mod keys;
mod last_used;
mod latency;
mod limits;
mod load;
mod migrate;
mod node_reports;
mod nodes;
mod pairs;
mod postgres;
mod reach;
mod root_key;
mod rows;
mod sessions;
mod settings;
mod sharing;
mod spend;
mod sql;
mod sqlite;
mod steps;
mod transaction;
mod usage_query;
mod usage_sums;
mod users;
mod value;
mod worker;

pub use attempts::AttemptLimit;
pub use audit::{Action, AuditRow, AuditTarget, Event};
pub use audit_query::AuditFilter;
pub use captures::CaptureFilter;
pub use captures::{ByteRange, CaptureIndex, CaptureLocation, CaptureRow, SegmentRow, Shadows};
pub use changes::{Change, Committed, Follower, LiveDocument, Reload};
pub use cluster::{Authority, GatewayIdentity, GatewayRow, Joining};
pub use data_dir::{DataDir, free_bytes};
pub use directory_names::INSTANCE;
use error::Result;
pub use error::StoreError;
pub use faults::{Faults, PanicPoint};
pub use handle::Store;
pub use handover::check_takeover;
pub use latency::LatencyCounts;
pub use limits::Limits;
pub use limits::{
    Budget, ByCount, COUNTS, CountLimit, Counted, KEYS_PER_OWNER, LimitOwner, Per, covers,
};
pub use migrate::migrate;
pub use node_reports::NodeReport;
pub use nodes::SpentNonce;
pub use pairs::Pairs;
pub use postgres::{PostgresUrl, StoreUrlError};
pub use reach::Reach;
pub use root_key::inspect;
pub use root_key::{Opening, WrappedRootKey};
pub use rows::{Actor, KeyRow, KeyState, KeyStatus};
pub use rows::{
    AgentRow, DocumentRow, KeyChange, NewSecret, NodeModel, NodeRow, NodeStatus,
    PreviousNodeSecret, Registration, Role, Seen, SessionRow, UserRow,
};
pub use settings::{OnLeaseLost, StoreSettings, StoreUrl};
pub use spend::{Hold, HoldWrite, LostHold, OthersSpend, Since, SpendKey, SpendNews};
pub use sqlite::{copy_accounts, copy_capture_index, drop_segments_of_copy};
pub use usage_query::{UsageColumn, UsageGroup, UsageOrder, UsageQuery};
pub use usage_sums::{BatchNumber, UsageBatch, UsageInterval};
pub use usage_sums::{UsageKey, UsageSums, usage_interval_start};
pub use users::ChangeUser;

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub mod fixtures;
#[cfg(any(test, feature = "testing"))]
pub use sqlite::fixtures::hold_accounts;
#[cfg(test)]
mod tests;
