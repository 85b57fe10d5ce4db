//! Tests of SQLite beside the suite: the files of the store, and how they are searched.

use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;

use crate::audit_query::{LAST, OF_TIME, conditions, select};
use crate::audit_retention::{DELETE_FIRST, DELETE_OLD, HAS_FIRST, HAS_OLD};
use crate::fixtures::{self, user};
use crate::sql::Transaction;
use crate::steps::Base;
use crate::tests::{Bed, suite};
use crate::{
    Action, Actor, AuditFilter, DataDir, Event, Faults, Opening, Result, Store, StoreError,
    StoreUrl, WrappedRootKey, check_takeover, inspect,
};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::Random;
use rerouter_base::secret::SecretBytes;

/// A data directory.
pub(crate) struct SqliteBed(TempDir);

impl Bed for SqliteBed {
    const BASE: Base = Base::Accounts;

    async fn new() -> Self {
        SqliteBed(tempfile::tempdir().unwrap())
    }

    async fn batch(&self, statements: &str) {
        let file = Connection::open(self.0.path().join("accounts.db")).unwrap();
        file.execute_batch(statements).unwrap();
    }

    async fn check_takeover(&self) -> Result<()> {
        check_takeover(&StoreUrl::Sqlite, self.0.path())
    }

    async fn unlock<T: Send + 'static>(
        &self,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T)> + Send + 'static,
    ) -> Result<(Store, T)> {
        Store::open_in(DataDir::take(self.0.path())?, unlock).await
    }
}

mod promises {
    super::suite!(crate::sqlite::tests::SqliteBed);
}

async fn refused(dir: &Path) -> StoreError {
    match Store::open(dir).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn an_unknown_schema_and_a_second_process_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path()).await.unwrap();
    assert!(matches!(refused(dir.path()).await, StoreError::Locked(_)));
    drop(first);
    let file = dir.path().join("accounts.db");
    Connection::open(&file).unwrap().execute_batch("DROP TABLE schema_steps").unwrap();
    // Builds from before the migration steps wrote a version number here.
    for schema in [1, 14, 20, 99] {
        Connection::open(&file).unwrap().pragma_update(None, "user_version", schema).unwrap();
        let error = refused(dir.path()).await;
        assert!(matches!(error, StoreError::OtherSchema { found, .. } if found == schema));
        assert!(error.to_string().contains(&format!("schema {schema},")), "{error}");
    }
}

#[tokio::test]
async fn nobody_else_reads_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.create_user(user("a@example.org", &Random::seeded(1))).await.unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.contains(".db") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "two databases and a journal");
}

#[tokio::test]
async fn health_checks_take_one_place_in_the_queue_of_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (random, faults) = (Random::seeded(5), Faults::default());
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    faults.stall_writes();
    let write = |email: &str| {
        let (store, user) = (store.clone(), user(email, &random));
        tokio::spawn(async move { store.create_user(user).await })
    };
    let first = write("a@b.c");
    let checks: Vec<_> = (0..3_000)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.healthy().await })
        })
        .collect();
    tokio::task::yield_now().await;
    // A caller that is dropped leaves its check in the queue.
    checks[..1_500].iter().for_each(|check| check.abort());
    tokio::task::yield_now().await;
    let second = write("d@e.f");
    tokio::task::yield_now().await;
    faults.clear();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    for check in checks.into_iter().skip(1_500) {
        assert!(check.await.unwrap());
    }
}

/// The users that a start reads from the files of `dir` as they are now.
async fn users_after_a_kill(dir: &Path) -> Vec<String> {
    let copy = tempfile::tempdir().unwrap();
    for name in ["accounts.db", "accounts.db-wal"] {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    let store = Store::open(copy.path()).await.unwrap();
    store.load().await.unwrap().users.into_iter().map(|user| user.email).collect()
}

/// As after a failed sync: the log holds the whole commit, but the log's index lacks it.
#[tokio::test]
async fn what_a_failed_commit_wrote_is_read_by_no_start() {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let random = Random::seeded(4);
    let store = Store::open(dir.path()).await.unwrap();
    store.create_user(user("a@b.c", &random)).await.unwrap();
    for name in ["accounts.db", "accounts.db-wal"] {
        std::fs::copy(dir.path().join(name), twin.path().join(name)).unwrap();
    }
    let log = dir.path().join("accounts.db-wal");
    let length = std::fs::metadata(&log).unwrap().len() as usize;
    let other = Store::open(twin.path()).await.unwrap();
    other.create_user(user("d@e.f", &random)).await.unwrap();
    let commit = std::fs::read(twin.path().join("accounts.db-wal")).unwrap().split_off(length);
    let mut file = std::fs::File::options().append(true).open(&log).unwrap();
    std::io::Write::write_all(&mut file, &commit).unwrap();
    assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c", "d@e.f"], "the danger");

    let fails = |transaction: &Transaction<'_>| {
        let session = "INSERT INTO sessions VALUES ('sess_1', 'nobody', x'01', x'02', 0, 0, 0)";
        transaction.execute("PRAGMA defer_foreign_keys = true", &[])?;
        transaction.execute(session, &[])
    };
    store.write(fails).await.unwrap_err();
    assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c"]);
    store.create_user(user("g@h.i", &random)).await.unwrap();
    assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c", "g@h.i"]);
}

/// The directory of the store, for the process that is to abort.
const DIR: &str = "REROUTER_TEST_ABORTS_IN";

/// The test runs itself in another process, as the abort must not end this process.
#[tokio::test]
async fn a_panic_in_a_table_that_follows_aborts_the_process_and_the_change_is_durable() {
    let ann = user("a@b.c", &Random::seeded(4));
    if let Some(dir) = std::env::var_os(DIR) {
        let store = Store::open(Path::new(&dir)).await.unwrap();
        store.follow(fixtures::follower(|_| panic!("a mistake in a table"))).await.unwrap();
        let _unreached = store.create_user(ann).await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = concat!(
        module_path!(),
        "::a_panic_in_a_table_that_follows_aborts_the_process_and_the_change_is_durable"
    );
    let (_crate, name) = name.split_once("::").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert_eq!(signal, Some(6), "SIGABRT: {}", String::from_utf8_lossy(&child.stdout));
    let store = Store::open(dir.path()).await.unwrap();
    assert_eq!(store.load().await.unwrap().users, [ann]);
}

const CANARY: &str = "sk-canary-8277e0910d750195";

/// The files of the store that hold the canary.
fn in_clear(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let holds = |path: &Path| {
        memchr::memmem::find(&std::fs::read(path).unwrap(), CANARY.as_bytes()).is_some()
    };
    files
        .filter(|file| holds(&file.path()))
        .map(|file| file.file_name().into_string().unwrap())
        .collect()
}

const NO_FILE: [&str; 0] = [];

#[tokio::test]
async fn no_text_lies_on_the_disk_in_clear() {
    let dir = tempfile::tempdir().unwrap();
    // Larger than a page, as documents are.
    let text = format!("api_key: {CANARY}\n").repeat(1_000);
    let store = Store::open(dir.path()).await.unwrap();
    for number in 0..3 {
        store.keep_document("0123456789ab", &text, at(number)).await.unwrap();
        assert_eq!(in_clear(dir.path()), NO_FILE);
    }
    assert_eq!(store.document("0123456789ab").await.unwrap(), Some(text.clone()));
    drop(store);
    assert_eq!(in_clear(dir.path()), NO_FILE);
    let store = Store::open(dir.path()).await.unwrap();
    assert_eq!(store.live_document().await.unwrap(), Some(text));
}

fn wrapped(generation: u32, wrapped: &[u8]) -> WrappedRootKey {
    WrappedRootKey { generation, wrapped: wrapped.to_vec() }
}

#[tokio::test]
async fn a_rewrap_leaves_nothing_of_the_previous_wrapping() {
    let dir = tempfile::tempdir().unwrap();
    let holds = |wrapped: &[u8]| {
        ["accounts.db", "accounts.db-wal"].iter().any(|name| {
            let bytes = std::fs::read(dir.path().join(name)).unwrap_or_default();
            memchr::memmem::find(&bytes, wrapped).is_some()
        })
    };
    // The length differs, so SQLite writes the row anew.
    let (old, new) = (b"the old wrapping".as_slice(), b"a new one".as_slice());
    for (generation, wrapped) in [(1, old), (2, new)] {
        let open = Store::open_in(DataDir::take(dir.path()).unwrap(), move |opening| {
            opening.put_root_key(&self::wrapped(generation, wrapped))?;
            Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()))
        });
        let (_open, ()) = open.await.unwrap();
        assert!(holds(wrapped));
    }
    assert!(!holds(old));
}

#[tokio::test]
async fn a_store_is_inspected_without_opening_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = || inspect(&StoreUrl::Sqlite, dir.path(), |opening| opening.root_key());
    assert_eq!(key().unwrap(), None, "there is no store");
    let put = |opening: &Opening<'_>| {
        opening.put_root_key(&wrapped(1, b"one"))?;
        Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()))
    };
    let (store, ()) = Store::open_in(DataDir::take(dir.path()).unwrap(), put).await.unwrap();
    for _ in 0..2 {
        assert_eq!(key().unwrap(), Some(Some(wrapped(1, b"one"))));
    }
    drop(store);
    assert_eq!(key().unwrap(), Some(Some(wrapped(1, b"one"))));
}

#[tokio::test]
async fn audit_rows_are_not_replaced_either() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let actor = Actor { kind: "session".into(), id: "sess_1".into() };
    store.note(Event::new(at(0), actor, Action::KeyCreate, "key", "key_1")).await.unwrap();
    drop(store);
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    for statement in [
        "INSERT OR REPLACE INTO audit SELECT seq, 'aud_x', at, actor_type, 'x', action, \
         target_type, target, request, address FROM audit",
        "INSERT OR REPLACE INTO audit SELECT seq + 1, id, at, actor_type, 'x', action, \
         target_type, target, request, address FROM audit",
    ] {
        let refused = file.execute(statement, []).unwrap_err().to_string();
        assert!(refused.contains("audit rows are only added"), "{statement}: {refused}");
    }
    let actors: Vec<String> = file
        .prepare("SELECT actor FROM audit")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(actors, ["sess_1"]);
}

/// The steps of a statement, as SQLite says it takes them.
fn plan(connection: &Connection, statement: &str) -> String {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let none = rusqlite::params_from_iter(vec![0_i64; explain.parameter_count()]);
    let steps = explain.query_map(none, |row| row.get::<_, String>("detail")).unwrap();
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

/// A query uses the index of the field that is usually the rarest. For example, an owner may have a
/// million rows of `key.create`, and ask for those of one session.
#[tokio::test]
async fn what_is_named_is_found_by_an_index() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).await.unwrap());
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    let (target, actor, action) =
        (Some("key_1".to_owned()), Some("sess_1".to_owned()), Some(Action::KeyCreate));
    for (filter, index) in [
        (
            AuditFilter { target: target.clone(), ..AuditFilter::default() },
            "audit_target (target=?",
        ),
        (AuditFilter { actor: actor.clone(), ..AuditFilter::default() }, "audit_actor (actor=?"),
        (AuditFilter { action, ..AuditFilter::default() }, "audit_action (action=?"),
        (
            AuditFilter { target, actor: actor.clone(), action, ..AuditFilter::default() },
            "audit_target (target=?",
        ),
        (
            AuditFilter {
                actor,
                action,
                since: Some(at(0)),
                until: Some(at(1)),
                ..AuditFilter::default()
            },
            "audit_actor (actor=?",
        ),
    ] {
        let (conditions, _) = conditions(&filter);
        let steps = plan(&file, &select(&conditions));
        assert!(steps.contains(index) && !steps.contains("TEMP B-TREE"), "{conditions:?}: {steps}");
    }
    let of_time = AuditFilter { since: Some(at(0)), until: Some(at(1)), ..AuditFilter::default() };
    let steps = plan(&file, &select(&conditions(&of_time).0));
    assert_eq!(steps, "SEARCH audit USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)");
    assert_eq!(plan(&file, OF_TIME), "SEARCH audit USING COVERING INDEX audit_at (at>? AND at<?)");
    assert_eq!(plan(&file, LAST), "SEARCH audit");
}

/// The retention runs every minute.
#[tokio::test]
async fn no_table_is_searched_for_rows_that_have_to_leave() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).await.unwrap());
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    for (statement, index) in [
        (HAS_OLD, "audit_at (at<?)"),
        (HAS_FIRST, "SEARCH audit"),
        (DELETE_OLD, "COVERING INDEX audit_at (at<?)"),
        (DELETE_FIRST, "USING INTEGER PRIMARY KEY (rowid<?)"),
    ] {
        let steps = plan(&file, statement);
        assert!(
            steps.contains(index)
                && !steps.contains("SCAN audit")
                && !steps.contains("TEMP B-TREE"),
            "{statement}: {steps}"
        );
    }
}
