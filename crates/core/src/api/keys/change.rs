//! Values that both a creation and a change of a key may set.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::body::check_pairs;
use rerouter_access::auth::{CAPTURE_LABEL, CaptureLevel};
use rerouter_base::error::{Error, Result};

/// Checks labels. Any pairs are allowed, except that the capture label has fixed values.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    check_pairs("labels", labels)?;
    if labels.get(CAPTURE_LABEL).is_some_and(|word| CaptureLevel::parse(word).is_none()) {
        return Err(Error::invalid(
            "labels",
            format!("The label {CAPTURE_LABEL} must be on, heads or off."),
        ));
    }
    Ok(())
}

/// Reads an expiry: a time in the future, in microseconds.
pub(super) fn end(asked: &str, now: Timestamp) -> Result<Timestamp> {
    let plain = asked.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TtZz".contains(&byte));
    let parsed = asked
        .parse::<Timestamp>()
        .ok()
        .filter(|_| plain)
        .and_then(|at| Timestamp::from_microsecond(at.as_microsecond()).ok());
    let asked = parsed
        .ok_or_else(|| Error::invalid("expires_at", "expires_at must be an RFC 3339 time."))?;
    if asked <= now {
        return Err(Error::invalid("expires_at", "expires_at must be in the future."));
    }
    Ok(asked)
}
