//! Reads captured embeddings for display: the inputs, and the vectors' count and length.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Eq)]
pub enum EmbeddingInput {
    Text(String),
    /// An input of tokens, with their number.
    Tokens(usize),
    Other,
}

/// The inputs of a request; `None` if it has none.
pub fn inputs(body: &[u8]) -> Option<Vec<EmbeddingInput>> {
    #[derive(Deserialize)]
    struct EmbeddingRequest<'a> {
        #[serde(borrow)]
        input: &'a RawValue,
    }
    let request: EmbeddingRequest<'_> = serde_json::from_slice(body).ok()?;
    if let Ok(several) = serde_json::from_str::<Vec<&RawValue>>(request.input.get()) {
        let is_number = |one: &&RawValue| serde_json::from_str::<f64>(one.get()).is_ok();
        return Some(match several.first().is_some_and(is_number) {
            true => vec![EmbeddingInput::Tokens(several.len())],
            false => several.into_iter().map(input).collect(),
        });
    }
    Some(vec![input(request.input)])
}

fn input(raw: &RawValue) -> EmbeddingInput {
    if let Ok(text) = serde_json::from_str(raw.get()) {
        return EmbeddingInput::Text(text);
    }
    let tokens = serde_json::from_str::<Vec<f64>>(raw.get());
    tokens.map_or(EmbeddingInput::Other, |tokens| EmbeddingInput::Tokens(tokens.len()))
}

/// The number of vectors in an answer, and the length of the first. `None` if it is no embeddings
/// answer.
pub fn vectors(answer: &[u8]) -> Option<(usize, usize)> {
    #[derive(Deserialize)]
    struct EmbeddingAnswer<'a> {
        #[serde(borrow)]
        data: Vec<EmbeddingVector<'a>>,
    }
    #[derive(Deserialize)]
    struct EmbeddingVector<'a> {
        #[serde(borrow)]
        embedding: &'a RawValue,
    }
    let answer: EmbeddingAnswer<'_> = serde_json::from_slice(answer).ok()?;
    let numbers = answer.data.first().map_or(0, |first| {
        let raw = first.embedding.get();
        match serde_json::from_str::<String>(raw) {
            // Base64 of four-byte floats.
            Ok(coded) => coded.trim_end_matches('=').len() * 3 / 16,
            Err(_) => serde_json::from_str::<Vec<f64>>(raw).map_or(0, |numbers| numbers.len()),
        }
    });
    Some((answer.data.len(), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_vectors_of_each_form_are_read() {
        use EmbeddingInput::{Other, Text, Tokens};
        for (input, read) in [
            (r#""a""#, vec![Text("a".to_owned())]),
            (r#"["a", "b", {"image": 1}]"#, vec![Text("a".into()), Text("b".into()), Other]),
            ("[1, 2, 3]", vec![Tokens(3)]),
            ("[[1, 2], [3]]", vec![Tokens(2), Tokens(1)]),
            ("[]", vec![]),
        ] {
            let body = format!(r#"{{"model": "m", "input": {input}}}"#);
            assert_eq!(inputs(body.as_bytes()), Some(read), "{input}");
        }
        assert_eq!(inputs(b"{}"), None);
        let coded = r#"{"data": [{"embedding": "AACAPwAAAEA="}]}"#;
        assert_eq!(vectors(coded.as_bytes()), Some((1, 2)));
        let listed = br#"{"data": [{"embedding": [1, 2.5, 3]}, {"embedding": [1]}]}"#;
        assert_eq!(vectors(listed), Some((2, 3)));
        assert_eq!(vectors(br#"{"data": []}"#), Some((0, 0)));
        assert_eq!(vectors(br#"{"error": "x"}"#), None);
    }
}
