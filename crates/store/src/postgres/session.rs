//! One connection with its transactions, for a thread that may block. The next transaction replaces
//! a lost connection. While the server cannot be reached, transactions fail at once until it is
//! time for another try.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio_postgres::Client;

use super::connection::{answered, connect};
use super::listen::{Listening, drive};
use super::transaction::PostgresTransaction;
use super::url::PostgresUrl;
use crate::sql::Transaction;
use crate::{Result, StoreError};
use rerouter_base::id::Random;

/// How long PostgreSQL waits for the next statement of a transaction before it ends the
/// transaction: a gateway that was stopped must not hold the lock that all writes take.
const DATABASE_IDLE: Duration = Duration::from_secs(2);
/// First wait before another try to connect to PostgreSQL; it doubles.
pub(super) const DATABASE_RETRY: Duration = Duration::from_millis(50);

/// The mode of a transaction that writes: each statement sees what is committed.
pub(super) const WRITE: &str = "READ COMMITTED, READ WRITE";
/// The mode of a transaction that reads: all statements see the same snapshot.
const READ: &str = "REPEATABLE READ, READ ONLY";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Longest wait for a connection, and for each answer. The server gives up earlier, so that its
    /// reason is known.
    pub(crate) answer: Duration,
    /// Longest wait between two tries to connect.
    pub(crate) retry: Duration,
}

pub(crate) struct Session {
    runtime: Runtime,
    url: PostgresUrl,
    pub(super) patience: Patience,
    /// None while there is no connection, or one that cannot be used again.
    client: Option<Client>,
    listening: Option<Listening>,
    failures: u32,
    /// When another try to connect is due, and why the last one failed.
    due: Option<(Instant, String)>,
}

impl Session {
    /// A session that connects with its first transaction. If it hears notifications, a thread of
    /// its own talks to the socket.
    pub(crate) fn new(
        url: &PostgresUrl,
        patience: Patience,
        listening: Option<Listening>,
    ) -> Result<Self> {
        let mut builder = match listening {
            None => Builder::new_current_thread(),
            Some(_) => Builder::new_multi_thread(),
        };
        builder.worker_threads(1).thread_name("store-listener").enable_all();
        let runtime = builder.build().map_err(StoreError::unavailable)?;
        let url = url.clone();
        Ok(Session { runtime, url, patience, client: None, listening, failures: 0, due: None })
    }

    pub(super) fn set_patience(&mut self, patience: Patience) -> Result<()> {
        self.patience = patience;
        self.client.as_ref().map_or(Ok(()), |client| self.simple(client, &self.limits()))
    }

    /// Runs `work` in a transaction that writes, which commits if it succeeds. These transactions
    /// run one after the other for all gateways, because each first locks the row of the revision.
    /// Each sees what earlier ones wrote, none deadlocks, and their order is that of their commits.
    pub(crate) fn write<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(WRITE, self.patience.answer, "SELECT rev FROM state FOR UPDATE", work)
    }

    /// Runs `work` in a transaction that writes, and does not wait for those of [`Session::write`].
    /// No statement of it may wait for a row that they lock, while it has locked such a row.
    pub(crate) fn write_beside<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(WRITE, self.patience.answer, "", work)
    }

    /// Runs `work` in a transaction that reads a consistent snapshot. A long result may take longer
    /// than one answer.
    pub(crate) fn read<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(READ, self.patience.answer * 6, "", work)
    }

    /// Runs `work` without a transaction of its own: each of its statements commits alone. One that
    /// writes may be sent again after a lost answer, so that must change nothing.
    pub(crate) fn one<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let client = self.open_client()?;
        let statements = PostgresTransaction::new(&self.runtime, &client, self.patience.answer);
        let failed = statements.failed();
        let done = work(&Transaction::Postgres(statements));
        // A connection that did not answer must not be used again.
        self.client = (!failed.get()).then_some(client);
        done
    }

    /// Runs `work` in a transaction of this mode, whose first statements are `first`. A statement
    /// of it may take about `time`.
    pub(super) fn transact<T, E: From<StoreError>>(
        &mut self,
        mode: &str,
        time: Duration,
        first: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // These settings end with the transaction: another client of a pooled connection does not
        // get them. A gateway that stops in a transaction must not hold its locks for long.
        let begin = format!(
            "START TRANSACTION ISOLATION LEVEL {mode};
             SELECT set_config('lock_timeout', '{}', true),
               set_config('statement_timeout', '{}', true),
               set_config('idle_in_transaction_session_timeout', '{}', true);
             {first}",
            self.patience.answer.as_millis() / 2,
            time.as_millis() * 4 / 5,
            DATABASE_IDLE.as_millis(),
        );
        // If `work` panics, the connection is dropped, and with it the transaction.
        let client = self.open_client()?;
        self.simple(&client, &begin)?;
        let statements = PostgresTransaction::new(&self.runtime, &client, self.patience.answer);
        let failed = statements.failed();
        let done = work(&Transaction::Postgres(statements));
        let end = match &done {
            // PostgreSQL would answer a COMMIT after a failed statement without an error.
            Ok(_) if failed.get() => Err(StoreError::unavailable("a statement failed")),
            Ok(_) => self.simple(&client, "COMMIT"),
            Err(_) => self.simple(&client, "ROLLBACK"),
        };
        self.client = end.is_ok().then_some(client);
        done.and_then(|done| end.map(|()| done).map_err(E::from))
    }

    /// Waits on this thread.
    pub(super) fn pause(&self, time: Duration) {
        self.runtime.block_on(tokio::time::sleep(time));
    }

    /// The connection, or a new one if the server is known to have ended it.
    fn open_client(&mut self) -> Result<Client> {
        if let Some(client) = self.client.take() {
            // The task that talks to the socket has its turn.
            self.runtime.block_on(async {
                yield_now().await;
                yield_now().await;
                yield_now().await;
            });
            if !client.is_closed() {
                return Ok(client);
            }
        }
        self.connect()
    }

    fn connect(&mut self) -> Result<Client> {
        if let Some((due, why)) = &self.due
            && Instant::now() < *due
        {
            return Err(StoreError::Unavailable(why.clone()));
        }
        match self.runtime.block_on(connect(&self.url, self.patience.answer)) {
            Ok((client, wire)) => {
                // This task ends with the client, or with the connection; the client then reports
                // the loss.
                self.runtime.spawn(drive(wire, self.listening.clone()));
                let listen = self.listening.as_ref().map(Listening::statements).unwrap_or_default();
                self.simple(&client, &(self.limits() + &listen))?;
                // Earlier notifications are lost.
                self.listening.iter().for_each(Listening::wake_all);
                (self.failures, self.due) = (0, None);
                Ok(client)
            }
            Err(error) => {
                self.put_off(&error);
                Err(error)
            }
        }
    }

    /// Sets limits of time for statements without a transaction. While it waits for a lock,
    /// PostgreSQL does not notice that its client is gone.
    fn limits(&self) -> String {
        if self.url.is_pooled {
            return String::new();
        }
        let answer = self.patience.answer.as_millis();
        format!("SET lock_timeout = {}; SET statement_timeout = {};", answer / 2, answer * 4 / 5)
    }

    /// Sets when another try is due: twice as late after each failure, and jittered, so that
    /// gateways do not come back all at once.
    fn put_off(&mut self, error: &StoreError) {
        let wait = DATABASE_RETRY.saturating_mul(1 << self.failures.min(10));
        let jitter = 0.5 + 0.5 * (Random::System.next_u64() as f64 / u64::MAX as f64);
        self.failures = self.failures.saturating_add(1);
        let due = Instant::now() + wait.min(self.patience.retry).mul_f64(jitter);
        let why = match error {
            StoreError::Unavailable(why) => why.clone(),
            other => other.to_string(),
        };
        self.due = Some((due, why));
    }

    /// Runs statements that have no parameters and return no rows, in one round trip.
    fn simple(&self, client: &Client, statements: &str) -> Result<()> {
        self.runtime.block_on(answered(self.patience.answer, client.batch_execute(statements)))
    }
}
