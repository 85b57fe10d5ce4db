//! Answers that were compressed, whole and in part, and answers that only say so.

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;

use super::*;
use crate::capture::prepare;
use crate::capture::raw_capture::RawCapture;
use crate::capture::record::CaptureState;
use crate::capture::record::tests::capture;
use crate::capture::redact::Redactor;
use crate::id::{Random, UserId};

const SECRET: &str = "zQ7/8xW+cKJ9==";

/// What is kept of this answer to a request with a secret.
fn kept(coding: &str, response: &[u8], state: CaptureState) -> (Head, Bytes) {
    kept_as("application/json", coding, response, state)
}

fn kept_as(kind: &str, coding: &str, response: &[u8], state: CaptureState) -> (Head, Bytes) {
    let mut raw = RawCapture::from(capture(0, &UserId::known("usr_1"), &Random::seeded(1)));
    raw.bodies.request = json!({"model": "m", "tools": [{"type": "mcp", "authorization": SECRET}]})
        .to_string()
        .into();
    raw.bodies.response = Bytes::copy_from_slice(response);
    raw.head.state = state;
    raw.head.response_headers.retain(|(name, _)| name != "content-type");
    raw.head.response_headers.push(("content-type".into(), kind.into()));
    raw.head.response_headers.push(("content-encoding".into(), coding.into()));
    let ready = prepare::ready(&raw.finish(), &Redactor::default()).unwrap();
    (serde_json::from_slice(&ready.head).unwrap(), ready.bodies.response)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn brotli(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    brotli::CompressorWriter::new(&mut out, 4096, 5, 22).write_all(text.as_bytes()).unwrap();
    out
}

#[test]
fn an_answer_that_is_not_coded_is_kept_whatever_it_calls_that() {
    let plain = json!({"you": "sent it"}).to_string();
    let says = json!({"you": format!("sent {SECRET}")}).to_string();
    for coding in ["", "identity", "Identity", "none", "utf-8", "UTF-8, none", ",", "compress"] {
        assert_eq!(kept(coding, plain.as_bytes(), CaptureState::Completed).1, plain, "{coding}");
        let (head, body) = kept(coding, says.as_bytes(), CaptureState::Completed);
        assert!(head.redacted && body == r#"{"you":"sent [redacted]"}"#, "{coding}: {body:?}");
    }
    // It may be cut off within a character.
    assert_eq!(kept("utf-8", &"né".as_bytes()[..2], CaptureState::Aborted).1, "né".as_bytes()[..2]);
    for (coding, body) in [
        ("compress", gzip(&plain)),
        ("gzip, none", plain.into_bytes()),
        ("none", b"\xff\xfe".to_vec()),
    ] {
        assert_eq!(kept(coding, &body, CaptureState::Completed).1, "", "{coding}");
    }
}

#[test]
fn a_compressed_stream_that_lists_tools_is_kept() {
    let echo = format!(
        "data: {}\n\n",
        json!({"type": "response.created", "response": {"tools": [{"type": "function", "name": "f"}]}})
    );
    let stream =
        [echo.as_str(), "data: {\"type\":\"response.output_text.delta\",\"delta\":\"well\"}\n\n"]
            .concat();
    for (coding, bytes) in
        [("gzip", gzip(&stream)), ("br", brotli(&stream)), ("none", stream.clone().into_bytes())]
    {
        for (kind, is_kept) in
            [("text/event-stream; charset=utf-8", true), ("application/json", false)]
        {
            assert_eq!(
                kept_as(kind, coding, &bytes, CaptureState::Completed).1 == bytes,
                is_kept,
                "{coding} {kind}"
            );
        }
        assert_eq!(
            kept_as(
                "text/event-stream",
                "gzip",
                &gzip(&stream.replace("well", SECRET)),
                CaptureState::Completed
            )
            .1,
            ""
        );
    }
}

#[test]
fn of_a_compressed_answer_that_breaks_off_what_it_says_is_looked_through() {
    let text = |word: &str| {
        json!({"a": "it was sent at once, it was sent", "b": word, "c": "it was sent at last"})
            .to_string()
    };
    for (coding, encode) in [("gzip", gzip as fn(&str) -> Vec<u8>), ("br", brotli)] {
        let plain = encode(&text("nothing else"));
        for cut in 1..=plain.len() {
            let (head, body) = kept(coding, &plain[..cut], CaptureState::Aborted);
            assert_eq!(body, plain[..cut], "{coding} {cut}");
            assert!(!head.request_whole);
        }
        assert_eq!(
            kept(coding, &plain[..plain.len() - 1], CaptureState::Completed).1,
            "",
            "it should have been whole"
        );
        let says = encode(&text(SECRET));
        for cut in 1..=says.len() {
            let body = kept(coding, &says[..cut], CaptureState::Aborted).1;
            let said = crate::protocol::coding::decode_cut(
                Coding::of([coding.as_bytes()]).unwrap().unwrap(),
                &body,
                1 << 20,
            );
            assert!(
                body.is_empty() || !String::from_utf8_lossy(&said.unwrap()).contains(&SECRET[..4]),
                "{coding} {cut}"
            );
        }
        assert_eq!(kept(coding, &says, CaptureState::Aborted).1, "", "{coding}");
    }
    // Nobody could say what is in the block that is not whole.
    let coded = zstd::stream::encode_all(text("nothing else").as_bytes(), 3).unwrap();
    assert_eq!(kept("zstd", &coded, CaptureState::Aborted).1, coded);
    assert_eq!(kept("zstd", &coded[..coded.len() - 1], CaptureState::Aborted).1, "");
}
