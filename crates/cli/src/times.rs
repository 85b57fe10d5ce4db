//! Times on the command line: RFC 3339, or a distance from now such as 24h or 7d.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::failure::{CommandFailure, Result};
use super::records::text;
use rerouter_base::clock::rfc3339;

/// `text` is an RFC 3339 time, or an age that is counted back from `now`.
pub(super) fn past(option: &str, text: &str, now: Timestamp) -> Result<String> {
    parse(option, text, "an age", |distance| now.checked_sub(distance).ok()).map(rfc3339)
}

/// `text` is an RFC 3339 time, or a distance from `now`.
pub(super) fn future(option: &str, text: &str, now: Timestamp) -> Result<Timestamp> {
    parse(option, text, "a time from now", |distance| now.checked_add(distance).ok())
}

fn parse(
    option: &str,
    given: &str,
    what: &str,
    from_now: impl Fn(Duration) -> Option<Timestamp>,
) -> Result<Timestamp> {
    if let Ok(at) = given.parse::<Timestamp>() {
        return Ok(at);
    }
    distance(given).and_then(from_now).ok_or_else(|| {
        CommandFailure::Usage(format!(
            "{option} has to be an RFC 3339 time, or {what} such as 24h or 7d"
        ))
    })
}

/// On narrower terminals a time is shown without its year.
const WHOLE_TIMES: u16 = 140;

/// Whether times are to be shown by [`brief`] on a terminal of this width.
pub(super) fn are_brief(terminal: Option<u16>) -> bool {
    terminal.is_some_and(|width| width < WHOLE_TIMES)
}

/// A time of the API for a narrow terminal, in UTC: `11-22 15:04:05`.
pub(super) fn brief(value: Option<&Value>) -> String {
    match value.and_then(|value| value.as_str()?.parse::<Timestamp>().ok()) {
        Some(at) => at.strftime("%m-%d %H:%M:%S").to_string(),
        None => text(value),
    }
}

/// Parses a length of time such as 90s, 24h or 7d.
pub(super) fn distance(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(length).ok()
}
