//! Long texts in pieces: a page shows the beginning, and a button loads each further piece.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde_json::Value;

use super::address;
use super::values::{pretty, visible};
use crate::answer::file;
use crate::call::PageCall;
use crate::layout::Tab;
use rerouter_base::error::Error;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::conversation::Conversation;
use rerouter_records::replay::CaptureRecord;

/// Bytes of a text that a page shows at first.
pub(super) const BEGINNING: usize = 8 << 10;
/// Bytes of each further piece.
const PIECE: usize = 64 << 10;

/// The beginning of a text, with a button for the rest. `part` names the text, as in [`find`].
pub(super) fn beginning(id: &str, part: &str, text: &str) -> Markup {
    html! { pre.cap-text tabindex="0" { (piece(id, part, text, (0, BEGINNING))) } }
}

/// At most `most` bytes of a text from byte `from` on, and a button for the next piece.
fn piece(id: &str, part: &str, text: &str, (from, most): (usize, usize)) -> Markup {
    let start = text.ceil_char_boundary(from.min(text.len()));
    let end = text.floor_char_boundary(start.saturating_add(most).min(text.len()));
    let (shown, left) = (text.get(start..end).unwrap_or_default(), text.len() - end);
    let more = address(id, &format!("/text?part={}&from={end}", encode(part)));
    html! {
        span.cap-piece { (visible(shown)) }
        @if left > 0 {
            a.cap-more.button href=(more) hx-get=(more) hx-swap="outerHTML" {
                "Show more (" (size(left)) " left)"
            }
        }
    }
}

/// A size for people: `512 bytes`, `2 KiB`, `1.5 MiB`.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// `GET /console/captures/{id}/text`: a piece of a text.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let (id, part) = (call.param(0), call.query("part").unwrap_or_default());
    let from = call.query("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    let is_body = matches!(part.as_str(), "request" | "response");
    let with = if is_body { "" } else { "?with=conversation" };
    let path = format!("/v1/router/replay/{}{with}", encode(&id));
    let found = find(&call.read(&path).await?, &part).ok_or_else(|| Error::not_found("text"))?;
    let shown = piece(&id, &part, &found, (from, PIECE));
    let main = html! {
        @if call.is_fragment() { (shown) }
        @else {
            p { a href=(address(&id, "")) { "Back to the request" } }
            pre.cap-text tabindex="0" { (shown) }
        }
    };
    call.page("Text of a request", Tab::Captures, main)
}

/// Finds a text of a capture. `request` and `response` are the bodies. `/system/0` and the like are
/// JSON pointers into the conversation's request, and after `answer:` into its answer.
fn find(capture: &CaptureRecord, part: &str) -> Option<String> {
    if let Some(body) = body(capture, part) {
        return Some(String::from_utf8_lossy(&body).into_owned());
    }
    let Conversation { request, answer } = capture.conversation.as_ref()?;
    let (side, pointer) = match part.strip_prefix("answer:") {
        Some(pointer) => (serde_json::to_value(answer), pointer),
        None => (serde_json::to_value(request), part),
    };
    let side = side.ok()?;
    let found = side.pointer(pointer)?;
    let text = |name| found.get(name)?.as_str();
    found.as_str().or_else(|| text("text")).or_else(|| text("arguments")).map(str::to_owned)
}

/// A body as it was kept. For a stream whose bytes were not kept, the answer assembled from it.
pub(super) fn body(
    CaptureRecord { request, response, .. }: &CaptureRecord,
    side: &str,
) -> Option<Vec<u8>> {
    let (text, base64, assembled) = match side {
        "request" => (&request.body, &request.body_base64, &Value::Null),
        "response" => (&response.body, &response.body_base64, &response.assembled),
        _ => return None,
    };
    match (text, base64) {
        (Some(text), _) => Some(text.as_bytes().to_vec()),
        (None, Some(base64)) => STANDARD.decode(base64).ok(),
        (None, None) if assembled.is_null() => None,
        (None, None) => Some(pretty(&assembled.to_string()).into_owned().into_bytes()),
    }
}

/// `GET /console/captures/{id}/raw/{side}`: a body as a file. A body is untrusted, so it is never
/// shown as a page.
pub(crate) async fn download(call: PageCall<'_>) -> ApiResult {
    let (id, side) = (call.param(0), call.param(1));
    let capture = call.read(&format!("/v1/router/replay/{}", encode(&id))).await?;
    let body = body(&capture, &side).ok_or_else(|| Error::not_found("body"))?;
    file("application/octet-stream", &format!("{}-{side}.txt", capture.base.id), body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::captures::fixtures;

    #[test]
    fn bodies_and_parts_are_found() {
        let capture = fixtures::record(json!({
            "request": {"body": null, "body_base64": "PP8+"},
            "response": {"body": null, "assembled": {"a": 1}},
            "conversation": {
                "request": {"system": ["be"], "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
                "answer": {"content": [
                    {"type": "tool_call", "id": "", "name": "", "arguments": "{}"}]},
            },
        }));
        for (part, found) in [
            ("request", Some("<\u{fffd}>")),
            ("response", Some("{\n  \"a\": 1\n}")),
            ("/system/0", Some("be")),
            ("/messages/0/content/0", Some("hi")),
            ("answer:/content/0", Some("{}")),
            ("answer:/content/1", None),
            ("/messages", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(find(&capture, part).as_deref(), found, "{part}");
        }
        assert_eq!(
            (size(0), size(2048), size(3 << 19)),
            ("0 bytes".into(), "2 KiB".into(), "1.5 MiB".into())
        );
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_text(
            text in "[a-cäß€😀<&\\n]{0,80}",
            most in 4_usize..20,
        ) {
            let (mut read, mut from) = (String::new(), 0);
            loop {
                let html = piece("req_1", "request", &text, (from, most)).into_string();
                let shown = html.split("</span>").next().unwrap();
                read.push_str(shown.trim_start_matches("<span class=\"cap-piece\">"));
                let Some((_, next)) = html.split_once("from=") else { break };
                from = next.split('"').next().unwrap().parse().unwrap();
            }
            prop_assert_eq!(read, html! { (text) }.into_string());
        }
    }
}
