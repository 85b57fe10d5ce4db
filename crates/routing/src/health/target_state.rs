//! The state of one target.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::breaker::{BreakerChange, CircuitBreaker};
use super::deadline::{is_pending, timestamp};
use super::key_rotation::{KeyCooldowns, KeyRotation};
use super::latency::PeakEwma;
use super::sliding_window::SlidingWindow;
use crate::inputs::{BreakerState, TargetHealth};
use crate::provider::Provider;
use crate::settings::BreakerSettings;

#[derive(Debug, Default)]
pub struct TargetState {
    inflight: AtomicU32,
    /// Whether `vitals` may differ from the default. The lock of a healthy target is not taken.
    touched: AtomicBool,
    vitals: Mutex<Vitals>,
    /// Keys that are rate limited for this target.
    pub(super) limited: KeyCooldowns,
    /// Keys that are forbidden for this target (403).
    pub(super) forbidden: KeyCooldowns,
}

/// The part of the state that changes with the outcome of attempts.
#[derive(Debug)]
pub(super) struct Vitals {
    pub(super) breaker: CircuitBreaker,
    /// Microseconds since the epoch.
    pub(super) cooldown_until: i64,
    pub(super) latency: PeakEwma,
    /// Attempts of the last minute, and failed ones among them.
    pub(super) minute: SlidingWindow<12>,
}

impl Default for Vitals {
    fn default() -> Self {
        Vitals {
            breaker: CircuitBreaker::default(),
            cooldown_until: i64::MIN,
            latency: PeakEwma::default(),
            minute: SlidingWindow::new(60_000_000),
        }
    }
}

/// State of a target as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    pub breaker: BreakerState,
    /// End of the cooldown or of the breaker's open phase, if one is pending.
    pub retry_at: Option<Timestamp>,
    /// Peak EWMA of the time to first content, in microseconds.
    pub ewma_us: Option<u64>,
    pub inflight: u32,
    /// Attempts of live traffic that ended within the last minute.
    pub requests_1m: u64,
    /// Failed attempts among them.
    pub errors_1m: u64,
}

impl TargetState {
    /// The state for a decision; `None` if the target is healthy and idle.
    pub(super) fn health_at(&self, provider: &Provider, at: Timestamp) -> Option<TargetHealth> {
        let now = at.as_microsecond();
        let inflight = self.inflight.load(Ordering::Relaxed);
        let free =
            provider.max_concurrency.map(|max| max.saturating_sub(provider.state().under_way()));
        let mut health = TargetHealth {
            inflight,
            // The provider's limit is shared by its models.
            max: free.map(|free| inflight.saturating_add(free)),
            ..TargetHealth::default()
        };
        let keys_until = self.keys_until(provider, now);
        if self.touched.load(Ordering::Acquire) {
            let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
            (health.breaker, health.probe_free) = vitals.breaker.state_at(now);
            health.ewma_us = vitals.latency.at(now);
            health.cooldown_until = Some(vitals.cooldown_until)
                .filter(|until| is_pending(*until, now))
                .and_then(timestamp);
            if health.breaker == BreakerState::Closed
                && health.ewma_us.is_none()
                && health.cooldown_until.is_none()
            {
                self.touched.store(false, Ordering::Release);
            }
        }
        health.cooldown_until = health.cooldown_until.max(keys_until.and_then(timestamp));
        let idle = inflight == 0 && free != Some(0) && health.cooldown_until.is_none();
        let healthy = health.breaker == BreakerState::Closed && health.ewma_us.is_none();
        (!(idle && healthy)).then_some(health)
    }

    /// The state of a node for a decision.
    pub fn at_node(&self, provider: &Provider, at: Timestamp) -> TargetHealth {
        self.health_at(provider, at).unwrap_or_default()
    }

    pub fn show(&self, provider: &Provider, at: Timestamp) -> TargetStatus {
        let now = at.as_microsecond();
        let keys_until = self.keys_until(provider, now);
        let mut vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests_1m, errors_1m) = vitals.minute.sums(now);
        let cooldown = Some(vitals.cooldown_until).filter(|until| is_pending(*until, now));
        let retry_at = cooldown.max(vitals.breaker.open_until(now)).max(keys_until);
        TargetStatus {
            breaker: vitals.breaker.state_at(now).0,
            retry_at: retry_at.and_then(timestamp),
            ewma_us: vitals.latency.at(now),
            inflight: self.inflight.load(Ordering::Relaxed),
            requests_1m,
            errors_1m,
        }
    }

    pub fn check_failed(&self, settings: &BreakerSettings, at: Timestamp) -> Option<BreakerChange> {
        self.lock_vitals().breaker.check_failed(at.as_microsecond(), settings)
    }

    pub fn check_passed(&self) -> Option<BreakerChange> {
        self.lock_vitals().breaker.check_passed()
    }

    /// Whether the breaker would admit an attempt now.
    pub(super) fn admits(&self, now: i64) -> bool {
        let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(
            vitals.breaker.state_at(now),
            (BreakerState::Closed, _) | (BreakerState::HalfOpen, true)
        )
    }

    /// Locks the vitals for a change.
    pub(super) fn lock_vitals(&self) -> MutexGuard<'_, Vitals> {
        let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        self.touched.store(true, Ordering::Release);
        vitals
    }

    pub(super) fn cooldown_until(&self, provider: &Provider, now: i64) -> Option<i64> {
        let keys_until = self.keys_until(provider, now);
        if !self.touched.load(Ordering::Acquire) {
            return keys_until;
        }
        let until = self.vitals.lock().unwrap_or_else(PoisonError::into_inner).cooldown_until;
        Some(until).filter(|until| is_pending(*until, now)).max(keys_until)
    }

    /// Time at which the first key is usable again, if no key is usable now. `None` for a single
    /// key: its cooldown is that of the target.
    fn keys_until(&self, provider: &Provider, now: i64) -> Option<i64> {
        if provider.api_keys.len() > 1 {
            self.keys(provider, None).all_cooling_until(now)
        } else {
            None
        }
    }

    /// The provider's keys. `isolated` holds the cooldowns of a replay or shadow.
    pub(super) fn keys<'a>(
        &'a self,
        provider: &'a Provider,
        isolated: Option<&'a KeyCooldowns>,
    ) -> KeyRotation<'a> {
        let refused = Some(&provider.state().refused);
        let cooldowns = [Some(&self.limited), Some(&self.forbidden), refused, isolated];
        KeyRotation { keys: &provider.api_keys, cooldowns }
    }

    /// The same without those that are only rate limited, and without `isolated`.
    pub(super) fn refused_keys<'a>(&'a self, provider: &'a Provider) -> KeyRotation<'a> {
        let cooldowns = [Some(&self.forbidden), Some(&provider.state().refused), None, None];
        KeyRotation { keys: &provider.api_keys, cooldowns }
    }

    pub(super) fn begin(&self) {
        self.inflight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}
