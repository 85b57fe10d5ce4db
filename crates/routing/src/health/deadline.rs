//! Deadlines as microseconds since the epoch.

use std::time::Duration;

use jiff::Timestamp;

use crate::settings::BREAKER_OPEN_MAX;

/// Longest cooldown that a provider's `Retry-After` can set. Some providers name the end of the
/// day, and most are back earlier.
pub const COOLDOWN_MAX: Duration = Duration::from_secs(600);

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn timestamp(micros: i64) -> Option<Timestamp> {
    Timestamp::from_microsecond(micros).ok()
}

/// Whether `until` is still ahead of `at`. A deadline much further away than the maximum was set
/// before the clock went back; it excludes nothing. The factor of two leaves room for an `at` in
/// the past: it is the time at which a request came in.
pub(super) fn is_pending(until: i64, at: i64) -> bool {
    let left = until.saturating_sub(at);
    left > 0 && left <= 2 * micros(BREAKER_OPEN_MAX.max(COOLDOWN_MAX))
}
