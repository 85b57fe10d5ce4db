//! Permits, descent, grants over a store that fails, and what is forgotten.

mod usage;

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::ledger::GRANT_AHEAD_BUDGETS;
use super::*;
use crate::auth::{Auth, Credential, Principal};
use rerouter_base::error::Kind;
use rerouter_base::id::{KeyId, Random, UserId};
use rerouter_base::secret::SecretBytes;
use rerouter_store::fixtures;
use rerouter_store::{
    Budget, Faults, KeyRow, LimitOwner, Limits, Per, Store, UsageColumn, UsageKey, UsageQuery,
    UsageSums, UserRow,
};

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
        let faults = Faults::default();
        let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
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
            limits,
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
    async fn start(&self) -> Limiter {
        let limiter = Limiter::default();
        limiter.open(&self.auth, &self.store, at(0)).await.unwrap();
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
    alone.settle(Some(10), None);
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
    first.settle(None, None);
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
        limiter.admit(&found, 1, at(0)).unwrap().settle(None, None);
    }
    assert!(limiter.admit(&found, 1, at(0)).is_err());
    let sibling = world.key(Some(&above), Limits::default()).await;
    let siblings = world.draws(&sibling);
    for _ in 0..5 {
        limiter.admit(&siblings, 1, at(0)).unwrap().settle(None, None);
    }
    assert!(
        limiter.admit(&siblings, 1, at(0)).is_err(),
        "ten are ten for all that descend from it"
    );
    let free = world.key(None, Limits::default()).await;
    assert_eq!(world.draws(&free).len(), 1);
}

#[tokio::test]
async fn a_crash_counts_the_grant_as_spent_and_a_leave_in_order_nothing() {
    let world = World::new(Limits::default()).await;
    let key = world.key(None, limits(1_000, day(10_000_000_000))).await;
    let draws = world.draws(&key);
    let limiter = world.start().await;
    let mut permit = limiter.admit(&draws, 1, at(0)).unwrap();
    assert!(permit.has_budget());
    limiter.reserve(&mut permit, Reserve::exactly(400_000_000), at(0)).unwrap();
    permit.settle(None, Some(100_000_000));

    // As after SIGKILL: another process, the same store.
    let after = world.start().await;
    let spent = |limiter: &Limiter| {
        limiter.counted(&draws[0].subject).counts().account.as_ref().unwrap().spent()
    };
    assert_eq!(spent(&after), 500_000_000, "a twentieth was granted");
    let mut permit = after.admit(&draws, 1, at(0)).unwrap();
    let refused = after.reserve(&mut permit, Reserve::exactly(9_500_000_001), at(0)).unwrap_err();
    assert_eq!((refused.kind(), refused.forbids_retry()), (Kind::InsufficientQuota, true));
    after.write(&world.store, at(0)).await.unwrap();
    // Far more than is granted: it comes alone.
    after.reserve(&mut permit, Reserve::exactly(9_500_000_000), at(0)).unwrap();
    permit.settle(None, Some(1));
    after.close(&world.store).await.unwrap();
    let mut permit = after.admit(&draws, 1, at(0)).unwrap();
    assert_eq!(
        after.reserve(&mut permit, Reserve::exactly(1), at(0)).unwrap_err().retry_after_s(),
        Some(1),
        "closed"
    );

    let last = world.start().await;
    assert_eq!(spent(&last), 500_000_001);
    assert!(world.dir.path().exists());
}

/// A process ended out of order just before midnight, when it had the first grant of the next day;
/// the one after it lives to see that day and leaves in order.
#[tokio::test]
async fn a_grant_ahead_that_nobody_used_takes_no_spend_away() {
    let (evening, midnight) = (at(28_795_000_000), at(28_800_000_000));
    let world = World::new(Limits::default()).await;
    let key = world.key(None, limits(1_000, day(10_000))).await;
    let draws = world.draws(&key);
    let first = Limiter::default();
    first.open(&world.auth, &world.store, evening).await.unwrap();
    let second = Limiter::default();
    second.open(&world.auth, &world.store, evening).await.unwrap();
    let mut permit = second.admit(&draws, 1, midnight).unwrap();
    second.reserve(&mut permit, Reserve::exactly(9_000), midnight).unwrap();
    permit.settle(None, Some(9_000));
    second.close(&world.store).await.unwrap();
    let third = Limiter::default();
    third.open(&world.auth, &world.store, midnight).await.unwrap();
    let counted = third.counted(&draws[0].subject);
    assert_eq!(counted.counts().account.as_ref().unwrap().spent(), 9_000);
}

#[tokio::test]
async fn a_request_that_no_budget_could_pay_makes_no_grant_larger() {
    let world = World::new(Limits::default()).await;
    let wide = world.key(None, limits(1_000, day(100_000_000_000))).await;
    let narrow = world.key(Some(&wide), limits(1_000, day(10_000_000_000))).await;
    let limiter = world.start().await;
    let draws = world.draws(&narrow);
    let mut permit = limiter.admit(&draws, 1, at(0)).unwrap();
    // Within the wide budget, were it alone; both refuse the last.
    for amount in [10_000_000_001, 50_000_000_000, u64::MAX] {
        let refused = limiter.reserve(&mut permit, Reserve::exactly(amount), at(0)).unwrap_err();
        assert_eq!(refused.kind(), Kind::InsufficientQuota);
    }
    limiter.write(&world.store, at(0)).await.unwrap();
    let after = world.start().await;
    for (key, twentieth) in [(&wide, 5_000_000_000), (&narrow, 500_000_000)] {
        let counted = after.counted(&Subject::Key(key.id.clone()));
        assert_eq!(
            counted.counts().account.as_ref().unwrap().spent(),
            twentieth,
            "what a crash costs"
        );
    }
}

#[tokio::test]
async fn without_a_durable_grant_nothing_is_spent() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    world.faults.clear();
    let key = world.key(None, limits(1_000, day(1_000_000))).await;
    world.faults.fail_every_write();
    limiter.expect_key(&world.auth, &key, &world.store, at(0)).await;
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

#[tokio::test]
async fn idle_subjects_are_forgotten_and_budgets_are_not() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let rated = world.key(None, limits(60, None)).await;
    let paid = world.key(None, limits(60, day(1_000))).await;
    let gone = world.key(None, limits(60, day(1_000))).await;
    for key in [&rated, &paid, &gone] {
        limiter.expect_key(&world.auth, key, &world.store, at(0)).await;
        let mut permit = limiter.admit(&world.draws(key), 1, at(0)).unwrap();
        if permit.has_budget() {
            limiter.reserve(&mut permit, Reserve::exactly(10), at(0)).unwrap();
        }
        limiter.sweep(&world.auth, at(0));
        assert!(limiter.counted.contains_key(&world.draws(key)[0].subject), "in use");
        permit.settle(None, Some(7));
    }
    world.store.revoke_key(&gone.id, at(0)).await.unwrap();
    limiter.sweep(&world.auth, at(0));
    assert_eq!(limiter.subjects(), 3, "their minute is not over");
    limiter.sweep(&world.auth, at(60_000_000));
    assert_eq!(limiter.subjects(), 1);
    limiter.admit(&world.draws(&gone), 1, at(60_000_000)).unwrap().settle(None, None);
    let spent =
        limiter.counted(&Subject::Key(gone.id.clone())).counts().account.as_ref().unwrap().spent();
    assert_eq!(spent, 7, "what was spent is remembered");
}

/// However many have a budget: who uses none of it costs nothing, but for the first grant and that
/// of the next day.
#[tokio::test]
async fn work_on_budgets_is_by_those_that_are_used() {
    const IDLE: usize = 100_000;
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let all: Vec<Draw> = (0..IDLE)
        .map(|n| draw(&format!("key_{n}"), Limits { budget: day(1_000), ..Limits::default() }))
        .collect();
    all.iter().for_each(|draw| limiter.open_account(draw, at(0)));
    assert_eq!(limiter.round(&world.store, at(0)).await.unwrap(), IDLE);
    assert_eq!(limiter.round(&world.store, at(0)).await.unwrap(), 0);
    let pay = |draw: &Draw, now| {
        let mut permit = limiter.admit(std::slice::from_ref(draw), 1, now).unwrap();
        let paid = limiter.reserve(&mut permit, Reserve::exactly(200), now).is_ok();
        permit.settle(None, Some(150));
        paid
    };
    assert!(pay(&all[7], at(0)));
    assert_eq!(limiter.round(&world.store, at(0)).await.unwrap(), 1, "the one that was used");
    assert_eq!(limiter.round(&world.store, at(0)).await.unwrap(), 0);
    let key = world.key(None, limits(60, day(1_000))).await;
    limiter.expect_key(&world.auth, &key, &world.store, at(0)).await;
    assert!(pay(&world.draws(&key)[0], at(0)), "a new one waits for no round");
    limiter.round(&world.store, at(0)).await.unwrap();
    // Ten seconds before the end of the day, and after it: so many a round, and each of them once.
    let mut looked = 0;
    for now in [28_790_000_000, 28_801_000_000] {
        for _ in 0..=IDLE / GRANT_AHEAD_BUDGETS / 2 {
            let round = limiter.round(&world.store, at(now)).await.unwrap();
            assert!(round <= GRANT_AHEAD_BUDGETS, "{round}");
            looked += round;
        }
    }
    assert_eq!(
        (looked, limiter.round(&world.store, at(28_801_000_000)).await.unwrap()),
        (IDLE + 1, 0)
    );
    assert!(
        all.iter().step_by(997).all(|draw| pay(draw, at(28_802_000_000))),
        "everybody has a first grant of the new day"
    );
}

/// Threads that take in requests, beside one that sweeps and one that grants: nobody waits for
/// ever, and nothing goes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_never_go_over_together() {
    use std::sync::atomic::AtomicU64;
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
                        permit.settle(None, Some(7));
                    }
                }
            })
        });
    let clients: Vec<_> = clients.collect();
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        limiter.sweep(&world.auth, at(0));
        limiter.write(&world.store, at(0)).await.unwrap();
    }
    for client in clients {
        client.await.unwrap();
    }
    // Two keys without one above them, each with a budget of its own; the third spends out of the
    // first's too.
    assert!((1..=2 * BUDGET).contains(&spent.load(Ordering::SeqCst)));
    for key in &keys {
        let counted = limiter.counted(&Subject::Key(key.id.clone()));
        let counts = counted.counts();
        assert!(counts.is_idle() && counts.account.as_ref().unwrap().spent() <= BUDGET);
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
                if step == 1 { permit.settle(Some(0), None) } else { drop(permit) }
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
