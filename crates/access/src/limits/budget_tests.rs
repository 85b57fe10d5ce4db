use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn day(nano: NanoUsd) -> Budget {
    Budget { nano, per: Per::Day }
}

/// What the store makes of a wish, where `counted` is all that counts as spent.
fn durable(counted: &mut Option<NanoUsd>, wish: GrantWish) -> Grant {
    let BudgetShare { holder, held, wanted, least, budget, others } = wish.share;
    let others = others.unwrap_or_else(|| counted.unwrap_or(0).saturating_sub(held));
    let held = wanted.min(budget.saturating_sub(others)).max(least);
    *counted = Some(others + held);
    Grant { period: wish.period, holder, held, others, reserved: wish.recalls.then_some(0) }
}

/// The periods of wishes, and what would count as spent.
fn counted(wishes: Vec<GrantWish>) -> Vec<(Period, NanoUsd)> {
    let counted = |wish: &GrantWish| wish.share.others.unwrap_or(0) + wish.share.wanted;
    wishes.iter().map(|wish| (wish.period, counted(wish))).collect()
}

fn grant(account: &mut Account, now: Timestamp) {
    let mut nobody = None;
    for wish in account.wants(now) {
        account.granted(durable(&mut nobody, wish));
    }
}

#[test]
fn periods_are_days_and_months_in_utc() {
    let late = at("2026-12-31T23:59:30Z");
    assert_eq!((period(Per::Day, late), period(Per::Month, late)), (20_261_231, 20_261_200));
    for (period, next) in [
        (20_261_231, "2027-01-01"),
        (20_261_200, "2027-01-01"),
        (20_260_227, "2026-02-28"),
        (20_280_200, "2028-03-01"),
    ] {
        assert_eq!(end(period), Some(at(&format!("{next}T00:00:00Z"))));
    }
    assert_eq!(end(20_261_301), None);
    let account = Account::open(day(5), late, 7, false);
    let money = account.money(LimitOwner::Key);
    assert_eq!((money.spent, money.remaining(), money.reset(late).as_secs()), (7, 0, 30));
    // A clock that was set back is told the end of the period that counts.
    assert_eq!(money.reset(at("2026-12-30T23:59:30Z")).as_secs(), 86_430);
}

#[test]
fn nothing_is_spent_that_is_not_granted() {
    let now = at("2026-11-21T12:00:00Z");
    let mut account = Account::open(day(1_000), now, 0, false);
    assert_eq!(account.check(1), Err(BudgetRefusal::NotGranted));
    assert!(account.note_reserve(40));
    assert_eq!(counted(account.wants(now)), [(20_261_121, 250)]);
    grant(&mut account, now);
    let period = account.reserve(250);
    assert_eq!(account.check(1), Err(BudgetRefusal::NotGranted));
    assert_eq!(
        (account.check(750), account.check(751), account.check(1_001)),
        (Err(BudgetRefusal::NotGranted), Err(BudgetRefusal::Held), Err(BudgetRefusal::Spent))
    );
    account.settle(period, 250, 30);
    assert_eq!((account.spent(), account.check(220)), (30, Ok(())));
    // One alone may be ahead of its grant; the next waits until all that is spent is granted.
    assert_eq!((account.check(221), account.check(971)), (Ok(()), Err(BudgetRefusal::Spent)));
    let period = account.reserve(900);
    assert_eq!(account.check(1), Err(BudgetRefusal::NotGranted));
    account.settle(period, 900, 900);
    assert_eq!(account.check(1), Err(BudgetRefusal::NotGranted));
    grant(&mut account, now);
    assert_eq!(account.check(70), Ok(()));
}

#[test]
fn a_request_that_the_budget_can_pay_is_not_refused_for_ever() {
    let now = at("2026-11-21T12:00:00Z");
    let mut account = Account::open(day(1_000), now, 0, false);
    account.note_reserve(80);
    grant(&mut account, now);
    account.reserve(80);
    // A quarter of the budget is granted, and less than this.
    assert_eq!(account.check(800), Err(BudgetRefusal::NotGranted));
    assert!(account.note_reserve(800));
    grant(&mut account, now);
    assert_eq!(account.check(800), Ok(()));
}

#[test]
fn a_grant_that_was_asked_for_by_another_kind_of_period_is_none() {
    let now = at("2026-11-21T23:59:50Z");
    let mut account = Account::open(Budget { nano: 1_000, per: Per::Month }, now, 0, false);
    let (period, holder) = (20_261_122, account.holder);
    account.granted(Grant { period, holder, held: 250, others: 0, reserved: None });
    assert_eq!(counted(account.close()), [(20_261_100, 0)]);
}

#[test]
fn a_new_period_begins_with_what_was_granted_ahead() {
    let late = at("2026-11-30T23:59:50Z");
    let mut account = Account::open(day(1_000), late, 1_000, false);
    assert_eq!(account.check(1), Err(BudgetRefusal::Spent));
    let ahead = account.wants(late);
    assert_eq!(counted(ahead), [(20_261_201, 250)]);
    grant(&mut account, late);
    assert!(account.wants(late).is_empty());
    let stale = account.reserve(0);
    account.turn(at("2026-12-01T00:00:00Z"));
    assert_eq!((account.spent(), account.check(50)), (0, Ok(())));
    account.settle(stale, 0, 400);
    assert_eq!(account.spent(), 0, "what began yesterday is yesterday's");
    account.reserve(50);
    account.turn(late);
    assert_eq!(account.period(), 20_261_201, "a clock that goes back gives no day twice");
}

#[test]
fn leaving_in_order_loses_nothing() {
    let now = at("2026-11-21T12:00:00Z");
    let mut account = Account::open(day(1_000), now, 7, false);
    grant(&mut account, now);
    account.settle(20_261_121, 0, 3);
    assert_eq!(counted(account.close()), [(20_261_121, 10)]);
    assert_eq!(account.check(1), Err(BudgetRefusal::NotGranted));
}

proptest! {
    /// Settled and reserved money stays within the budget, except for what was settled beyond
    /// its reserve. What would count after a crash is never less than what was used, with the
    /// same exception and that of one reserve ahead of its grant.
    #[test]
    fn never_over(budget in 1u64..5_000,
        steps in proptest::collection::vec((0u8..5, 1u64..300, 0u64..400), 1..200)) {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(budget), now, 0, false);
        let (mut open, mut beyond, mut spent) = (Vec::new(), 0, 0);
        // What the one reserve that came alone has beyond what is granted.
        let mut ahead = 0;
        for (step, amount, used) in steps {
            match step {
                0 => {
                    grant(&mut account, now);
                    ahead = 0;
                }
                4 => {
                    let (least, most) = (amount / 8 + 1, amount);
                    let reserve = most.min(account.room()).max(least.min(most));
                    account.note_reserve(reserve);
                    if account.check(least.min(most)).is_ok() {
                        prop_assert!(reserve <= account.room());
                        open.push((account.reserve(reserve), reserve));
                        ahead = account.ahead();
                        prop_assert!(ahead <= most);
                    }
                }
                1 => {
                    account.note_reserve(amount);
                    if account.check(amount).is_ok() {
                        open.push((account.reserve(amount), amount));
                        ahead = account.ahead();
                        prop_assert!(ahead <= amount);
                    }
                }
                _ => if let Some((period, reserved)) = open.pop() {
                    let used = if step == 2 { used } else { 0 };
                    account.settle(period, reserved, used);
                    spent += used;
                    beyond += used.saturating_sub(reserved);
                },
            }
            let held: u64 = open.iter().map(|(_, reserved)| reserved).sum();
            prop_assert_eq!((account.spent(), account.now.reserved), (spent, held));
            prop_assert!(spent + held <= budget + beyond);
            prop_assert!(spent + held <= account.now.granted + beyond + ahead);
            prop_assert!(account.now.granted <= budget.max(spent + held));
        }
    }
}

/// Two gateways on one budget.
struct Pair {
    accounts: [Account; 2],
    counted: Option<NanoUsd>,
    /// What each holds, as the store has it.
    rows: HashMap<i64, NanoUsd>,
    write: Write,
}

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq)]
enum Write {
    Answered,
    /// It happens, and nobody is told.
    Unanswered,
    Failed,
}

impl Pair {
    fn new(budget: NanoUsd, now: Timestamp) -> Pair {
        Pair {
            accounts: [0, 1].map(|_| Account::open(day(budget), now, 0, true)),
            counted: None,
            rows: HashMap::new(),
            write: Write::Answered,
        }
    }

    fn grant(&mut self, at: usize, now: Timestamp) -> bool {
        self.accounts[at].turn(now);
        let wishes = self.accounts[at].wants(now);
        let recalls = wishes.iter().any(|wish| wish.recalls);
        self.keep(at, wishes);
        recalls
    }

    fn give_back(&mut self, at: usize, now: Timestamp) {
        let wish = self.accounts[at].give_back(20_261_121, now);
        self.keep(at, wish.into_iter().collect());
    }

    fn keep(&mut self, at: usize, wishes: Vec<GrantWish>) {
        for wish in wishes {
            let reserved = wish.recalls.then_some(self.accounts[1 - at].now.reserved);
            if self.write == Write::Failed {
                continue;
            }
            let row = self.rows.entry(wish.share.holder).or_default();
            let share = BudgetShare { held: *row, ..wish.share };
            let grant = durable(&mut self.counted, GrantWish { share, ..wish });
            *row = grant.held;
            if self.write == Write::Answered {
                self.accounts[at].granted(Grant { reserved, ..grant });
            }
        }
    }

    /// What both have spent and reserved.
    fn used(&self) -> NanoUsd {
        self.accounts.iter().map(|one| one.now.used() - one.now.others).sum()
    }
}

#[test]
fn one_of_several_gateways_gets_what_the_others_do_not_use() {
    let start = at("2026-11-21T12:00:00Z");
    let at = |s: i64| start.checked_add(jiff::SignedDuration::from_secs(s)).unwrap();
    let mut pair = Pair::new(1_000, start);
    for one in 0..2 {
        pair.accounts[one].note_reserve(200);
        pair.grant(one, at(0));
    }
    // The first uses up all that is left beside the grant of the second.
    let mut second = 0;
    while pair.accounts[0].check(100).is_ok() {
        pair.accounts[0].reserve(100);
        pair.accounts[0].note_reserve(100);
        second += 1;
        pair.grant(0, at(second));
    }
    assert_eq!(pair.accounts[0].check(100), Err(BudgetRefusal::NotGranted), "it asks");
    pair.accounts[0].note_reserve(100);
    assert!(pair.grant(0, at(second)));
    pair.give_back(1, at(second));
    pair.grant(0, at(second));
    assert_eq!(pair.accounts[0].check(100), Ok(()));
    while pair.accounts[0].check(100).is_ok() {
        pair.accounts[0].reserve(100);
        pair.accounts[0].note_reserve(100);
        pair.grant(0, at(second));
    }
    assert_eq!(pair.used(), 1_000);
    assert_eq!(pair.accounts[0].check(100), Err(BudgetRefusal::Held), "by this gateway");
}

/// Asks for 300 at the second gateway from `from` on, for three seconds; what it is told at last.
fn ask(pair: &mut Pair, from: Timestamp) -> Result<(), BudgetRefusal> {
    for ms in (0..=3_000).step_by(500) {
        let now = from.checked_add(jiff::SignedDuration::from_millis(ms)).unwrap();
        pair.accounts[1].turn(now);
        pair.accounts[1].note_reserve(300);
        pair.grant(1, now);
        pair.give_back(0, now);
    }
    pair.accounts[1].check(300)
}

#[test]
fn a_grant_whose_answer_was_lost_is_not_lost() {
    let now = at("2026-11-21T12:00:00Z");
    let mut pair = Pair::new(1_000, now);
    pair.accounts[0].note_reserve(200);
    pair.write = Write::Unanswered;
    pair.grant(0, now);
    assert_eq!(pair.accounts[0].check(200), Err(BudgetRefusal::NotGranted));
    pair.grant(0, now);
    pair.write = Write::Answered;
    pair.grant(0, now);
    assert_eq!((pair.accounts[0].spent(), pair.accounts[0].check(200)), (0, Ok(())));
    // The same of what is given back: it is told again.
    for write in [Write::Unanswered, Write::Failed] {
        pair.write = write;
        pair.give_back(0, now);
        assert_eq!(pair.accounts[0].check(1), Err(BudgetRefusal::NotGranted));
        pair.write = Write::Answered;
        pair.give_back(0, now);
        assert_eq!((pair.counted, pair.accounts[0].spent()), (Some(0), 0));
        pair.grant(0, now);
    }
    assert!(pair.counted > Some(0));
    pair.accounts[1].note_reserve(1);
    pair.grant(1, now);
    assert_eq!(pair.accounts[1].now.others, pair.accounts[0].now.granted);
}

#[test]
fn what_the_store_has_and_an_account_does_not_know_of_is_corrected_though_nothing_is_wanted() {
    let now = at("2026-11-21T12:00:00Z");
    let mut pair = Pair::new(1_000, now);
    pair.accounts[0].note_reserve(200);
    pair.grant(0, now);
    let held = pair.counted;
    let period = pair.accounts[0].reserve(150);
    pair.accounts[0].note_reserve(0);
    pair.write = Write::Unanswered;
    pair.grant(0, now);
    assert!(pair.counted > held);
    pair.accounts[0].settle(period, 150, 0);
    assert!(!pair.accounts[0].is_short());
    pair.write = Write::Answered;
    pair.grant(0, now);
    assert_eq!(pair.counted, held);
    assert!(pair.accounts[0].wants(now).is_empty());
}

#[test]
fn an_account_that_is_opened_again_does_not_take_what_the_one_before_has_spent() {
    let now = at("2026-11-21T12:00:00Z");
    let mut pair = Pair::new(1_000, now);
    pair.accounts[0].note_reserve(200);
    pair.grant(0, now);
    let before = pair.accounts[0].now.granted;
    let period = pair.accounts[0].reserve(200);
    pair.accounts[0].settle(period, 200, 200);
    pair.accounts[0] = Account::open(day(1_000), now, 200, true);
    pair.accounts[0].note_reserve(1);
    pair.grant(0, now);
    assert_eq!(pair.accounts[0].spent(), before);
}

#[test]
fn what_another_gateway_has_reserved_is_not_spent() {
    let start = at("2026-11-21T12:00:00Z");
    let at = |s: i64| start.checked_add(jiff::SignedDuration::from_secs(s)).unwrap();
    let mut pair = Pair::new(1_000, start);
    pair.accounts[0].note_reserve(800);
    pair.grant(0, at(0));
    let period = pair.accounts[0].reserve(800);
    pair.accounts[1].note_reserve(300);
    pair.grant(1, at(0));
    assert_eq!(pair.accounts[1].check(300), Err(BudgetRefusal::NotGranted), "it asks");
    assert_eq!(ask(&mut pair, at(0)), Err(BudgetRefusal::Held));
    assert!(!pair.accounts[1].is_spent());
    // It asks again after some seconds. Meanwhile the request cost next to nothing.
    pair.accounts[0].settle(period, 800, 1);
    assert_eq!(ask(&mut pair, at(6)), Ok(()));
}

#[test]
fn what_another_gateway_has_spent_is_learnt_by_requests_smaller_than_the_largest() {
    let start = at("2026-11-21T12:00:00Z");
    let at = |s: i64| start.checked_add(jiff::SignedDuration::from_secs(s)).unwrap();
    let mut pair = Pair::new(1_000, start);
    let spend = |pair: &mut Pair, gateway: usize, reserve, cost, second| {
        pair.accounts[gateway].turn(at(second));
        pair.accounts[gateway].note_reserve(reserve);
        pair.grant(gateway, at(second));
        let period = pair.accounts[gateway].reserve(reserve);
        pair.accounts[gateway].settle(period, reserve, cost);
        pair.give_back(gateway, at(second));
    };
    spend(&mut pair, 1, 900, 100, 0);
    spend(&mut pair, 0, 200, 200, 1);
    pair.accounts[0].note_reserve(600);
    pair.grant(0, at(1));
    let period = pair.accounts[0].reserve(600);
    assert!(ask(&mut pair, at(2)).is_err());
    pair.accounts[0].settle(period, 600, 500);
    assert_eq!(ask(&mut pair, at(12)), Err(BudgetRefusal::Spent));
}

#[test]
fn what_another_gateway_has_spent_is_spent() {
    let start = at("2026-11-21T12:00:00Z");
    let at = |s: i64| start.checked_add(jiff::SignedDuration::from_secs(s)).unwrap();
    let mut pair = Pair::new(1_000, start);
    pair.accounts[0].note_reserve(800);
    pair.grant(0, at(0));
    let period = pair.accounts[0].reserve(800);
    pair.accounts[0].settle(period, 800, 800);
    assert_eq!(ask(&mut pair, at(0)), Err(BudgetRefusal::Spent));
    // Not only until the next question.
    for second in [4, 20, 59] {
        pair.accounts[1].turn(at(second));
        assert_eq!(pair.accounts[1].check(300), Err(BudgetRefusal::Spent), "{second}");
        assert!(!pair.accounts[1].is_spent(), "something smaller has room");
    }
    assert_eq!(ask(&mut pair, at(61)), Err(BudgetRefusal::Spent));
    // Another reserve there does not bring it back.
    pair.accounts[0].note_reserve(150);
    pair.grant(0, at(80));
    pair.accounts[0].reserve(150);
    pair.accounts[1].turn(at(80));
    assert_eq!(pair.accounts[1].check(300), Err(BudgetRefusal::Spent));
}

proptest! {
    #[test]
    fn several_gateways_never_go_over(budget in 10u64..5_000,
        steps in proptest::collection::vec((0u8..8, 0usize..2, 1u64..400), 1..300)) {
        let start = at("2026-11-21T12:00:00Z");
        let mut pair = Pair::new(budget, start);
        let mut open = Vec::new();
        for (second, (step, one, amount)) in (0_i64..).zip(steps) {
            let now = start.checked_add(jiff::SignedDuration::from_secs(second)).unwrap();
            pair.write = match amount % 8 {
                0 => Write::Unanswered,
                1 => Write::Failed,
                _ => Write::Answered,
            };
            match step {
                0 | 1 => _ = pair.grant(one, now),
                2 => pair.give_back(one, now),
                3 | 4 => if let Some((one, period, reserved)) = open.pop() {
                    let account: &mut Account = &mut pair.accounts[one];
                    account.settle(period, reserved, reserved.min(amount));
                },
                _ => {
                    let account = &mut pair.accounts[one];
                    account.turn(now);
                    account.note_reserve(amount);
                    let needed = account.needs(1, amount.min(account.room()).max(1));
                    if account.check(needed).is_ok() {
                        open.push((one, account.reserve(needed), needed));
                    }
                }
            }
            prop_assert!(pair.used() <= budget, "{} of {budget}", pair.used());
        }
        // Nothing is lost: once both are told, all that counts is what they know that they hold.
        pair.write = Write::Answered;
        let end = start.checked_add(jiff::SignedDuration::from_secs(1_000)).unwrap();
        for (one, period, reserved) in open {
            pair.accounts[one].settle(period, reserved, 0);
        }
        (0..2).for_each(|one| pair.give_back(one, end));
        (0..2).for_each(|one| pair.give_back(one, end));
        prop_assert_eq!(pair.counted.unwrap_or(0), pair.used());
    }
}
