//! Connections to PostgreSQL, and what its errors mean.

use std::error::Error as _;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::PostgresUrl;
use crate::{Result, StoreError};

/// The half of a connection that talks to the socket. It must be polled for the client to work.
pub(crate) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Connects to the first server that accepts writes.
pub(crate) async fn connect(url: &PostgresUrl, patience: Duration) -> Result<(Client, Wire)> {
    let until = Instant::now() + patience;
    let mut failed = StoreError::unavailable("no server is named");
    for (index, left) in (0..url.servers()).zip((1..=url.servers()).rev()) {
        // An equal part of the remaining time: a server that fails at once leaves its part to the
        // others.
        let time = until.saturating_duration_since(Instant::now()) / left;
        let server = url.server(index, time);
        match answered(time, server.connect(url.tls.clone())).await {
            Ok(connected) => return Ok(connected),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Waits for an answer. If none comes in time, the connection must not be used again.
pub(crate) async fn answered<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let answer = timeout(patience, answer).await;
    Ok(answer.map_err(|_| StoreError::unavailable("PostgreSQL does not answer"))??)
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let told = describe(&error);
        match error.code() {
            Some(&SqlState::DISK_FULL) => StoreError::Full(told),
            Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
                StoreError::Damaged(told)
            }
            _ => StoreError::Unavailable(told),
        }
    }
}

/// The error with its causes. The details of an error of the server are left out: they quote rows.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("PostgreSQL: {} ({})", error.message(), error.code().code());
    }
    let (mut told, mut cause) = (format!("PostgreSQL: {error}"), error.source());
    while let Some(error) = cause {
        // Writing to a string does not fail.
        let _ = write!(told, ": {error}");
        cause = error.source();
    }
    told
}
