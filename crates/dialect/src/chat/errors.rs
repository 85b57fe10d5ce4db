//! Errors of the gateway in OpenAI's form, for clients of chat completions, responses and
//! embeddings.

use serde_json::{Value, json};

use rerouter_base::error::Error;

/// `error` always has all four members.
pub fn envelope(error: &Error) -> Value {
    let row = error.kind().row();
    json!({ "error": {
        "message": error.detail(),
        "type": row.openai_type,
        "param": error.field(),
        "code": row.openai_code,
    }})
}

/// The last event of a stream that fails.
pub fn event(error: &Error, _request_id: &str, _number: u64) -> String {
    format!("data: {}\n\n", envelope(error))
}
