//! Which database holds the accounts, and what gateways that share one agree on.

use std::time::Duration;

use super::postgres::{PostgresTarget, TargetError};

/// The section `store` of the server document.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    pub url: StoreUrl,
    /// The server itself, where `url` is that of a pooler.
    pub direct_url: Option<PostgresTarget>,
    /// How long a gateway may serve without hearing from the database.
    pub lease: Duration,
    pub on_lease_lost: OnLeaseLost,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            url: StoreUrl::Sqlite,
            direct_url: None,
            lease: Duration::from_secs(10),
            on_lease_lost: OnLeaseLost::Refuse,
        }
    }
}

/// The database of accounts.
#[derive(Clone, Debug)]
pub enum StoreUrl {
    /// In the data directory, for this gateway only.
    Sqlite,
    /// Shared by gateways.
    Postgres(PostgresTarget),
}

impl StoreUrl {
    /// Reads `sqlite`, or the URL of a PostgreSQL database.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        match text {
            "sqlite" => Ok(StoreUrl::Sqlite),
            url if PostgresTarget::is_url(url) => {
                PostgresTarget::parse(url).map(StoreUrl::Postgres)
            }
            _ => Err(TargetError::Url(
                "must be `sqlite` or `postgres://user:password@host/database`",
            )),
        }
    }
}

/// What a gateway does that has lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLeaseLost {
    /// It answers 503 until it has another one: what is revoked is dead everywhere.
    Refuse,
    /// It goes on with what it knows. A change may be unknown to it.
    ServeStale,
}
