//! PostgreSQL, which several gateways share. Only this folder uses `tokio-postgres`. The database
//! has the tables that SQLite has, and tables of the gateways themselves.

mod backend;
mod connection;
mod database;
mod listen;
mod schema;
mod session;
mod tls;
mod transaction;
mod url;

pub(super) use backend::{fill, look, open};
pub(super) use database::Database;
pub(super) use listen::Listening;
pub(super) use schema::DATABASE_JOIN;
pub(super) use transaction::{PostgresRow, PostgresTransaction, storable};
pub use url::{PostgresUrl, StoreUrlError};

#[cfg(test)]
mod beside_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
#[path = "../../../../tests/support/postgres.rs"]
#[allow(dead_code, unreachable_pub)] // Other tests use the rest.
pub(crate) mod servers;
#[cfg(test)]
mod tests;
