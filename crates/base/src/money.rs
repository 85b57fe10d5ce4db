//! Money: amounts in dollars, and as they are counted.

/// A billionth of a dollar: the unit in which spend is counted. A token at 0.001 dollars a million
/// is one.
pub type NanoUsd = u64;

/// Billionths of a dollar in one.
const NANOS: f64 = 1e9;

/// Dollars as [`NanoUsd`], rounded up: no spend counts as nothing.
pub fn nano_usd(dollars: f64) -> NanoUsd {
    // A float that is out of range becomes the nearest number that is in it, and no number becomes
    // 0.
    (dollars * NANOS - 1e-3).ceil().max(0.0) as NanoUsd
}

pub fn dollars(nano: NanoUsd) -> f64 {
    nano as f64 / NANOS
}
