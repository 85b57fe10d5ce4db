//! Embeddings: one text, several texts, or tokens. There are no messages, no tools and no generated
//! answer.

use super::super::request::model_request::RequestBuilder;
use super::super::request::text::tokens_of;
use crate::wire::json::{Cursor, JsonError, JsonKind};

pub(crate) fn member(
    cursor: &mut Cursor<'_>,
    _input: &str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Array => cursor.elements(|cursor| input(cursor, builder)),
        _ => input(cursor, builder),
    }
}

/// A text, a token, or a list of tokens.
fn input(cursor: &mut Cursor<'_>, builder: &mut RequestBuilder) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Number => {
            builder.prompt.tokens += 1;
            cursor.pass()
        }
        JsonKind::Array => cursor.elements(|cursor| {
            builder.prompt.tokens += u64::from(cursor.kind()? == JsonKind::Number);
            cursor.pass()
        }),
        JsonKind::String => {
            let text = cursor.skip()?;
            builder.prompt.tokens += tokens_of(cursor, &text);
            // The last text wins, like the last message of a chat.
            builder.prompt.user_text = vec![text];
            Ok(())
        }
        kind => {
            // Some models accept an object, such as an image, whose size is not estimated.
            builder.prompt.is_open |= kind == JsonKind::Object;
            cursor.pass()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::endpoint::Endpoint;
    use crate::request::{last_user_text, read_request};
    use crate::wire::tokens;

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
