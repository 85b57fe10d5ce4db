//! Embeddings of the mock provider.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::chat::MockAnswer;
use rerouter_base::error::{Error, Kind};

/// Most numbers in one embeddings answer of the mock provider: 2,048 texts of 512 numbers.
const MOCK_NUMBERS: u64 = 1 << 20;

/// Numbers of an embedding if the request has no `dimensions`.
const DIMENSIONS: u64 = 256;

/// Embeddings without meaning, of length 1. Equal texts have equal embeddings.
pub(super) fn whole(answer: &MockAnswer<'_>, body: &[u8]) -> Result<Value, Error> {
    let request: Value = serde_json::from_slice(body).map_err(Error::internal)?;
    let dimensions = request.get("dimensions").filter(|dimensions| !dimensions.is_null());
    let dimensions =
        dimensions.map_or(Some(DIMENSIONS), Value::as_u64).filter(|dimensions| *dimensions > 0);
    let inputs: Vec<&Value> = match request.get("input") {
        Some(tokens @ Value::Array(inputs))
            if !inputs.is_empty() && inputs.iter().all(Value::is_number) =>
        {
            vec![tokens]
        }
        Some(Value::Array(inputs)) => inputs.iter().collect(),
        Some(one @ Value::String(_)) => vec![one],
        _ => Vec::new(),
    };
    let too_many = |dimensions: u64| dimensions.saturating_mul(inputs.len() as u64) > MOCK_NUMBERS;
    let dimensions = match dimensions {
        _ if inputs.is_empty() => {
            return Err(Error::invalid(
                "input",
                "`input` has to be a text, or a list of texts or of tokens.",
            ));
        }
        Some(dimensions) if !too_many(dimensions) => dimensions,
        _ => return Err(Error::new(Kind::InvalidRequest, "Not so many numbers.").at("dimensions")),
    };
    let in_base64 = request.get("encoding_format").and_then(Value::as_str) == Some("base64");
    let embedding = |(index, input): (usize, &&Value)| {
        let numbers = vector(&input.to_string(), dimensions);
        let written = match in_base64 {
            true => Value::from(STANDARD.encode(
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>(),
            )),
            false => numbers.into(),
        };
        json!({ "object": "embedding", "index": index, "embedding": written })
    };
    let data: Vec<Value> = inputs.iter().enumerate().map(embedding).collect();
    let used = answer.usage.prompt_tokens;
    let usage = json!({ "prompt_tokens": used, "total_tokens": used });
    Ok(json!({ "object": "list", "data": data, "model": answer.model, "usage": usage }))
}

fn vector(text: &str, dimensions: u64) -> Vec<f32> {
    let seed = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    let number = |n: u64| {
        (xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), seed) >> 40) as f64
            / f64::from(1 << 23)
            - 1.0
    };
    let numbers: Vec<f64> = (0..dimensions).map(number).collect();
    let length =
        numbers.iter().map(|number| number * number).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    // Single precision, as in the answers of providers.
    #[allow(clippy::cast_possible_truncation)]
    numbers.into_iter().map(|number| (number / length) as f32).collect()
}
