//! JSON as text: where the top-level `model` stands, and other spellings of one value. Never parse
//! → serialise: what is tested is that key order, number text and escapes survive.

use std::ops::Range;

/// The bytes of the value of the top-level `model`, quotes included.
pub fn model_span(text: &str) -> Range<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let end = string_end(bytes, at);
                let mut after = end;
                while bytes[after].is_ascii_whitespace() {
                    after += 1;
                }
                if depth == 1 && &text[at..end] == "\"model\"" && bytes[after] == b':' {
                    let start = (after + 1..).find(|&i| !bytes[i].is_ascii_whitespace()).unwrap();
                    assert_eq!(bytes[start], b'"', "model is a string");
                    return start..string_end(bytes, start);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    panic!("no top-level model in {text}");
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The same text with another model.
pub fn with_model(text: &str, model: &str) -> String {
    let span = model_span(text);
    format!("{}{}{}", &text[..span.start], serde_json::to_string(model).unwrap(), &text[span.end..])
}

/// Without any white space between tokens.
pub fn compact(text: &str) -> String {
    respell(text, |_| "", false)
}

/// The same value with odd white space between tokens and needless escapes within string values.
pub fn odd(text: &str) -> String {
    format!("\r\n {} \t\n", respell(text, |n| [" ", "", "\n\t", "  ", "\r\n", ""][n % 6], true))
}

fn respell(text: &str, space: impl Fn(usize) -> &'static str, escape: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len() * 2);
    let (mut at, mut tokens) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                let is_name = bytes[end..].iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':');
                if escape && !is_name {
                    needless_escapes(&text[at..end], &mut out)
                } else {
                    out.push_str(&text[at..end])
                }
                at = end;
            }
            b if b.is_ascii_whitespace() => at += 1,
            b @ (b'{' | b'}' | b'[' | b']' | b',' | b':') => {
                out.push_str(space(tokens));
                out.push(char::from(b));
                out.push_str(space(tokens + 1));
                tokens += 1;
                at += 1;
            }
            b => {
                out.push(char::from(b));
                at += 1;
            }
        }
    }
    out
}

fn needless_escapes(string: &str, out: &mut String) {
    let mut chars = string.chars();
    let mut letters = 0;
    while let Some(c) = chars.next() {
        if c == '\\' {
            out.push(c);
            out.extend(chars.next());
        } else if c == '/' {
            out.push_str("\\/");
        } else if c.is_ascii_alphabetic() && {
            letters += 1;
            letters % 7 == 0
        } {
            out.push_str(&format!("\\u{:04X}", c as u32));
        } else {
            out.push(c);
        }
    }
}

#[test]
fn other_spellings_are_the_same_value_in_other_bytes() {
    let text = concat!(
        r#"{"messages":[{"model":"inner","content":"a/b \"quoted\" \u00e9 abcdefghijklmn"}], "#,
        r#""n": 1.50, "model" : "gpt-x","e":[]}"#,
    );
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    for other in [compact(text), odd(text)] {
        assert_ne!(other, text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&other).unwrap(), value);
        let changed: serde_json::Value =
            serde_json::from_str(&with_model(&other, "a/\"b")).unwrap();
        assert_eq!(changed["model"], "a/\"b");
        assert_eq!(changed["messages"][0]["model"], "inner");
    }
    assert!(odd(text).contains("\\u") && odd(text).contains("1.50"));
}
