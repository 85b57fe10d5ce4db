//! Times in `datetime-local` inputs, which have no time zone: they are in UTC, as their labels say.

/// The time of an input in RFC 3339. Text that is no such time is passed on, so that the API
/// refuses it.
pub(super) fn utc(at: &str) -> String {
    match at.len() {
        // The form `2026-11-21T10:00`, and the same with seconds.
        16 => format!("{at}:00Z"),
        19 => format!("{at}Z"),
        _ => at.to_owned(),
    }
}

/// A time in UTC in the form of an input, to the minute.
pub(super) fn minute(at: &str) -> &str {
    at.get(..16).unwrap_or_default()
}
