//! The wall clock, passed as a value, so that tests move it instead of sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// A wall clock. Clones of a manual clock share its time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The clock of the machine.
    #[default]
    System,
    /// A clock that [`Clock::advance`] moves, in microseconds since the epoch.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A manual clock that starts at `start`.
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual(Arc::new(AtomicI64::new(start.as_microsecond())))
    }

    /// The current time in whole microseconds, so that a stored time reads back equal.
    pub fn now(&self) -> Timestamp {
        let micros = match self {
            Clock::System => Timestamp::now().as_microsecond(),
            Clock::Manual(at) => at.load(Ordering::Acquire),
        };
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Moves a manual clock forward; does nothing to the system clock.
    pub fn advance(&self, by: std::time::Duration) {
        if let Clock::Manual(at) = self {
            at.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::AcqRel);
        }
    }
}

/// RFC 3339 in UTC with microseconds, as in every answer and record.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `second` seconds after the beginning of the tests' time.
    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + second).unwrap()
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(at(0));
        let shared = clock.clone();
        assert_eq!(rfc3339(clock.now()), "2025-11-24T16:00:00.000000Z");
        shared.advance(std::time::Duration::from_millis(1500));
        assert_eq!(rfc3339(clock.now()), "2025-11-24T16:00:01.500000Z");
    }
}
