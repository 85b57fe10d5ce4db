//! The protocol on a real PostgreSQL: gateways whose steps are taken one by one.

use std::collections::HashSet;

use super::follow::LogRead;
use super::*;
use crate::changes::{Change, Committed, Reload};
use crate::fixtures::key;
use crate::postgres::servers::{Cluster as Server, run};
use crate::{DataDir, HoldWrite, Opening, Since, Store, StoreUrl};
use rerouter_base::id::{GatewayId, KeyId, UserId};

const LEASE: Duration = Duration::from_secs(2);

/// The keys that a gateway would accept, if it may answer.
#[derive(Clone, Default)]
struct Tables(Arc<Mutex<HashSet<KeyId>>>);

impl Tables {
    fn take(&self, change: Change) {
        if let Change::Key(row) = change {
            let mut keys = self.0.lock().unwrap();
            match row.revoked_at {
                None => keys.insert(row.id.clone()),
                Some(_) => keys.remove(&row.id),
            };
        }
    }

    fn has(&self, id: &KeyId) -> bool {
        self.0.lock().unwrap().contains(id)
    }
}

impl Follower for Tables {
    fn apply(&self, committed: &Committed) {
        committed.changes.iter().for_each(|change| self.take(change.clone()));
    }

    fn reload(&self) -> Box<dyn Reload> {
        self.0.lock().unwrap().clear();
        Box::new(self.clone())
    }
}

impl Reload for Tables {
    fn row(&mut self, row: Change) {
        self.take(row);
    }

    fn finish(self: Box<Self>, _: u64) {}
}

/// A gateway whose rounds are run by the test.
struct Stepped {
    follower: LogFollower,
    authority: Authority,
    tables: Tables,
}

impl Stepped {
    fn new(url: &str, name: &str) -> Stepped {
        Stepped::leased(url, name, LEASE)
    }

    fn leased(url: &str, name: &str, lease: Duration) -> Stepped {
        let StoreUrl::Postgres(url) = StoreUrl::parse(url).unwrap() else { unreachable!() };
        let (tables, authority) = (Tables::default(), Authority::leased(false));
        let shared = ClusterState {
            identity: identity(name),
            timing: Timing { lease },
            serves_stale: false,
            clock: Clock::Store(Arc::default()),
            clock_is_wrong: AtomicBool::new(false),
            authority: authority.clone(),
            documents: SecretBytes::new([5; 32]),
            random: Random::System,
            metrics: Metrics::new().unwrap(),
            applied: watch::Sender::new(0),
            changed: Arc::default(),
            heard: Arc::default(),
            others_applied: Arc::default(),
            twin: ArcSwapOption::empty(),
            is_alone: AtomicBool::new(false),
            predecessor: Predecessor::default(),
        };
        let database = Database::start("test", &url, LEASE).unwrap();
        let follower = LogFollower::new(shared.into(), database, Arc::new(tables.clone()));
        Stepped { follower, authority, tables }
    }

    async fn round(&mut self) -> bool {
        self.follower.round().await.unwrap()
    }

    fn accepts(&self, id: &KeyId) -> bool {
        self.authority.is_valid() && self.tables.has(id)
    }
}

fn identity(name: &str) -> GatewayIdentity {
    GatewayIdentity {
        instance: name.to_owned(),
        directory: name.to_owned(),
        // Lower than the names of gateways that run by themselves, which begin with a time.
        process: format!("0 {}", GatewayId::new(jiff::Timestamp::now(), &Random::System)),
        name: name.to_owned(),
        version: "1".to_owned(),
        address: "127.0.0.1:1".to_owned(),
    }
}

/// A store that has not joined the other gateways.
async fn shared_store(url: &str) -> Store {
    let dir = DataDir::take(&tempfile::tempdir().unwrap().keep()).unwrap();
    let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
    Store::open_at(dir, &StoreUrl::parse(url).unwrap(), unlock).await.unwrap().0
}

/// A gateway that runs by itself.
async fn joined(url: &str, name: &str) -> Store {
    let store = shared_store(url).await;
    let StoreUrl::Postgres(url) = StoreUrl::parse(url).unwrap() else { unreachable!() };
    let joining = Joining {
        identity: identity(name),
        metrics: Metrics::new().unwrap(),
        url: Some(url),
        lease: LEASE,
        serves_stale: false,
        clock: Clock::Store(Arc::default()),
    };
    store.join(Arc::new(Tables::default()), joining).await.unwrap();
    store
}

async fn made(store: &Store) -> KeyId {
    let row = key(&UserId::admin(), &Random::System);
    store.create_key(row.clone()).await.unwrap();
    row.id
}

/// A wrong barrier: it waits until the lease of every gateway that is behind has passed, by the
/// clock of the database.
async fn naive(url: &str, rev: u64) {
    let behind = format!(
        "SELECT count(*) FROM gateways WHERE applied < {rev} AND renewed_at + {} >
           extract(epoch FROM clock_timestamp()) * 1000000",
        LEASE.as_micros()
    );
    while run(url, &behind).await != ["0"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A gateway has read the log, and does not renew until its row looks dead.
async fn read_late(gateway: &mut Stepped) -> LogRead {
    assert!(gateway.round().await);
    tokio::time::sleep(LEASE * 8 / 10).await;
    gateway.follower.read().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_between_read_and_renewal_fools_the_naive_barrier_each_time() {
    let url = Server::shared().database().await;
    let store = shared_store(&url).await;
    let mut gateway = Stepped::new(&url, "a");
    for _ in 0..3 {
        let id = made(&store).await;
        let read = read_late(&mut gateway).await;
        let committed = store.revoke_key(&id, jiff::Timestamp::now()).await.unwrap();
        naive(&url, committed.rev).await;
        gateway.follower.renew(read).await.unwrap();
        assert!(gateway.accepts(&id), "a naive barrier would have to see this");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_between_read_and_renewal_never_fools_this_barrier() {
    let url = Server::shared().database().await;
    let store = joined(&url, "b").await;
    let mut gateway = Stepped::new(&url, "a");
    for _ in 0..3 {
        let id = made(&store).await;
        let read = read_late(&mut gateway).await;
        let committed = store.revoke_key(&id, jiff::Timestamp::now()).await.unwrap();
        let acknowledged = {
            let (store, rev) = (store.clone(), committed.rev);
            tokio::spawn(async move { store.acknowledge(rev).await })
        };
        naive(&url, committed.rev).await;
        // The gateway renews before the end of the wait, or after it.
        let renewed = gateway.follower.renew(read).await.unwrap();
        assert!(acknowledged.await.unwrap().unwrap().is_empty());
        assert!(!gateway.accepts(&id), "renewed: {renewed}");
        while !gateway.round().await {}
        assert!(gateway.authority.is_valid() && !gateway.tables.has(&id), "it comes back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_slow_for_a_moment_does_not_end_a_start() {
    let url = Server::shared().database().await;
    let _store = shared_store(&url).await;
    let mut gateway = Stepped::new(&url, "a");
    // The lock is held for longer than a transaction of the lease waits for it.
    let slow = "BEGIN; LOCK TABLE gateways; SELECT pg_sleep(3); COMMIT";
    let (locker, held) = (
        url.clone(),
        "SELECT count(*) FROM pg_locks
        WHERE mode = 'AccessExclusiveLock' AND relation = 'gateways'::regclass",
    );
    let lock = tokio::spawn(async move { run(&locker, slow).await });
    while run(&url, held).await != ["1"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gateway.follower.round().await.is_err());
    gateway.follower.begin().await.unwrap();
    assert!(gateway.authority.is_valid());
    lock.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_well_is_waited_for_and_one_that_left_is_not() {
    let url = Server::shared().database().await;
    let (a, b) = (joined(&url, "a").await, joined(&url, "b").await);
    for _ in 0..5 {
        let id = made(&a).await;
        let rev = b.revoke_key(&id, jiff::Timestamp::now()).await.unwrap().rev;
        assert!(b.acknowledge(rev).await.unwrap().is_empty());
        let rows = a.gateways().await.unwrap();
        assert!(rows.iter().any(|one| one.name == "a" && one.applied >= rev), "{rows:?}");
    }
    b.leave().await.unwrap();
    assert!(!b.authority().is_valid());
    let names: Vec<_> = a.gateways().await.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_with_a_longer_lease_is_waited_for_as_long_as_that() {
    let url = Server::shared().database().await;
    let store = joined(&url, "b").await;
    let id = made(&store).await;
    let mut gateway = Stepped::leased(&url, "a", LEASE * 2);
    assert!(gateway.round().await);
    // The gateway is silent for longer than the lease of the other gateway.
    tokio::time::sleep(LEASE * 12 / 10).await;
    let row = store.gateways().await.unwrap().into_iter().find(|row| row.name == "a").unwrap();
    assert_eq!((row.lease, row.fenced), (LEASE * 2, false));
    assert!(gateway.accepts(&id));
    let rev = store.revoke_key(&id, jiff::Timestamp::now()).await.unwrap().rev;
    assert!(store.acknowledge(rev).await.unwrap().is_empty());
    assert!(!gateway.accepts(&id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_gateways_on_copies_of_a_data_directory_the_later_one_refuses() {
    let url = Server::shared().database().await;
    let other = joined(&url, "b").await;
    let id = made(&other).await;
    let mut gateway = Stepped::new(&url, "a");
    assert!(gateway.round().await);
    let copy = joined(&url, "a").await;
    while copy.authority().is_valid() {
        assert!(gateway.round().await && !copy.is_alone(), "it uploads no captures");
        tokio::time::sleep(LEASE / 5).await;
    }
    assert!(copy.authority().is_refused() && !gateway.authority.is_refused());
    // Changes still wait for the first gateway.
    let rev = other.revoke_key(&id, jiff::Timestamp::now()).await.unwrap().rev;
    let acknowledged = other.acknowledge(rev);
    tokio::pin!(acknowledged);
    let waits = tokio::time::timeout(LEASE / 10, &mut acknowledged).await;
    assert!(waits.is_err() && gateway.accepts(&id));
    assert!(gateway.round().await && !gateway.accepts(&id));
    acknowledged.await.unwrap();
    // The first gateway ends, so the other one may go on.
    drop(gateway);
    run(&url, "DELETE FROM gateways WHERE instance = 'a'").await;
    while !copy.authority().is_valid() || !copy.is_alone() {
        tokio::time::sleep(LEASE / 5).await;
    }
    assert!(!copy.authority().is_refused());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_holds_only_on_the_history_that_was_read() {
    let url = Server::shared().database().await;
    let store = shared_store(&url).await;
    let (kept, _) = (made(&store).await, made(&store).await);
    // As after a fail-over to a server that lacks the last commit.
    let lose = "DELETE FROM changes WHERE rev = (SELECT rev FROM state);
                UPDATE state SET rev = rev - 1";
    for another_took_its_number in [false, true] {
        let mut gateway = Stepped::new(&url, "a");
        assert!(gateway.round().await);
        let read = gateway.follower.read().await.unwrap();
        run(&url, lose).await;
        if another_took_its_number {
            made(&store).await;
        }
        assert!(!gateway.follower.renew(read).await.unwrap());
        assert!(!gateway.accepts(&kept), "{another_took_its_number}");
        assert!(gateway.round().await && gateway.accepts(&kept), "it reads what there is");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_claims_more_than_there_is_has_not_applied_it() {
    let url = Server::shared().database().await;
    let store = joined(&url, "b").await;
    let id = made(&store).await;
    let mut gateway = Stepped::new(&url, "a");
    assert!(gateway.round().await);
    run(&url, "UPDATE gateways SET applied = 1000 WHERE name = 'a'").await;
    let rev = store.revoke_key(&id, jiff::Timestamp::now()).await.unwrap().rev;
    assert!(store.acknowledge(rev).await.unwrap().is_empty());
    assert!(!gateway.accepts(&id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_is_taken_off_the_list_only_as_it_was_seen() {
    let url = Server::shared().database().await;
    let store = shared_store(&url).await;
    let mut gateway = Stepped::new(&url, "a");
    assert!(gateway.round().await);
    run(&url, "UPDATE gateways SET serves_stale = 1").await;
    let other = joined(&url, "b").await;
    let seen =
        async || other.gateways().await.unwrap().into_iter().find(|row| row.name == "a").unwrap();
    let before = seen().await;
    assert!(gateway.round().await);
    assert!(!store.forget_gateway(&before).await.unwrap(), "it came back");
    assert!(store.forget_gateway(&seen().await).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_a_later_build_changed_give_no_lease() {
    let url = Server::shared().database().await;
    let _store = shared_store(&url).await;
    let mut gateway = Stepped::new(&url, "a");
    assert!(gateway.round().await);
    run(&url, "INSERT INTO schema_steps VALUES (77, 5)").await;
    assert!(gateway.round().await, "it can work with these");
    run(&url, "INSERT INTO schema_steps VALUES (78, 78)").await;
    assert!(!gateway.round().await && !gateway.authority.is_valid());
    let why = gateway.follower.round().await.unwrap_err();
    assert!(matches!(why, StoreError::OtherSchema { found: 78, .. }), "{why}");
    assert!(gateway.authority.is_refused(), "nor is anything answered without one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hold_waits_for_a_long_list() {
    let url = Server::shared().database().await;
    let store = joined(&url, "b").await;
    store.open_holder(1).await.unwrap();
    let long = store.read(|transaction| transaction.exists("SELECT pg_sleep(1.5)", &[]));
    let holds = async {
        // The list is under way.
        while run(&url, SLEEPING).await != ["1"] {}
        let key = ("key_1".to_owned(), 20_261_101);
        let hold = HoldWrite { key, spent: 0, estimated: 0, held: 1, least: 0, budget: 9 };
        assert!(store.write_holds(1, vec![hold]).await.unwrap().is_some());
        assert!(store.spend_news(1, "1:1:", Since::default()).await.unwrap().is_holder);
        run(&url, SLEEPING).await
    };
    let (long, still) = tokio::join!(long, holds);
    assert!(long.unwrap());
    assert_eq!(still, ["1"]);
}

/// Whether the statement of a test that takes long is under way.
const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_another_history_is_not_believed() {
    let url = Server::shared().database().await;
    let store = shared_store(&url).await;
    let mut gateway = Stepped::new(&url, "a");
    let (kept, lost) = (made(&store).await, made(&store).await);
    assert!(gateway.round().await && gateway.accepts(&lost));
    // As after a fail-over that lost the last commit, and another commit took its number.
    let lose = format!(
        "DELETE FROM keys WHERE id = '{lost}'; DELETE FROM changes WHERE rev = 2; \
         UPDATE state SET rev = 1"
    );
    run(&url, &lose).await;
    let other = made(&store).await;
    assert!(gateway.round().await);
    assert!(!gateway.accepts(&lost) && gateway.accepts(&kept) && gateway.accepts(&other));
    // A gateway that missed pruned changes reads all rows again.
    for _ in 0..3 {
        made(&store).await;
    }
    run(&url, "DELETE FROM changes WHERE rev < 5").await;
    let last = made(&store).await;
    assert!(gateway.round().await && gateway.accepts(&last));
}
