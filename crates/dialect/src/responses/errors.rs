//! Errors of the gateway in a stream of responses. Other answers have the form of chat completions.

use serde_json::json;

use rerouter_base::error::Error;

/// The last event of a stream that fails.
pub fn event(error: &Error, _request_id: &str, number: u64) -> String {
    let data = json!({
        "type": "error",
        "code": error.kind().row().openai_code,
        "message": error.detail(),
        "param": null,
        "sequence_number": number,
    });
    format!("event: error\ndata: {data}\n\n")
}
