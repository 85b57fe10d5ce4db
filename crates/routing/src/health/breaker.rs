//! The circuit breaker of one target, a state machine without a clock. It opens on consecutive
//! errors or on the error rate, for a time that doubles while it keeps opening. Then it admits one
//! probe: the probe closes it or opens it again.

use std::time::Duration;

use super::deadline::{is_pending, micros};
use super::sliding_window::SlidingWindow;
use crate::inputs::BreakerState;
use crate::settings::BREAKER_OPEN_MAX;
use crate::settings::BreakerSettings;

/// A change of state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// Opened for this long.
    Opened(TripReason, Duration),
    HalfOpen,
    /// Admits all requests again.
    Closed,
}

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

/// Times are microseconds since the epoch.
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
    /// Its state, and whether it admits a probe.
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

    /// Admits an attempt; `None` if it is open or its probe is in flight.
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

    /// Records an attempt that failed because of the target.
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
        let over = judged && bad * 100 >= (good + bad) * u64::from(settings.error_rate);
        if self.in_a_row >= settings.consecutive {
            return Some(self.trip(TripReason::InARow(self.in_a_row), at, settings));
        }
        over.then(|| self.trip(TripReason::Share(bad, good + bad), at, settings))
    }

    /// Records an attempt without a verdict on the target. If it was the probe, another probe may
    /// follow.
    pub(super) fn abandoned(&mut self, pass: Pass) {
        if pass.probe && pass.era == self.era {
            self.phase = Phase::HalfOpen { probing: false };
        }
    }

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

    /// Records a passed health check of the provider: an open breaker becomes half-open.
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
        micros(settings.open).saturating_mul(1 << doublings).min(micros(BREAKER_OPEN_MAX))
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
