//! What a JSON text takes in memory once it is read.

/// Objects and lists of a text that is translated. Each takes up to a kilobyte meanwhile; a long
/// session with many tools has some thousands.
const TRANSLATED_VALUES: usize = 32_768;

/// Whether a text has more objects and lists than [`TRANSLATED_VALUES`]: a few bytes of
/// text each, but far more once they are read.
pub(crate) fn is_too_large(json: &[u8]) -> bool {
    // Each takes two bytes.
    json.len() > 2 * TRANSLATED_VALUES && values(json) > TRANSLATED_VALUES
}

/// Objects and lists, those within strings aside.
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
