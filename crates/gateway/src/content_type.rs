//! What an answer's headers tell about its body.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

/// Whether the body is an event stream that the gateway can read while it passes: a compressed one
/// cannot be read.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    is_plain(headers) && says_event_stream(headers)
}

/// Whether the body is an event stream, compressed or not.
pub(super) fn says_event_stream(headers: &HeaderMap) -> bool {
    has_type(headers, "text/event-stream")
}

/// Whether the body is a JSON document that the gateway can read.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    is_plain(headers) && has_type(headers, "application/json")
}

fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted))
}

/// Whether the body has no content coding.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_stream_passes_as_it_is() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "Text/Event-Stream; charset=utf-8".parse().unwrap());
        assert!(is_event_stream(&headers));
        headers.insert("content-encoding", "identity".parse().unwrap());
        assert!(is_event_stream(&headers));
        headers.insert("content-encoding", "gzip".parse().unwrap());
        assert!(!is_event_stream(&headers) && says_event_stream(&headers));
    }
}
