//! The suite of the store on PostgreSQL, and tests that only PostgreSQL needs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use super::database::Database;
use super::servers::{self, Cluster};
use super::session::{Patience, Session};
use super::url::PostgresUrl;
use crate::columns::Columns;
use crate::fixtures::{key, user};
use crate::sql::{NOW, Transaction, params};
use crate::sqlite::tests::SqliteBed;
use crate::steps::{Base, tests::first_step};
use crate::tests::steps::columns_of;
use crate::tests::{Bed, suite};
use crate::{
    BatchNumber, DataDir, Faults, HoldWrite, Opening, Result, Store, StoreError, StoreUrl,
    UsageBatch, UsageInterval, UsageKey, UsageQuery, UsageSums, WrappedRootKey, check_takeover,
    usage_interval_start,
};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{Random, UserId};
use rerouter_base::secret::SecretBytes;

/// A database of the cluster that all tests share.
pub(crate) struct PostgresBed {
    dir: TempDir,
    url: String,
}

impl Database {
    pub(crate) fn start(name: &str, url: &PostgresUrl, answer: Duration) -> Result<Self> {
        Database::of(name, Session::new(url, Patience { answer, retry: answer / 2 }, None)?)
    }
}

impl PostgresBed {
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Another store on a database.
    pub(super) async fn on(url: &str) -> Store {
        let bed = PostgresBed { dir: tempfile::tempdir().unwrap(), url: url.to_owned() };
        let store = bed.open().await;
        let _kept = bed.dir.keep();
        store
    }
}

impl Bed for PostgresBed {
    const BASE: Base = Base::Postgres;

    async fn batch(&self, statements: &str) {
        servers::run(&self.url, statements).await;
    }

    async fn check_takeover(&self) -> Result<()> {
        let (url, dir) = (StoreUrl::parse(&self.url).unwrap(), self.dir.path().to_owned());
        tokio::task::spawn_blocking(move || check_takeover(&url, &dir)).await.unwrap()
    }

    async fn new() -> Self {
        let url = Cluster::shared().database().await;
        PostgresBed { dir: tempfile::tempdir().unwrap(), url }
    }

    async fn unlock<T: Send + 'static>(
        &self,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T)> + Send + 'static,
    ) -> Result<(Store, T)> {
        let url = StoreUrl::parse(&self.url).unwrap();
        Store::open_at(DataDir::take(self.dir.path()).unwrap(), &url, unlock).await
    }
}

mod promises {
    super::suite!(crate::postgres::tests::PostgresBed);
}

pub(super) const PATIENCE: Patience =
    Patience { answer: Duration::from_secs(2), retry: Duration::from_millis(100) };

/// Runs `work` on a session with a database, on a thread that may block.
pub(super) async fn session<T: Send + 'static>(
    url: &str,
    work: impl FnOnce(&mut Session) -> T + Send + 'static,
) -> T {
    let target = PostgresUrl::parse(url).unwrap();
    let run = move || work(&mut Session::new(&target, PATIENCE, None).unwrap());
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn one(transaction: &Transaction<'_>) -> Result<Option<i64>> {
    transaction.int("SELECT 1", &[])
}

#[tokio::test]
async fn ten_stores_that_open_an_empty_database_at_once_make_one_schema_and_one_root_key() {
    let url = Cluster::shared().database().await;
    let random = Random::seeded(1);
    let open = async |number: u8| {
        let dir = tempfile::tempdir().unwrap();
        let unlock = move |opening: &Opening<'_>| {
            if opening.root_key()?.is_none() {
                let wrapped = vec![number];
                opening.put_root_key(&WrappedRootKey { generation: 1, wrapped })?;
            }
            Ok::<_, StoreError>((SecretBytes::new([5; 32]), opening.root_key()?))
        };
        let url = StoreUrl::parse(&url).unwrap();
        let opened = Store::open_at(DataDir::take(dir.path()).unwrap(), &url, unlock).await;
        (dir, opened.unwrap())
    };
    let opened = join_all((0..10).map(open)).await;
    let keys: Vec<_> = opened.iter().map(|(_, (_, root_key))| root_key.clone()).collect();
    assert!(keys[0].is_some() && keys.iter().all(|root_key| *root_key == keys[0]), "{keys:?}");
    let (first, last) = (&opened[0].1.0, &opened[9].1.0);
    let ann = user("a@b.c", &random);
    first.create_user(ann.clone()).await.unwrap();
    assert_eq!(last.load().await.unwrap().users, [ann]);
    let steps = servers::run(&url, "SELECT number FROM schema_steps").await;
    assert_eq!(steps.len(), 1, "{steps:?}");
}

fn usage_of(user: &str, recipe: &str) -> UsageKey {
    UsageKey {
        at: usage_interval_start(at(0)),
        user: UserId::known(user),
        key: None,
        model: None,
        alias: None,
        recipe: recipe.into(),
        rule: None,
        replay: false,
    }
}

/// A batch whose answer was lost is written again, then another batch is written: by day and by
/// hour.
#[tokio::test]
async fn a_batch_of_usage_that_is_written_again_counts_once() {
    let bed = PostgresBed::new().await;
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    let batch = |writer, number, requests| {
        let sums = UsageSums { requests, ..UsageSums::default() };
        let number = Some(BatchNumber { writer, number });
        UsageBatch { sums: vec![(usage_of("usr_a", "main"), sums)], number }
    };
    let total = async |interval| {
        let query = UsageQuery { interval, until: i64::MAX, limit: 1, ..UsageQuery::default() };
        store.usage(query).await.unwrap()[0].own.requests
    };
    for (wanted, batch) in
        [(1, batch(7, 1, 1)), (3, batch(7, 2, 2)), (7, batch(8, 1, 4)), (15, batch(7, 3, 8))]
    {
        faults.lose_answers(1);
        store.write_usage(batch.clone()).await.unwrap_err();
        faults.fail_writes(1);
        store.write_usage(batch.clone()).await.unwrap_err();
        store.write_usage(batch.clone()).await.unwrap();
        assert_eq!(total(UsageInterval::Day).await, wanted);
        // The sums by hour are batches of another writer.
        let number = batch.number.map(|number| BatchNumber { writer: -number.writer, ..number });
        let recent = UsageBatch { number, ..batch };
        faults.lose_answers(1);
        store.write_recent_usage(recent.clone()).await.unwrap_err();
        store.write_recent_usage(recent).await.unwrap();
        assert_eq!(total(UsageInterval::Hour).await, wanted);
    }
    let of_days = "SELECT writer, number FROM usage_batches WHERE writer > 0 ORDER BY writer";
    assert_eq!(servers::run(&bed.url, of_days).await, ["7|3", "8|1"]);
    // The numbers of processes that ended long ago are deleted.
    let old = "UPDATE usage_batches SET at = at - 41 * 86400000000::bigint WHERE writer <> 7";
    servers::run(&bed.url, old).await;
    store.trim_spend(crate::Since::default(), 0).await.unwrap();
    assert_eq!(servers::run(&bed.url, "SELECT writer FROM usage_batches").await, ["7"]);
}

#[tokio::test]
async fn a_hold_whose_answer_was_lost_is_held_once() {
    let bed = PostgresBed::new().await;
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    for holder in [1, 2] {
        store.open_holder(holder).await.unwrap();
    }
    let write = async |holder, spent, held, least| {
        let key = ("key_1".to_owned(), 20_261_101);
        let hold = HoldWrite { key, spent, estimated: 0, held, least, budget: 100 };
        let written = store.write_holds(holder, vec![hold]).await?.unwrap();
        Ok::<_, StoreError>((written[0].held, written[0].others.total()))
    };
    faults.lose_answers(2);
    write(1, 0, 60, 0).await.unwrap_err();
    write(1, 0, 70, 0).await.unwrap_err();
    // The one who asked knows of nothing.
    assert_eq!(write(1, 0, 50, 0).await.unwrap(), (50, 0));
    assert_eq!(write(2, 0, 60, 0).await.unwrap(), (50, 50));
    // What it spends and gives back, though nobody hears of it.
    faults.lose_answers(1);
    write(1, 10, 5, 5).await.unwrap_err();
    assert_eq!(write(2, 0, 90, 5).await.unwrap(), (85, 15));
    write(1, 10, 0, 0).await.unwrap();
    faults.lose_answers(1);
    store.close_holder(1).await.unwrap_err();
    store.close_holder(1).await.unwrap();
    assert_eq!(write(2, 0, 100, 0).await.unwrap(), (90, 10));
}

#[tokio::test]
async fn a_migration_waits_for_a_backup_and_renewals_do_not_wait_for_it() {
    let bed = PostgresBed::new().await;
    bed.batch(&first_step(Base::Postgres)).await;
    // Holds the lock that pg_dump takes.
    let dump = "BEGIN; LOCK TABLE gateways IN ACCESS SHARE MODE; SELECT pg_sleep(3); COMMIT";
    let url = bed.url.clone();
    let dump = tokio::spawn(async move { servers::run(&url, dump).await });
    let held = "SELECT count(*) FROM pg_locks
        WHERE mode = 'AccessShareLock' AND relation = 'gateways'::regclass";
    while servers::run(&bed.url, held).await != ["1"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let renews = async {
        while !dump.is_finished() {
            servers::run(&bed.url, "SET lock_timeout = '2s'; UPDATE gateways SET fenced = 0").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (store, ()) = tokio::join!(bed.open(), renews);
    assert!(store.healthy().await);
}

#[tokio::test]
async fn the_schema_before_the_first_step_comes_forward_too() {
    let bed = PostgresBed::new().await;
    bed.batch(&first_step(Base::Postgres)).await;
    bed.batch("UPDATE schema_versions SET number = 9").await;
    bed.batch("ALTER TABLE gateways DROP COLUMN clock_ahead").await;
    drop(bed.open().await);
    bed.batch("UPDATE gateways SET clock_ahead = 1").await;
    let bed = PostgresBed::new().await;
    bed.batch(&first_step(Base::Postgres)).await;
    bed.batch("UPDATE schema_versions SET number = 8").await;
    let refused = bed.unlock(|_| Ok((SecretBytes::new([5; 32]), ()))).await.map(|_| ());
    assert!(matches!(refused, Err(StoreError::OtherSchema { found: 8, .. })), "{refused:?}");
}

/// A migration copies rows by the positions of their columns.
#[tokio::test]
async fn the_tables_of_accounts_are_those_of_sqlite() {
    let (postgres, sqlite) = (PostgresBed::new().await, SqliteBed::new().await);
    let (postgres, sqlite) = (postgres.open().await, sqlite.open().await);
    // `state` is not copied: in PostgreSQL writes of spend are numbered by their transactions.
    let tables = "SELECT name FROM sqlite_master
        WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'state'";
    let of_sqlite = move |transaction: &Transaction<'_>| {
        let names = transaction.rows(tables, &[], |row| Columns::new(row).get::<String>())?;
        names
            .into_iter()
            .map(|name| Ok((columns_of(transaction, &name)?, name)))
            .collect::<Result<Vec<_>>>()
    };
    let all = sqlite.read(of_sqlite).await.unwrap();
    assert!(all.len() > 10);
    let compare = move |transaction: &Transaction<'_>| {
        for (columns, name) in &all {
            assert_eq!(columns_of(transaction, name)?, *columns, "{name}");
        }
        Ok(())
    };
    postgres.read(compare).await.unwrap();
}

/// A step that gateways cannot work with waits until none has a lease.
#[tokio::test]
async fn tables_are_not_changed_below_a_gateway_that_could_not_go_on() {
    let bed = PostgresBed::new().await;
    bed.batch(&first_step(Base::Postgres)).await;
    bed.batch(&format!(
        "INSERT INTO gateways VALUES
         ('gw_1', '', '', '', '', '', 0, 0, 0, 0, 0, {NOW}, '', '', 2000000, 0)"
    ))
    .await;
    let began = Instant::now();
    let store = bed.open().await;
    assert!(began.elapsed() > Duration::from_millis(1_900), "{:?}", began.elapsed());
    assert!(store.healthy().await);
}

#[tokio::test]
async fn writes_of_all_stores_are_one_after_the_other() {
    let url = Cluster::shared().database().await;
    let parsed = StoreUrl::parse(&url).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
    let [first, second] = dirs
        .each_ref()
        .map(|dir| Store::open_at(DataDir::take(dir.path()).unwrap(), &parsed, unlock));
    let (first, second) = join(first, second).await;
    let stores = [first.unwrap().0, second.unwrap().0];
    let random = Random::seeded(2);
    // A taken name is found by a query, so one of two creations must see the other.
    for round in 0..20 {
        let email = format!("{round}@b.c");
        let [a, b] = stores.each_ref().map(|store| store.create_user(user(&email, &random)));
        let (a, b) = join(a, b).await;
        let (made, refused) = if a.is_ok() { (a, b) } else { (b, a) };
        assert!(made.is_ok() && matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    }
    let owner = user("owner@b.c", &random);
    stores[0].create_user(owner.clone()).await.unwrap();
    let keys: Vec<_> = (0..30).map(|_| key(&owner.id, &random)).collect();
    let made = keys.iter().enumerate();
    let made = made.map(|(at, key)| stores[at % 2].create_key(key.clone()));
    let mut revisions: Vec<u64> =
        join_all(made).await.into_iter().map(|made| made.unwrap().rev).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (22..52).collect::<Vec<_>>());
    assert_eq!(stores[1].load().await.unwrap().rev, 51);
}

#[tokio::test]
async fn a_transaction_with_a_failed_statement_is_not_told_as_committed() {
    let url = Cluster::shared().database().await;
    let done = session(&url, |session| {
        session.write_beside(|transaction| {
            transaction.execute("CREATE TABLE t (n BIGINT)", &[])?;
            // The caller ignores the error.
            let _ignored = transaction.execute("INSERT INTO missing VALUES (1)", &[]);
            Ok::<_, StoreError>(())
        })?;
        session.read(one)
    });
    assert!(matches!(done.await, Err(StoreError::Unavailable(_))));
    let tables = servers::run(&url, "SELECT count(*) FROM pg_tables WHERE tablename = 't'").await;
    assert_eq!(tables, ["0"]);
}

#[tokio::test]
async fn a_panic_in_a_transaction_undoes_it() {
    let url = Cluster::shared().database().await;
    servers::run(&url, "CREATE TABLE t (n BIGINT)").await;
    let done = session(&url, |session| {
        let panics = std::panic::AssertUnwindSafe(|| {
            session.write_beside(|transaction| -> Result<()> {
                transaction.execute("INSERT INTO t VALUES (1)", &[])?;
                panic!("on demand")
            })
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        session.read(|transaction| transaction.int("SELECT count(*) FROM t", &[]))
    });
    assert_eq!(done.await.unwrap(), Some(0));
}

#[tokio::test]
async fn values_of_each_type_come_back_as_they_were() {
    let url = Cluster::shared().database().await;
    let done = session(&url, |session| {
        session.write_beside(|transaction| {
            let table = "CREATE TABLE t (n BIGINT, t TEXT, b BYTEA)";
            transaction.execute(table, &[])?;
            let insert = "INSERT INTO t VALUES (?1, ?2, ?3)";
            let (blob, none) = (vec![0_u8, 255], None::<i64>);
            transaction.execute(insert, &params![i64::MIN, "ä\0'?1", blob])?;
            assert_eq!(transaction.execute(insert, &params![none, none, none])?, 1);
            transaction.rows("SELECT * FROM t", &[], |row| {
                Ok((row.int(0)?, row.text(1)?.map(str::to_owned), row.blob(2)?.map(<[u8]>::to_vec)))
            })
        })
    });
    let rows: Vec<_> = done.await.unwrap();
    let first = (Some(i64::MIN), Some("ä\u{fffd}'?1".to_owned()), Some(vec![0, 255]));
    assert_eq!(rows, [first, (None, None, None)]);
    let truths = session(&url, |session| {
        session.read(|transaction| transaction.int("SELECT EXISTS (SELECT 1 FROM t)", &[]))
    });
    assert_eq!(truths.await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_lost_connection_is_made_again_without_an_error() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let random = Random::seeded(3);
    store.create_user(user("a@b.c", &random)).await.unwrap();
    assert_eq!(store.audit(Default::default(), 1, None).await.unwrap(), Some(vec![]));
    let others = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(servers::run(&bed.url, others).await.len(), 1, "one connection");
    store.create_user(user("d@e.f", &random)).await.unwrap();
    assert_eq!(store.audit(Default::default(), 1, None).await.unwrap(), Some(vec![]));
    assert!(store.healthy().await);
}

/// A proxy to the database that can be cut, as a network is: nothing is refused, and nothing
/// arrives.
struct Way {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Way {
    async fn to(port: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_cut = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (client, server) = (Arc::new(client), Arc::new(server));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    tokio::spawn(pump(Arc::clone(from), Arc::clone(to), Arc::clone(&is_cut)));
                }
            }
        });
        Way { address, cut }
    }
}

async fn pump(from: Arc<TcpStream>, to: Arc<TcpStream>, is_cut: Arc<AtomicBool>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        from.readable().await?;
        let count = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() && !is_cut.load(Ordering::Acquire) {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_told_in_time_and_used_again() {
    let cluster = Cluster::shared();
    let url = cluster.database().await;
    let way = Way::to(cluster.port()).await;
    let url = url.replace(&cluster.port().to_string(), &way.address.port().to_string());
    let cut = Arc::clone(&way.cut);
    let done = session(&url, move |session| {
        assert_eq!(session.read(one).unwrap(), Some(1));
        cut.store(true, Ordering::Release);
        let start = Instant::now();
        assert!(matches!(session.read(one), Err(StoreError::Unavailable(_))));
        let first = start.elapsed();
        // The next try connects anew and fails. Then no try is made for a while.
        assert!(matches!(session.read(one), Err(StoreError::Unavailable(_))));
        let start = Instant::now();
        assert!(matches!(session.read(one), Err(StoreError::Unavailable(_))));
        let put_off = start.elapsed();
        cut.store(false, Ordering::Release);
        while session.read(one).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "it is used again");
        }
        (first, put_off)
    });
    let (first, put_off) = done.await;
    assert!(first < PATIENCE.answer * 2, "{first:?}");
    assert!(put_off < PATIENCE.answer / 2, "{put_off:?}");
}

#[tokio::test]
async fn a_server_that_connects_and_says_nothing_is_passed_over() {
    let cluster = Cluster::shared();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = cluster.database().await;
    let both = url.replace("@", &format!("@127.0.0.1:{port},"));
    assert_ne!(both, url);
    assert_eq!(session(&both, |session| session.read(one).unwrap()).await, Some(1));
    drop(silent);
}

#[tokio::test]
async fn who_stops_in_a_write_holds_up_others_for_a_short_time_only() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let (url, random) = (bed.url.clone(), Random::seeded(4));
    let (held, holds) = tokio::sync::oneshot::channel();
    let stopped = tokio::spawn(async move {
        session(&url, |session| {
            session.write(|transaction| {
                held.send(()).unwrap();
                std::thread::park_timeout(Duration::from_secs(5));
                one(transaction)
            })
        })
        .await
    });
    holds.await.unwrap();
    let start = Instant::now();
    store.create_user(user("a@b.c", &random)).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(stopped.await.unwrap().is_err(), "the server ended it");
}

#[tokio::test]
async fn an_error_quotes_no_value_and_no_password() {
    let url = Cluster::shared().database().await;
    let told = session(&url, |session| {
        let failed = session.write_beside(|transaction| {
            transaction.execute("CREATE TABLE t (n TEXT UNIQUE)", &[])?;
            let insert = "INSERT INTO t VALUES (?1)";
            transaction.execute(insert, &params!["value-canary"])?;
            transaction.execute(insert, &params!["value-canary"])
        });
        let missing = session.read(|transaction| transaction.int("SELECT missing", &[]));
        format!("{:?} {:?}", failed.unwrap_err(), missing.unwrap_err())
    });
    let told = told.await;
    assert!(told.contains("23505") && told.contains("42703"), "{told}");
    let nowhere = url.replace("/test_", "/nowhere_");
    let unknown = session(&nowhere, |session| session.read(one).unwrap_err().to_string()).await;
    assert!(unknown.contains("3D000"), "{unknown}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = format!("postgres://u:password-canary@127.0.0.1:{port}/db");
    let refused = session(&closed, |session| session.read(one).unwrap_err().to_string()).await;
    assert!(refused.contains("refused"), "{refused}");
    for told in [told, unknown, refused] {
        assert!(!told.contains("canary"), "{told}");
    }
}

#[tokio::test]
async fn audit_rows_are_only_added() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let row = "INSERT INTO audit
        (id, at, actor_type, actor, action, target_type, target)
        VALUES ('aud_1', 0, 'operator', 'o', 'key.create', 'key', 'key_1')";
    servers::run(&bed.url, row).await;
    for statement in ["UPDATE audit SET at = 1", "DELETE FROM audit", "TRUNCATE audit"] {
        let url = bed.url.clone();
        let refused = session(&url, move |session| {
            session.write_beside(|transaction| transaction.execute(statement, &[]))
        });
        let told = refused.await.unwrap_err().to_string();
        assert!(told.contains("only added"), "{statement}: {told}");
    }
    assert_eq!(store.trim_audit(at(10), 100).await.unwrap(), 1, "the retention may");
}
