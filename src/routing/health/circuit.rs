//! The breaker of one target: a state machine without a clock. It opens on errors in a row or on their share, for a time
//! that grows while it keeps opening; then it lets one request through and goes by how that one fares.

use std::time::Duration;

use super::window::Window;
use crate::bounds;
use crate::routing::inputs::Breaker;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Errors in a row.
    pub consecutive: u32,
    /// Errors in a hundred requests of the window.
    pub error_percent: u16,
    /// Requests that the window must hold before their share of errors means anything.
    pub min_requests: u32,
    /// Over how long errors are counted.
    pub window: Duration,
    /// How long it is open the first time; doubled each time in a row, up to [`bounds::BREAKER_OPEN_MAX`].
    pub open: Duration,
}

impl Default for BreakerSettings {
    /// Quick to leave a provider that is down, slow to judge one that fails now and then.
    fn default() -> Self {
        BreakerSettings {
            consecutive: 5,
            error_percent: 50,
            min_requests: 20,
            window: Duration::from_secs(30),
            open: Duration::from_secs(10),
        }
    }
}

/// A change of a breaker that an operator is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It keeps requests out for so long.
    Opened(Why, Duration),
    /// It lets one request try.
    HalfOpen,
    /// It lets all requests through again.
    Closed,
}

/// Why a breaker opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many errors in a row.
    InARow(u32),
    /// So many errors among so many requests.
    Share(u64, u64),
    /// The request that was let through to try failed.
    Tried,
    /// A health check of the provider failed.
    Check,
}

/// What an attempt was let through with; its outcome counts only for the state in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    era: u64,
    /// It is the one request of a half-open breaker.
    pub(super) probe: bool,
    /// With it the breaker became half-open.
    first: bool,
}

impl Pass {
    /// What letting it through changed.
    pub(super) fn change(self) -> Option<Change> {
        self.first.then_some(Change::HalfOpen)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: i64 },
    HalfOpen { probing: bool },
}

/// The state of one breaker. Times are microseconds since the epoch.
#[derive(Debug)]
pub(super) struct Circuit {
    phase: Phase,
    /// Counts the changes of state.
    era: u64,
    in_a_row: u32,
    counts: Window<10>,
    /// How many times in a row it has opened.
    opened: u32,
    closed_at: i64,
}

impl Default for Circuit {
    fn default() -> Self {
        let counts = Window::new(micros(BreakerSettings::default().window));
        Circuit {
            phase: Phase::Closed,
            era: 0,
            in_a_row: 0,
            counts,
            opened: 0,
            closed_at: i64::MIN,
        }
    }
}

impl Circuit {
    /// Its state, and whether its probe is to be had.
    pub(super) fn look(&self, at: i64) -> (Breaker, bool) {
        match self.phase {
            Phase::Closed => (Breaker::Closed, false),
            Phase::Open { until } if pending(until, at) => (Breaker::Open, false),
            Phase::Open { .. } => (Breaker::HalfOpen, true),
            Phase::HalfOpen { probing } => (Breaker::HalfOpen, !probing),
        }
    }

    /// Until when it is open.
    pub(super) fn open_until(&self, at: i64) -> Option<i64> {
        match self.phase {
            Phase::Open { until } if pending(until, at) => Some(until),
            _ => None,
        }
    }

    /// Lets an attempt through, or not.
    pub(super) fn enter(&mut self, at: i64) -> Option<Pass> {
        let probe = match self.look(at) {
            (Breaker::Closed, _) => false,
            (Breaker::HalfOpen, true) => true,
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

    /// A probe brought content: the breaker closes at once, and the attempt goes on as one among others.
    pub(super) fn proved(&mut self, pass: &mut Pass, at: i64) -> Option<Change> {
        if !pass.probe || pass.era != self.era {
            return None;
        }
        self.close(at);
        *pass = Pass { era: self.era, probe: false, first: false };
        Some(Change::Closed)
    }

    /// An attempt ended well.
    pub(super) fn succeeded(
        &mut self,
        mut pass: Pass,
        at: i64,
        settings: &BreakerSettings,
    ) -> Option<Change> {
        let change = self.proved(&mut pass, at);
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
    ) -> Option<Change> {
        if pass.era != self.era {
            return None;
        }
        if pass.probe {
            self.opened = self.opened.saturating_add(1);
            return Some(self.open(Why::Tried, at, settings));
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.counts.span(micros(settings.window));
        self.counts.add(at, 0, 1);
        let (good, bad) = self.counts.sums(at);
        let judged = good + bad >= u64::from(settings.min_requests);
        let over = judged && bad * 100 >= (good + bad) * u64::from(settings.error_percent);
        if self.in_a_row >= settings.consecutive {
            return Some(self.trip(Why::InARow(self.in_a_row), at, settings));
        }
        over.then(|| self.trip(Why::Share(bad, good + bad), at, settings))
    }

    /// An attempt ended in a way that says nothing of the target; a probe is there again for the next.
    pub(super) fn left(&mut self, pass: Pass) {
        if pass.probe && pass.era == self.era {
            self.phase = Phase::HalfOpen { probing: false };
        }
    }

    /// The provider's health check failed.
    pub(super) fn check_failed(&mut self, at: i64, settings: &BreakerSettings) -> Option<Change> {
        let was_open = matches!(self.phase, Phase::Open { .. });
        let change = match self.phase {
            Phase::Closed => self.trip(Why::Check, at, settings),
            // As long as checks fail it stays open; a first failure after a while opens it as often as before.
            _ => self.open(Why::Check, at, settings),
        };
        (!was_open).then_some(change)
    }

    /// The provider's health check passed: an open breaker lets a request try.
    pub(super) fn check_passed(&mut self) -> Option<Change> {
        if !matches!(self.phase, Phase::Open { .. }) {
            return None;
        }
        self.era += 1;
        self.phase = Phase::HalfOpen { probing: false };
        Some(Change::HalfOpen)
    }

    /// Opens from closed: as one more time in a row when it has closed only a short while ago.
    fn trip(&mut self, why: Why, at: i64, settings: &BreakerSettings) -> Change {
        let calm = micros(settings.window).max(self.length(settings));
        self.opened = if at.saturating_sub(self.closed_at) > calm {
            1
        } else {
            self.opened.saturating_add(1)
        };
        self.open(why, at, settings)
    }

    fn open(&mut self, why: Why, at: i64, settings: &BreakerSettings) -> Change {
        let length = self.length(settings);
        self.phase = Phase::Open { until: at.saturating_add(length) };
        self.era += 1;
        self.in_a_row = 0;
        self.counts.clear();
        Change::Opened(why, Duration::from_micros(length.unsigned_abs()))
    }

    fn close(&mut self, at: i64) {
        self.phase = Phase::Closed;
        self.era += 1;
        self.closed_at = at;
        self.in_a_row = 0;
        self.counts.clear();
    }

    /// How long it is open, having opened so often.
    fn length(&self, settings: &BreakerSettings) -> i64 {
        let doublings = self.opened.saturating_sub(1).min(20);
        micros(settings.open).saturating_mul(1 << doublings).min(micros(bounds::BREAKER_OPEN_MAX))
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Whether `until` is still to come. What seems to be put off for much longer than the maximum was put off before the clock
/// was set back, and keeps no target out; some more there may be, as `at` is when a request came and may be long ago.
pub(super) fn pending(until: i64, at: i64) -> bool {
    let left = until.saturating_sub(at);
    left > 0 && left <= 2 * micros(bounds::BREAKER_OPEN_MAX.max(bounds::COOLDOWN_MAX))
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
    fn opened(at: i64) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 0..3 {
            let pass = circuit.enter(at).unwrap();
            circuit.failed(pass, at, &settings());
        }
        assert_eq!(circuit.look(at), (Breaker::Open, false));
        circuit
    }

    #[test]
    fn errors_in_a_row_open_it_and_successes_between_them_do_not() {
        let (mut circuit, settings) = (Circuit::default(), settings());
        for good in [false, false, true, false, false, true, true, true] {
            let pass = circuit.enter(START).unwrap();
            if good {
                circuit.succeeded(pass, START, &settings)
            } else {
                circuit.failed(pass, START, &settings)
            };
        }
        assert_eq!(circuit.look(START), (Breaker::Closed, false));
        assert_eq!(opened(START).enter(START + SECOND - 1), None);
    }

    #[test]
    fn a_change_says_why_and_for_how_long() {
        let (mut circuit, settings) = (opened(START), settings());
        let seconds = |why, seconds| Some(Change::Opened(why, Duration::from_secs(seconds)));
        let probe = circuit.enter(START + SECOND).unwrap();
        assert_eq!(probe.change(), Some(Change::HalfOpen));
        assert_eq!(circuit.failed(probe, START + SECOND, &settings), seconds(Why::Tried, 2));
        assert_eq!(circuit.check_failed(START + SECOND, &settings), None, "it is open already");
        assert_eq!(
            (circuit.check_passed(), circuit.check_passed()),
            (Some(Change::HalfOpen), None)
        );
        assert_eq!(circuit.check_failed(START + SECOND, &settings), seconds(Why::Check, 2));
        let probe = circuit.enter(START + 3 * SECOND).unwrap();
        assert_eq!(circuit.succeeded(probe, START + 3 * SECOND, &settings), Some(Change::Closed));
        let mut fresh = Circuit::default();
        let opens = |circuit: &mut Circuit, good: &[bool]| {
            let attempts = good.iter().map(|good| {
                let pass = circuit.enter(START).unwrap();
                if *good {
                    circuit.succeeded(pass, START, &settings)
                } else {
                    circuit.failed(pass, START, &settings)
                }
            });
            attempts.collect::<Vec<_>>().pop().flatten()
        };
        assert_eq!(opens(&mut fresh, &[false; 3]), seconds(Why::InARow(3), 1));
        assert_eq!(
            opens(&mut Circuit::default(), &[true, false].repeat(5)),
            seconds(Why::Share(5, 10), 1)
        );
    }

    #[test]
    fn a_share_of_errors_opens_it_once_there_are_enough_requests() {
        let (mut circuit, settings) = (Circuit::default(), settings());
        for number in 0..10 {
            assert_eq!(circuit.look(START), (Breaker::Closed, false), "{number}");
            let pass = circuit.enter(START).unwrap();
            if number % 2 == 0 {
                circuit.succeeded(pass, START, &settings)
            } else {
                circuit.failed(pass, START, &settings)
            };
        }
        assert_eq!(circuit.look(START), (Breaker::Open, false));
    }

    #[test]
    fn half_open_lets_one_through_and_goes_by_it() {
        let mut circuit = opened(START);
        let at = START + SECOND;
        assert_eq!(circuit.look(at), (Breaker::HalfOpen, true));
        let probe = circuit.enter(at).unwrap();
        assert!(probe.probe);
        assert_eq!((circuit.enter(at), circuit.look(at)), (None, (Breaker::HalfOpen, false)));
        circuit.left(probe);
        assert_eq!(circuit.look(at), (Breaker::HalfOpen, true), "nothing was learnt");
        let mut probe = circuit.enter(at).unwrap();
        circuit.proved(&mut probe, at);
        assert_eq!(circuit.look(at), (Breaker::Closed, false));
        circuit.failed(probe, at, &settings());
        assert_eq!(circuit.look(at), (Breaker::Closed, false), "one error among others");
    }

    #[test]
    fn it_stays_open_for_longer_each_time_up_to_the_maximum_and_forgets_in_calm() {
        let mut circuit = opened(START);
        let (mut at, mut lengths) = (START, Vec::new());
        for _ in 0..14 {
            let until = circuit.open_until(at).unwrap();
            lengths.push((until - at) / SECOND);
            at = until;
            let probe = circuit.enter(at).unwrap();
            circuit.failed(probe, at, &settings());
        }
        let most = i64::try_from(bounds::BREAKER_OPEN_MAX.as_secs()).unwrap();
        assert_eq!(lengths[..4], [1, 2, 4, 8]);
        assert_eq!(lengths.last(), Some(&most));
        at = circuit.open_until(at).unwrap();
        let probe = circuit.enter(at).unwrap();
        circuit.succeeded(probe, at, &settings());
        for (calm, length) in [(1, most), (2 * most, 1)] {
            at += calm * SECOND;
            for _ in 0..3 {
                let pass = circuit.enter(at).unwrap();
                circuit.failed(pass, at, &settings());
            }
            assert_eq!((circuit.open_until(at).unwrap() - at) / SECOND, length);
            at = circuit.open_until(at).unwrap();
            let probe = circuit.enter(at).unwrap();
            circuit.succeeded(probe, at, &settings());
        }
    }

    #[test]
    fn health_checks_open_and_half_open_it() {
        let mut circuit = Circuit::default();
        circuit.check_passed();
        assert_eq!(circuit.look(START), (Breaker::Closed, false));
        let under_way = circuit.enter(START).unwrap();
        circuit.check_failed(START, &settings());
        assert_eq!(circuit.look(START), (Breaker::Open, false));
        circuit.check_failed(START + SECOND / 2, &settings());
        assert_eq!(
            circuit.look(START + SECOND),
            (Breaker::Open, false),
            "each failure counts from when it is seen"
        );
        circuit.check_passed();
        assert_eq!(circuit.look(START + SECOND), (Breaker::HalfOpen, true));
        circuit.succeeded(under_way, START + SECOND, &settings());
        assert_eq!(
            circuit.look(START + SECOND),
            (Breaker::HalfOpen, true),
            "an answer to an older question"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_nobody_out() {
        let circuit = opened(START);
        assert_eq!(
            circuit.look(START - 60 * SECOND),
            (Breaker::Open, false),
            "a request that was long in coming"
        );
        assert_eq!(circuit.look(START - 3_600 * SECOND), (Breaker::HalfOpen, true));
    }

    proptest! {
        /// Whatever happens in whatever order: never two probes at once, open means nobody enters, the wait is bounded,
        /// and a target that answers again is closed again.
        #[test]
        fn no_order_of_events_breaks_it(events in prop::collection::vec((0u8..7, 0i64..3, any::<prop::sample::Index>()), 1..200)) {
            let (mut circuit, settings, mut at) = (Circuit::default(), settings(), START);
            let (mut under_way, mut told): (Vec<Pass>, _) = (Vec::new(), Breaker::Closed);
            for (event, seconds, which) in events {
                at += seconds * SECOND / 2;
                let before = circuit.look(at);
                let pass = (!under_way.is_empty() && event < 4).then(|| under_way.swap_remove(which.index(under_way.len())));
                let change = match (event, pass) {
                    (0, Some(pass)) => circuit.succeeded(pass, at, &settings),
                    (1, Some(pass)) => circuit.failed(pass, at, &settings),
                    (2, Some(pass)) => { circuit.left(pass); None }
                    (3, Some(mut pass)) => {
                        let change = circuit.proved(&mut pass, at);
                        under_way.push(pass);
                        change
                    }
                    (4, _) => circuit.check_failed(at, &settings),
                    (5, _) => circuit.check_passed(),
                    _ => {
                        let entered = circuit.enter(at);
                        prop_assert_eq!(entered.is_some(), before.0 == Breaker::Closed || before == (Breaker::HalfOpen, true));
                        prop_assert_eq!(entered.is_some_and(|pass| pass.probe), before == (Breaker::HalfOpen, true));
                        under_way.extend(entered);
                        entered.and_then(Pass::change)
                    }
                };
                // Every change is told, and told once.
                let now = match circuit.phase {
                    Phase::Closed => Breaker::Closed,
                    Phase::Open { .. } => Breaker::Open,
                    Phase::HalfOpen { .. } => Breaker::HalfOpen,
                };
                let said = change.map(|change| match change {
                    Change::Opened(..) => Breaker::Open,
                    Change::HalfOpen => Breaker::HalfOpen,
                    Change::Closed => Breaker::Closed,
                });
                prop_assert_eq!(said, (now != told).then_some(now));
                told = now;
                let probes = under_way.iter().filter(|pass| pass.probe && pass.era == circuit.era).count();
                prop_assert!(probes <= 1);
                prop_assert_eq!(probes == 1, circuit.phase == Phase::HalfOpen { probing: true });
                if let Some(until) = circuit.open_until(at) {
                    prop_assert!(until - at <= micros(bounds::BREAKER_OPEN_MAX));
                }
            }
            under_way.into_iter().for_each(|pass| circuit.left(pass));
            at += micros(bounds::BREAKER_OPEN_MAX);
            let pass = circuit.enter(at).unwrap();
            circuit.succeeded(pass, at, &settings);
            prop_assert_eq!(circuit.look(at), (Breaker::Closed, false));
        }
    }
}
