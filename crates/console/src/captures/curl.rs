//! The request of a capture as a `curl` command.

use std::borrow::Cow;

use super::values::visible;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_records::replay::CaptureRecord;

/// Most bytes of a body in a command.
const MOST: usize = 32 << 10;

/// A `curl` command that sends the request again, with the key from `$REROUTER_API_KEY`. `None` if
/// the body was not kept whole, is longer than [`MOST`], or has hidden characters.
pub(super) fn curl(capture: &CaptureRecord, base: &str) -> Option<String> {
    let body = capture.request.body.as_ref()?;
    // Characters that are hidden on a page would be hidden in a terminal, too.
    let is_plain = matches!(visible(body), Cow::Borrowed(_));
    if capture.request.truncated || body.len() > MOST || !is_plain {
        return None;
    }
    let path = Endpoint::named(&capture.base.endpoint)?.path();
    let quoted = body.replace('\'', "'\\''");
    Some(format!(
        "curl -sS '{base}/v1{path}' \\\n  -H \"Authorization: Bearer $REROUTER_API_KEY\" \\\n  \
         -H 'Content-Type: application/json' \\\n  --data-raw '{quoted}'"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::captures::fixtures;

    #[test]
    fn the_shell_reads_the_body_as_it_was() {
        let body = "{\n\t\"a\":\n\t\t\"it's $HOME `x` \\\\ \\n\"\n}\n";
        let capture = fixtures::record(json!({"endpoint": "messages", "request": {"body": body}}));
        let command = curl(&capture, "http://localhost:8080").unwrap();
        assert!(
            command.starts_with("curl -sS 'http://localhost:8080/v1/messages' \\\n"),
            "{command}"
        );
        let echo = command.replace("curl -sS", "printf %s\\\\n").replace("--data-raw", "");
        let said = std::process::Command::new("sh").arg("-c").arg(echo).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.ends_with(&format!("{body}\n")), "{said}");
    }

    #[test]
    fn what_no_command_can_hold_gives_none() {
        for request in [
            json!({"body": "a\u{1b}b", "truncated": false}),
            json!({"body": "a\u{202e}b", "truncated": false}),
            json!({"body": "x".repeat(MOST + 1), "truncated": false}),
            json!({"body": "{}", "truncated": true}),
            json!({"body": null, "truncated": false}),
        ] {
            let capture = fixtures::record(json!({"endpoint": "messages", "request": request}));
            assert_eq!(curl(&capture, "http://localhost"), None);
        }
    }
}
