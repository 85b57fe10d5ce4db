//! Times of inputs (`datetime-local`), which have no zone: UTC, as their labels say.

/// What an input holds, as RFC 3339. What is no such time goes to the API as it is, which refuses
/// it.
pub(super) fn utc(at: &str) -> String {
    match at.len() {
        // `2026-11-21T10:00`, and with seconds.
        16 => format!("{at}:00Z"),
        19 => format!("{at}Z"),
        _ => at.to_owned(),
    }
}

/// A time in UTC as an input holds it: to the minute.
pub(super) fn minute(at: &str) -> &str {
    at.get(..16).unwrap_or_default()
}
