//! Answers and what the relay makes of them, divided into batches in any way.

#[cfg(test)]
#[path = "relay_recorded_tests.rs"]
mod recorded_tests;

use pingora::ErrorType;
use proptest::prelude::*;

use super::*;
use crate::answer_translation::AnswerPlan;
use rerouter_dialect::Dialect;
use rerouter_dialect::chat::usage_strip::UsageStrip;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::recorded;
use rerouter_dialect::recorded_answer::assemble;
use rerouter_dialect::wire::sse::Splitter;

const ROLE: &str = "data: {\"choices\":[{\"index\":0,\
    \"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
const CONTENT: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n";
const COMMENT: &str = ": ping\r\n\r\n";
const PARTIAL: &str = "data: {\"choices\":[{\"ind";

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Flag,
    Done,
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    status: u16,
    kind: &'static str,
    end: End,
    rules: Rules<'static>,
}

impl std::fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, has_next {}", self.mode, self.has_next)
    }
}

const RULES: Rules<'static> = Rules {
    mode: Mode::Relay,
    has_next: true,
    captured: true,
    capture_limit: 1 << 20,
    dialect: Dialect::Chat,
    translation: None,
    strip_usage: false,
    credentials: None,
};
const STREAM: Made = Made { status: 200, kind: "text/event-stream", end: End::Done, rules: RULES };

/// The result of relaying an answer.
#[derive(Debug, Default, PartialEq)]
struct Became {
    /// The bytes for the client; `head` and `ended` tell whether a head and an end came.
    bytes: Vec<u8>,
    head: bool,
    ended: bool,
    /// The type of the attempt's error.
    error: Option<String>,
    collected: Option<(u16, Vec<u8>)>,
    between_events: bool,
    copy: Vec<u8>,
}

impl Became {
    /// Everything that the client and the call see: all fields but the copy.
    fn seen(&self) -> impl PartialEq + std::fmt::Debug + '_ {
        let Became { bytes, head, ended, error, collected, between_events, copy: _ } = self;
        (bytes, head, ended, error, collected, between_events)
    }
}

fn tasks(made: Made, body: &[u8], chunks: &[usize]) -> Vec<HttpTask> {
    let mut head = pingora::http::ResponseHeader::build(made.status, None).unwrap();
    head.insert_header("content-type", made.kind).unwrap();
    let mut tasks = vec![HttpTask::Header(Box::new(head), false)];
    let (mut rest, mut sizes) = (body, chunks.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) =
            rest.split_at(sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len()));
        tasks.push(HttpTask::Body(
            Some(Bytes::copy_from_slice(chunk)),
            after.is_empty() && made.end == End::Flag,
        ));
        rest = after;
    }
    match made.end {
        End::Flag if body.is_empty() => tasks.push(HttpTask::Body(None, true)),
        End::Flag => {}
        End::Done => tasks.push(HttpTask::Done),
        End::Failed => tasks.push(HttpTask::Failed(Error::new(ErrorType::ConnectionClosed))),
    }
    tasks
}

/// Runs an answer through a relay, in batches of these sizes.
fn run(made: Made, body: &[u8], chunks: &[usize], batches: &[usize]) -> Became {
    let (mut relay, mut became) = (Relay::default(), Became::default());
    let (mut rest, mut sizes) = (tasks(made, body, chunks), batches.iter().cycle());
    while !rest.is_empty() {
        let after =
            rest.split_off(sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len()));
        let error = match relay.observe(std::mem::replace(&mut rest, after), made.rules) {
            RelayVerdict::Hold => None,
            RelayVerdict::Collected => break,
            RelayVerdict::Abandon(error) => Some(error),
            RelayVerdict::Forward { tasks, then } => {
                for task in tasks {
                    became.ended |= task.is_end();
                    match task {
                        HttpTask::Header(..) => became.head = true,
                        HttpTask::Body(Some(bytes), _) => became.bytes.extend_from_slice(&bytes),
                        HttpTask::Failed(error) => {
                            panic!("a failure is never the client's: {error}")
                        }
                        _ => {}
                    }
                }
                then
            }
        };
        if let Some(error) = error {
            became.error = Some(format!("{:?}", error.etype()));
            break;
        }
    }
    assert!(
        relay.committed || (!became.head && became.bytes.is_empty()),
        "what is not committed is not the client's"
    );
    became.collected = relay.answer.as_ref().map(|answer| (answer.status, answer.body.to_vec()));
    became.between_events = became.head && relay.between_events();
    became.copy = relay.body.to_vec();
    became
}

fn error(kind: &'static str) -> Option<String> {
    Some(format!("{:?}", ErrorType::Custom(kind)))
}

#[test]
fn a_whole_stream_is_the_clients() {
    let body = [COMMENT, ROLE, CONTENT, FINISH, DONE].concat();
    let became = run(STREAM, body.as_bytes(), &[], &[1]);
    assert_eq!(
        (became.bytes.as_slice(), became.head, became.ended, became.error),
        (body.as_bytes(), true, true, None)
    );
}

#[test]
fn content_decides_also_when_the_break_or_the_end_comes_with_it() {
    let body = [ROLE, CONTENT].concat();
    for (end, expected) in [
        (End::Done, error(CUT)),
        (End::Flag, error(CUT)),
        (End::Failed, Some("ConnectionClosed".to_string())),
    ] {
        for batches in [&[][..], &[1], &[2]] {
            let became =
                run(Made { end, ..STREAM }, body.as_bytes(), &[ROLE.len(), CONTENT.len()], batches);
            assert_eq!(
                (became.bytes.as_slice(), became.ended),
                (body.as_bytes(), false),
                "{end:?} {batches:?}"
            );
            assert_eq!(
                (became.error.as_ref(), became.between_events),
                (expected.as_ref(), true),
                "{end:?} {batches:?}"
            );
        }
    }
}

#[test]
fn an_error_before_content_is_given_up_only_for_another_target() {
    let body = [ROLE, ERROR].concat();
    for (has_next, end) in [(true, End::Done), (true, End::Failed), (false, End::Done)] {
        let made = Made { end, rules: Rules { has_next, ..RULES }, ..STREAM };
        let became = run(made, body.as_bytes(), &[], &[]);
        assert_eq!(became.head, !has_next, "{end:?}");
        assert_eq!(became.error, has_next.then(|| error(IN_BAND)).flatten(), "{end:?}");
    }
}

#[test]
fn the_last_answer_is_kept_but_for_words_about_our_credential() {
    for (status, kept) in [(500, true), (429, true), (401, false), (403, false)] {
        let became = run(Made { status, kind: "application/json", ..STREAM }, b"{}", &[], &[]);
        assert_eq!((became.head, became.error), (false, error(BAD_STATUS)), "{status}");
        assert_eq!(became.collected, kept.then(|| (status, b"{}".to_vec())), "{status}");
    }
}

#[test]
fn what_is_held_is_bounded() {
    let body = ":\n\n".repeat(HOLD_BYTES / 3 + 4000);
    let stream = run(STREAM, body.as_bytes(), &[1000], &[3]);
    assert!(stream.head && stream.bytes == body.as_bytes() && stream.error == error(CUT));
    for (status, has_next, expected) in
        [(500, true, error(BAD_STATUS)), (500, false, None), (401, false, error(BAD_STATUS))]
    {
        let made = Made { status, rules: Rules { has_next, ..RULES }, ..STREAM };
        let became = run(made, body.as_bytes(), &[1000], &[3]);
        assert_eq!(
            (became.head, became.error),
            (expected.is_none(), expected),
            "{status} {has_next}"
        );
    }
    let collect = Made { rules: Rules { mode: Mode::Collect, ..RULES }, ..STREAM };
    let became = run(collect, &vec![b'\n'; COLLECT_BYTES + 2], &[1 << 20], &[2]);
    assert_eq!((became.error, became.collected), (error(TOO_LARGE), None));
}

#[test]
fn the_copy_for_the_capture_is_bounded() {
    let rules = Rules { capture_limit: 10, ..RULES };
    let mut relay = Relay::default();
    let body = [CONTENT, FINISH].concat();
    relay.observe(tasks(Made { rules, ..STREAM }, body.as_bytes(), &[7]), rules);
    assert_eq!((&relay.body[..], relay.body_truncated), (&CONTENT.as_bytes()[..10], true));
}

/// If an answer is not captured, a stream is not copied. A document is copied, for its usage.
#[test]
fn a_stream_that_is_not_captured_is_not_copied() {
    let rules = Rules { captured: false, ..RULES };
    let body = [ROLE, CONTENT, USAGE, FINISH, DONE].concat();
    let mut relay = Relay::default();
    let sent = relay.observe(tasks(Made { rules, ..STREAM }, body.as_bytes(), &[7]), rules);
    let RelayVerdict::Forward { tasks: sent, then: None } = sent else { panic!("not passed on") };
    let bytes = sent.iter().filter_map(|task| match task {
        HttpTask::Body(Some(bytes), _) => Some(&bytes[..]),
        _ => None,
    });
    assert_eq!(bytes.collect::<Vec<_>>().concat(), body.as_bytes());
    assert_eq!((relay.body.len(), relay.body_truncated), (0, false));
    assert!(relay.between_events() && relay.has_said_all());
    assert_eq!(relay.tally().usage().map(|usage| usage.prompt_tokens), Some(3));
    let mut relay = Relay::default();
    let document = Made { kind: "application/json", rules, ..STREAM };
    relay.observe(tasks(document, b"{}", &[]), rules);
    assert_eq!(&relay.body[..], b"{}");
}

const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";

/// If the client did not ask for the usage, it is counted but not passed on, however the answer is
/// cut and ends.
#[test]
fn the_usage_that_only_we_asked_for_is_counted_and_kept_back() {
    let rules = Rules { strip_usage: true, ..RULES };
    let (body, left) = (
        [ROLE, CONTENT, FINISH, COMMENT, USAGE, DONE].concat(),
        [ROLE, CONTENT, FINISH, COMMENT, DONE].concat(),
    );
    let last = [ROLE, CONTENT, FINISH, USAGE].concat();
    for end in [End::Flag, End::Done] {
        for (chunks, batches) in
            [(&[][..], &[][..]), (&[1], &[1]), (&[90, 7], &[3]), (&[ROLE.len()], &[1])]
        {
            let became = run(Made { end, rules, ..STREAM }, body.as_bytes(), chunks, batches);
            assert_eq!(String::from_utf8(became.bytes).unwrap(), left, "{end:?} {chunks:?}");
            assert_eq!((became.ended, became.error), (true, None), "{end:?} {chunks:?}");
            assert_eq!(became.copy, left.as_bytes(), "a capture holds what the client got");
            let became = run(Made { end, rules, ..STREAM }, last.as_bytes(), chunks, batches);
            assert_eq!(
                (became.ended, became.bytes.as_slice()),
                (true, [ROLE, CONTENT, FINISH].concat().as_bytes()),
                "{end:?} {chunks:?}"
            );
            let mut relay = Relay::default();
            relay.observe(tasks(Made { end, rules, ..STREAM }, body.as_bytes(), chunks), rules);
            assert_eq!(
                relay.tally().usage().map(|usage| (usage.prompt_tokens, usage.completion_tokens)),
                Some((3, 2))
            );
        }
    }
    // If a stream breaks off within an event, the client gets it up to the end of the event before.
    let cut = run(
        Made { end: End::Failed, rules, ..STREAM },
        [ROLE, CONTENT, PARTIAL].concat().as_bytes(),
        &[20],
        &[1],
    );
    assert_eq!(
        (cut.bytes.as_slice(), cut.between_events),
        ([ROLE, CONTENT].concat().as_bytes(), true)
    );
    // An answer that is no stream, or no success, is passed on unchanged.
    for (status, kind, body) in
        [(200, "application/json", "{\"usage\":{}}"), (400, "text/event-stream", &*body)]
    {
        let became = run(Made { status, kind, end: End::Done, rules }, body.as_bytes(), &[], &[]);
        assert_eq!(became.bytes, body.as_bytes(), "{status} {kind}");
    }
}

#[test]
fn what_is_no_answer_is_given_up() {
    let switching = pingora::http::ResponseHeader::build(101, None).unwrap();
    let early = pingora::http::ResponseHeader::build(103, None).unwrap();
    for (tasks, given_up) in [
        (vec![HttpTask::Header(Box::new(switching), false)], true),
        (vec![HttpTask::Body(Some(Bytes::from_static(b"x")), false)], true),
        (vec![HttpTask::Done], true),
        (vec![HttpTask::Header(Box::new(early), false)], false),
    ] {
        let verdict = Relay::default().observe(tasks, RULES);
        assert_eq!(matches!(verdict, RelayVerdict::Abandon(error) if error.retry()), given_up);
    }
}

#[test]
fn a_document_is_the_clients_when_it_is_whole_and_no_error_unless_nobody_else_could_answer() {
    let json = Made { kind: "application/json", ..STREAM };
    let alone = |made: Made| Made { rules: Rules { has_next: false, ..RULES }, ..made };
    let (good, bad, kept_alive) =
        ("{\"choices\":[]}", "{\"error\":{\"code\":502}}", "\n {\"error\":{\"code\":502}}");
    for (made, body, expected) in [
        (json, good, None),
        (json, bad, error(IN_BAND)),
        (alone(json), bad, None),
        (json, "{\"choices\":[", error(CUT)),
        (alone(json), "{\"choices\":[", None),
        (json, "", error(CUT)),
        (json, kept_alive, None),
        (Made { end: End::Failed, ..json }, good, Some("ConnectionClosed".to_string())),
    ] {
        for chunks in [&[][..], &[1], &[5]] {
            let became = run(made, body.as_bytes(), chunks, &[1]);
            assert_eq!(
                (became.head, &became.error),
                (expected.is_none(), &expected),
                "{made:?} {body}"
            );
            assert_eq!(
                became.bytes,
                if expected.is_none() { body.as_bytes() } else { b"" },
                "{made:?} {body}"
            );
        }
    }
    let large = format!("{{\"choices\":\"{}", "x".repeat(HOLD_BYTES));
    let became = run(Made { end: End::Failed, ..json }, large.as_bytes(), &[1000], &[1]);
    assert!(
        became.head && !became.ended && large.as_bytes() == became.bytes,
        "what is too large to hold is passed on"
    );
}

#[test]
fn an_error_in_a_document_of_success_is_known() {
    for (status, body, expected) in [
        (200, "{\"error\":{\"message\":\"Oh\",\"code\":502}}", true),
        (200, "{\"status\":\"completed\",\"error\":null}", false),
        (400, "{\"error\":{\"message\":\"Oh\"}}", false),
    ] {
        let mut relay = Relay::default();
        relay.observe(
            tasks(Made { status, kind: "application/json", ..STREAM }, body.as_bytes(), &[7]),
            RULES,
        );
        assert_eq!(relay.has_error(), expected, "{status} {body}");
    }
}

fn made() -> impl Strategy<Value = Made> {
    let status = prop::sample::select(&[200u16, 200, 200, 201, 400, 401, 429, 500][..]);
    let kind =
        prop::sample::select(&["text/event-stream", "text/event-stream", "application/json"][..]);
    let end = prop::sample::select(&[End::Flag, End::Done, End::Failed][..]);
    (status, kind, end, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(status, kind, end, has_next, relay, strip)| {
            let mode = if relay { Mode::Relay } else { Mode::Collect };
            // A reroute asks for no stream, so its usage is never stripped.
            Made {
                status,
                kind,
                end,
                rules: Rules { mode, has_next, strip_usage: strip && relay, ..RULES },
            }
        },
    )
}

const PARTS: &[&str] = &[ROLE, CONTENT, FINISH, DONE, ERROR, COMMENT, PARTIAL, USAGE, "\r", "\n"];

proptest! {
    #[test]
    fn batching_changes_nothing(
        made in made(),
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..8),
        chunks in prop::collection::vec(1usize..200, 1..5),
        batches in prop::collection::vec(1usize..6, 1..5),
    ) {
        let body = parts.concat().into_bytes();
        let alone = run(made, &body, &[1], &[1]);
        let whole = run(made, &body, &[], &[]);
        let some = run(made, &body, &chunks, &batches);
        // A document that breaks off before any of it was written is given up; one that breaks off
        // later is cut. Both end with an error.
        let document_broken = made.end == End::Failed
            && made.kind == "application/json"
            && made.rules.mode == Mode::Relay;
        if !document_broken {
            for other in [&whole, &some] {
                prop_assert_eq!(other.seen(), alone.seen());
            }
        }
        let is_stream = made.kind == STREAM.kind && (200..300).contains(&made.status);
        let passes = if made.rules.strip_usage && is_stream {
            let mut strip = UsageStrip::default();
            [strip.feed(&body), strip.finish()].concat()
        } else if is_stream {
            let (mut out, mut splitter) = (Vec::new(), Splitter::default());
            splitter.feed(&body, |event| out.extend_from_slice(event.bytes()));
            splitter.finish(|event| {
                if !event.is_cut() {
                    out.extend_from_slice(event.bytes());
                }
            });
            out
        } else {
            body
        };
        for became in [&alone, &whole, &some] {
            prop_assert!(passes.starts_with(&became.bytes));
            if became.error.is_none() && made.end != End::Failed && became.collected.is_none() {
                prop_assert_eq!(&became.bytes, &passes);
                prop_assert_eq!(&became.copy, &passes);
            }
            prop_assert!(
                !(became.ended && became.error.is_some()),
                "an answer that failed does not end as if whole"
            );
        }
    }
}

#[test]
fn a_translated_stream_ends_where_there_is_no_memory_for_it() {
    // The last event of a Responses stream repeats the whole response, so the translation keeps all
    // of it.
    let plan = AnswerPlan {
        from: Dialect::Chat,
        to: Dialect::Responses,
        counts: false,
        context: Default::default(),
        dropped: Vec::new(),
    };
    let rules = Rules { translation: Some(&plan), has_next: false, captured: false, ..RULES };
    let body = [
        ROLE,
        &CONTENT.replace("\"a\"", &format!("\"{}\"", "b".repeat(1_000))).repeat(40),
        FINISH,
        DONE,
    ]
    .concat();
    for (room, ends) in [(256 << 10, "response.completed"), (32 << 10, "response.failed")] {
        let memory = BodyMemory::new(room);
        let mut relay = Relay::default();
        relay.count_within(&memory);
        let mut out = Vec::new();
        for task in tasks(Made { rules: RULES, ..STREAM }, body.as_bytes(), &[500]) {
            match relay.observe(vec![task], rules) {
                RelayVerdict::Forward { tasks, .. } => {
                    for task in tasks {
                        if let HttpTask::Body(Some(bytes), _) = task {
                            out.extend_from_slice(&bytes);
                        }
                    }
                }
                RelayVerdict::Hold => {}
                RelayVerdict::Collected | RelayVerdict::Abandon(_) => panic!("it is relayed"),
            }
            assert!(memory.held() <= room);
        }
        let text = String::from_utf8(out).unwrap();
        assert!(text.trim_end().lines().rev().take(2).any(|line| line.contains(ends)), "{text}");
        assert_eq!(text.matches("event: error").count(), usize::from(ends == "response.failed"));
        drop(relay);
        assert_eq!(memory.held(), 0);
    }
}
