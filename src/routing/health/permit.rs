//! One attempt at a target, from being let in to how it ended. A permit that is dropped on the way, by a client that left
//! or a task that was cancelled, gives back all that it held and says nothing of the target.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::circuit::{Pass, micros, pending};
use crate::bounds;
use crate::routing::recipe::Target;
use crate::secret::Secret;

/// Why an attempt may not begin although the decision was for it: what there was is gone since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// The breaker is open, or its probe is under way.
    BreakerOpen,
    /// The target asked to be left alone.
    CoolDown,
    /// The provider serves as many requests as it may.
    Concurrency,
}

/// How an attempt ended, as far as it concerns the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It answered; a refusal of what the client asked for is an answer.
    Answered,
    /// It failed by its own fault.
    Failed,
    /// It had no content in time.
    TimedOut,
    /// It cannot serve now, and may have said for how long (503).
    Unavailable(Option<Duration>),
    /// It was asked too often, and may have said for how long to wait (429).
    Limited(Option<Duration>),
    /// It refused our credential (401).
    Refused,
    /// It refused this model to our credential (403).
    Forbidden,
    /// Nothing that says anything of it.
    Nothing,
}

/// The leave to make one attempt at a target.
#[derive(Debug)]
pub struct Permit {
    target: Arc<Target>,
    pass: Option<Pass>,
    /// Of the provider's keys.
    key: Option<usize>,
    content: bool,
    /// Whether it is part of the statistics; replays are not.
    counted: bool,
}

impl Permit {
    /// Asks for one; `counted` says whether the attempt is live traffic.
    pub fn take(target: &Arc<Target>, at: Timestamp, counted: bool) -> Result<Permit, Barred> {
        let (state, provider, now) = (target.state(), target.provider.state(), at.as_microsecond());
        if state.cooldown_until(&target.provider, now).is_some() {
            return Err(Barred::CoolDown);
        }
        let pass = state.stir().circuit.enter(now).ok_or(Barred::BreakerOpen)?;
        if !provider.enter(target.provider.max_concurrency) {
            state.stir().circuit.left(pass);
            return Err(Barred::Concurrency);
        }
        state.begin();
        let key = state.keys(&target.provider).pick(&provider.turn, now);
        Ok(Permit { target: Arc::clone(target), pass: Some(pass), key, content: false, counted })
    }

    /// The provider's key to use.
    pub fn key(&self) -> Option<&Secret> {
        self.target.provider.api_keys.get(self.key?)
    }

    /// Whether the first content has been noted.
    pub fn has_content(&self) -> bool {
        self.content
    }

    /// The first content of a good answer is there, `took` after the attempt began.
    pub fn content(&mut self, took: Duration, at: Timestamp) {
        if std::mem::replace(&mut self.content, true) || !self.counted {
            return;
        }
        let mut vitals = self.target.state().stir();
        vitals.latency.took(micros(took).unsigned_abs(), at.as_microsecond());
        if let Some(pass) = &mut self.pass {
            vitals.circuit.proved(pass, at.as_microsecond());
        }
    }

    /// Lets the key in use rest, where the provider has others, and says whether one of those may be used.
    fn rest_key(&self, ending: Ending, now: i64) -> bool {
        let (state, provider) = (self.target.state(), &self.target.provider);
        let Some(key) = self.key().filter(|_| provider.api_keys.len() > 1) else { return false };
        match ending {
            Ending::Limited(wait) => {
                let wait = wait.unwrap_or(bounds::KEY_LIMITED).min(bounds::COOL_DOWN_MAX);
                // By target: providers count each model apart.
                state.limited.put(key, now.saturating_add(micros(wait)), now);
            }
            Ending::Forbidden => state.limited.put(key, now.saturating_add(micros(bounds::KEY_REFUSED)), now),
            Ending::Refused => provider.state().refused.put(key, now.saturating_add(micros(bounds::KEY_REFUSED)), now),
            _ => return false,
        }
        state.keys(provider).all_benched(now).is_none()
    }

    /// The attempt is over, `took` after it began. Gives whether another key of the provider may do what this one could not.
    pub fn end(mut self, ending: Ending, took: Duration, at: Timestamp) -> bool {
        let now = at.as_microsecond();
        let another = self.rest_key(ending, now);
        let Some(pass) = self.pass.take() else { return another };
        let (state, provider) = (self.target.state(), &self.target.provider);
        let one_key = provider.api_keys.len() <= 1;
        let mut vitals = state.stir();
        let wait = match ending {
            Ending::Unavailable(wait) => wait,
            Ending::Limited(wait) if one_key => wait,
            _ => None,
        };
        if let Some(wait) = wait {
            // Also after a replay: it is what the provider said, not what we measured.
            let until = now.saturating_add(micros(wait.min(bounds::COOL_DOWN_MAX)));
            // A longer one stands, unless it is from before the clock was set back.
            let before = Some(vitals.cooldown_until).filter(|before| pending(*before, now));
            vitals.cooldown_until = before.map_or(until, |before| before.max(until));
        }
        if !self.counted {
            vitals.circuit.left(pass);
            return another;
        }
        let at_fault = match ending {
            Ending::Nothing => None,
            // It said when to come back, or its keys rest: no reason to stay away for longer.
            Ending::Limited(wait) => (wait.is_none() && one_key).then_some(true),
            // A refused key that rests says nothing of the others.
            Ending::Refused | Ending::Forbidden => (!another).then_some(true),
            Ending::Answered => Some(false),
            Ending::Failed | Ending::TimedOut | Ending::Unavailable(_) => Some(true),
        };
        match at_fault {
            None => vitals.circuit.left(pass),
            Some(false) => vitals.circuit.succeeded(pass, now, &provider.breaker),
            Some(true) => vitals.circuit.failed(pass, now, &provider.breaker),
        }
        if ending == Ending::TimedOut && !self.content {
            // It was at least as slow as this.
            vitals.latency.took(micros(took).unsigned_abs(), now);
        }
        if ending != Ending::Nothing {
            vitals.minute.add(now, 1, u32::from(ending != Ending::Answered));
        }
        another
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let state = self.target.state();
        if let Some(pass) = self.pass.take() {
            state.stir().circuit.left(pass);
        }
        state.end();
        self.target.provider.state().leave();
    }
}
