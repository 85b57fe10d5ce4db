//! How wide a terminal is, and how wide text is on it.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// The columns of the terminal that this is; none where it is no terminal, or does not say.
pub(super) fn columns(of: impl AsFd + IsTerminal) -> Option<usize> {
    if !of.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(of)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
}

/// Columns that a line takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// As much of a line as so many columns hold; where that is not all of it, with a sign that more was there.
pub(super) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut out, mut left) = (String::new(), most.saturating_sub(1));
    for c in text.chars() {
        let Some(rest) = left.checked_sub(columns_of(c)) else { break };
        left = rest;
        out.push(c);
    }
    out.push('…');
    out
}

fn columns_of(c: char) -> usize {
    let within = |ranges: &[(u32, u32)]| {
        let at = ranges.partition_point(|(_, last)| *last < u32::from(c));
        ranges.get(at).is_some_and(|(first, _)| *first <= u32::from(c))
    };
    match c {
        ' '..='~' => 1,
        _ if within(ABOVE) => 0,
        _ if within(WIDE) => 2,
        _ => 1,
    }
}

/// What stands above or below what is before it, or is not seen (Unicode's Mn, Me and Cf, of the scripts met most).
const ABOVE: &[(u32, u32)] = &[
    (0x0300, 0x036f),
    (0x0483, 0x0489),
    (0x0591, 0x05bd),
    (0x0610, 0x061a),
    (0x064b, 0x065f),
    (0x0670, 0x0670),
    (0x06d6, 0x06dc),
    (0x06df, 0x06e4),
    (0x093c, 0x093c),
    (0x0941, 0x0948),
    (0x094d, 0x094d),
    (0x0e31, 0x0e31),
    (0x0e34, 0x0e3a),
    (0x0e47, 0x0e4e),
    (0x1ab0, 0x1aff),
    (0x1dc0, 0x1dff),
    (0x200b, 0x200f),
    (0x2060, 0x2064),
    (0x20d0, 0x20f0),
    (0x302a, 0x302d),
    (0x3099, 0x309a),
    (0xfe00, 0xfe0f),
    (0xfe20, 0xfe2f),
    (0xfeff, 0xfeff),
    (0xe0100, 0xe01ef),
];

/// What takes two columns (Unicode's East Asian width W and F; blocks that are nearly all of it, whole).
const WIDE: &[(u32, u32)] = &[
    (0x1100, 0x115f),
    (0x231a, 0x231b),
    (0x2329, 0x232a),
    (0x23e9, 0x23ec),
    (0x23f0, 0x23f0),
    (0x23f3, 0x23f3),
    (0x25fd, 0x25fe),
    (0x2614, 0x2615),
    (0x2648, 0x2653),
    (0x26a1, 0x26a1),
    (0x26d4, 0x26d4),
    (0x2705, 0x2705),
    (0x270a, 0x270b),
    (0x2728, 0x2728),
    (0x274c, 0x274c),
    (0x274e, 0x274e),
    (0x2753, 0x2755),
    (0x2757, 0x2757),
    (0x2795, 0x2797),
    (0x2b1b, 0x2b1c),
    (0x2b50, 0x2b50),
    (0x2b55, 0x2b55),
    (0x2e80, 0x303e),
    (0x3041, 0xa4cf),
    (0xa960, 0xa97c),
    (0xac00, 0xd7a3),
    (0xf900, 0xfaff),
    (0xfe10, 0xfe19),
    (0xfe30, 0xfe6b),
    (0xff01, 0xff60),
    (0xffe0, 0xffe6),
    (0x16fe0, 0x18cff),
    (0x1aff0, 0x1b2ff),
    (0x1f004, 0x1f004),
    (0x1f0cf, 0x1f0cf),
    (0x1f18e, 0x1f18e),
    (0x1f191, 0x1f19a),
    (0x1f200, 0x1f265),
    (0x1f300, 0x1f64f),
    (0x1f680, 0x1f6ff),
    (0x1f7e0, 0x1f7f0),
    (0x1f900, 0x1f9ff),
    (0x1fa70, 0x1faff),
    (0x20000, 0x3fffd),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_wide_as_a_terminal_shows_it() {
        for (text, columns) in [
            ("", 0),
            ("abc", 3),
            ("é", 1),
            ("e\u{301}", 1),
            ("日本語", 6),
            ("한글", 4),
            ("ｗ", 2),
            ("🚀!", 3),
            ("…", 1),
        ] {
            assert_eq!(width(text), columns, "{text}");
        }
        for ranges in [ABOVE, WIDE] {
            assert!(ranges.iter().all(|(first, last)| first <= last));
            assert!(
                ranges.windows(2).all(|pair| pair[0].1 < pair[1].0),
                "they are searched in their order"
            );
        }
    }

    #[test]
    fn what_is_cut_says_so_and_keeps_to_its_columns() {
        for (text, most, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("abc", 0, "…"),
        ] {
            assert_eq!(cut(text, most), expected, "{text} {most}");
        }
    }
}
