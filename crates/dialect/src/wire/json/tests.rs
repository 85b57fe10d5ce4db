//! Compares the cursor and the edits with `serde_json`.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use rerouter_base::error::Error;

fn nested(depth: usize) -> String {
    format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
}

fn read(body: &[u8]) -> Result<(), Error> {
    read_object(body, |cursor, _| cursor.skip().map(|_| ()))
}

#[test]
fn depth_is_bounded_exactly_and_without_recursion() {
    assert!(read(nested(128).as_bytes()).is_ok());
    assert!(read(nested(129).as_bytes()).unwrap_err().detail().contains("nested"));
    assert!(read(nested(5_000_000).as_bytes()).unwrap_err().detail().contains("nested"));
}

#[test]
fn each_character_of_a_name_is_read_as_by_serde_json() {
    for (at, character) in (0..40).flat_map(|at| ('\0'..='ÿ').map(move |each| (at, each))) {
        let body = format!("{{\"{}{character}{}\":1}}", "a".repeat(at), "é".repeat(40 - at));
        let known = serde_json::from_str::<Value>(&body).is_ok();
        assert_eq!(read(body.as_bytes()).is_ok(), known, "{body:?}");
    }
}

#[test]
fn a_fault_is_told_with_its_place() {
    assert_eq!(
        read(b"{\"a\":1,\n}").unwrap_err().detail(),
        "The body is not valid JSON: key must be a string at line 2 column 1."
    );
    assert!(read(b"[1]").unwrap_err().detail().contains("JSON object"));
    assert!(read(b"{\"a\":\"\xff\"}").unwrap_err().detail().contains("UTF-8"));
    assert!(read(b"{} x").is_err());
    assert!(read(b"").is_err());
}

#[test]
fn members_leave_with_their_commas() {
    for (before, after) in [
        (r#"{"stream":true}"#, r#"{}"#),
        (r#"{ "stream" : true , "a":1 }"#, r#"{ "a":1 }"#),
        (r#"{"a":1, "stream":true}"#, r#"{"a":1}"#),
        ("{\"a\":1,\n \"stream\":true ,\n \"b\":2}", "{\"a\":1 ,\n \"b\":2}"),
        (r#"{"stream_options":{"include_usage":true},"stream":true}"#, r#"{}"#),
        (r#"{"stream":1,"a":[],"stream_options":{},"b":0,"str\u0065am":2}"#, r#"{"a":[],"b":0}"#),
    ] {
        let out = without_members(&Bytes::from(before), &["stream", "stream_options"]).unwrap();
        assert_eq!(std::str::from_utf8(&out).unwrap(), after);
    }
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}|[\"\\\\\n\u{1F600}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z\"\\\\]{0,6}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Accepts exactly the texts that `serde_json` accepts.
    #[test]
    fn the_same_language_as_serde_json(
        value in value(),
        at in 0usize..200,
        byte in prop::sample::select(&b"{}[],:\"\\u0-9.eE+ tn\n\x01"[..]),
    ) {
        let text = format!("{{\"x\":{}}}", serde_json::to_string_pretty(&value).unwrap());
        prop_assert!(read(text.as_bytes()).is_ok());
        let mut bent = text.into_bytes();
        let at = at % bent.len();
        bent[at] = byte;
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bent).is_ok()
            && std::str::from_utf8(&bent).is_ok();
        let is_object = bent.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
        prop_assert_eq!(read(&bent).is_ok(), theirs && is_object);
    }

    /// A truncated text is read to its end. Any other text is read as far as it can be JSON.
    #[test]
    fn a_part_is_read_as_far_as_it_is_one(
        value in value(),
        cut: prop::sample::Index,
        at: prop::sample::Index,
        byte: u8,
    ) {
        let whole = serde_json::to_vec(&value).unwrap();
        let text = &whole[..cut.index(whole.len() + 1)];
        let part = |text: &[u8]| read_part(text, |cursor| cursor.pass());
        prop_assert_eq!(part(text), text.len());
        if !text.is_empty() {
            let (mut bent, at) = (text.to_vec(), at.index(text.len()));
            bent[at] = byte;
            let read = part(&bent);
            prop_assert_eq!(part(&bent[..read]), read, "what was read is the beginning of JSON");
        }
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read(&body);
        let _ = without_members(&Bytes::from(body), &["a"]);
    }

    #[test]
    fn taking_members_out_leaves_the_rest(
        members in prop::collection::vec(("[ab]|stream|stream_options", value()), 0..6),
        pretty in any::<bool>(),
    ) {
        let written: Vec<String> = members
            .iter()
            .map(|(name, value)| {
                format!(
                    "\"{name}\":{}",
                    if pretty {
                        serde_json::to_string_pretty(value)
                    } else {
                        serde_json::to_string(value)
                    }
                    .unwrap()
                )
            })
            .collect();
        let separator = if pretty { " ,\n  " } else { "," };
        let body = Bytes::from(format!("{{{}}}", written.join(separator)));
        let kept: Vec<&String> = written.iter().filter(|m| !m.starts_with("\"stream")).collect();
        let out = without_members(&body, &["stream", "stream_options"]).unwrap();
        let mut rest = std::str::from_utf8(&out).unwrap();
        for member in &kept {
            let at = rest.find(member.as_str());
            prop_assert!(at.is_some());
            rest = &rest[at.unwrap() + member.len()..];
        }
        let left: Value = serde_json::from_slice(&out).unwrap();
        prop_assert!(left.get("stream").is_none() && left.get("stream_options").is_none());
    }
}
