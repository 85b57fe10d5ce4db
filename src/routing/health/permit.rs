//! One attempt at a target, from being let in to how it ended. A permit that is dropped on the way, by a client that left
//! or a task that was cancelled, gives back all that it held and says nothing of the target.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::circuit::{Change, Pass, micros, pending};
use super::keys::Bench;
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

/// What came of an attempt's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether another key of the provider may do what this one could not.
    pub another_key: bool,
    /// What it changed of the target's breaker.
    pub change: Option<Change>,
}

/// What a replay or a shadow learns of a provider's keys. It is kept for that one call, so that
/// live traffic goes on as if the call had not been made.
#[derive(Debug, Default)]
pub struct Apart(Bench);

impl Apart {
    pub(super) fn bench(&self) -> &Bench {
        &self.0
    }
}

/// The leave to make one attempt at a target.
#[derive(Debug)]
pub struct Permit {
    target: Arc<Target>,
    /// Live traffic's, until it has ended.
    pass: Option<Pass>,
    /// Of the provider's keys.
    key: Option<usize>,
    content: bool,
    /// Of a replay or a shadow.
    apart: Option<Arc<Apart>>,
}

impl Permit {
    /// Asks for one. Live traffic has nothing `apart`; a replay or a shadow changes nothing of the
    /// target's state but the number of attempts under way.
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
            None => Some(state.stir().circuit.enter(now).ok_or(Barred::BreakerOpen)?),
            // The one request that tries a half-open breaker is live traffic's.
            Some(_) if state.lets_in(now) => None,
            Some(_) => return Err(Barred::BreakerOpen),
        };
        if !provider.enter(target.provider.max_concurrency) {
            pass.into_iter().for_each(|pass| state.stir().circuit.left(pass));
            return Err(Barred::Concurrency);
        }
        state.begin();
        let keys = state.keys(&target.provider, apart.map(Arc::as_ref));
        let key = keys.pick(&provider.turn, apart.is_none(), now);
        Ok(Permit { target: Arc::clone(target), pass, key, content: false, apart: apart.cloned() })
    }

    /// What being let through changed of the target's breaker.
    pub fn change(&self) -> Option<Change> {
        self.pass.and_then(Pass::change)
    }

    /// The provider's key to use.
    pub fn key(&self) -> Option<&Secret> {
        self.target.provider.api_keys.get(self.key?)
    }

    /// Whether the first content has been noted.
    pub fn has_content(&self) -> bool {
        self.content
    }

    /// The first content of a good answer is there, `took` after the attempt began. Gives what that
    /// changed.
    pub fn content(&mut self, took: Duration, at: Timestamp) -> Option<Change> {
        if std::mem::replace(&mut self.content, true) {
            return None;
        }
        let pass = self.pass.as_mut()?;
        let mut vitals = self.target.state().stir();
        vitals.latency.took(micros(took).unsigned_abs(), at.as_microsecond());
        vitals.circuit.proved(pass, at.as_microsecond())
    }

    /// Lets the key in use rest, where the provider has others, and says whether one of those may be used.
    fn rest_key(&self, ending: Ending, now: i64) -> bool {
        let (state, provider) = (self.target.state(), &self.target.provider);
        let Some(key) = self.key().filter(|_| provider.api_keys.len() > 1) else { return false };
        // By target where it is limited or forbidden: providers count each model apart.
        let (rest, bench) = match ending {
            Ending::Limited(wait) => {
                (wait.unwrap_or(bounds::KEY_LIMITED).min(bounds::COOLDOWN_MAX), &state.limited)
            }
            Ending::Forbidden => (bounds::KEY_REFUSED, &state.limited),
            Ending::Refused => (bounds::KEY_REFUSED, &provider.state().refused),
            _ => return false,
        };
        let apart = self.apart.as_deref();
        apart.map_or(bench, Apart::bench).put(key, now.saturating_add(micros(rest)), now);
        state.keys(provider, apart).all_benched(now).is_none()
    }

    /// The attempt is over, `took` after it began.
    pub fn end(mut self, ending: Ending, took: Duration, at: Timestamp) -> Ended {
        let now = at.as_microsecond();
        let another_key = self.rest_key(ending, now);
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
            let until = now.saturating_add(micros(wait.min(bounds::COOLDOWN_MAX)));
            // A longer one stands, unless it is from before the clock was set back.
            let before = Some(vitals.cooldown_until).filter(|before| pending(*before, now));
            vitals.cooldown_until = before.map_or(until, |before| before.max(until));
        }
        let at_fault = match ending {
            Ending::Nothing => None,
            // It said when to come back, or its keys rest: no reason to stay away for longer.
            Ending::Limited(wait) => (wait.is_none() && one_key).then_some(true),
            // A refused key that rests says nothing of the others.
            Ending::Refused | Ending::Forbidden => (!another_key).then_some(true),
            Ending::Answered => Some(false),
            Ending::Failed | Ending::TimedOut | Ending::Unavailable(_) => Some(true),
        };
        let change = match at_fault {
            None => {
                vitals.circuit.left(pass);
                None
            }
            Some(false) => vitals.circuit.succeeded(pass, now, &provider.breaker),
            Some(true) => vitals.circuit.failed(pass, now, &provider.breaker),
        };
        if ending == Ending::TimedOut && !self.content {
            // It was at least as slow as this.
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
            state.stir().circuit.left(pass);
        }
        state.end();
        self.target.provider.state().leave();
    }
}
