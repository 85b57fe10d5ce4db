//! Long texts in pieces: a page shows the beginning, and what follows comes when it is asked for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::address;
use super::values::{pretty, text, visible};
use crate::answer::protect;
use crate::call::PageCall;
use crate::layout::Tab;
use rerouter_base::error::{Error, Result};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// Bytes of a text that a page begins with.
pub(super) const BEGINNING: usize = 8 << 10;
/// Bytes that come at a time then.
const PIECE: usize = 64 << 10;

/// A text of a capture: its beginning, and the way to the rest. `part` names it, as [`find`] does.
pub(super) fn beginning(id: &str, part: &str, text: &str) -> Markup {
    html! { pre.cap-text tabindex="0" { (piece(id, part, text, (0, BEGINNING))) } }
}

/// The bytes of a text from a place on, at most so many, and the way to what follows.
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

/// A number of bytes for people.
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
    let with = if body_side(&part).is_some() { "" } else { "?with=conversation" };
    let capture = call.get(&format!("/v1/router/replay/{}{with}", encode(&id))).await?;
    let found = find(&capture, &part).ok_or_else(|| Error::not_found("text"))?;
    let shown = piece(&id, &part, &found, (from, PIECE));
    if call.is_fragment() {
        return call.page("Text", Tab::Captures, shown);
    }
    let main = html! {
        p { a href=(address(&id, "")) { "Back to the request" } }
        pre.cap-text tabindex="0" { (shown) }
    };
    call.page("Text of a request", Tab::Captures, main)
}

/// `request` or `response`, if a part is one of the bodies.
fn body_side(part: &str) -> Option<&'static str> {
    ["request", "response"].into_iter().find(|side| *side == part)
}

/// A text of a capture: `request` and `response` are the bodies; `/system/0` and the like are JSON
/// pointers into the conversation's request, behind `answer:` into its answer.
fn find(capture: &Value, part: &str) -> Option<String> {
    if let Some(side) = body_side(part) {
        return body(capture, side).map(|body| String::from_utf8_lossy(&body).into_owned());
    }
    let (side, pointer) = match part.strip_prefix("answer:") {
        Some(pointer) => ("/conversation/answer", pointer),
        None => ("/conversation/request", part),
    };
    let found = capture.pointer(side)?.pointer(pointer)?;
    said(found).map(str::to_owned)
}

/// The text of a part of a conversation.
pub(super) fn said(part: &Value) -> Option<&str> {
    part.as_str().or_else(|| part.get("text")?.as_str()).or_else(|| part.get("arguments")?.as_str())
}

/// A body as it was kept, or the answer put together where its stream was not.
pub(super) fn body(capture: &Value, side: &str) -> Option<Vec<u8>> {
    let kept = capture.get(side)?;
    if let Some(text) = kept.get("body").and_then(Value::as_str) {
        return Some(text.as_bytes().to_vec());
    }
    if let Some(coded) = kept.get("body_base64").and_then(Value::as_str) {
        return STANDARD.decode(coded).ok();
    }
    let assembled = kept.get("assembled").filter(|assembled| !assembled.is_null())?;
    Some(pretty(&assembled.to_string()).into_owned().into_bytes())
}

/// `GET /console/captures/{id}/raw/{side}`: a body as a file. It is foreign, so it is never shown
/// as a page.
pub(crate) async fn download(call: PageCall<'_>) -> ApiResult {
    let (id, side) = (call.param(0), call.param(1));
    let side = body_side(&side).ok_or_else(|| Error::not_found("body"))?;
    let capture = call.get(&format!("/v1/router/replay/{}", encode(&id))).await?;
    let body = body(&capture, side).ok_or_else(|| Error::not_found("body"))?;
    file(text(&capture, "/id"), side, body)
}

fn file(id: &str, side: &str, body: Vec<u8>) -> Result<Response<Bytes>> {
    let mut response = Response::new(Bytes::from(body));
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let name = format!("attachment; filename=\"{id}-{side}.txt\"");
    headers.insert(CONTENT_DISPOSITION, name.try_into().map_err(Error::internal)?);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_and_parts_are_found() {
        let capture = json!({
            "request": {"body": null, "body_base64": "PP8+"},
            "response": {"body": null, "assembled": {"a": 1}},
            "conversation": {
                "request": {"system": ["be"], "messages": [{"content": [{"text": "hi"}]}]},
                "answer": {"content": [{"arguments": "{}"}]},
            },
        });
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
