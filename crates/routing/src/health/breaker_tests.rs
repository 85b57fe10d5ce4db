use super::*;
use proptest::prelude::*;

const START: i64 = 1_764_000_000_000_000;
const SECOND: i64 = 1_000_000;

fn settings() -> BreakerSettings {
    BreakerSettings {
        consecutive: 3,
        error_rate: 50,
        min_requests: 10,
        window: Duration::from_secs(10),
        open: Duration::from_secs(1),
    }
}

/// A breaker that has just opened at `at`.
fn opened(at: i64) -> CircuitBreaker {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..3 {
        let pass = breaker.enter(at).unwrap();
        breaker.failed(pass, at, &settings());
    }
    assert_eq!(breaker.state_at(at), (BreakerState::Open, false));
    breaker
}

#[test]
fn errors_in_a_row_open_it_and_successes_between_them_do_not() {
    let (mut breaker, settings) = (CircuitBreaker::default(), settings());
    for good in [false, false, true, false, false, true, true, true] {
        let pass = breaker.enter(START).unwrap();
        if good {
            breaker.succeeded(pass, START, &settings)
        } else {
            breaker.failed(pass, START, &settings)
        };
    }
    assert_eq!(breaker.state_at(START), (BreakerState::Closed, false));
    assert_eq!(opened(START).enter(START + SECOND - 1), None);
}

#[test]
fn a_change_says_why_and_for_how_long() {
    let (mut breaker, settings) = (opened(START), settings());
    let seconds = |why, seconds| Some(BreakerChange::Opened(why, Duration::from_secs(seconds)));
    let probe = breaker.enter(START + SECOND).unwrap();
    assert_eq!(probe.change(), Some(BreakerChange::HalfOpen));
    assert_eq!(breaker.failed(probe, START + SECOND, &settings), seconds(TripReason::Tried, 2));
    assert_eq!(breaker.check_failed(START + SECOND, &settings), None, "it is open already");
    assert_eq!(
        (breaker.check_passed(), breaker.check_passed()),
        (Some(BreakerChange::HalfOpen), None)
    );
    assert_eq!(breaker.check_failed(START + SECOND, &settings), seconds(TripReason::Check, 2));
    let probe = breaker.enter(START + 3 * SECOND).unwrap();
    assert_eq!(
        breaker.succeeded(probe, START + 3 * SECOND, &settings),
        Some(BreakerChange::Closed)
    );
    let mut fresh = CircuitBreaker::default();
    let opens = |breaker: &mut CircuitBreaker, good: &[bool]| {
        let attempts = good.iter().map(|good| {
            let pass = breaker.enter(START).unwrap();
            if *good {
                breaker.succeeded(pass, START, &settings)
            } else {
                breaker.failed(pass, START, &settings)
            }
        });
        attempts.collect::<Vec<_>>().pop().flatten()
    };
    assert_eq!(opens(&mut fresh, &[false; 3]), seconds(TripReason::InARow(3), 1));
    assert_eq!(
        opens(&mut CircuitBreaker::default(), &[true, false].repeat(5)),
        seconds(TripReason::Share(5, 10), 1)
    );
}

#[test]
fn a_share_of_errors_opens_it_once_there_are_enough_requests() {
    let (mut breaker, settings) = (CircuitBreaker::default(), settings());
    for number in 0..10 {
        assert_eq!(breaker.state_at(START), (BreakerState::Closed, false), "{number}");
        let pass = breaker.enter(START).unwrap();
        if number % 2 == 0 {
            breaker.succeeded(pass, START, &settings)
        } else {
            breaker.failed(pass, START, &settings)
        };
    }
    assert_eq!(breaker.state_at(START), (BreakerState::Open, false));
}

#[test]
fn half_open_lets_one_through_and_goes_by_it() {
    let mut breaker = opened(START);
    let at = START + SECOND;
    assert_eq!(breaker.state_at(at), (BreakerState::HalfOpen, true));
    let probe = breaker.enter(at).unwrap();
    assert!(probe.probe);
    assert_eq!((breaker.enter(at), breaker.state_at(at)), (None, (BreakerState::HalfOpen, false)));
    breaker.abandoned(probe);
    assert_eq!(breaker.state_at(at), (BreakerState::HalfOpen, true), "nothing was learnt");
    let mut probe = breaker.enter(at).unwrap();
    breaker.probe_succeeded(&mut probe, at);
    assert_eq!(breaker.state_at(at), (BreakerState::Closed, false));
    breaker.failed(probe, at, &settings());
    assert_eq!(breaker.state_at(at), (BreakerState::Closed, false), "one error among others");
}

#[test]
fn it_stays_open_for_longer_each_time_up_to_the_maximum_and_forgets_in_calm() {
    let mut breaker = opened(START);
    let (mut at, mut lengths) = (START, Vec::new());
    for _ in 0..14 {
        let until = breaker.open_until(at).unwrap();
        lengths.push((until - at) / SECOND);
        at = until;
        let probe = breaker.enter(at).unwrap();
        breaker.failed(probe, at, &settings());
    }
    let most = i64::try_from(BREAKER_OPEN_MAX.as_secs()).unwrap();
    assert_eq!(lengths[..4], [1, 2, 4, 8]);
    assert_eq!(lengths.last(), Some(&most));
    at = breaker.open_until(at).unwrap();
    let probe = breaker.enter(at).unwrap();
    breaker.succeeded(probe, at, &settings());
    for (calm, length) in [(1, most), (2 * most, 1)] {
        at += calm * SECOND;
        for _ in 0..3 {
            let pass = breaker.enter(at).unwrap();
            breaker.failed(pass, at, &settings());
        }
        assert_eq!((breaker.open_until(at).unwrap() - at) / SECOND, length);
        at = breaker.open_until(at).unwrap();
        let probe = breaker.enter(at).unwrap();
        breaker.succeeded(probe, at, &settings());
    }
}

#[test]
fn health_checks_open_and_half_open_it() {
    let mut breaker = CircuitBreaker::default();
    breaker.check_passed();
    assert_eq!(breaker.state_at(START), (BreakerState::Closed, false));
    let under_way = breaker.enter(START).unwrap();
    breaker.check_failed(START, &settings());
    assert_eq!(breaker.state_at(START), (BreakerState::Open, false));
    breaker.check_failed(START + SECOND / 2, &settings());
    assert_eq!(
        breaker.state_at(START + SECOND),
        (BreakerState::Open, false),
        "each failure counts from when it is seen"
    );
    breaker.check_passed();
    assert_eq!(breaker.state_at(START + SECOND), (BreakerState::HalfOpen, true));
    breaker.succeeded(under_way, START + SECOND, &settings());
    assert_eq!(
        breaker.state_at(START + SECOND),
        (BreakerState::HalfOpen, true),
        "an answer to an older question"
    );
}

#[test]
fn a_clock_that_was_set_back_keeps_nobody_out() {
    let breaker = opened(START);
    assert_eq!(
        breaker.state_at(START - 60 * SECOND),
        (BreakerState::Open, false),
        "a request that was long in coming"
    );
    assert_eq!(breaker.state_at(START - 3_600 * SECOND), (BreakerState::HalfOpen, true));
}

proptest! {
    /// For any events in any order: at most one probe is in flight, an open breaker admits nothing,
    /// the wait is bounded, and the breaker of a target that answers again closes again.
    #[test]
    fn no_order_of_events_breaks_it(
        events in prop::collection::vec((0u8..7, 0i64..3, any::<prop::sample::Index>()), 1..200),
    ) {
        let (mut breaker, settings, mut at) = (CircuitBreaker::default(), settings(), START);
        let (mut under_way, mut told): (Vec<Pass>, _) = (Vec::new(), BreakerState::Closed);
        for (event, seconds, which) in events {
            at += seconds * SECOND / 2;
            let before = breaker.state_at(at);
            let pass = (!under_way.is_empty() && event < 4)
                .then(|| under_way.swap_remove(which.index(under_way.len())));
            let change = match (event, pass) {
                (0, Some(pass)) => breaker.succeeded(pass, at, &settings),
                (1, Some(pass)) => breaker.failed(pass, at, &settings),
                (2, Some(pass)) => {
                    breaker.abandoned(pass);
                    None
                }
                (3, Some(mut pass)) => {
                    let change = breaker.probe_succeeded(&mut pass, at);
                    under_way.push(pass);
                    change
                }
                (4, _) => breaker.check_failed(at, &settings),
                (5, _) => breaker.check_passed(),
                _ => {
                    let entered = breaker.enter(at);
                    prop_assert_eq!(
                        entered.is_some(),
                        before.0 == BreakerState::Closed
                            || before == (BreakerState::HalfOpen, true)
                    );
                    prop_assert_eq!(
                        entered.is_some_and(|pass| pass.probe),
                        before == (BreakerState::HalfOpen, true)
                    );
                    under_way.extend(entered);
                    entered.and_then(Pass::change)
                }
            };
            // Every change of state is reported exactly once.
            let now = match breaker.phase {
                Phase::Closed => BreakerState::Closed,
                Phase::Open { .. } => BreakerState::Open,
                Phase::HalfOpen { .. } => BreakerState::HalfOpen,
            };
            let said = change.map(|change| match change {
                BreakerChange::Opened(..) => BreakerState::Open,
                BreakerChange::HalfOpen => BreakerState::HalfOpen,
                BreakerChange::Closed => BreakerState::Closed,
            });
            prop_assert_eq!(said, (now != told).then_some(now));
            told = now;
            let probes =
                under_way.iter().filter(|pass| pass.probe && pass.era == breaker.era).count();
            prop_assert!(probes <= 1);
            prop_assert_eq!(probes == 1, breaker.phase == Phase::HalfOpen { probing: true });
            if let Some(until) = breaker.open_until(at) {
                prop_assert!(until - at <= micros(BREAKER_OPEN_MAX));
            }
        }
        under_way.into_iter().for_each(|pass| breaker.abandoned(pass));
        at += micros(BREAKER_OPEN_MAX);
        let pass = breaker.enter(at).unwrap();
        breaker.succeeded(pass, at, &settings);
        prop_assert_eq!(breaker.state_at(at), (BreakerState::Closed, false));
    }
}
