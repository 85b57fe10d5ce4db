//! A connection on a thread of its own. Clones share it. Mutations, for which calls wait, pass
//! reads and rows of usage and captures that wait. On the connection of the lease, what the lease
//! needs passes all else.

use std::sync::Arc;
use std::time::Duration;

use super::listen::Listening;
use super::session::{Patience, Session, WRITE};
use super::url::PostgresUrl;
use crate::Result;
use crate::sql::Work;
use crate::worker::Worker;

#[derive(Clone)]
pub(crate) struct Database {
    worker: Arc<Worker<Session>>,
    /// Whether its short statements pass those of other clones.
    is_first: bool,
}

impl Database {
    pub(super) fn of(name: &str, session: Session) -> Result<Self> {
        Ok(Database { worker: Worker::start(name, session)?.into(), is_first: false })
    }

    /// Connects with the first transaction, and hears notifications. `patience` is the longest wait
    /// for an answer. Its short statements pass those of [`Database::behind`].
    pub(crate) fn listening(
        name: &str,
        url: &PostgresUrl,
        patience: Duration,
        listening: Listening,
    ) -> Result<Self> {
        let patience = Patience { answer: patience, retry: patience / 2 };
        let database = Database::of(name, Session::new(url, patience, Some(listening))?)?;
        Ok(Database { is_first: true, ..database })
    }

    /// This connection, for statements that come after those of others.
    pub(crate) fn behind(&self) -> Self {
        Database { is_first: false, ..self.clone() }
    }

    /// Reads a consistent snapshot in one transaction.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.worker.run(move |session| session.read(work)).await
    }

    /// Writes in a transaction of the order of revisions. `after` runs on what is committed.
    pub(crate) async fn write<T, U: Send + 'static>(
        &self,
        work: impl Work<T>,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        self.worker.queue(true, move |session| session.write(work).map(after)).await
    }

    /// Writes in a transaction that does not wait for mutations.
    pub(crate) async fn write_beside<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.worker.queue(self.is_first, move |session| session.write_beside(work)).await
    }

    /// As [`Database::write_beside`], in its turn, after other statements in the same round trip.
    pub(crate) async fn write_after<T: Send + 'static>(
        &self,
        first: String,
        work: impl Work<T>,
    ) -> Result<T> {
        self.worker
            .run(move |session| session.transact(WRITE, session.patience.answer, &first, work))
            .await
    }

    /// See [`Session::one`].
    pub(crate) async fn one<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.worker.queue(self.is_first, move |session| session.one(work)).await
    }
}
