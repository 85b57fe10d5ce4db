//! What a JSON text takes in memory once it is read.

use rerouter_base::bounds;

/// Whether a text has more objects and lists than [`bounds::TRANSLATED_VALUES`]: a few bytes of
/// text each, but far more once they are read.
pub fn is_too_large(json: &[u8]) -> bool {
    // Each takes two bytes.
    json.len() > 2 * bounds::TRANSLATED_VALUES && values(json) > bounds::TRANSLATED_VALUES
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
        let most = format!("[{}1]", "[],".repeat(bounds::TRANSLATED_VALUES - 1));
        assert!(!is_too_large(most.as_bytes()));
        assert!(is_too_large(format!("[{most}]").as_bytes()));
    }
}
