//! The limits of a key or user, as stored and shown.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use rerouter_base::money::{NanoUsd, dollars, nano_usd};

/// Maximum number of live keys of an owner.
pub const KEYS_PER_OWNER: usize = 100;
/// Maximum number of patterns in `limits.models`, as each request is matched against all of them.
const LIMIT_MODELS: usize = 100;
/// Maximum length of a pattern in `limits.models`, in characters.
const LIMIT_MODEL_CHARS: usize = 256;
/// Largest `limits.rpm`: more than one gateway can answer in a minute.
const LIMIT_RPM: u64 = 100_000_000;
/// Largest `limits.tpm`. Its token bucket counts in 1/60,000,000 of a token; twice this limit fits
/// into 63 bits in that unit.
const LIMIT_TPM: u64 = 10_000_000_000;
/// Largest `limits.concurrency`: beyond the connections of any gateway.
const LIMIT_CONCURRENCY: u64 = 1_000_000;
/// Largest `limits.budget.usd`: sums in billionths of a dollar stay far within 64 bits.
const LIMIT_USD: u64 = 100_000_000;

/// Days of the longest month: the factor from a daily budget to its maximum in a month.
const DAYS: u64 = 31;

rerouter_base::words! {
    /// The time that a budget is for, in UTC.
    pub enum Per {
        /// From midnight to midnight.
        Day = "day",
        /// From the first of a month to the first of the next.
        Month = "month",
    }
}

/// Money per day or month in UTC. Targets without a price are refused with 403. Without
/// `max_tokens` a request reserves 1,024 tokens, or what is left. An answer that costs more than
/// its reserve is charged in full and may exceed the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// US dollars.
    #[serde(rename = "usd", serialize_with = "to_dollars", deserialize_with = "from_dollars")]
    #[schemars(with = "f64", range(max = LIMIT_USD), extend("exclusiveMinimum" = 0))]
    pub nano: NanoUsd,
    pub per: Per,
}

impl Budget {
    /// Whether this budget never allows more than `outer`, neither on a day nor in a month. A daily
    /// budget may be spent on every day of a month, and a monthly budget on a single day.
    fn within(self, outer: Budget) -> bool {
        match (self.per, outer.per) {
            (Per::Day, Per::Month) => self.nano.saturating_mul(DAYS) <= outer.nano,
            _ => self.nano <= outer.nano,
        }
    }

    /// A budget that allows nothing that one of the two refuses.
    fn common(self, other: Budget) -> Budget {
        if self.within(other) || other.within(self) {
            return if self.within(other) { self } else { other };
        }
        // One budget is daily, and could use up the other, which is monthly. The result is the
        // smaller of the daily budget and the monthly budget's part for one day.
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
        Ok(nano_usd(usd).max(1))
    } else {
        Err(serde::de::Error::custom("not a sum of money"))
    }
}

/// An absent limit does not apply. A key never has wider limits than the key that created it. Its
/// usage also counts for all of its ancestors and for its user. Only ROUTER keys have rpm, tpm,
/// concurrency and budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests per minute: a token bucket that holds one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = LIMIT_RPM))]
    pub rpm: Option<u64>,
    /// Tokens per minute, of prompts and answers: reserved by estimate, settled by usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = LIMIT_TPM))]
    pub tpm: Option<u64>,
    /// Concurrent requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = LIMIT_CONCURRENCY))]
    pub concurrency: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Model names that the key may request; a trailing `*` matches any rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LIMIT_MODELS), inner(length(min = 1, max = LIMIT_MODEL_CHARS)))]
    pub models: Option<Vec<String>>,
    /// Number of live keys up to which the key may create keys for its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = KEYS_PER_OWNER))]
    pub keys_per_user: Option<u64>,
}

/// The unit of a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Requests,
    Tokens,
}

impl Counted {
    pub fn of<T>(self, requests: T, tokens: T) -> T {
        match self {
            Counted::Requests => requests,
            Counted::Tokens => tokens,
        }
    }
}

/// A kind of limit on requests or tokens.
pub struct CountLimit {
    /// The member of `limits`.
    pub name: &'static str,
    /// The name of its input in forms.
    pub input: &'static str,
    pub label: &'static str,
    pub counts: Counted,
    /// `a minute` or `at once`.
    pub span: &'static str,
    /// Time in which an empty bucket fills. `None`: running requests are counted.
    pub window: Option<Duration>,
    /// The last part of its `x-ratelimit-*` headers.
    pub header: Option<&'static str>,
    pub hint: &'static str,
}

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

/// In the order of [`Limits::counts`].
pub static COUNTS: [CountLimit; 3] = [
    CountLimit {
        name: "rpm",
        input: "limits.rpm",
        label: "Requests a minute",
        counts: Counted::Requests,
        span: "a minute",
        window: MINUTE,
        header: Some("requests"),
        hint: "",
    },
    CountLimit {
        name: "tpm",
        input: "limits.tpm",
        label: "Tokens a minute",
        counts: Counted::Tokens,
        span: "a minute",
        window: MINUTE,
        header: Some("tokens"),
        hint: "Of prompts and answers.",
    },
    CountLimit {
        name: "concurrency",
        input: "limits.concurrency",
        label: "Requests at once",
        counts: Counted::Requests,
        span: "at once",
        window: None,
        header: None,
        hint: "",
    },
];

/// A value for each kind of [`COUNTS`].
pub type ByCount<T> = [Option<T>; 3];

impl Limits {
    pub fn counts(&self) -> ByCount<u64> {
        [self.rpm, self.tpm, self.concurrency]
    }

    pub fn set_counts(&mut self, counts: ByCount<u64>) {
        self.counts_mut().into_iter().zip(counts).for_each(|(limit, count)| *limit = count);
    }

    fn counts_mut(&mut self) -> [&mut Option<u64>; 3] {
        [&mut self.rpm, &mut self.tpm, &mut self.concurrency]
    }

    pub fn allows_model(&self, name: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|pattern| covers(pattern, name)))
    }

    /// The name of the first set limit for which requests, tokens or money are counted.
    pub fn counted(&self) -> Option<&'static str> {
        let set = COUNTS.iter().zip(self.counts()).find(|(_, most)| most.is_some());
        set.map(|(row, _)| row.name).or(self.budget.map(|_| "budget"))
    }

    pub fn are_counted(&self) -> bool {
        self.counted().is_some()
    }

    /// Fills what is not set from `outer`.
    pub fn inherit(&mut self, outer: &Limits) {
        for (inner, outer) in self.counts_mut().into_iter().zip(outer.counts()) {
            *inner = inner.or(outer);
        }
        self.budget = self.budget.or(outer.budget);
        self.keys_per_user = self.keys_per_user.or(outer.keys_per_user);
        if self.models.is_none() {
            self.models.clone_from(&outer.models);
        }
    }

    /// Narrows each limit to that of `outer`, where `outer` is narrower. Returns whether anything
    /// changed.
    pub fn clamp(&mut self, outer: &Limits) -> bool {
        if self.within(outer) {
            return false;
        }
        let least = |inner: Option<u64>, outer: Option<u64>| match (inner, outer) {
            (Some(inner), Some(outer)) => Some(inner.min(outer)),
            (inner, outer) => inner.or(outer),
        };
        for (inner, outer) in self.counts_mut().into_iter().zip(outer.counts()) {
            *inner = least(*inner, outer);
        }
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

    /// The name of the first limit that allows something that `outer` refuses.
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
        let counts = self.counts().into_iter().zip(outer.counts());
        let counts = COUNTS.iter().zip(counts.map(|(inner, outer)| most(inner, outer)));
        let others = [
            ("budget", budget),
            ("models", models),
            ("keys_per_user", most(self.keys_per_user, outer.keys_per_user)),
        ];
        let mut fits = counts.map(|(row, fits)| (row.name, fits)).chain(others);
        fits.find(|(_, fits)| !fits).map(|(name, _)| name)
    }

    /// Whether `outer` allows everything that these limits allow.
    pub fn within(&self, outer: &Limits) -> bool {
        self.beyond(outer).is_none()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} USD a {}", dollars(self.nano), self.per.as_str())
    }
}

rerouter_base::words! {
    /// Whose limit it is.
    pub enum LimitOwner {
        Key = "key",
        /// A key from which it descends.
        KeyAbove = "key_above",
        User = "user",
    }
}

impl fmt::Display for LimitOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitOwner::Key => "your key",
            LimitOwner::KeyAbove => "a key above yours",
            LimitOwner::User => "your user",
        })
    }
}

/// Patterns for the names that both lists match. The result is no longer than a list may be:
/// patterns that are left out only narrow it.
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

/// Whether `pattern` matches all names that `inner`, a name or a pattern, matches.
pub fn covers(pattern: &str, inner: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => inner.starts_with(beginning),
        None => inner == pattern,
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
