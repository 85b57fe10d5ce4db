//! Shares of traffic and cost in the limits of a gate: `2%` or `0.02`.

/// The accepted forms, for error messages.
pub const SPELLINGS: &str =
    "a percentage from 0% to 100%, like 2%, or a fraction from 0 to 1, like 0.02";

/// Parses a share as a fraction. A bare `2` is ambiguous, so it is rejected.
pub fn read(text: &str) -> Option<f64> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = if plain { number.parse().ok()? } else { return None };
    (0.0..=whole).contains(&number).then_some(number / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_fraction_and_nothing_between() {
        for (text, expected) in [
            ("2%", 0.02),
            ("0.02", 0.02),
            ("0", 0.0),
            ("0%", 0.0),
            ("1", 1.0),
            ("100%", 1.0),
            ("0.5%", 0.005),
            (".5", 0.5),
            ("1.", 1.0),
        ] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
        for bad in [
            "", "%", ".", "2", "1.01", "200%", "100.1%", "-1", "-0", "-1%", "+1", "2 %", " 2%",
            "2%%", "1e-2", "NaN", "inf", "abc", "0,02", "²",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
