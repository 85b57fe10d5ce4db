//! What the mock provider says, in the form of each endpoint: whole, or as the events of a stream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::bounds;
use crate::dialect::Dialect;
use crate::dialect::endpoint::Endpoint;
use crate::dialect::messages::errors;
use crate::dialect::request::{self, ModelRequest};
use crate::dialect::usage::Usage;
use crate::error::{Error, Kind};

/// Numbers of an embedding, unless `dimensions` asks for others.
const DIMENSIONS: u64 = 256;

/// An answer, before it is written in one of its ways.
pub(super) struct MockAnswer<'a> {
    endpoint: Endpoint,
    model: &'a str,
    /// The same for the same request.
    mark: String,
    content: String,
    usage: Usage,
    include_usage: bool,
}

impl<'a> MockAnswer<'a> {
    /// What is said to this request.
    pub(super) fn to(endpoint: Endpoint, body: &Bytes, asked: &'a ModelRequest) -> Self {
        let content = match &*asked.model {
            "echo" => request::last_user_text(body, asked),
            model => format!("This is the mock provider's answer from {model}."),
        };
        MockAnswer {
            endpoint,
            model: &asked.model,
            mark: format!("{:016x}", xxhash_rust::xxh3::xxh3_64(body)),
            usage: Usage::estimate(asked.prompt_tokens, content.len() as u64),
            content,
            include_usage: asked.include_usage,
        }
    }

    fn usage(&self) -> Value {
        let Usage {
            prompt_tokens: prompt, completion_tokens: completion, total_tokens: total, ..
        } = self.usage;
        match self.endpoint {
            Endpoint::Responses => json!({
                "input_tokens": prompt, "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": completion, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": total,
            }),
            Endpoint::Messages => json!({
                "input_tokens": prompt, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": completion,
            }),
            _ => {
                json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total })
            }
        }
    }

    /// The answer in one piece.
    pub(super) fn whole(&self) -> Value {
        match self.endpoint {
            Endpoint::Responses => self.response(
                "completed",
                json!([self.item("completed", json!([self.part(&self.content)]))]),
                self.usage(),
            ),
            Endpoint::Messages => self.message(
                json!([{ "type": "text", "text": self.content }]),
                "end_turn".into(),
                self.usage(),
            ),
            _ => {
                let message = json!({ "role": "assistant", "content": self.content });
                json!({
                    "id": format!("chatcmpl-mock-{}", self.mark), "object": "chat.completion", "created": 0, "model": self.model,
                    "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }], "usage": self.usage(),
                })
            }
        }
    }

    /// The events of a stream, each as it is written.
    pub(super) fn events(&self) -> Vec<String> {
        match self.endpoint {
            Endpoint::Responses => self.response_events(),
            Endpoint::Messages => self.message_events(),
            _ => self.chat_events(),
        }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.content.split_inclusive(' ')
    }

    fn chat_events(&self) -> Vec<String> {
        let chunk = |choices: Value| json!({ "id": format!("chatcmpl-mock-{}", self.mark), "object": "chat.completion.chunk", "created": 0, "model": self.model, "choices": choices });
        let delta = |delta: Value, finish: Value| {
            chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]))
        };
        let mut events =
            vec![unnamed(&delta(json!({ "role": "assistant", "content": "" }), Value::Null))];
        events.extend(
            self.words().map(|word| unnamed(&delta(json!({ "content": word }), Value::Null))),
        );
        events.push(unnamed(&delta(json!({}), "stop".into())));
        if self.include_usage {
            let mut last = chunk(json!([]));
            if let Some(last) = last.as_object_mut() {
                last.insert("usage".into(), self.usage());
            }
            events.push(unnamed(&last));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn response(&self, status: &str, output: Value, usage: Value) -> Value {
        json!({
            "id": format!("resp_mock_{}", self.mark), "object": "response", "created_at": 0, "status": status, "error": null,
            "incomplete_details": null, "instructions": null, "metadata": {}, "model": self.model, "output": output,
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage,
        })
    }

    fn item_id(&self) -> String {
        format!("msg_mock_{}", self.mark)
    }

    fn item(&self, status: &str, content: Value) -> Value {
        json!({ "id": self.item_id(), "type": "message", "status": status, "role": "assistant", "content": content })
    }

    fn part(&self, text: &str) -> Value {
        json!({ "type": "output_text", "text": text, "annotations": [] })
    }

    fn response_events(&self) -> Vec<String> {
        let begun = self.response("in_progress", json!([]), Value::Null);
        let at = json!({ "item_id": self.item_id(), "output_index": 0, "content_index": 0 });
        let within = |more: Value| joined(at.clone(), more);
        let item = self.item("completed", json!([self.part(&self.content)]));
        let mut events = vec![
            ("response.created", json!({ "response": begun })),
            ("response.in_progress", json!({ "response": begun })),
            (
                "response.output_item.added",
                json!({ "output_index": 0, "item": self.item("in_progress", json!([])) }),
            ),
            ("response.content_part.added", within(json!({ "part": self.part("") }))),
        ];
        events.extend(self.words().map(|word| {
            ("response.output_text.delta", within(json!({ "delta": word, "logprobs": [] })))
        }));
        events.extend([
            ("response.output_text.done", within(json!({ "text": self.content, "logprobs": [] }))),
            ("response.content_part.done", within(json!({ "part": self.part(&self.content) }))),
            ("response.output_item.done", json!({ "output_index": 0, "item": item })),
            ("response.completed", json!({ "response": self.whole() })),
        ]);
        let numbered = events.into_iter().enumerate();
        numbered
            .map(|(n, (name, data))| {
                named(name, &joined(json!({ "type": name, "sequence_number": n }), data))
            })
            .collect()
    }

    fn message(&self, content: Value, stop: Value, usage: Value) -> Value {
        json!({
            "id": self.item_id(), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage,
        })
    }

    fn message_events(&self) -> Vec<String> {
        let begun = json!({ "input_tokens": self.usage.prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1 });
        let mut events = vec![
            ("message_start", json!({ "message": self.message(json!([]), Value::Null, begun) })),
            (
                "content_block_start",
                json!({ "index": 0, "content_block": { "type": "text", "text": "" } }),
            ),
            ("ping", json!({})),
        ];
        let delta =
            |word: &str| json!({ "index": 0, "delta": { "type": "text_delta", "text": word } });
        events.extend(self.words().map(|word| ("content_block_delta", delta(word))));
        let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
        events.extend([
            ("content_block_stop", json!({ "index": 0 })),
            (
                "message_delta",
                json!({ "delta": end, "usage": { "output_tokens": self.usage.completion_tokens } }),
            ),
            ("message_stop", json!({})),
        ]);
        events
            .into_iter()
            .map(|(name, data)| named(name, &joined(json!({ "type": name }), data)))
            .collect()
    }
}

/// How many of a stream's events come before a model has said a word, and with its first.
pub(super) fn until_first_word(endpoint: Endpoint) -> usize {
    match endpoint {
        Endpoint::Responses => 5,
        Endpoint::Messages => 4,
        _ => 2,
    }
}

/// An error inside a stream.
pub(super) fn error_event(endpoint: Endpoint, message: &str) -> String {
    match endpoint {
        Endpoint::Responses => {
            let error = json!({ "type": "error", "sequence_number": 0, "code": "server_error", "message": message, "param": null });
            named("error", &error)
        }
        Endpoint::Messages => named("error", &errors::error_body("api_error", message)),
        _ => unnamed(
            &json!({ "error": { "message": message, "type": "server_error", "code": 500 } }),
        ),
    }
}

/// The body of a refusal in the endpoint's dialect.
pub(super) fn refusal(endpoint: Option<Endpoint>, status: u16, message: &str, kind: &str) -> Value {
    if endpoint.is_some_and(|endpoint| endpoint.dialect() == Dialect::Messages) {
        return errors::error_body(errors::error_type(status), message);
    }
    json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
}

/// Embeddings that mean nothing: the same text has the same, of length 1.
pub(super) fn embeddings(body: &Bytes, asked: &ModelRequest) -> Result<Value, Error> {
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
    let too_many =
        |dimensions: u64| dimensions.saturating_mul(inputs.len() as u64) > bounds::MOCK_NUMBERS;
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
    let usage =
        json!({ "prompt_tokens": asked.prompt_tokens, "total_tokens": asked.prompt_tokens });
    Ok(json!({ "object": "list", "data": data, "model": asked.model, "usage": usage }))
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
    // As providers do: what is a float there is one here.
    #[allow(clippy::cast_possible_truncation)]
    numbers.into_iter().map(|number| (number / length) as f32).collect()
}

fn named(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn unnamed(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn joined(mut first: Value, more: Value) -> Value {
    if let (Value::Object(first), Value::Object(more)) = (&mut first, more) {
        first.extend(more);
    }
    first
}
