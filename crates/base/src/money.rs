//! Amounts of money: dollars, and the unit in which they are counted.

/// A billionth of a US dollar, the unit in which spend is counted. A token at 0.001 dollars per
/// million costs one.
pub type NanoUsd = u64;

/// Number of [`NanoUsd`] in a dollar.
const NANOS: f64 = 1e9;

/// Dollars as [`NanoUsd`], rounded up, so that no spend counts as zero.
pub fn nano_usd(dollars: f64) -> NanoUsd {
    // The cast saturates, and NaN becomes 0.
    (dollars * NANOS - 1e-3).ceil().max(0.0) as NanoUsd
}

pub fn dollars(nano: NanoUsd) -> f64 {
    nano as f64 / NANOS
}
