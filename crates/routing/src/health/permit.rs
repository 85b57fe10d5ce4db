//! One attempt at a target, from admission to outcome. A permit that is dropped before its end, by
//! a client that left or a cancelled task, releases what it holds and has no effect on the target's
//! health.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

use super::breaker::{BreakerChange, Pass};
use super::deadline::{COOLDOWN_MAX, is_pending, micros};
use super::key_rotation::KeyCooldowns;
use crate::target::Target;
use rerouter_base::secret::Secret;

/// Cooldown of one of several provider keys after a 429 without `Retry-After`.
const KEY_LIMITED: Duration = Duration::from_secs(10);
/// Cooldown of one of several provider keys after a refusal, which only a person can resolve.
const KEY_REFUSED: Duration = Duration::from_secs(300);
/// Cooldown after a 403, which may be the answer to one request only, as of a moderation.
const KEY_FORBIDDEN: Duration = Duration::from_secs(10);

/// Why an attempt is not admitted: the target's state has changed since the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitRefusal {
    /// The breaker is open, or its probe is in flight.
    BreakerOpen,
    CoolDown,
    /// The provider is at its concurrency limit.
    Concurrency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The target answered, if only to reject the client's request.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeEffect {
    /// Whether another key of the provider may succeed.
    pub another_key: bool,
    pub change: Option<BreakerChange>,
}

/// Key cooldowns that a replay or shadow causes. They last for that call only, so that it does not
/// affect live traffic.
#[derive(Debug, Default)]
pub struct IsolatedCooldowns(KeyCooldowns);

#[derive(Debug)]
pub struct AttemptPermit {
    target: Arc<Target>,
    /// Admission by the breaker, only for live traffic. [`AttemptPermit::end`] takes it.
    pass: Option<Pass>,
    /// Index of the provider key.
    key: Option<usize>,
    content: bool,
    /// Set for a replay or shadow.
    apart: Option<Arc<IsolatedCooldowns>>,
}

impl AttemptPermit {
    /// Admits an attempt. `apart` is set for a replay or shadow, which change nothing of the
    /// target's state but the number of attempts in flight.
    pub fn take(
        target: &Arc<Target>,
        at: Timestamp,
        apart: Option<&Arc<IsolatedCooldowns>>,
    ) -> Result<AttemptPermit, PermitRefusal> {
        let (state, provider, now) = (target.state(), target.provider.state(), at.as_microsecond());
        if state.cooldown_until(&target.provider, now).is_some() {
            return Err(PermitRefusal::CoolDown);
        }
        let pass = match apart {
            None => Some(state.lock_vitals().breaker.enter(now).ok_or(PermitRefusal::BreakerOpen)?),
            // Only live traffic may probe a half-open breaker.
            Some(_) if state.admits(now) => None,
            Some(_) => return Err(PermitRefusal::BreakerOpen),
        };
        if !provider.enter(target.provider.max_concurrency) {
            pass.into_iter().for_each(|pass| state.lock_vitals().breaker.abandoned(pass));
            return Err(PermitRefusal::Concurrency);
        }
        state.begin();
        let keys = state.keys(&target.provider, apart.map(|apart| &apart.0));
        let key = keys.pick(&provider.turn, apart.is_none(), now);
        Ok(AttemptPermit {
            target: Arc::clone(target),
            pass,
            key,
            content: false,
            apart: apart.cloned(),
        })
    }

    /// Change of the target's breaker by the admission.
    pub fn change(&self) -> Option<BreakerChange> {
        self.pass.and_then(Pass::change)
    }

    /// The provider key to use.
    pub fn key(&self) -> Option<&Secret> {
        self.target.provider.api_keys.get(self.key?)
    }

    /// The headers of the request, with that key.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.target.provider.head.as_ref()?.headers(self.key)
    }

    pub fn has_content(&self) -> bool {
        self.content
    }

    /// Records the first content of a good answer, `took` after the start. Returns the breaker's
    /// change.
    pub fn content(&mut self, took: Duration, at: Timestamp) -> Option<BreakerChange> {
        if std::mem::replace(&mut self.content, true) {
            return None;
        }
        let pass = self.pass.as_mut()?;
        let mut vitals = self.target.state().lock_vitals();
        vitals.latency.took(micros(took).unsigned_abs(), at.as_microsecond());
        vitals.breaker.probe_succeeded(pass, at.as_microsecond())
    }

    /// Starts a cooldown of the used key if the outcome requires it and the provider has other
    /// keys. Returns whether another key is usable, and whether the refusal counts for the target:
    /// where all others are refused, it says as much of target or request as of the key, which does
    /// not rest.
    fn cool_key(&self, ending: AttemptOutcome, now: i64) -> (bool, bool) {
        let (state, provider) = (self.target.state(), &self.target.provider);
        let alone = (false, true);
        let Some(index) = self.key.filter(|_| provider.api_keys.len() > 1) else { return alone };
        let Some(key) = provider.api_keys.get(index) else { return alone };
        // Limits and permissions are per target: providers count each model separately.
        let (rest, cooldowns) = match ending {
            AttemptOutcome::Limited(wait) => {
                (wait.unwrap_or(KEY_LIMITED).min(COOLDOWN_MAX), &state.limited)
            }
            AttemptOutcome::Forbidden => (KEY_FORBIDDEN, &state.forbidden),
            AttemptOutcome::Refused => (KEY_REFUSED, &provider.state().refused),
            _ => return alone,
        };
        let isolated = self.apart.as_deref().map(|apart| &apart.0);
        let is_last = !matches!(ending, AttemptOutcome::Limited(_))
            && !state.refused_keys(provider).has_other(index, now);
        if !is_last {
            isolated.unwrap_or(cooldowns).put(key, now.saturating_add(micros(rest)), now);
        }
        (state.keys(provider, isolated).has_other(index, now), is_last)
    }

    /// Ends the attempt, `took` after its start.
    pub fn end(mut self, ending: AttemptOutcome, took: Duration, at: Timestamp) -> OutcomeEffect {
        let now = at.as_microsecond();
        let (another_key, is_last_key) = self.cool_key(ending, now);
        let Some(pass) = self.pass.take() else {
            return OutcomeEffect { another_key, change: None };
        };
        let (state, provider) = (self.target.state(), &self.target.provider);
        let one_key = provider.api_keys.len() <= 1;
        let mut vitals = state.lock_vitals();
        let wait = match ending {
            AttemptOutcome::Unavailable(wait) => wait,
            AttemptOutcome::Limited(wait) if one_key => wait,
            _ => None,
        };
        if let Some(wait) = wait {
            let until = now.saturating_add(micros(wait.min(COOLDOWN_MAX)));
            // A longer cooldown stays, unless it was set before the clock went back.
            let before = Some(vitals.cooldown_until).filter(|before| is_pending(*before, now));
            vitals.cooldown_until = before.map_or(until, |before| before.max(until));
        }
        let at_fault = match ending {
            AttemptOutcome::Nothing => None,
            // The cooldown of the target or key is enough.
            AttemptOutcome::Limited(wait) => (wait.is_none() && one_key).then_some(true),
            // A rejected key is no verdict on the other keys.
            AttemptOutcome::Refused | AttemptOutcome::Forbidden => is_last_key.then_some(true),
            AttemptOutcome::Answered => Some(false),
            AttemptOutcome::Failed | AttemptOutcome::TimedOut | AttemptOutcome::Unavailable(_) => {
                Some(true)
            }
        };
        let change = match at_fault {
            None => {
                vitals.breaker.abandoned(pass);
                None
            }
            Some(false) => vitals.breaker.succeeded(pass, now, &provider.breaker),
            Some(true) => vitals.breaker.failed(pass, now, &provider.breaker),
        };
        if ending == AttemptOutcome::TimedOut && !self.content {
            // The time to first content is at least this long.
            vitals.latency.took(micros(took).unsigned_abs(), now);
        }
        if ending != AttemptOutcome::Nothing {
            vitals.minute.add(now, 1, u32::from(ending != AttemptOutcome::Answered));
        }
        OutcomeEffect { another_key, change }
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        let state = self.target.state();
        if let Some(pass) = self.pass.take() {
            state.lock_vitals().breaker.abandoned(pass);
        }
        state.end();
        self.target.provider.state().leave();
    }
}
