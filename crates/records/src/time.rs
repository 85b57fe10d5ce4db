//! Times in records.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use rerouter_base::clock::rfc3339;

/// A time in UTC, in RFC 3339 with microseconds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(into = "String", try_from = "String")]
#[schemars(inline, description = "", extend("format" = "date-time"))]
pub struct Time(pub Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        rfc3339(time.0)
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Time(at)
    }
}

impl TryFrom<String> for Time {
    type Error = &'static str;

    /// Reads any RFC 3339 time. Digits beyond microseconds are cut off.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Time::parse(&text).ok_or("not an RFC 3339 time")
    }
}

impl Time {
    /// Reads a time as [`Time::try_from`] does. Zones in brackets and words, which jiff accepts
    /// too, are refused.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TtZz".contains(&byte));
        let at = text.parse::<Timestamp>().ok().filter(|_| plain)?;
        Timestamp::from_microsecond(at.as_microsecond()).ok().map(Time)
    }
}
