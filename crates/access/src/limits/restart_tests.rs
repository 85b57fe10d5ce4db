//! Budgets over days, crashes, orderly restarts and a store that fails, in any order, against plain
//! sums.

use std::collections::HashMap;

use proptest::prelude::*;

use super::budget::Account;
use super::tests::{World, at, day};
use super::*;
use rerouter_store::{KeyRow, Limits};

const HOUR_US: i64 = 3_600_000_000;
/// What a request reserves at most.
const MOST: NanoUsd = 400;

/// A key with a budget, and what was spent of that on each day by the requests themselves.
struct Payer {
    budget: NanoUsd,
    subject: Subject,
    spent: HashMap<i64, NanoUsd>,
    /// What crashes forgot of it: of one request each, what was reserved ahead of its grant.
    forgotten: HashMap<i64, NanoUsd>,
}

/// A request under way: which key it came by, the day on which it reserved, how much.
struct Open {
    by: usize,
    day: i64,
    amount: NanoUsd,
    permit: LimitPermit,
}

struct Run {
    world: World,
    keys: Vec<KeyRow>,
    payers: Vec<Payer>,
    limiter: Limiter,
    open: Vec<Open>,
    now_us: i64,
    /// When a process last ended out of order.
    crashed_us: i64,
}

impl Run {
    async fn new() -> Run {
        let world = World::new(Limits::default()).await;
        let mut keys = Vec::new();
        let mut payers = Vec::new();
        for budget in [1_000, 700] {
            let key =
                world.key(keys.last(), Limits { budget: day(budget), ..Limits::default() }).await;
            payers.push(Payer {
                budget,
                subject: Subject::Key(key.id.clone()),
                spent: HashMap::new(),
                forgotten: HashMap::new(),
            });
            keys.push(key);
        }
        let mut run = Run {
            world,
            keys,
            payers,
            limiter: Limiter::default(),
            open: Vec::new(),
            now_us: 0,
            crashed_us: i64::MIN,
        };
        run.start().await;
        run
    }

    fn now(&self) -> Timestamp {
        at(self.now_us)
    }

    fn today(&self) -> i64 {
        super::day(self.now())
    }

    async fn start(&mut self) {
        self.limiter = Limiter::default();
        self.limiter.open(&self.world.auth, &self.world.store, self.now()).await.unwrap();
    }

    fn reserve(&mut self, by: usize, wanted: Reserve) {
        let mut permit =
            self.limiter.admit(&self.world.draws(&self.keys[by]), 1, self.now()).unwrap();
        if self.limiter.reserve(&mut permit, wanted, self.now()).is_ok() {
            let amount = permit.held[0].money.expect("it has a budget").1;
            assert!((wanted.least..=wanted.most).contains(&amount));
            self.open.push(Open { by, day: self.today(), amount, permit });
        }
    }

    /// The first key is above the second, and pays for both.
    fn note(&mut self, by: usize, day: i64, spent: NanoUsd) {
        for payer in &mut self.payers[..=by] {
            *payer.spent.entry(day).or_default() += spent;
        }
    }

    fn settle(&mut self, which: usize, spent: NanoUsd) {
        let Open { by, day, permit, .. } = self.open.swap_remove(which);
        permit.settle(None, Some(spent));
        self.note(by, day, spent);
    }

    /// Nobody knows what the requests under way have spent: all that they may.
    async fn crash(&mut self) {
        let today = self.today();
        for payer in &mut self.payers {
            let counted = self.limiter.counted(&payer.subject);
            let ahead = counted.counts().account.as_ref().map_or(0, Account::ahead);
            assert!(ahead <= MOST, "{ahead} of one request");
            *payer.forgotten.entry(today).or_default() += ahead;
        }
        for Open { by, day, amount, permit } in std::mem::take(&mut self.open) {
            self.note(by, day, amount);
            drop(permit);
        }
        self.crashed_us = self.now_us;
        self.start().await;
    }

    async fn leave(&mut self) {
        while let Some(last) = self.open.len().checked_sub(1) {
            let spent = self.open[last].amount / 2;
            self.settle(last, spent);
        }
        self.limiter.close(&self.world.store).await.unwrap();
        self.start().await;
        let today = self.today();
        for payer in &self.payers {
            let counted = self.limiter.counted(&payer.subject);
            let counted = counted.counts().account.as_ref().unwrap().spent();
            let spent = payer.spent.get(&today).copied().unwrap_or(0);
            let forgotten = payer.forgotten.get(&today).copied().unwrap_or(0);
            assert!(counted + forgotten >= spent, "{counted} of {spent} are remembered");
            // A crash may cost a grant of its day, and of the next if that was near.
            let crashed = self.now_us.saturating_sub(self.crashed_us) < 48 * HOUR_US;
            assert!(counted == spent || crashed, "{counted} count where {spent} were spent");
        }
    }

    async fn step(&mut self, (step, which, amount): (u8, usize, u64)) {
        let under_way = self.open.len();
        match step {
            0..=3 => self.reserve(which % 2, Reserve::exactly(amount)),
            4..=5 => self.reserve(which % 2, Reserve::between(amount / 8, MOST)),
            6..=8 if under_way > 0 => {
                let which = which % under_way;
                let spent = self.open[which].amount.min(amount);
                self.settle(which, spent);
            }
            9 if under_way > 0 => drop(self.open.swap_remove(which % under_way)),
            10..=13 => self.limiter.write(&self.world.store, self.now()).await.unwrap(),
            14 => {
                self.world.faults.fail_writes(1);
                let _fails = self.limiter.write(&self.world.store, self.now()).await;
                self.world.faults.clear();
            }
            15 => self.crash().await,
            16 => self.leave().await,
            17 => self.limiter.sweep(&self.world.auth, self.now()),
            18 => self.now_us += HOUR_US * (amount as i64 % 20),
            // To the end of the day, when the first grants of the next are made; that day begins
            // eight hours after time 0.
            19 => self.now_us += (8 * HOUR_US - 1_000_000 - self.now_us).rem_euclid(24 * HOUR_US),
            _ => {}
        }
        for (at, payer) in self.payers.iter().enumerate() {
            let held = self.open.iter().filter(|open| open.by >= at);
            let mut used = payer.spent.clone();
            held.for_each(|open| *used.entry(open.day).or_default() += open.amount);
            let allowed = |day: &i64| payer.budget + payer.forgotten.get(day).copied().unwrap_or(0);
            assert!(
                used.iter().all(|(day, used)| *used <= allowed(day)),
                "{used:?} of {}",
                payer.budget
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No day sees more than its budget, and what is left in order is remembered to the last
    /// billionth.
    #[test]
    fn no_order_of_events_gives_a_budget_twice(
        steps in prop::collection::vec((0u8..20, any::<usize>(), 1u64..400), 1..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new().await;
            for step in steps {
                run.step(step).await;
            }
            run.leave().await;
        });
    }
}
