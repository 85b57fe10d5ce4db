//! Values that both a creation and a change of a key may set.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::body::check_pairs;
use rerouter_access::auth::{CAPTURE_LABEL, CaptureLevel};
use rerouter_base::error::{Error, Result};
use rerouter_records::Time;

/// Any pairs are allowed, except that the capture label has fixed values.
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

/// 400 unless an expiry is in the future.
pub(super) fn end(asked: Time, now: Timestamp) -> Result<Timestamp> {
    match asked.0 > now {
        true => Ok(asked.0),
        false => Err(Error::invalid("expires_at", "expires_at must be in the future.")),
    }
}
