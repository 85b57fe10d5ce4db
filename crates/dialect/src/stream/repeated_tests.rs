//! Repeated events give the same facts as parsed ones.

use proptest::prelude::*;

use super::*;
use crate::Dialect;
use crate::stream::{SseEvent, read};

const OPENAI: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\
    \"delta\":{\"role\":\"assistant\",\"content\":\"TEXT\"},\"logprobs\":null,\
    \"finish_reason\":null}],\"usage\":null,\"obfuscation\":\"PADDING\"}\n\n";
const REASONING: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":null,\"reasoning_content\":\"TEXT\"}}]}\r\n\r\n";
const CALL: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\",\
    \"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"PADDING\"}}]}}]}\n\n";
const TWO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"}},{\"index\":2,\
    \"delta\":{\"content\":\"b\"}}]}\n\n";
const END: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"},\"finish_reason\":\"stop\"}]}\n\n";
const COUNTED: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"}}],\
    \"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
const FAILED: &str =
    "data: {\"error\":{\"message\":\"x\"},\"choices\":[{\"delta\":{\"content\":\"TEXT\"}}]}\n\n";
const ANTHROPIC: &str = "event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\
    \"text\":\"TEXT\"}}\n\n";
const ARGUMENTS: &str = "event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\
    \"partial_json\":\"TEXT\"}}\n\n";

const EVENTS: [(Dialect, &str); 9] = [
    (Dialect::Chat, OPENAI),
    (Dialect::Chat, REASONING),
    (Dialect::Chat, CALL),
    (Dialect::Chat, TWO),
    (Dialect::Chat, END),
    (Dialect::Chat, COUNTED),
    (Dialect::Chat, FAILED),
    (Dialect::Messages, ANTHROPIC),
    (Dialect::Messages, ARGUMENTS),
];

fn event(form: &str, text: &str, padding: &str) -> Vec<u8> {
    form.replace("TEXT", text).replace("PADDING", padding).into_bytes()
}

fn look(dialect: Dialect, event: &[u8]) -> EventFacts {
    let mut facts = EventFacts::new();
    let mut reader = (dialect.row().reader)();
    let call = b"data: {\"type\":\"content_block_start\",\"index\":1,\
        \"content_block\":{\"type\":\"tool_use\",\"name\":\"f\"}}\n\n";
    read(&mut *reader, SseEvent::Whole(call), &mut |_| {});
    read(&mut *reader, SseEvent::Whole(event), &mut |neutral| facts.take(&neutral, event));
    facts
}

fn learnt(dialect: Dialect, event: &[u8]) -> RepeatedEvent {
    let mut repeated = RepeatedEvent::default();
    repeated.learn(event, &look(dialect, event));
    repeated
}

#[test]
fn deltas_of_one_stream_are_repeated() {
    for (dialect, form) in [
        (Dialect::Chat, OPENAI),
        (Dialect::Chat, REASONING),
        (Dialect::Chat, CALL),
        (Dialect::Messages, ANTHROPIC),
        (Dialect::Messages, ARGUMENTS),
    ] {
        let first = learnt(dialect, &event(form, "one", "x"));
        let padding = if form == CALL { "x" } else { "1kd" };
        assert!(first.read(&event(form, "a \\\"\\n\\u00e9 é", padding)).is_some(), "{form}");
        for other in ["", "a\"", "a\\", "a\\x", "a\n"] {
            assert!(first.read(&event(form, other, padding)).is_none(), "{form}: {other}");
        }
    }
    // Events that end, count, fail or have several choices are always parsed.
    for form in [TWO, END, COUNTED, FAILED] {
        let one = event(form, "one", "");
        assert!(learnt(Dialect::Chat, &one).read(&one).is_none(), "{form}");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "word é", "", "\\\"", "\\ud800", "\\u0041", "\"", "\\", "\u{1}"])
        .prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn they_say_what_the_parser_says(
        learn in prop::sample::select(&EVENTS[..]), then in prop::sample::select(&EVENTS[..]),
        same in prop::bool::weighted(0.9), texts in (text(), text()), padding in (text(), text()),
        bent in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let ((dialect, form), next) = (learn, if same { learn.1 } else { then.1 });
        let repeated = learnt(dialect, &event(form, &texts.0, &padding.0));
        let mut event = event(next, &texts.1, &padding.1);
        if let Some((at, byte)) = bent {
            let at = at.index(event.len());
            event[at] = byte;
        }
        if let Some(told) = repeated.read(&event) {
            let all = look(dialect, &event);
            // A surrogate without its other half cannot be read.
            prop_assume!(!String::from_utf8_lossy(&event).contains("\\ud800"));
            // Escapes in the text are counted as they stand.
            prop_assert!(told >= all.bytes && (told == all.bytes || event.contains(&b'\\')));
            prop_assert!(all.is_plain && all.says && all.told.is_none() && all.number.is_none());
            prop_assert_eq!(all.ended, 0);
        }
    }
}
