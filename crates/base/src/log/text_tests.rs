use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::id::RequestId;

fn said(message: &str) -> Diagnostic<'_> {
    Diagnostic {
        at: "2026-11-23T17:04:05.123456Z".into(),
        level: "WARN",
        target: "rerouter::gateway::edge",
        message: message.to_owned(),
    }
}

fn full() -> AccessLine {
    AccessLine {
        path: "/v1/chat/completions".into(),
        method: http::Method::POST,
        status: 200,
        duration_us: 1_234_567,
        model: Some("auto".into()),
        provider: Some("openai".into()),
        served_model: Some("gpt-4o".into()),
        attempts: Some(2),
        prompt_tokens: Some(7),
        completion_tokens: Some(3),
        cost_usd: Some(0.000_044),
        ttft_ms: Some(400),
        ..AccessLine::new(Timestamp::UNIX_EPOCH, RequestId::known("req_1"))
    }
}

#[test]
fn a_line_says_what_people_look_for() {
    assert_eq!(
        access(&full(), false),
        "00:00:00.000 200 POST /v1/chat/completions 1.23s auto → openai/gpt-4o after 2 attempts \
         first 400ms 7+3 tokens $0.000044 req_1\n"
    );
    let refused = AccessLine {
        status: 401,
        path: "/v1/models".into(),
        error: Some("invalid_api_key".into()),
        cause: Some("why".into()),
        usage_estimated: true,
        ..AccessLine::new(Timestamp::UNIX_EPOCH, RequestId::known("req_2"))
    };
    assert_eq!(
        access(&refused, false),
        "00:00:00.000 401 GET /v1/models 0.00ns invalid_api_key (why) req_2\n"
    );
    assert_eq!(
        diagnostic(&said("one\ntwo"), false),
        "17:04:05.123 WARN  gateway::edge: one\n    two\n"
    );
}

#[test]
fn colours_are_the_only_escapes() {
    let plain = access(&full(), false);
    let painted = access(&full(), true);
    assert!(painted.contains("\x1b[32m200\x1b[0m"), "{painted:?}");
    let codes = regex::Regex::new("\x1b\\[[0-9]+m").unwrap();
    assert_eq!(codes.replace_all(&painted, ""), plain);
    let painted = diagnostic(&said("x"), true);
    assert_eq!(codes.replace_all(&painted, ""), diagnostic(&said("x"), false));
}

proptest! {
    /// Whatever a client writes into a path or model, the log has one line and nothing that a
    /// terminal acts on.
    #[test]
    fn what_comes_from_outside_stays_in_its_line(text in any::<String>(), color: bool) {
        let line = AccessLine {
            path: text.clone(),
            model: Some(text.clone()),
            error: Some(text.clone()),
            cause: Some(text.clone()),
            served_model: Some(text.as_str().into()),
            ..full()
        };
        let codes = regex::Regex::new("\x1b\\[(0|3[1-6]|90)m").unwrap();
        for shown in [access(&line, color), diagnostic(&said(&text), color)] {
            let shown = codes.replace_all(&shown, "");
            let mut lines = shown.strip_suffix('\n').unwrap().split('\n');
            prop_assert!(lines.next().is_some());
            // Further lines of a diagnostic are indented, so that they do not look like separate
            // entries.
            prop_assert!(lines.all(|line| line.starts_with("    ")));
            prop_assert!(!shown.replace('\n', "").contains(char::is_control), "{:?}", shown);
            prop_assert!(!shown.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{:?}", shown);
        }
    }
}
