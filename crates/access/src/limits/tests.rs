//! Permits, ancestors of keys, holds while the store fails, and subjects that are forgotten.

mod usage;

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::auth::{Auth, Credential, Principal};
use rerouter_base::error::Kind;
use rerouter_base::id::{KeyId, Random, UserId};
use rerouter_base::secret::SecretBytes;
use rerouter_store::fixtures;
use rerouter_store::{
    Budget, DataDir, Faults, KeyRow, LimitOwner, Limits, Opening, Per, Since, Store, StoreError,
    UsageColumn, UsageKey, UsageQuery, UsageSums, UserRow,
};

/// All periods.
pub(super) const ALL: Since = Since { month: 0, day: 0 };

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(1_764_000_000_000_000 + micros).unwrap()
}

pub(super) fn draw(name: &str, limits: Limits) -> Draw {
    let caps = Caps::from(&limits);
    Draw { subject: Subject::Key(KeyId::known(name)), caps, whose: LimitOwner::Key }
}

pub(super) fn day(nano: NanoUsd) -> Option<Budget> {
    Some(Budget { nano, per: Per::Day })
}

fn limits(rpm: u64, budget: Option<Budget>) -> Limits {
    Limits { rpm: Some(rpm), budget, ..Limits::default() }
}

impl Limiter {
    /// A round of both tasks of a gateway.
    pub(super) async fn write(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let held = self.write_spend(store, now, true).await;
        self.write_due_usage(store, now).await?;
        held
    }
}

pub(super) struct World {
    pub(super) auth: Auth,
    pub(super) store: Store,
    pub(super) faults: Faults,
    user: UserRow,
    random: Random,
    dir: tempfile::TempDir,
}

impl World {
    pub(super) async fn new(user: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        Self::on(dir, store, user).await
    }

    /// With a store that other processes use too.
    pub(super) async fn shared() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::handed_over(dir.path(), Vec::new(), None);
        let unlock =
            |_: &Opening<'_>| Ok::<_, rerouter_store::StoreError>((SecretBytes::new([5; 32]), ()));
        let (store, ()) = Store::open_in(data, unlock).await.unwrap();
        Self::on(dir, store, Limits::default()).await
    }

    async fn on(dir: tempfile::TempDir, store: Store, user: Limits) -> Self {
        let faults = Faults::default();
        let store = store.with_faults(faults.clone());
        let auth = Auth::new(&SecretBytes::new([1; 32]), None, None, Duration::from_secs(60));
        auth.attach(&store).await.unwrap();
        let random = Random::seeded(5);
        let user = UserRow { limits: user, ..fixtures::user("ann@example.com", &random) };
        store.create_user(user.clone()).await.unwrap();
        World { auth, store, faults, user, random, dir }
    }

    pub(super) async fn key(&self, parent: Option<&KeyRow>, limits: Limits) -> KeyRow {
        let key = KeyRow {
            parent: parent.map(|key| key.id.clone()),
            limits: limits.into(),
            expires_at: None,
            ..fixtures::key(&self.user.id, &self.random)
        };
        self.store.create_key(key.clone()).await.unwrap();
        key
    }

    pub(super) fn draws(&self, key: &KeyRow) -> Vec<Draw> {
        draws(
            &self.auth,
            &Principal::User {
                user: Arc::new(self.user.clone()),
                via: Credential::Key(Arc::new(key.clone())),
            },
        )
    }

    /// The limiter of a process that starts now.
    pub(super) async fn start(&self) -> Limiter {
        let limiter = Limiter::default();
        limiter.open(&self.store, at(0)).await.unwrap();
        limiter
    }
}

#[test]
fn a_request_draws_on_all_or_on_none() {
    let limiter = Limiter::default();
    let narrow = draw("key_b", Limits { rpm: Some(1), concurrency: Some(5), ..Limits::default() });
    let wide = draw("key_a", Limits { rpm: Some(10), tpm: Some(100), ..Limits::default() });
    let both = [wide.clone(), narrow.clone()];
    let permit = limiter.admit(&both, 60, at(0)).unwrap();
    let left = permit.remaining();
    let requests = left.counts[0].unwrap().left;
    assert_eq!((requests.limit, requests.remaining), (1, 0), "the one with the least left");
    assert_eq!(left.counts[1].unwrap().left.remaining, 40);
    let refused = limiter.admit(&both, 30, at(0)).err().unwrap();
    assert_eq!(
        (refused.error.kind(), refused.error.retry_after_s()),
        (Kind::RateLimited, Some(61))
    );
    let alone = limiter.admit(std::slice::from_ref(&wide), 40, at(0)).unwrap();
    assert_eq!(
        alone.remaining().counts[0].unwrap().left.remaining,
        8,
        "the refused one took nothing"
    );
    alone.settle(Some(10), None, false);
    drop(permit);
    let again = limiter.admit(std::slice::from_ref(&wide), 90, at(0)).unwrap();
    assert_eq!(
        again.remaining().counts[1].unwrap().left.remaining,
        0,
        "what was reserved and not used came back"
    );
    let large = limiter.admit(std::slice::from_ref(&wide), 101, at(0)).err().unwrap();
    assert!(large.error.forbids_retry());
    drop(again);
    assert!(limiter.admit(&[], u64::MAX, at(0)).is_ok());
}

#[test]
fn so_many_at_once_whatever_the_way_out() {
    let limiter = Limiter::default();
    let draws = [draw("key_a", Limits { concurrency: Some(2), ..Limits::default() })];
    let first = limiter.admit(&draws, 1, at(0)).unwrap();
    let second = limiter.admit(&draws, 1, at(0)).unwrap();
    let refused = limiter.admit(&draws, 1, at(0)).err().unwrap();
    assert_eq!((refused.error.kind(), refused.error.retry_after_s()), (Kind::RateLimited, Some(1)));
    first.settle(None, None, false);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = second;
        panic!("on demand");
    }));
    assert!(panicked.is_err());
    let both = (limiter.admit(&draws, 1, at(0)).unwrap(), limiter.admit(&draws, 1, at(0)).unwrap());
    assert!(limiter.admit(&draws, 1, at(0)).is_err());
    drop(both);
    assert_eq!(limiter.counted(&draws[0].subject).counts().running, 0);
}

#[tokio::test]
async fn a_key_draws_on_those_above_it_and_on_its_user() {
    let world = World::new(limits(100, None)).await;
    let above = world.key(None, limits(10, None)).await;
    let between = world.key(Some(&above), Limits::default()).await;
    let key = world.key(Some(&between), limits(5, None)).await;
    let found = world.draws(&key);
    let rpm: Vec<_> = found.iter().map(|draw| (draw.caps.counts[0].unwrap(), draw.whose)).collect();
    assert_eq!(rpm.len(), 3);
    assert_eq!(rpm[0], (100, LimitOwner::User));
    assert!(
        rpm.contains(&(10, LimitOwner::KeyAbove)) && rpm.contains(&(5, LimitOwner::Key)),
        "{rpm:?}"
    );
    let mut sorted = found.clone();
    sorted.sort_by(|a, b| a.subject.cmp(&b.subject));
    assert!(found.iter().zip(&sorted).all(|(a, b)| a.subject == b.subject));
    let limiter = Limiter::default();
    for _ in 0..5 {
        limiter.admit(&found, 1, at(0)).unwrap().settle(None, None, false);
    }
    assert!(limiter.admit(&found, 1, at(0)).is_err());
    let sibling = world.key(Some(&above), Limits::default()).await;
    let siblings = world.draws(&sibling);
    for _ in 0..5 {
        limiter.admit(&siblings, 1, at(0)).unwrap().settle(None, None, false);
    }
    assert!(
        limiter.admit(&siblings, 1, at(0)).is_err(),
        "ten are ten for all that descend from it"
    );
    let free = world.key(None, Limits::default()).await;
    assert_eq!(world.draws(&free).len(), 1);
}

/// Reserves, after the hold that it takes is written.
pub(super) async fn pay(
    limiter: &Limiter,
    world: &World,
    draws: &[Draw],
    wanted: Reserve,
) -> Result<LimitPermit, Box<Error>> {
    let mut permit = limiter.admit(draws, 1, at(0)).unwrap();
    let mut reserved = limiter.reserve(&mut permit, wanted, at(0));
    if permit.awaits_hold() {
        limiter.write_spend(&world.store, at(0), false).await.unwrap();
        reserved = limiter.reserve(&mut permit, wanted, at(0));
    }
    reserved.map(|()| permit)
}

#[tokio::test]
async fn what_a_crash_holds_is_lost_and_a_leave_in_order_loses_nothing() {
    let world = World::new(Limits::default()).await;
    let key = world.key(None, limits(1_000, day(1_000))).await;
    let draws = world.draws(&key);
    let limiter = world.start().await;
    let permit = pay(&limiter, &world, &draws, Reserve::exactly(400)).await.unwrap();
    assert!(permit.has_budget());
    permit.settle(None, Some(100), true);
    let money = |limiter: &Limiter| limiter.remaining(&draws, at(0)).money.unwrap();
    // As after SIGKILL: another process, the same store.
    let after = world.start().await;
    assert_eq!((money(&after).spent, money(&after).lost), (0, 400));
    let refused = pay(&after, &world, &draws, Reserve::exactly(601)).await.err().unwrap();
    assert_eq!((refused.kind(), refused.forbids_retry()), (Kind::InsufficientQuota, true));
    assert!(refused.detail().contains("0.0000004 USD was held by processes that died"));
    let permit = pay(&after, &world, &draws, Reserve::exactly(600)).await.unwrap();
    permit.settle(None, Some(7), true);
    after.close(&world.store).await.unwrap();
    let mut permit = after.admit(&draws, 1, at(0)).unwrap();
    let refused = after.reserve(&mut permit, Reserve::exactly(1), at(0)).unwrap_err();
    assert_eq!(refused.retry_after_s(), Some(1), "closed");
    let last = world.start().await;
    assert_eq!((money(&last).spent, money(&last).estimated, money(&last).lost), (7, 7, 400));
    assert!(world.dir.path().exists());
}

#[tokio::test]
async fn without_a_written_hold_nothing_is_spent() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let key = world.key(None, limits(1_000, day(1_000_000))).await;
    world.faults.fail_every_write();
    let draws = world.draws(&key);
    let mut permit = limiter.admit(&draws, 1, at(0)).unwrap();
    let refused = limiter.reserve(&mut permit, Reserve::exactly(10), at(0)).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_after_s(), refused.forbids_retry()),
        (Kind::RateLimited, Some(1), false)
    );
    assert!(limiter.write(&world.store, at(0)).await.is_err());
    assert!(limiter.reserve(&mut permit, Reserve::exactly(10), at(0)).is_err());
    world.faults.clear();
    limiter.write(&world.store, at(0)).await.unwrap();
    limiter.reserve(&mut permit, Reserve::exactly(10), at(0)).unwrap();
}

/// A request counts in the period in which it reserved, whenever it ends.
#[tokio::test]
async fn a_request_that_ends_on_the_next_day_counts_on_the_day_before() {
    let (evening, midnight) = (at(28_795_000_000), at(28_800_000_000));
    let world = World::new(Limits::default()).await;
    let key = world.key(None, limits(1_000, day(1_000))).await;
    let draws = world.draws(&key);
    let limiter = world.start().await;
    let reserve = async |amount, now| {
        let mut permit = limiter.admit(&draws, 1, now).unwrap();
        let _waits = limiter.reserve(&mut permit, Reserve::exactly(amount), now);
        limiter.write_spend(&world.store, now, false).await.unwrap();
        limiter.reserve(&mut permit, Reserve::exactly(amount), now).unwrap();
        permit
    };
    let late = reserve(900, evening).await;
    let early = reserve(1_000, midnight).await;
    late.settle(None, Some(800), false);
    early.settle(None, Some(3), false);
    limiter.write(&world.store, midnight).await.unwrap();
    let sums = world.store.spend_news(0, "", ALL).await.unwrap().changed;
    let spent: Vec<_> = sums.iter().map(|((_, day), sums)| (*day, sums.spent)).collect();
    assert_eq!(spent, [(20_251_124, 800), (20_251_125, 3)]);
}

/// What a request of the month costs is not forgotten, if the budget is one a day for a while.
#[tokio::test]
async fn a_budget_that_is_changed_back_has_what_was_spent_meanwhile() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let of = |per| {
        let budget = Some(Budget { nano: 1_000, per });
        [draw("key_a", Limits { budget, ..Limits::default() })]
    };
    let running = pay(&limiter, &world, &of(Per::Month), Reserve::exactly(400)).await.unwrap();
    pay(&limiter, &world, &of(Per::Day), Reserve::exactly(10)).await.unwrap().settle(
        None,
        Some(3),
        false,
    );
    running.settle(None, Some(300), false);
    limiter.write(&world.store, at(0)).await.unwrap();
    let spent = |per| limiter.remaining(&of(per), at(0)).money.unwrap().spent;
    assert_eq!((spent(Per::Day), spent(Per::Month), spent(Per::Day)), (3, 300, 3));
    // A day that ends while the budget is one a month: its last request counts, also later.
    let running = pay(&limiter, &world, &of(Per::Day), Reserve::exactly(10)).await.unwrap();
    limiter.remaining(&of(Per::Month), at(0));
    let tomorrow = at(12 * 3_600_000_000);
    let budget = |per, now| limiter.remaining(&of(per), now).money.unwrap().spent;
    assert_eq!((budget(Per::Day, tomorrow), budget(Per::Month, tomorrow)), (0, 300));
    running.settle(None, Some(4), false);
    for now in [tomorrow, at(13 * 3_600_000_000), at(14 * 3_600_000_000)] {
        limiter.write(&world.store, now).await.unwrap();
        limiter.sweep(now);
    }
    assert_eq!(limiter.subjects(), 0);
    assert_eq!((budget(Per::Month, tomorrow), budget(Per::Day, tomorrow)), (300, 0));
    let sums = world.store.spend_news(0, "", ALL).await.unwrap().changed;
    let spent: Vec<_> = sums.iter().map(|((_, period), sums)| (*period, sums.spent)).collect();
    assert_eq!(spent, [(20_251_100, 300), (20_251_124, 7)]);
}

#[tokio::test]
async fn idle_subjects_are_forgotten_and_budgets_are_not() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let rated = world.key(None, limits(60, None)).await;
    let paid = world.key(None, limits(60, day(1_000))).await;
    let draws = [&rated, &paid].map(|key| world.draws(key));
    limiter.admit(&draws[0], 1, at(0)).unwrap().settle(None, None, false);
    let permit = pay(&limiter, &world, &draws[1], Reserve::exactly(10)).await.unwrap();
    limiter.sweep(at(0));
    assert_eq!(limiter.subjects(), 2, "in use");
    permit.settle(None, Some(7), false);
    limiter.sweep(at(60_000_000));
    assert_eq!(limiter.subjects(), 1, "not all is written");
    for seconds in [61, 64, 67] {
        limiter.write(&world.store, at(seconds * 1_000_000)).await.unwrap();
    }
    limiter.sweep(at(68_000_000));
    assert_eq!(limiter.subjects(), 0);
    let spent = || limiter.remaining(&draws[1], at(68_000_000)).money.unwrap().spent;
    assert_eq!(spent(), 7, "what was spent is remembered");
    let permit = pay(&limiter, &world, &draws[1], Reserve::exactly(10)).await.unwrap();
    permit.settle(None, Some(5), false);
    limiter.write(&world.store, at(70_000_000)).await.unwrap();
    assert_eq!(world.store.spend_news(0, "", ALL).await.unwrap().changed[0].1.spent, 12);
}

/// Threads that take in requests, beside one that sweeps and one that writes: nobody waits for
/// ever, and nothing goes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_never_go_over_together() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const BUDGET: NanoUsd = 10_000;
    let world = World::new(Limits { concurrency: Some(6), ..Limits::default() }).await;
    let capped =
        |most| Limits { concurrency: Some(most), budget: day(BUDGET), ..Limits::default() };
    let above = world.key(None, capped(3)).await;
    let keys =
        [above.clone(), world.key(Some(&above), capped(2)).await, world.key(None, capped(5)).await];
    let limiter = Arc::new(world.start().await);
    let (running, spent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let clients =
        keys.iter().flat_map(|key| std::iter::repeat_n(world.draws(key), 4)).map(|draws| {
            let (limiter, running, spent) =
                (Arc::clone(&limiter), Arc::clone(&running), Arc::clone(&spent));
            tokio::task::spawn_blocking(move || {
                for round in 0..2_000 {
                    let Ok(mut permit) = limiter.admit(&draws, 1, at(round)) else { continue };
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 6);
                    let paid =
                        limiter.reserve(&mut permit, Reserve::exactly(10), at(round)).is_ok();
                    running.fetch_sub(1, Ordering::SeqCst);
                    if paid && round % 3 > 0 {
                        spent.fetch_add(7, Ordering::SeqCst);
                        permit.settle(None, Some(7), false);
                    }
                }
            })
        });
    let clients: Vec<_> = clients.collect();
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        limiter.sweep(at(0));
        limiter.write(&world.store, at(0)).await.unwrap();
    }
    for client in clients {
        client.await.unwrap();
    }
    // Two keys without one above them, each with a budget of its own; the third spends out of the
    // first's too.
    assert!((1..=2 * BUDGET).contains(&spent.load(Ordering::SeqCst)));
    for seconds in [1, 4, 7] {
        limiter.write(&world.store, at(seconds * 1_000_000)).await.unwrap();
    }
    for key in &keys {
        assert!(limiter.counted(&Subject::Key(key.id.clone())).counts().is_idle());
        let left = limiter.remaining(&world.draws(key), at(7_000_000));
        assert!(left.money.unwrap().spent <= BUDGET);
    }
}

proptest! {
    /// Many threads' worth of steps in any order: never more at once than allowed, and at the end
    /// all is back.
    #[test]
    fn permits_always_come_back(most in 1u64..5,
        steps in proptest::collection::vec((0u8..3, 0u64..50), 1..100)) {
        let limiter = Limiter::default();
        let draws = [
            draw("key_a", Limits { tpm: Some(1_000), concurrency: Some(most), ..<_>::default() }),
            draw("key_b", Limits { tpm: Some(500), ..Limits::default() }),
        ];
        let mut open = Vec::new();
        for (step, tokens) in steps {
            if step == 0 {
                if let Ok(permit) = limiter.admit(&draws, tokens, at(0)) {
                    open.push(permit);
                }
            } else if let Some(permit) = open.pop() {
                if step == 1 { permit.settle(Some(0), None, false) } else { drop(permit) }
            }
            prop_assert!(open.len() as u64 <= most);
            let counted = limiter.counted(&draws[0].subject);
            prop_assert_eq!(counted.counts().running, open.len() as u64);
        }
        drop(open);
        for draw in &draws {
            let counted = limiter.counted(&draw.subject);
            prop_assert!(counted.counts().is_idle());
        }
    }
}
