//! What it takes to look for credentials, counted, and their beginnings at an end.

use std::cell::Cell;

use proptest::prelude::*;
use serde_json::json;

use super::*;

thread_local! {
    /// How many texts were looked through for one other, each of which may be as long.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
}

fn looks(work: impl FnOnce()) -> usize {
    let before = LOOKS.get();
    work();
    LOOKS.get() - before
}

#[test]
fn what_is_shorter_than_a_secret_is_not_looked_through() {
    let secrets =
        Secrets::known((0..60).map(|at| format!("{at:04}/{}", "k".repeat(4_000))).collect());
    let body = |strings: usize| {
        Bytes::from(
            json!({"x": vec!["abcd"; strings], "y": "long enough to be looked at"}).to_string(),
        )
    };
    for (text, stream) in [
        (body(10), body(20_000)),
        (body(10), Bytes::from("data: {\"x\":\"abcd\"}\n\n".repeat(5_000))),
    ] {
        let [few, many] = [text, stream].map(|text| {
            looks(|| {
                assert_eq!(secrets.hide_body(&text, true), Some((text.clone(), false)));
                assert!(!text.split(|byte| *byte == b'\n').any(|line| secrets.are_in(line, true)));
                assert!(
                    !secrets.hide_in(&mut serde_json::from_slice(&text).unwrap_or_default(), true)
                );
            })
        });
        assert_eq!(few, 0);
        // Of a stream all of it once, where somebody took it for one text.
        assert!(many <= 2 * 60 * 4, "{many}");
    }
}

#[test]
fn what_it_would_take_is_known_before() {
    let secrets = Secrets::known((0..40).map(|at| format!("secret{at:02}")).collect());
    let text = |string: &str, times: usize| Bytes::from(json!(vec![string; times]).to_string());
    for (body, expected) in [
        (text("a string", 10_000), false),
        (text("a string", 200_000), true),
        (text("abc", 200_000), false),
    ] {
        assert_eq!(secrets.are_too_many(&body), expected, "{}", body.len());
        let looked = looks(|| assert_eq!(secrets.hide_body(&body, false).is_none(), expected));
        assert!(looked * BEGIN <= WORK * 2, "{looked}");
    }
    assert!(secrets.are_too_many(&vec![b'\n'; 8 << 20]));
    assert!(!Secrets::default().are_too_many(&vec![b'x'; 9 << 20]));
}

proptest! {
    #[test]
    fn the_longest_beginning_at_the_end_is_found(text in "[ab]{0,24}", secret in "[ab]{0,24}") {
        let (text, secret) = (text.as_bytes(), secret.as_bytes());
        let by_hand = (HEAD_BYTES + 1..secret.len()).rev().find(|head| text.ends_with(&secret[..*head]));
        prop_assert_eq!(head_at_end(text, secret), by_hand.map(|head| text.len() - head..text.len()));
    }
}
