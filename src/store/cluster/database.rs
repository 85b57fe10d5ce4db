//! A connection of its own for one task, on a thread of its own: no other work delays a lease.

use std::time::Duration;

use crate::store::StoreError;
use crate::store::postgres::{Patience, PostgresTarget, Session};
use crate::store::sql::Transaction;
use crate::store::worker::Worker;

pub(super) struct Database(Worker<Session>);

impl Database {
    /// Connects with the first transaction. `patience` is the longest wait for an answer.
    pub(super) fn start(
        name: &str,
        target: &PostgresTarget,
        patience: Duration,
    ) -> Result<Self, StoreError> {
        let session = Session::new(target, Patience { answer: patience, retry: patience / 2 })?;
        Ok(Database(Worker::start(name, session)?))
    }

    /// Reads in a transaction, all of one moment.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.run(move |session| session.read(work)).await
    }

    /// Writes in a transaction that waits for no mutation.
    pub(super) async fn write_beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.run(move |session| session.write_beside(work)).await
    }
}
