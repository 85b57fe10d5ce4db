//! One attempt at a target, from admission to outcome. A permit that is dropped before its end, by
//! a client that left or a cancelled task, gives back what it holds and has no effect on the
//! target's health.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::breaker::{Change, Pass};
use super::deadline::{is_pending, micros};
use super::key_rotation::KeyCooldowns;
use crate::bounds;
use crate::routing::target::Target;
use crate::secret::Secret;

/// Why an attempt is not admitted: the target's state has changed since the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// The breaker is open, or its probe is in flight.
    BreakerOpen,
    /// The target is in a cooldown.
    CoolDown,
    /// The provider is at its concurrency limit.
    Concurrency,
}

/// Outcome of an attempt for the health of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Answered; also if it rejected the client's request.
    Answered,
    /// Failed by its own fault.
    Failed,
    /// No content before a deadline.
    TimedOut,
    /// Unavailable (503), with its `Retry-After`.
    Unavailable(Option<Duration>),
    /// Rate limited (429), with its `Retry-After`.
    Limited(Option<Duration>),
    /// Rejected the provider key (401).
    Refused,
    /// Denied this model to the provider key (403).
    Forbidden,
    /// No verdict on the target.
    Nothing,
}

/// Effect of an attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether another key of the provider may succeed.
    pub another_key: bool,
    /// Change of the target's breaker.
    pub change: Option<Change>,
}

/// Key cooldowns that a replay or shadow causes. They last for that call only, so that it does not
/// affect live traffic.
#[derive(Debug, Default)]
pub struct Apart(KeyCooldowns);

/// Permission for one attempt at a target.
#[derive(Debug)]
pub struct Permit {
    target: Arc<Target>,
    /// Admission by the breaker, for live traffic until its end.
    pass: Option<Pass>,
    /// Index of the provider key.
    key: Option<usize>,
    content: bool,
    /// Set for a replay or shadow.
    apart: Option<Arc<Apart>>,
}

impl Permit {
    /// Admits an attempt. `apart` is set for a replay or shadow, which change nothing of the
    /// target's state but the number of attempts in flight.
    pub fn take(
        target: &Arc<Target>,
        at: Timestamp,
        apart: Option<&Arc<Apart>>,
    ) -> Result<Permit, Barred> {
        let (state, provider, now) = (target.state(), target.provider.state(), at.as_microsecond());
        if state.cooldown_until(&target.provider, now).is_some() {
            return Err(Barred::CoolDown);
        }
        let pass = match apart {
            None => Some(state.stir().breaker.enter(now).ok_or(Barred::BreakerOpen)?),
            // Only live traffic may probe a half-open breaker.
            Some(_) if state.lets_in(now) => None,
            Some(_) => return Err(Barred::BreakerOpen),
        };
        if !provider.enter(target.provider.max_concurrency) {
            pass.into_iter().for_each(|pass| state.stir().breaker.left(pass));
            return Err(Barred::Concurrency);
        }
        state.begin();
        let keys = state.keys(&target.provider, apart.map(|apart| &apart.0));
        let key = keys.pick(&provider.turn, apart.is_none(), now);
        Ok(Permit { target: Arc::clone(target), pass, key, content: false, apart: apart.cloned() })
    }

    /// Change of the target's breaker by the admission.
    pub fn change(&self) -> Option<Change> {
        self.pass.and_then(Pass::change)
    }

    /// The provider key to use.
    pub fn key(&self) -> Option<&Secret> {
        self.target.provider.api_keys.get(self.key?)
    }

    /// Whether the first content has been recorded.
    pub fn has_content(&self) -> bool {
        self.content
    }

    /// Records the first content of a good answer, `took` after the start. Returns the breaker's
    /// change.
    pub fn content(&mut self, took: Duration, at: Timestamp) -> Option<Change> {
        if std::mem::replace(&mut self.content, true) {
            return None;
        }
        let pass = self.pass.as_mut()?;
        let mut vitals = self.target.state().stir();
        vitals.latency.took(micros(took).unsigned_abs(), at.as_microsecond());
        vitals.breaker.proved(pass, at.as_microsecond())
    }

    /// Starts a cooldown of the used key if the outcome asks for it and the provider has others.
    /// Returns whether one of those is usable.
    fn cool_key(&self, ending: Ending, now: i64) -> bool {
        let (state, provider) = (self.target.state(), &self.target.provider);
        let Some(key) = self.key().filter(|_| provider.api_keys.len() > 1) else { return false };
        // Limits and permissions are per target: providers count each model separately.
        let (rest, cooldowns) = match ending {
            Ending::Limited(wait) => {
                (wait.unwrap_or(bounds::KEY_LIMITED).min(bounds::COOL_DOWN_MAX), &state.limited)
            }
            Ending::Forbidden => (bounds::KEY_REFUSED, &state.limited),
            Ending::Refused => (bounds::KEY_REFUSED, &provider.state().refused),
            _ => return false,
        };
        let isolated = self.apart.as_deref().map(|apart| &apart.0);
        isolated.unwrap_or(cooldowns).put(key, now.saturating_add(micros(rest)), now);
        state.keys(provider, isolated).all_cooling_until(now).is_none()
    }

    /// Ends the attempt, `took` after its start.
    pub fn end(mut self, ending: Ending, took: Duration, at: Timestamp) -> Ended {
        let now = at.as_microsecond();
        let another_key = self.cool_key(ending, now);
        let Some(pass) = self.pass.take() else { return Ended { another_key, change: None } };
        let (state, provider) = (self.target.state(), &self.target.provider);
        let one_key = provider.api_keys.len() <= 1;
        let mut vitals = state.stir();
        let wait = match ending {
            Ending::Unavailable(wait) => wait,
            Ending::Limited(wait) if one_key => wait,
            _ => None,
        };
        if let Some(wait) = wait {
            let until = now.saturating_add(micros(wait.min(bounds::COOL_DOWN_MAX)));
            // A longer cooldown stays, unless it was set before the clock went back.
            let before = Some(vitals.cooldown_until).filter(|before| is_pending(*before, now));
            vitals.cooldown_until = before.map_or(until, |before| before.max(until));
        }
        let at_fault = match ending {
            Ending::Nothing => None,
            // The cooldown of the target or key is enough.
            Ending::Limited(wait) => (wait.is_none() && one_key).then_some(true),
            // A rejected key is no verdict on the others.
            Ending::Refused | Ending::Forbidden => (!another_key).then_some(true),
            Ending::Answered => Some(false),
            Ending::Failed | Ending::TimedOut | Ending::Unavailable(_) => Some(true),
        };
        let change = match at_fault {
            None => {
                vitals.breaker.left(pass);
                None
            }
            Some(false) => vitals.breaker.succeeded(pass, now, &provider.breaker),
            Some(true) => vitals.breaker.failed(pass, now, &provider.breaker),
        };
        if ending == Ending::TimedOut && !self.content {
            // The time to first content is at least this long.
            vitals.latency.took(micros(took).unsigned_abs(), now);
        }
        if ending != Ending::Nothing {
            vitals.minute.add(now, 1, u32::from(ending != Ending::Answered));
        }
        Ended { another_key, change }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let state = self.target.state();
        if let Some(pass) = self.pass.take() {
            state.stir().breaker.left(pass);
        }
        state.end();
        self.target.provider.state().leave();
    }
}
