//! Extracts the system prompt from a body that was checked before: messages of the roles `system`
//! and `developer`, `system` of messages, `instructions` of responses. This happens only if a
//! routing document uses it.

use std::ops::Range;

use super::super::endpoint::Endpoint;
use super::text::read_word;
use crate::wire::json::{self, Cursor, JsonError, JsonKind};

/// The system prompt; its parts are joined by line breaks.
pub fn system_text(body: &[u8], endpoint: Endpoint) -> String {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let read = json::read_object(body, |cursor, name| match endpoint {
        Endpoint::ChatCompletions if name.is("messages") => messages(cursor, &mut spans),
        Endpoint::Responses if name.is("input") => messages(cursor, &mut spans),
        Endpoint::Responses if name.is("instructions") => content(cursor, &mut spans),
        Endpoint::Messages | Endpoint::CountTokens if name.is("system") => {
            content(cursor, &mut spans)
        }
        _ => cursor.pass(),
    });
    if read.is_err() {
        return String::new();
    }
    let parts: Vec<_> = spans.into_iter().filter_map(|span| json::text(body.get(span)?)).collect();
    parts.join("\n")
}

/// Collects the texts of system and developer messages.
fn messages(cursor: &mut Cursor<'_>, spans: &mut Vec<Range<usize>>) -> Result<(), JsonError> {
    cursor.elements(|cursor| {
        let (mut instructs, mut texts) = (false, Vec::new());
        cursor.members(|cursor, name| {
            if name.is("role") {
                let role = read_word(cursor)?;
                instructs = matches!(role.as_deref(), Some("system" | "developer"));
                Ok(())
            } else if name.is("content") {
                content(cursor, &mut texts)
            } else {
                cursor.pass()
            }
        })?;
        if instructs {
            spans.append(&mut texts);
        }
        Ok(())
    })
}

/// Collects a string, or the `text` of each part.
fn content(cursor: &mut Cursor<'_>, spans: &mut Vec<Range<usize>>) -> Result<(), JsonError> {
    if cursor.kind()? == JsonKind::String {
        spans.push(cursor.skip()?);
        return Ok(());
    }
    cursor.elements(|cursor| {
        if cursor.kind()? == JsonKind::String {
            spans.push(cursor.skip()?);
            return Ok(());
        }
        cursor.members(|cursor, name| {
            if name.is("text") && cursor.kind()? == JsonKind::String {
                spans.push(cursor.skip()?);
                return Ok(());
            }
            cursor.pass()
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Computes the expected system prompt from a parsed body.
    fn model(body: &Value, endpoint: Endpoint) -> String {
        fn texts(content: &Value) -> Vec<String> {
            match content {
                Value::String(text) => vec![text.clone()],
                Value::Array(parts) => parts
                    .iter()
                    .filter_map(|part| part.as_str().or(part["text"].as_str()).map(str::to_owned))
                    .collect(),
                _ => Vec::new(),
            }
        }
        let of_messages = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter(|message| message["role"] == "system" || message["role"] == "developer")
                .flat_map(|message| texts(&message["content"]))
                .collect()
        };
        let parts = match endpoint {
            Endpoint::ChatCompletions => of_messages(&body["messages"]),
            // In the order of the body. Its members are sorted by name here.
            Endpoint::Responses => {
                [of_messages(&body["input"]), texts(&body["instructions"])].concat()
            }
            Endpoint::Messages | Endpoint::CountTokens => texts(&body["system"]),
            Endpoint::Embeddings => Vec::new(),
        };
        parts.join("\n")
    }

    fn content() -> impl Strategy<Value = Value> {
        let part = prop_oneof![
            "[a-z\"\\\\é\n]{0,6}".prop_map(|text| json!({ "type": "text", "text": text })),
            Just(json!({ "type": "image_url", "image_url": { "url": "data:" } })),
            "[a-z]{0,3}".prop_map(Value::from),
            Just(json!({ "text": 3 })),
        ];
        prop_oneof![
            "[a-z\"\\\\é\n]{0,8}".prop_map(Value::from),
            proptest::collection::vec(part, 0..3).prop_map(Value::from),
            Just(Value::Null),
        ]
    }

    proptest! {
        #[test]
        fn it_is_what_a_parser_finds(
            messages in proptest::collection::vec(
                (prop::sample::select(vec!["system", "developer", "user", "assistant"]), content()),
                0..5,
            ),
            system in content(),
            instructions in content(),
        ) {
            let list: Vec<Value> = messages
                .into_iter()
                .map(|(role, content)| json!({ "content": content, "role": role }))
                .collect();
            let body = json!({
                "input": list, "instructions": instructions, "messages": list, "system": system,
            });
            for endpoint in Endpoint::ALL {
                prop_assert_eq!(
                    system_text(body.to_string().as_bytes(), endpoint),
                    model(&body, endpoint)
                );
            }
        }
    }
}
