use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::capture::fixtures::capture;
use rerouter_base::id::Random;

fn back(capture: &Capture) -> Capture {
    Capture::read_whole(json!(capture.whole()).to_string().as_bytes()).unwrap()
}

#[test]
fn an_ordinary_capture_is_read_back_but_for_headers_that_were_joined() {
    let mut capture = capture(3, &UserId::known("usr_1"), &Random::seeded(1));
    let mut read = back(&capture);
    assert_eq!(read.head.request_headers, [("accept".to_owned(), "a, b".to_owned())]);
    read.head.request_headers.clone_from(&capture.head.request_headers);
    assert_eq!(read, capture);
    // A redacted stream is exported as its assembled answer.
    capture.head.request_headers.clear();
    (capture.head.response_stream, capture.head.response_assembled, capture.head.redacted) =
        (true, true, true);
    capture.bodies.response = Bytes::from_static(b"{\"choices\":[]}");
    capture.head.version = Head::ASSEMBLED;
    assert_eq!(back(&capture), capture);
}

#[test]
fn what_is_no_capture_is_told_without_its_contents() {
    let text = json!(capture(3, &UserId::known("usr_1"), &Random::seeded(1)).whole()).to_string();
    for (broken, expected) in [
        (text.replace("\"status\":200", "\"status\":\"my secret\""), "not a capture"),
        (
            text.replace("\"created_at\":\"", "\"created_at\":\"my secret"),
            "`created_at` is not a time",
        ),
        (
            text.replacen("\"truncated\":", "\"body_base64\":\"my secret\",\"truncated\":", 1),
            "there are both",
        ),
        (
            text.replacen("\"body\":\"{", "\"body\":null,\"body_base64\":\"my secret{", 1),
            "not base64",
        ),
        ("my secret".to_owned(), "not JSON"),
        ("[]".to_owned(), "not a capture"),
    ] {
        let error = Capture::read_whole(broken.as_bytes()).unwrap_err();
        assert!(error.contains(expected) && !error.contains("my secret"), "{expected}: {error}");
    }
}

#[test]
fn what_is_there_in_part_is_not_run_again_and_not_misread() {
    let mut capture = capture(5, &UserId::known("usr_1"), &Random::seeded(2));
    capture.head.response_stream = true;
    let mut whole = json!(capture.whole());
    assert_eq!(
        (back(&capture).head.version, back(&capture).head.not_replayable()),
        (Head::FIRST, None)
    );
    whole["request"]["body"] = Value::Null;
    let read = |whole: &Value| Capture::read_whole(whole.to_string().as_bytes()).unwrap();
    assert_eq!(
        read(&whole).head.not_replayable(),
        Some(Kind::NotCaptured),
        "its body is not there"
    );
    whole["request"]["body"] = "".into();
    assert_eq!(read(&whole).head.not_replayable(), Some(Kind::NotCaptured), "it has none");
    whole["request"]["truncated"] = true.into();
    assert_eq!(read(&whole).head.not_replayable(), Some(Kind::Truncated), "nothing of it was kept");
    let mut denied = json!(capture.whole());
    denied["not_replayable"] = "not_captured".into();
    assert_eq!(
        (read(&denied).head.request_captured, read(&denied).bodies.request),
        (false, Bytes::new())
    );
    let mut assembled = json!(capture.whole());
    assembled["response"]["body"] = Value::Null;
    assembled["response"]["assembled"] = serde_json::json!({"choices": []});
    assert_eq!(read(&assembled).head.version, Head::ASSEMBLED);
    assembled["agent"] = "agent_1".into();
    assert_eq!(read(&assembled).head.version, Head::AGENT);
}

proptest! {
    #[test]
    fn what_is_shown_reads_back_to_what_is_shown(
        request in prop::collection::vec(any::<u8>(), 1..100),
        response: Vec<u8>,
        text: String,
        flags: [bool; 6],
        node: Option<String>,
        cost: Option<f64>,
        seed: u64,
    ) {
        let mut capture = capture(5, &UserId::known("usr_1"), &Random::seeded(seed));
        let head = &mut capture.head;
        (head.request_captured, head.request_truncated, head.response_truncated) =
            (flags[0], flags[1], flags[2]);
        (head.redacted, head.response_stream, head.stream) = (flags[3], flags[4], flags[5]);
        head.query = flags[0].then(|| text.clone());
        (head.error, head.agent, head.cost_usd) =
            (Some(text.clone()), node.clone(), cost.filter(|cost| cost.is_finite()));
        head.served.as_mut().unwrap().node = node;
        head.inputs.as_mut().unwrap().seed = seed;
        head.request_headers.push(("x-text".to_owned(), text));
        capture.bodies = Bodies { request: request.into(), response: response.into() };
        let read = back(&capture);
        prop_assert_eq!(json!(read.whole()), json!(capture.whole()));
        prop_assert_eq!(
            (&read.head.inputs, &read.head.decision),
            (&capture.head.inputs, &capture.head.decision)
        );
        prop_assert_eq!(read.head.not_replayable(), capture.head.not_replayable());
        if capture.head.request_captured {
            prop_assert_eq!(&read.bodies, &capture.bodies);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        prop_assert!(Capture::read_whole(text.as_bytes()).is_err());
    }
}
