//! Embeddings: one text, several, or tokens in their place. No message, no tool, no answer to be generated.

use super::super::json::{Cursor, Fault, Shape};
use super::{Facts, tokens_of};

/// Reads `input`, the one member that is acted on here alone.
pub(super) fn member(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Fault> {
    match cursor.shape()? {
        Shape::Array => cursor.elements(|cursor| input(cursor, facts)),
        _ => input(cursor, facts),
    }
}

/// A text, a token, or a list of tokens.
fn input(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Fault> {
    match cursor.shape()? {
        Shape::Number => {
            facts.prompt.tokens += 1;
            cursor.pass()
        }
        Shape::Array => cursor.elements(|cursor| {
            facts.prompt.tokens += u64::from(cursor.shape()? == Shape::Number);
            cursor.pass()
        }),
        Shape::String => {
            let text = cursor.skip()?;
            facts.prompt.tokens += tokens_of(cursor, &text);
            // What is asked about is the last of them, as it is the last message of a chat.
            facts.prompt.user_text = vec![text];
            Ok(())
        }
        shape => {
            // An image or more, as some models take.
            facts.prompt.is_open |= shape == Shape::Object;
            cursor.pass()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{last_user_text, read_request};
    use crate::protocol::endpoint::Endpoint;
    use crate::protocol::tokens;

    #[test]
    fn each_form_of_input_is_counted() {
        let two = tokens::estimate(b"one text") + tokens::estimate(b"another");
        for (input, count, last) in [
            (r#""one text""#, tokens::estimate(b"one text"), "one text"),
            (r#"["one text", "another"]"#, two, "another"),
            ("[1, 2, 3]", 3, ""),
            ("[[1, 2], [3]]", 3, ""),
            ("null", 0, ""),
            ("[]", 0, ""),
        ] {
            let body = format!(r#"{{"input":{input},"model":"m","stream":true,"max_tokens":5}}"#);
            let request = read_request(body.as_bytes(), Endpoint::Embeddings).unwrap();
            assert_eq!(
                (request.prompt_tokens, request.messages, request.stream, request.max_tokens),
                (count, 0, false, None),
                "{input}"
            );
            assert_eq!(last_user_text(body.as_bytes(), &request), last);
        }
    }
}
