//! Shares of a whole.

/// A share from 0 to 1. It is 0 if the whole is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A share for people: `12 %`, `0.4 %`, `< 0.1 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let percent = share(part, whole) * 100.0;
    match percent {
        _ if part == 0 => "0 %".to_owned(),
        _ if percent < 0.1 => "< 0.1 %".to_owned(),
        _ if percent < 9.95 && part != whole => format!("{percent:.1} %"),
        // Only the whole itself is 100 %.
        _ if part < whole => format!("{:.0} %", percent.min(99.0)),
        _ => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_for_people() {
        for (part, whole, expected) in [
            (0, 0, "0 %"),
            (0, 9, "0 %"),
            (1, 100_000, "< 0.1 %"),
            (1, 3, "33 %"),
            (1, 30, "3.3 %"),
            (999, 1000, "99 %"),
            (1000, 1000, "100 %"),
            (1, 1, "100 %"),
        ] {
            assert_eq!(percent(part, whole), expected, "{part} of {whole}");
        }
    }
}
