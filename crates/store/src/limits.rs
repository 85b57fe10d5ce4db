//! What a key or user may use up, as it is kept and shown (contract, section 6.5).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use rerouter_base::money::{NanoUsd, dollars, nano_usd};

/// Patterns of `limits.models`: each request is matched against all of them.
pub const LIMIT_MODELS: usize = 100;

/// Days of the longest month: what a budget a day is at most in a month.
const DAYS: u64 = 31;

/// The time that a budget is for, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next.
    Month,
}

/// Money for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How much; in documents dollars, as a number.
    #[serde(rename = "usd", serialize_with = "to_dollars", deserialize_with = "from_dollars")]
    pub nano: NanoUsd,
    pub per: Per,
}

impl Budget {
    /// Whether this one can never allow what `outer` refuses, on a day or in a month: what is for a
    /// day is spent on each of a month, and what is for a month perhaps on one day.
    fn within(self, outer: Budget) -> bool {
        match (self.per, outer.per) {
            (Per::Day, Per::Month) => self.nano.saturating_mul(DAYS) <= outer.nano,
            _ => self.nano <= outer.nano,
        }
    }

    /// What neither of the two refuses.
    fn common(self, other: Budget) -> Budget {
        if self.within(other) || other.within(self) {
            return if self.within(other) { self } else { other };
        }
        // One for a day, and one for a month that it could use up: as much of it as comes to a day.
        let daily = |budget: Budget| match budget.per {
            Per::Day => budget.nano,
            Per::Month => budget.nano / DAYS,
        };
        match daily(self).min(daily(other)) {
            0 => Budget { nano: self.nano.min(other.nano), per: Per::Month },
            nano => Budget { nano, per: Per::Day },
        }
    }
}

fn to_dollars<S: Serializer>(nano: &NanoUsd, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(dollars(*nano))
}

fn from_dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NanoUsd, D::Error> {
    let usd = f64::deserialize(deserializer)?;
    if usd.is_finite() && usd > 0.0 {
        Ok(nano_usd(usd))
    } else {
        Err(serde::de::Error::custom("not a sum of money"))
    }
}

/// What a key or user may use up. A limit that is not set does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u64>,
    /// Tokens a minute, of prompts and answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The names that clients may ask for: exact, or a beginning and `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Live keys that the owner may have when another is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_per_user: Option<u64>,
}

impl Limits {
    /// Whether a client may ask for this name.
    pub fn allows_model(&self, name: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|pattern| covers(pattern, name)))
    }

    /// Whether anything is counted for it: requests, tokens or money.
    pub fn are_counted(&self) -> bool {
        self.rpm.is_some()
            || self.tpm.is_some()
            || self.concurrency.is_some()
            || self.budget.is_some()
    }

    /// Fills what is not set from `outer`.
    pub fn inherit(&mut self, outer: &Limits) {
        self.rpm = self.rpm.or(outer.rpm);
        self.tpm = self.tpm.or(outer.tpm);
        self.concurrency = self.concurrency.or(outer.concurrency);
        self.budget = self.budget.or(outer.budget);
        self.keys_per_user = self.keys_per_user.or(outer.keys_per_user);
        if self.models.is_none() {
            self.models.clone_from(&outer.models);
        }
    }

    /// Takes away what `outer` refuses: of each limit the narrower one. Gives whether that changed
    /// anything.
    pub fn clamp(&mut self, outer: &Limits) -> bool {
        if self.within(outer) {
            return false;
        }
        let least = |inner: Option<u64>, outer: Option<u64>| match (inner, outer) {
            (Some(inner), Some(outer)) => Some(inner.min(outer)),
            (inner, outer) => inner.or(outer),
        };
        self.rpm = least(self.rpm, outer.rpm);
        self.tpm = least(self.tpm, outer.tpm);
        self.concurrency = least(self.concurrency, outer.concurrency);
        self.keys_per_user = least(self.keys_per_user, outer.keys_per_user);
        if let Some(outer) = outer.budget {
            self.budget = Some(self.budget.map_or(outer, |inner| inner.common(outer)));
        }
        if let Some(outer) = &outer.models {
            self.models = Some(match &self.models {
                None => outer.clone(),
                Some(inner) => common(inner, outer),
            });
        }
        true
    }

    /// The first limit by which these allow what `outer` refuses.
    pub fn beyond(&self, outer: &Limits) -> Option<&'static str> {
        let most = |inner: Option<u64>, outer: Option<u64>| {
            outer.is_none_or(|outer| inner.is_some_and(|inner| inner <= outer))
        };
        let budget =
            outer.budget.is_none_or(|outer| self.budget.is_some_and(|inner| inner.within(outer)));
        let models = match (&self.models, &outer.models) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(inner), Some(outer)) => {
                inner.iter().all(|name| outer.iter().any(|pattern| covers(pattern, name)))
            }
        };
        let fits = [
            ("rpm", most(self.rpm, outer.rpm)),
            ("tpm", most(self.tpm, outer.tpm)),
            ("concurrency", most(self.concurrency, outer.concurrency)),
            ("budget", budget),
            ("models", models),
            ("keys_per_user", most(self.keys_per_user, outer.keys_per_user)),
        ];
        fits.into_iter().find(|(_, fits)| !fits).map(|(name, _)| name)
    }

    /// Whether nothing that these allow is refused by `outer`.
    pub fn within(&self, outer: &Limits) -> bool {
        self.beyond(outer).is_none()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Day => "day",
            Per::Month => "month",
        };
        write!(f, "{} USD a {per}", dollars(self.nano))
    }
}

/// The patterns for what both lists match. Never more than a list may have: leaving some out only
/// narrows it.
fn common(one: &[String], other: &[String]) -> Vec<String> {
    let covered = |names: &[String], by: &[String]| -> Vec<String> {
        names
            .iter()
            .filter(|name| by.iter().any(|pattern| covers(pattern, name)))
            .cloned()
            .collect()
    };
    let mut both = covered(one, other);
    for name in covered(other, one) {
        if !both.contains(&name) {
            both.push(name);
        }
    }
    both.truncate(LIMIT_MODELS);
    both
}

/// Whether all that `inner` (a name or itself a pattern) stands for is matched by `pattern`.
pub fn covers(pattern: &str, inner: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => inner.starts_with(beginning),
        None => inner == pattern,
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
