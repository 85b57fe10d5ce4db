//! Errors of the gateway in a stream of responses. Other answers have the form of chat completions.

use serde_json::json;

use rerouter_base::error::Error;

/// The last events of a stream that fails. Codex ignores the first, and SDKs stop at it.
pub fn event(error: &Error, request_id: &str, number: u64) -> String {
    let (code, message) = (error.kind().row().openai_code, error.detail());
    let told = json!({
        "type": "error",
        "code": code,
        "message": message,
        "param": null,
        "sequence_number": number,
    });
    let failed = json!({
        "type": "response.failed",
        "sequence_number": number.saturating_add(1),
        "response": {
            "id": request_id,
            "object": "response",
            "status": "failed",
            "error": { "code": code, "message": message },
            "incomplete_details": null,
            "output": [],
        },
    });
    format!("event: error\ndata: {told}\n\nevent: response.failed\ndata: {failed}\n\n")
}
