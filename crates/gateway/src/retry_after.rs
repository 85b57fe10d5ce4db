//! Reads how long a provider asks to wait: `retry-after-ms`, which OpenAI's clients read, or else
//! `Retry-After` (RFC 9110 section 10.2.3), in seconds or as a date.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The wait that these headers ask for; `None` if none of them can be read.
pub(super) fn read(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(|ms| number(ms, 1e-3)) {
        return Some(wait);
    }
    let wait = text(RETRY_AFTER.as_str())?;
    number(wait, 1.0).or_else(|| {
        let at = DateTimeParser::new().relaxed_weekday(true).parse_timestamp(wait).ok()?;
        Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
    })
}

/// A non-negative number of units. Some providers write fractions.
fn number(text: &str, unit_s: f64) -> Option<Duration> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pairs: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        read(&headers, "2026-11-21T11:00:00Z".parse().unwrap())
    }

    #[test]
    fn numbers_and_dates_are_read() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (text, wanted) in [
            ("7", ms(7_000)),
            (" 1.5 ", ms(1_500)),
            ("0", ms(0)),
            ("Sat, 21 Nov 2026 11:00:30 GMT", ms(30_000)),
            ("Sat, 21 Nov 2026 10:00:00 GMT", ms(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
            ("nan", None),
            ("1e400", None),
        ] {
            assert_eq!(wait(&[("retry-after", text)]), wanted, "{text}");
        }
        assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "250")]), ms(250));
        assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "x")]), ms(9_000));
        assert_eq!(wait(&[]), None);
    }
}
