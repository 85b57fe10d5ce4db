//! Settings of the store: which database holds the accounts, and the lease of gateways that share
//! one.

use std::time::Duration;

use super::postgres::{PostgresUrl, StoreUrlError};
use rerouter_document::kinds::{duration_in, text_as, words, written};
use rerouter_document::{Diagnostics, Section, ValueKind, section};

section! {
    /// The section `store` of the server document.
    #[derive(Clone, Debug)]
    pub struct StoreSettings: Default {
        /// Accounts, keys, documents, audit: `sqlite`, in the data directory, or
        /// [`postgres://…`](#postgresql).
        pub url: StoreUrl = written(
            database("^(sqlite$|postgres(ql)?://)", StoreUrl::parse),
            |_| "sqlite".to_owned(),
        ), or StoreUrl::Sqlite;
        /// The server itself, where `store.url` is a transaction pooler; default: `store.url`.
        pub direct_url: Option<PostgresUrl> =
            database("^postgres(ql)?://", PostgresUrl::parse);
        /// With PostgreSQL: how long a gateway serves without hearing from it; from 500ms to 10m.
        // A shorter lease would be lost with each pause of a busy machine. With a longer lease, a
        // revocation waits that long for a gateway that has gone.
        pub lease: Duration =
            duration_in(Duration::from_millis(500), Duration::from_secs(600)),
            or Duration::from_secs(10);
        /// Without a lease `refuse`: 503; or `serve_stale`: goes on with what it knows.
        pub on_lease_lost: OnLeaseLost = words([
            ("refuse", OnLeaseLost::Refuse),
            ("serve_stale", OnLeaseLost::ServeStale),
        ]), or OnLeaseLost::Refuse;
    }
    check is_checked
}

impl StoreSettings {
    fn is_checked(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        if let (StoreUrl::Postgres(url), Some(_)) = (&mut self.url, &self.direct_url) {
            url.is_pooled = true;
        }
        if let (StoreUrl::Postgres(url), Some(field)) = (&self.url, section.take("url"))
            && url.is_exposed()
        {
            let warning = field.fault("the database's certificate and name are not checked");
            let hint = "use `sslmode=verify-full` unless the network is yours";
            faults.warnings.push(warning.hint(Some(hint)));
        }
    }
}

fn database<T>(
    pattern: &'static str,
    parse: fn(&str) -> Result<T, StoreUrlError>,
) -> impl ValueKind<Value = T> {
    text_as(pattern, move |field, faults| {
        match parse(field.text(faults)?) {
            Ok(found) => return Some(found),
            Err(StoreUrlError::Url(why)) => {
                field.reject(faults, why, "see docs/reference/server-document.md");
            }
            Err(StoreUrlError::Machine(why)) => {
                let hint = "the path of a PEM file of certificates";
                faults.push_local(field.fault(why).hint(Some(hint)));
            }
        }
        None
    })
}

#[derive(Clone, Debug)]
pub enum StoreUrl {
    /// In the data directory, for this gateway only.
    Sqlite,
    /// Shared by gateways.
    Postgres(PostgresUrl),
}

impl StoreUrl {
    /// Reads `sqlite`, or the URL of a PostgreSQL database.
    pub fn parse(text: &str) -> Result<Self, StoreUrlError> {
        match text {
            "sqlite" => Ok(StoreUrl::Sqlite),
            url if PostgresUrl::is_url(url) => PostgresUrl::parse(url).map(StoreUrl::Postgres),
            _ => Err(StoreUrlError::Url(
                "must be `sqlite` or `postgres://user:password@host/database`",
            )),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLeaseLost {
    /// It answers 503 until it has a lease again, so that a revoked key works nowhere.
    Refuse,
    /// It continues with what it knows. It may miss changes.
    ServeStale,
}
