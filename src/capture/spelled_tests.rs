//! Texts in every spelling, and others that are only like them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::capture::sift::unescaped;

const KEY: &[u8] = b"ab/cd+0123456789";

#[test]
fn a_text_is_found_in_every_spelling() {
    let key = std::str::from_utf8(KEY).unwrap();
    let quoted = |text: &str| Value::from(text).to_string();
    let php = key.replace('/', "\\/");
    let spelled = key.replace('/', "\\u002F").replace('a', "\\u0061").replace('9', "\\u0039");
    for text in [key, &php, &quoted(&php), &quoted(&quoted(&php)), &spelled, &quoted(&spelled), &quoted(&quoted(&spelled))] {
        let all = format!("{{\"a\\n\": \"{text}\", \"b\": \"{text}");
        let found = find(all.as_bytes(), KEY);
        assert_eq!(found.len(), 2, "{all}");
        for span in found {
            let said = (0..4).fold(all[span].to_owned(), |said, _| unescaped(said.as_bytes()));
            assert_eq!(said, key, "{all}");
        }
    }
    for other in ["", "ab/cd+012345678", "ab\\ncd+0123456789", "ab\\u002ecd+0123456789", "ab\\u00", "\\", "\\\\\\\\\\u0061b\\"] {
        assert!(find(other.as_bytes(), KEY).is_empty(), "{other}");
    }
    assert!(find(b"\\", b"").is_empty());
    assert_eq!((after(b"T\\u004fols\"", b"tools"), after(b"tool", b"tools")), (Some(&b"\""[..]), None));
}

#[test]
fn escapes_of_what_needs_none_are_told() {
    for (text, expected) in [
        (r#"{"a":"b\n\"c\" \\ \u00e9 \u2028"}"#, false),
        (r#"{"a":"<\/a>"}"#, true),
        (r#"{"a":"\u0061"}"#, true),
        (r#"{"a":"\u00"#, true),
        (r#"{"a":"\"#, true),
        ("", false),
    ] {
        assert_eq!(is_spelled_out(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn a_beginning_counts_where_more_might_have_come() {
    let stream = |piece: &str| format!("data: {}\n\n", json!({"delta": {"content": format!("it is {piece}")}}));
    for (piece, head, expected) in [("ab/c", None, false), ("ab/c", Some(3), true), ("ab/", Some(3), false), ("ab/x", Some(3), false)] {
        assert_eq!(may_be_in_pieces(stream(piece).as_bytes(), KEY, head), expected, "{piece}");
    }
}

proptest! {
    #[test]
    fn in_whatever_pieces_it_may_be_there(cuts in prop::collection::btree_set(1..KEY.len(), 1..KEY.len()), before in "[a-c ]{0,4}", after in "[a-c ]{0,4}") {
        let key = std::str::from_utf8(KEY).unwrap();
        let ends: Vec<usize> = cuts.iter().copied().chain([KEY.len()]).collect();
        let mut from = 0;
        let events: String = ends
            .iter()
            .map(|end| {
                let (first, last) = (if from == 0 { &*before } else { "" }, if *end == KEY.len() { &*after } else { "" });
                let event = json!({"id": "x", "choices": [{"index": 0, "delta": {"content": format!("{first}{}{last}", &key[from..*end])}}]});
                from = *end;
                format!("data: {event}\n\n")
            })
            .collect();
        prop_assert!(may_be_in_pieces(events.as_bytes(), KEY, None), "{events}");
        let other = events.replace("9", "8");
        prop_assert!(!may_be_in_pieces(other.as_bytes(), KEY, None), "{other}");
    }
}
