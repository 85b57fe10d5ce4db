//! The breaker breaker of one target, a state machine without a clock. It opens on consecutive
//! errors or on the error rate, for a time that doubles while it keeps opening. Then it admits one
//! probe: the probe closes it or opens it again.

use std::time::Duration;

use super::deadline::{is_pending, micros};
use super::sliding_window::SlidingWindow;
use crate::bounds;
use crate::routing::inputs::BreakerState;
use crate::routing::settings::BreakerSettings;

/// A change of state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// Opened for this long.
    Opened(TripReason, Duration),
    HalfOpen,
    /// Admits all requests again.
    Closed,
}

/// Why a breaker opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TripReason {
    /// This many consecutive errors.
    InARow(u32),
    /// Errors, and requests in the window.
    Share(u64, u64),
    Tried,
    /// The provider failed a health check.
    Check,
}

/// Admission of one attempt. Its outcome counts only in the phase that admitted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    era: u64,
    /// Whether it is the probe of a half-open breaker.
    pub(super) probe: bool,
    /// Whether its admission made the breaker half-open.
    first: bool,
}

impl Pass {
    /// The change of state by its admission.
    pub(super) fn change(self) -> Option<BreakerChange> {
        self.first.then_some(BreakerChange::HalfOpen)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: i64 },
    HalfOpen { probing: bool },
}

/// A breaker breaker. Times are microseconds since the epoch.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    phase: Phase,
    /// Number of phase changes.
    era: u64,
    in_a_row: u32,
    counts: SlidingWindow<10>,
    /// How often it has opened in a row.
    opened: u32,
    closed_at: i64,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        let counts = SlidingWindow::new(micros(BreakerSettings::default().window));
        CircuitBreaker {
            phase: Phase::Closed,
            era: 0,
            in_a_row: 0,
            counts,
            opened: 0,
            closed_at: i64::MIN,
        }
    }
}

impl CircuitBreaker {
    /// Its state, and whether it admits its probe.
    pub(super) fn state_at(&self, at: i64) -> (BreakerState, bool) {
        match self.phase {
            Phase::Closed => (BreakerState::Closed, false),
            Phase::Open { until } if is_pending(until, at) => (BreakerState::Open, false),
            Phase::Open { .. } => (BreakerState::HalfOpen, true),
            Phase::HalfOpen { probing } => (BreakerState::HalfOpen, !probing),
        }
    }

    /// End of the open phase.
    pub(super) fn open_until(&self, at: i64) -> Option<i64> {
        match self.phase {
            Phase::Open { until } if is_pending(until, at) => Some(until),
            _ => None,
        }
    }

    /// Admits an attempt, or not.
    pub(super) fn enter(&mut self, at: i64) -> Option<Pass> {
        let probe = match self.state_at(at) {
            (BreakerState::Closed, _) => false,
            (BreakerState::HalfOpen, true) => true,
            _ => return None,
        };
        let first = matches!(self.phase, Phase::Open { .. });
        if first {
            self.era += 1;
        }
        if probe {
            self.phase = Phase::HalfOpen { probing: true };
        }
        Some(Pass { era: self.era, probe, first })
    }

    /// A probe delivered content: the breaker closes at once and the attempt counts as an ordinary
    /// one.
    pub(super) fn probe_succeeded(&mut self, pass: &mut Pass, at: i64) -> Option<BreakerChange> {
        if !pass.probe || pass.era != self.era {
            return None;
        }
        self.close(at);
        *pass = Pass { era: self.era, probe: false, first: false };
        Some(BreakerChange::Closed)
    }

    pub(super) fn succeeded(
        &mut self,
        mut pass: Pass,
        at: i64,
        settings: &BreakerSettings,
    ) -> Option<BreakerChange> {
        let change = self.probe_succeeded(&mut pass, at);
        if pass.era == self.era {
            self.in_a_row = 0;
            self.counts.span(micros(settings.window));
            self.counts.add(at, 1, 0);
        }
        change
    }

    /// An attempt failed by the target's fault.
    pub(super) fn failed(
        &mut self,
        pass: Pass,
        at: i64,
        settings: &BreakerSettings,
    ) -> Option<BreakerChange> {
        if pass.era != self.era {
            return None;
        }
        if pass.probe {
            self.opened = self.opened.saturating_add(1);
            return Some(self.open(TripReason::Tried, at, settings));
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.counts.span(micros(settings.window));
        self.counts.add(at, 0, 1);
        let (good, bad) = self.counts.sums(at);
        let judged = good + bad >= u64::from(settings.min_requests);
        let over = judged && bad * 100 >= (good + bad) * u64::from(settings.error_percent);
        if self.in_a_row >= settings.consecutive {
            return Some(self.trip(TripReason::InARow(self.in_a_row), at, settings));
        }
        over.then(|| self.trip(TripReason::Share(bad, good + bad), at, settings))
    }

    /// An attempt ended without a verdict on the target. A probe becomes available again.
    pub(super) fn abandoned(&mut self, pass: Pass) {
        if pass.probe && pass.era == self.era {
            self.phase = Phase::HalfOpen { probing: false };
        }
    }

    /// The provider's health check failed.
    pub(super) fn check_failed(
        &mut self,
        at: i64,
        settings: &BreakerSettings,
    ) -> Option<BreakerChange> {
        let was_open = matches!(self.phase, Phase::Open { .. });
        let change = match self.phase {
            Phase::Closed => self.trip(TripReason::Check, at, settings),
            // It stays open while checks fail, without a longer backoff.
            _ => self.open(TripReason::Check, at, settings),
        };
        (!was_open).then_some(change)
    }

    /// The provider's health check passed: an open breaker becomes half-open.
    pub(super) fn check_passed(&mut self) -> Option<BreakerChange> {
        if !matches!(self.phase, Phase::Open { .. }) {
            return None;
        }
        self.era += 1;
        self.phase = Phase::HalfOpen { probing: false };
        Some(BreakerChange::HalfOpen)
    }

    /// Opens a closed breaker. If it has closed recently, the backoff continues.
    fn trip(&mut self, why: TripReason, at: i64, settings: &BreakerSettings) -> BreakerChange {
        let calm = micros(settings.window).max(self.length(settings));
        self.opened = if at.saturating_sub(self.closed_at) > calm {
            1
        } else {
            self.opened.saturating_add(1)
        };
        self.open(why, at, settings)
    }

    fn open(&mut self, why: TripReason, at: i64, settings: &BreakerSettings) -> BreakerChange {
        let length = self.length(settings);
        self.phase = Phase::Open { until: at.saturating_add(length) };
        self.era += 1;
        self.in_a_row = 0;
        self.counts.clear();
        BreakerChange::Opened(why, Duration::from_micros(length.unsigned_abs()))
    }

    fn close(&mut self, at: i64) {
        self.phase = Phase::Closed;
        self.era += 1;
        self.closed_at = at;
        self.in_a_row = 0;
        self.counts.clear();
    }

    /// Length of the open phase.
    fn length(&self, settings: &BreakerSettings) -> i64 {
        let doublings = self.opened.saturating_sub(1).min(20);
        micros(settings.open).saturating_mul(1 << doublings).min(micros(bounds::BREAKER_OPEN_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: i64 = 1_764_000_000_000_000;
    const SECOND: i64 = 1_000_000;

    fn settings() -> BreakerSettings {
        BreakerSettings {
            consecutive: 3,
            error_percent: 50,
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
        assert_eq!(
            (breaker.enter(at), breaker.state_at(at)),
            (None, (BreakerState::HalfOpen, false))
        );
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
        let most = i64::try_from(bounds::BREAKER_OPEN_MAX.as_secs()).unwrap();
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
        /// Whatever happens in whatever order: never two probes at once, open means nobody enters,
        /// the wait is bounded, and a target that answers again is closed again.
        #[test]
        fn no_order_of_events_breaks_it(events in prop::collection::vec((0u8..7, 0i64..3, any::<prop::sample::Index>()), 1..200)) {
            let (mut breaker, settings, mut at) = (CircuitBreaker::default(), settings(), START);
            let (mut under_way, mut told): (Vec<Pass>, _) = (Vec::new(), BreakerState::Closed);
            for (event, seconds, which) in events {
                at += seconds * SECOND / 2;
                let before = breaker.state_at(at);
                let pass = (!under_way.is_empty() && event < 4).then(|| under_way.swap_remove(which.index(under_way.len())));
                let change = match (event, pass) {
                    (0, Some(pass)) => breaker.succeeded(pass, at, &settings),
                    (1, Some(pass)) => breaker.failed(pass, at, &settings),
                    (2, Some(pass)) => { breaker.abandoned(pass); None }
                    (3, Some(mut pass)) => {
                        let change = breaker.probe_succeeded(&mut pass, at);
                        under_way.push(pass);
                        change
                    }
                    (4, _) => breaker.check_failed(at, &settings),
                    (5, _) => breaker.check_passed(),
                    _ => {
                        let entered = breaker.enter(at);
                        prop_assert_eq!(entered.is_some(), before.0 == BreakerState::Closed || before == (BreakerState::HalfOpen, true));
                        prop_assert_eq!(entered.is_some_and(|pass| pass.probe), before == (BreakerState::HalfOpen, true));
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
                let probes = under_way.iter().filter(|pass| pass.probe && pass.era == breaker.era).count();
                prop_assert!(probes <= 1);
                prop_assert_eq!(probes == 1, breaker.phase == Phase::HalfOpen { probing: true });
                if let Some(until) = breaker.open_until(at) {
                    prop_assert!(until - at <= micros(bounds::BREAKER_OPEN_MAX));
                }
            }
            under_way.into_iter().for_each(|pass| breaker.abandoned(pass));
            at += micros(bounds::BREAKER_OPEN_MAX);
            let pass = breaker.enter(at).unwrap();
            breaker.succeeded(pass, at, &settings);
            prop_assert_eq!(breaker.state_at(at), (BreakerState::Closed, false));
        }
    }
}
