//! Budgets over days, crashes, orderly restarts, processes that were taken for dead and a store
//! that fails, in any order, against plain sums.

use std::collections::HashMap;

use proptest::prelude::*;

use super::tests::{ALL, World, at, day};
use super::*;
use rerouter_store::{KeyRow, Limits, OthersSpend};

const HOUR_US: i64 = 3_600_000_000;
const BUDGETS: [NanoUsd; 2] = [1_000, 700];

/// What is true of one key on one day. The first key is above the second, and pays for both.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Settled by requests that ended.
    billed: NanoUsd,
    /// The part of it that a process had not written when it was killed.
    unwritten: NanoUsd,
    /// Reserved by requests of processes that were killed.
    unknown: NanoUsd,
}

/// A running request.
struct Open {
    gateway: usize,
    by: usize,
    day: i64,
    amount: NanoUsd,
    permit: LimitPermit,
}

struct Run {
    world: World,
    keys: Vec<KeyRow>,
    gateways: Vec<Limiter>,
    /// What each process has settled since it began, by key and day.
    settled: Vec<HashMap<(usize, i64), NanoUsd>>,
    open: Vec<Open>,
    truth: HashMap<(usize, i64), Truth>,
    crashed: bool,
    now_us: i64,
}

impl Run {
    async fn new(gateways: usize) -> Run {
        let world =
            if gateways > 1 { World::shared().await } else { World::new(Limits::default()).await };
        let mut keys: Vec<KeyRow> = Vec::new();
        for budget in BUDGETS {
            let limits = Limits { budget: day(budget), ..Limits::default() };
            keys.push(world.key(keys.last(), limits).await);
        }
        let mut run = Run {
            world,
            keys,
            gateways: (0..gateways).map(|_| Limiter::default()).collect(),
            settled: vec![HashMap::new(); gateways],
            open: Vec::new(),
            truth: HashMap::new(),
            crashed: false,
            now_us: 0,
        };
        for gateway in 0..gateways {
            run.start(gateway).await;
        }
        run
    }

    fn now(&self) -> Timestamp {
        at(self.now_us)
    }

    async fn start(&mut self, gateway: usize) {
        self.gateways[gateway] = Limiter::default();
        self.settled[gateway].clear();
        self.gateways[gateway].open(&self.world.store, self.now()).await.unwrap();
    }

    async fn reserve(&mut self, gateway: usize, by: usize, wanted: Reserve) {
        let limiter = &self.gateways[gateway];
        let draws = self.world.draws(&self.keys[by]);
        let mut permit = limiter.admit(&draws, 1, self.now()).unwrap();
        for _ in 0..3 {
            match limiter.reserve(&mut permit, wanted, self.now()) {
                Ok(()) => {
                    let amount = permit.held[0].money.expect("it has a budget").1;
                    assert!((wanted.least..=wanted.most).contains(&amount));
                    let day = super::day(self.now());
                    return self.open.push(Open { gateway, by, day, amount, permit });
                }
                Err(_) if permit.awaits_hold() => {
                    let _fails = limiter.write_spend(&self.world.store, self.now(), false).await;
                }
                Err(_) => return,
            }
        }
    }

    fn truth(&mut self, by: usize, day: i64) -> impl Iterator<Item = &mut Truth> {
        for key in 0..=by {
            self.truth.entry((key, day)).or_default();
        }
        self.truth
            .iter_mut()
            .filter(move |((key, of), _)| *key <= by && *of == day)
            .map(|(_, truth)| truth)
    }

    fn settle(&mut self, which: usize, spent: NanoUsd) {
        let Open { gateway, by, day, permit, .. } = self.open.swap_remove(which);
        permit.settle(None, Some(spent), false);
        self.billed(gateway, by, day, spent);
    }

    /// Drops a request as a panic does. Once it was sent, it costs its reserve.
    fn cut(&mut self, which: usize, is_sent: bool) {
        let amount = self.open[which].amount;
        match is_sent {
            true => {
                self.open[which].permit.mark_sent();
                let Open { gateway, by, day, .. } = self.open.swap_remove(which);
                self.billed(gateway, by, day, amount);
            }
            false => drop(self.open.swap_remove(which)),
        }
    }

    fn billed(&mut self, gateway: usize, by: usize, day: i64, spent: NanoUsd) {
        self.truth(by, day).for_each(|truth| truth.billed += spent);
        for key in 0..=by {
            *self.settled[gateway].entry((key, day)).or_default() += spent;
        }
    }

    /// Nobody knows what its running requests have spent: all that they may.
    async fn crash(&mut self, gateway: usize) {
        let (dead, open) =
            std::mem::take(&mut self.open).into_iter().partition(|open| open.gateway == gateway);
        self.open = open;
        let dead: Vec<Open> = dead;
        for Open { by, day, amount, permit, .. } in dead {
            self.truth(by, day).for_each(|truth| truth.unknown += amount);
            drop(permit);
        }
        for ((key, day), settled) in std::mem::take(&mut self.settled[gateway]) {
            self.truth.entry((key, day)).or_default().unwritten += settled;
        }
        self.crashed = true;
        self.start(gateway).await;
        // The others are taken for dead too, and go on.
        self.gateways[gateway].draw_alone();
        let ended = self.gateways[gateway].write(&self.world.store, self.now()).await;
        assert!(ended.is_ok(), "{ended:?}");
        self.gateways[gateway].set_shared(self.gateways.len() > 1);
    }

    /// Ends a process in order, and begins another.
    async fn leave(&mut self, gateway: usize) {
        while let Some(which) = self.open.iter().position(|open| open.gateway == gateway) {
            let spent = self.open[which].amount / 2;
            self.settle(which, spent);
        }
        self.write(gateway).await;
        self.gateways[gateway].close(&self.world.store).await.unwrap();
        self.start(gateway).await;
    }

    async fn write(&self, gateway: usize) {
        self.gateways[gateway].write(&self.world.store, self.now()).await.unwrap();
    }

    async fn stored(&self) -> HashMap<(usize, i64), OthersSpend> {
        let all = self.world.store.spend_news(0, "", ALL).await.unwrap().changed;
        let key_of = |id: &str| self.keys.iter().position(|key| key.id.as_str() == id).unwrap();
        all.into_iter().map(|((subject, day), sums)| ((key_of(&subject), day), sums)).collect()
    }

    /// Lets hours pass. No request runs from one day into the day after the next.
    async fn pass(&mut self, us: i64) {
        let day = super::day(self.now());
        while let Some(which) = self.open.iter().position(|open| open.day != day) {
            self.settle(which, 1);
        }
        for gateway in 0..self.gateways.len() {
            let _fails = self.gateways[gateway].write(&self.world.store, self.now()).await;
        }
        self.now_us += us;
    }

    async fn step(&mut self, (step, which, amount): (u8, usize, u64)) {
        let (gateway, by, under_way) =
            (which % self.gateways.len(), which / 7 % 2, self.open.len());
        let faults = self.world.faults.clone();
        match step {
            0..=3 => self.reserve(gateway, by, Reserve::exactly(amount)).await,
            4..=5 => self.reserve(gateway, by, Reserve::between(amount / 8, 400)).await,
            6..=8 if under_way > 0 => {
                let which = which % under_way;
                let spent = self.open[which].amount.min(amount);
                self.settle(which, spent);
            }
            9 if under_way > 0 => self.cut(which % under_way, amount % 2 == 0),
            10..=12 => self.write(gateway).await,
            13 => {
                faults.fail_writes(1);
                let _fails = self.gateways[gateway].write(&self.world.store, self.now()).await;
                faults.clear();
            }
            14 => {
                faults.lose_answers(1);
                let _fails = self.gateways[gateway].write(&self.world.store, self.now()).await;
                faults.clear();
            }
            15 => self.crash(gateway).await,
            16 => self.leave(gateway).await,
            17 => self.gateways[gateway].sweep(self.now()),
            18 => self.pass(HOUR_US * (amount as i64 % 20)).await,
            19 => self.now_us += 1_000_000 * (amount as i64 % 5),
            // To the end of the day, which is eight hours after time 0.
            _ => self.pass((8 * HOUR_US - 1_000_000 - self.now_us).rem_euclid(24 * HOUR_US)).await,
        }
        let mut used = self.truth.clone();
        for open in &self.open {
            for key in 0..=open.by {
                used.entry((key, open.day)).or_default().unknown += open.amount;
            }
        }
        for ((key, day), Truth { billed, unknown, .. }) in used {
            assert!(billed + unknown <= BUDGETS[key], "key {key} on {day}: {billed} and {unknown}");
        }
        for ((key, _), sums) in self.stored().await {
            assert!(sums.total() <= BUDGETS[key], "key {key}: {sums:?}");
        }
    }

    /// All requests have ended and all is written.
    async fn rest(&mut self) {
        while let Some(last) = self.open.len().checked_sub(1) {
            let spent = self.open[last].amount / 3;
            self.settle(last, spent);
        }
        for _ in 0..3 {
            self.now_us += 3_000_000;
            for gateway in 0..self.gateways.len() {
                self.write(gateway).await;
            }
        }
        let stored = self.stored().await;
        for ((key, day), truth) in &self.truth {
            let sums = stored.get(&(*key, *day)).copied().unwrap_or_default();
            let Truth { billed, unwritten, unknown } = *truth;
            assert_eq!(sums.held, 0, "key {key} on {day} holds nothing: {sums:?}");
            assert!(sums.spent <= billed && billed <= sums.spent + unwritten, "{sums:?} {truth:?}");
            assert!(billed + unknown <= sums.spent + sums.lost, "{sums:?} {truth:?}");
            assert!(self.crashed || (sums.spent, sums.lost) == (billed, 0), "{sums:?} {truth:?}");
        }
        for gateway in 0..self.gateways.len() {
            self.write(gateway).await;
            for (by, key) in self.keys.iter().enumerate() {
                let now = self.now();
                let subject = Subject::Key(key.id.clone());
                let draws = self.world.draws(key);
                let own = draws.iter().find(|draw| draw.subject == subject).unwrap();
                let money =
                    self.gateways[gateway].remaining(std::slice::from_ref(own), now).money.unwrap();
                let sums = stored.get(&(by, super::day(now))).copied().unwrap_or_default();
                assert_eq!((money.spent, money.held, money.lost), (sums.spent, 0, sums.lost));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_order_of_events_gives_a_budget_twice_or_forgets_a_bill(
        gateways in 1usize..4,
        steps in prop::collection::vec((0u8..21, any::<usize>(), 1u64..400), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(gateways).await;
            for step in steps {
                run.step(step).await;
            }
            run.rest().await;
        });
    }
}

#[tokio::test]
async fn crashes_without_a_request_cost_nothing_and_with_one_at_most_its_reserve() {
    let mut run = Run::new(1).await;
    for _ in 0..200 {
        run.crash(0).await;
    }
    assert!(run.stored().await.is_empty());
    let mut lost = 0;
    for _ in 0..10 {
        run.reserve(0, 0, Reserve::exactly(50)).await;
        run.settle(0, 1);
        run.write(0).await;
        run.crash(0).await;
        lost += 50;
    }
    let sums = run.stored().await[&(0, super::day(at(0)))];
    assert_eq!((sums.spent, sums.lost), (10, lost));
    // Once some seconds have passed nothing is held any more.
    run.reserve(0, 0, Reserve::exactly(50)).await;
    run.settle(0, 1);
    for _ in 0..3 {
        run.now_us += 3_000_000;
        run.write(0).await;
    }
    run.crash(0).await;
    assert_eq!(run.stored().await[&(0, super::day(at(0)))], OthersSpend { spent: 11, ..sums });
}

#[tokio::test]
async fn what_runs_at_the_end_of_a_process_is_lost_and_not_forgotten() {
    let mut run = Run::new(1).await;
    run.reserve(0, 0, Reserve::exactly(50)).await;
    run.settle(0, 7);
    run.reserve(0, 0, Reserve::exactly(60)).await;
    run.gateways[0].stop();
    run.reserve(0, 0, Reserve::exactly(5)).await;
    assert_eq!(run.open.len(), 1, "no request spends a budget once the process ends");
    run.gateways[0].close(&run.world.store).await.unwrap();
    let sums = run.stored().await[&(0, super::day(at(0)))];
    assert_eq!((sums.spent, sums.held, sums.lost), (7, 0, 60));
}

#[tokio::test]
async fn a_process_that_comes_back_after_a_settlement_adds_at_most_what_it_held() {
    let mut run = Run::new(2).await;
    run.reserve(0, 0, Reserve::exactly(60)).await;
    run.world.store.end_other_holders(run.gateways[1].holder.0).await.unwrap();
    let key = (run.keys[0].id.to_string(), super::day(at(0)));
    assert!(run.world.store.settle_lost(key, 40).await.unwrap());
    run.write(0).await;
    run.settle(0, 50);
    run.write(0).await;
    let sums = run.stored().await[&(0, super::day(at(0)))];
    assert_eq!((sums.spent, sums.lost), (90, 0));
}
