//! A separate connection for one task, on a separate thread, so that no other work delays it.

use std::time::Duration;

use super::session::{Patience, Session};
use super::url::PostgresUrl;
use crate::Result;
use crate::sql::{Transaction, Work};
use crate::worker::Worker;

pub(crate) struct Database(Worker<Session>);

impl Database {
    /// Connects with the first transaction. `patience` is the longest wait for an answer.
    pub(crate) fn start(name: &str, url: &PostgresUrl, patience: Duration) -> Result<Self> {
        let session = Session::new(url, Patience { answer: patience, retry: patience / 2 })?;
        Ok(Database(Worker::start(name, session)?))
    }

    /// Writes once, on a connection that is closed afterwards. Blocking.
    pub(crate) fn once<T>(
        url: &PostgresUrl,
        patience: Duration,
        work: impl FnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let patience = Patience { answer: patience, retry: patience };
        Session::new(url, patience)?.write(work)
    }

    /// Reads a consistent snapshot in one transaction.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.0.run(move |session| session.read(work)).await
    }

    /// Writes in a transaction that does not wait for mutations.
    pub(crate) async fn write_beside<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.0.run(move |session| session.write_beside(work)).await
    }
}
