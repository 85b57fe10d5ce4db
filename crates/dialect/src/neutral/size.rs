//! Bounds the memory that a JSON text takes once it is parsed.

/// Limit on objects and lists in a text that is translated. Each takes up to a kilobyte during
/// translation. A long session with many tools has some thousands.
const TRANSLATED_VALUES: usize = 32_768;

/// Whether a text has more objects and lists than [`TRANSLATED_VALUES`]. A few bytes of text take
/// far more memory once they are parsed.
pub(crate) fn is_too_large(json: &[u8]) -> bool {
    // An object or list has at least two bytes.
    json.len() > 2 * TRANSLATED_VALUES && values(json) > TRANSLATED_VALUES
}

/// Counts objects and lists outside strings.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_outside_of_strings_counts() {
        assert_eq!(values(br#"{"a": ["{[\"{[", {}], "b\\": []}"#), 4);
        let most = format!("[{}1]", "[],".repeat(TRANSLATED_VALUES - 1));
        assert!(!is_too_large(most.as_bytes()));
        assert!(is_too_large(format!("[{most}]").as_bytes()));
    }
}
