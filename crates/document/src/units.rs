//! Whole numbers with a unit, such as durations and sizes.

use std::time::Duration;

/// Units with their factors, smallest first.
pub(crate) type Units = [(&'static str, u64); 5];

/// Durations, in milliseconds.
pub(crate) const DURATIONS: Units =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// Sizes, in bytes.
pub(crate) const SIZES: Units =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Reads a whole number with a unit.
pub(crate) fn measure(text: &str, units: &Units) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor =
        units.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, factor)| *factor)?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes a number with the largest unit that divides it.
pub(crate) fn shown(value: u64, units: &Units) -> String {
    let fits = units.iter().rev().find(|(_, factor)| value.is_multiple_of(*factor) && value > 0);
    fits.map_or_else(
        || format!("0{}", units.get(1).map_or("", |(unit, _)| unit)),
        |(unit, factor)| format!("{}{unit}", value / factor),
    )
}

pub(crate) fn shown_duration(value: Duration) -> String {
    shown(u64::try_from(value.as_millis()).unwrap_or(u64::MAX), &DURATIONS)
}

/// A JSON Schema pattern of digits and one of the units.
pub(crate) fn pattern(units: &Units, positive: bool, end: &str) -> String {
    let digits = if positive { "0*[1-9][0-9]*" } else { "[0-9]+" };
    let units = units.map(|(unit, _)| unit).join("|");
    format!("^{digits}\\s*({units}){end}$")
}
