use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn day(nano: NanoUsd) -> Budget {
    Budget { nano, per: Per::Day }
}

fn grant(account: &mut Account, now: Timestamp) {
    for wanted in account.wants(now) {
        account.granted(wanted);
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
    let account = Account::open(day(5), late, 7);
    let money = account.money(LimitOwner::Key);
    assert_eq!((money.spent, money.remaining(), money.reset(late).as_secs()), (7, 0, 30));
    // A clock that was set back is told the end of the period that counts.
    assert_eq!(money.reset(at("2026-12-30T23:59:30Z")).as_secs(), 86_430);
}

#[test]
fn nothing_is_spent_that_is_not_granted() {
    let now = at("2026-11-21T12:00:00Z");
    let mut account = Account::open(day(1_000), now, 0);
    assert_eq!(account.check(1), Err(BudgetShortage::NotGranted));
    assert!(account.expect(40));
    assert_eq!(account.wants(now), [Grant { period: 20_261_121, counted: 250 }]);
    grant(&mut account, now);
    let period = account.reserve(250);
    assert_eq!(account.check(1), Err(BudgetShortage::NotGranted));
    assert_eq!(
        (account.check(750), account.check(751), account.check(1_001)),
        (Err(BudgetShortage::NotGranted), Err(BudgetShortage::Held), Err(BudgetShortage::Spent))
    );
    account.settle(period, 250, 30);
    assert_eq!((account.spent(), account.check(220)), (30, Ok(())));
    // One alone may be ahead of its grant; the next waits until all that is spent is granted.
    assert_eq!((account.check(221), account.check(971)), (Ok(()), Err(BudgetShortage::Spent)));
    let period = account.reserve(900);
    assert_eq!(account.check(1), Err(BudgetShortage::NotGranted));
    account.settle(period, 900, 900);
    assert_eq!(account.check(1), Err(BudgetShortage::NotGranted));
    grant(&mut account, now);
    assert_eq!(account.check(70), Ok(()));
}

#[test]
fn a_request_that_the_budget_can_pay_is_not_refused_for_ever() {
    let now = at("2026-11-21T12:00:00Z");
    let mut account = Account::open(day(1_000), now, 0);
    account.expect(80);
    grant(&mut account, now);
    account.reserve(80);
    // A quarter of the budget is granted, and less than this.
    assert_eq!(account.check(800), Err(BudgetShortage::NotGranted));
    assert!(account.expect(800));
    grant(&mut account, now);
    assert_eq!(account.check(800), Ok(()));
}

#[test]
fn a_grant_that_was_asked_for_by_another_kind_of_period_is_none() {
    let now = at("2026-11-21T23:59:50Z");
    let mut account = Account::open(Budget { nano: 1_000, per: Per::Month }, now, 0);
    account.granted(Grant { period: 20_261_122, counted: 250 });
    assert_eq!(account.close(), [Grant { period: 20_261_100, counted: 0 }]);
}

#[test]
fn a_new_period_begins_with_what_was_granted_ahead() {
    let late = at("2026-11-30T23:59:50Z");
    let mut account = Account::open(day(1_000), late, 1_000);
    assert_eq!(account.check(1), Err(BudgetShortage::Spent));
    let ahead = account.wants(late);
    assert_eq!(ahead, [Grant { period: 20_261_201, counted: 250 }]);
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
    let mut account = Account::open(day(1_000), now, 7);
    grant(&mut account, now);
    account.settle(20_261_121, 0, 3);
    assert_eq!(account.close(), [Grant { period: 20_261_121, counted: 10 }]);
    assert_eq!(account.check(1), Err(BudgetShortage::NotGranted));
}

proptest! {
    /// Settled and reserved money stays within the budget, except for what was settled beyond
    /// its reserve. What would count after a crash is never less than what was used, with the
    /// same exception and that of one reserve ahead of its grant.
    #[test]
    fn never_over(budget in 1u64..5_000,
        steps in proptest::collection::vec((0u8..5, 1u64..300, 0u64..400), 1..200)) {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(budget), now, 0);
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
                    account.expect(reserve);
                    if account.check(least.min(most)).is_ok() {
                        prop_assert!(reserve <= account.room());
                        open.push((account.reserve(reserve), reserve));
                        ahead = account.ahead();
                        prop_assert!(ahead <= most);
                    }
                }
                1 => {
                    account.expect(amount);
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
