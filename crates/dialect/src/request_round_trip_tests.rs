//! Features that two dialects carry survive translation there and back. No body makes a reader
//! panic.

use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value, json};

use super::Dialect;
use super::feature::{Fate, Feature};
use super::fixtures::{plain, samples};
use super::neutral::part::{Base64, File, Image, Part, Source, ToolCall, ToolResult};
use super::neutral::request::{
    Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, Tool, ToolChoice, Turn,
};
use super::request_translation::{read_request, write_request};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn text() -> impl Strategy<Value = String> {
    // The text is never blank: some dialects forbid that, and it would be left out.
    "[a-z\"\\\\\n é😀]{0,12}x"
}

/// A part of a user's message that both dialects can carry.
fn user_part(first: Dialect, second: Dialect) -> impl Strategy<Value = Part> {
    let detail = [first, second].iter().all(|d| Feature::ImageDetail.fate(*d) == Fate::Carried);
    let detail = if detail { Just(Some("low".to_owned())).boxed() } else { Just(None).boxed() };
    let image = (detail, any::<bool>()).prop_map(move |(detail, by_url)| {
        let source = if by_url {
            Source::Url("https://e.example/a.png".to_owned())
        } else {
            let data = Base64("AAAA".to_owned());
            Source::Inline { media_type: "image/png".to_owned(), data }
        };
        Part::Image(Image { source, detail })
    });
    let file = text().prop_map(|name| {
        let data = Base64("JVBE".to_owned());
        let source = Source::Inline { media_type: "application/pdf".to_owned(), data };
        Part::File(File { source, name: Some(name) })
    });
    prop_oneof![4 => text().prop_map(Part::Text), 1 => image, 1 => file]
}

/// A user's message, an answer, and tool results if the answer calls tools.
fn exchange(first: Dialect, second: Dialect) -> impl Strategy<Value = Vec<Turn>> {
    let user = prop::collection::vec(user_part(first, second), 1..4);
    let calls = prop::collection::vec(text(), 0..3);
    let result = prop::collection::vec(text().prop_map(Part::Text), 1..3);
    (user, text(), calls, result, any::<u32>()).prop_map(|(user, said, calls, result, id)| {
        let mut turns = vec![Turn { speaker: Speaker::User, content: user }];
        let mut answer = vec![Part::Text(said)];
        let mut results = Vec::new();
        for (at, value) in calls.into_iter().enumerate() {
            let id = format!("call_{id}-{at}");
            let arguments = json!({ "a": value }).to_string();
            answer.push(Part::ToolCall(ToolCall { id: id.clone(), name: "f".into(), arguments }));
            let result = ToolResult { call_id: id, content: result.clone(), is_error: false };
            results.push(Part::ToolResult(result));
        }
        turns.push(Turn { speaker: Speaker::Assistant, content: answer });
        if !results.is_empty() {
            turns.push(Turn { speaker: Speaker::User, content: results });
            let content = vec![Part::Text("done".to_owned())];
            turns.push(Turn { speaker: Speaker::Assistant, content });
        }
        turns
    })
}

fn tools(strict: bool) -> impl Strategy<Value = (Vec<Tool>, Option<ToolChoice>, Option<bool>)> {
    let tool =
        (text(), proptest::option::of(text()), any::<bool>()).prop_map(move |(name, says, is)| {
            let strict = strict.then_some(is);
            let parameters =
                RawValue::from_string(r#"{ "type" : "object", "properties": {} }"#.to_owned()).ok();
            Tool { name, description: says, parameters, strict, ..Tool::default() }
        });
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Any),
        Just(ToolChoice::Named("f".to_owned())),
    ];
    let parallel = prop_oneof![Just(None), Just(Some(false))];
    (prop::collection::vec(tool, 1..4), choice, parallel)
        .prop_map(|(tools, choice, parallel)| (tools, Some(choice), parallel))
}

/// A request of features that both dialects carry.
fn request(first: Dialect, second: Dialect) -> impl Strategy<Value = Request> {
    let carried = move |feature: Feature| {
        [first, second].iter().all(|dialect| feature.fate(*dialect) == Fate::Carried)
    };
    let thinks = any::<bool>();
    let settings = (1..9_999u64, 0..100u8, text(), any::<bool>(), any::<bool>(), thinks);
    let turns = prop::collection::vec(exchange(first, second), 1..4);
    let tools = prop_oneof![Just((Vec::new(), None, None)), tools(carried(Feature::StrictTools))];
    (turns, proptest::option::of(text()), tools, settings).prop_map(
        move |(turns, system, (tools, tool_choice, parallel_tool_calls), settings)| {
            let (max_tokens, share, word, stream, wants_schema, thinks) = settings;
            // Anthropic does not think before a forced tool.
            let is_forced = matches!(tool_choice, Some(ToolChoice::Any | ToolChoice::Named(_)));
            let thinks = thinks && !is_forced;
            let share = Number::from_f64(f64::from(share) / 100.0);
            let sampling = Sampling {
                temperature: share.clone().filter(|_| !thinks),
                // Anthropic takes one of the two.
                top_p: (share.clone())
                    .filter(|_| !thinks && ![first, second].contains(&Dialect::Messages)),
                top_k: Some(max_tokens.into()).filter(|_| carried(Feature::TopK) && !thinks),
                seed: Some(max_tokens.into()).filter(|_| carried(Feature::Seed)),
                presence_penalty: share.clone().filter(|_| carried(Feature::Penalties)),
                frequency_penalty: share.filter(|_| carried(Feature::Penalties)),
            };
            let shown = carried(Feature::ReasoningSummary).then_some(true);
            let asks = Turn { speaker: Speaker::User, content: vec![Part::Text(word.clone())] };
            let schema = || OutputFormat::Schema {
                name: (![first, second].contains(&Dialect::Messages)).then(|| word.clone()),
                description: None,
                schema: to_raw_value(&json!({"type": "object", "additionalProperties": false}))
                    .unwrap(),
                strict: None,
            };
            Request {
                model: "m".to_owned(),
                stream,
                system: system.into_iter().collect(),
                // A last turn of the assistant would be the beginning of the answer.
                turns: turns.into_iter().flatten().chain([asks]).collect(),
                tools,
                tool_choice,
                parallel_tool_calls,
                max_tokens: Some(max_tokens.into()),
                stop: if carried(Feature::Stop) { vec![word.clone()] } else { Vec::new() },
                sampling,
                output: wants_schema.then(schema),
                verbosity: carried(Feature::Verbosity).then(|| "low".to_owned()),
                reasoning: thinks
                    .then(|| Reasoning { depth: Depth::Effort("low".to_owned()), shown }),
                user: Some(word),
                ..Request::default()
            }
        },
    )
}

fn pair_and_request() -> impl Strategy<Value = (Dialect, Dialect, Request)> {
    let clients = prop::sample::select(CLIENTS.to_vec());
    let pair = (clients.clone(), clients).prop_filter("two dialects", |(a, b)| a != b);
    pair.prop_flat_map(|(a, b)| (Just(a), Just(b), request(a, b)))
}

proptest! {
    #[test]
    fn what_two_dialects_carry_comes_back((first, second, request) in pair_and_request()) {
        let written = write_request(&request, first).unwrap().body;
        let there = write_request(&read_request(first, &written).unwrap(), second).unwrap();
        // Anthropic is asked to show thinking for clients that do not say.
        let is_shown = |name: &String| name == "thinking.display";
        prop_assert!(there.dropped.iter().all(is_shown), "{:?}", there.dropped);
        let back = write_request(&read_request(second, &there.body).unwrap(), first).unwrap();
        let is_known = |name: &String| name == "store" || is_shown(name);
        prop_assert!(back.dropped.iter().all(is_known), "{:?}", back.dropped);
        let [written, back] = [written, back.body].map(|b| String::from_utf8(b.to_vec()).unwrap());
        prop_assert_eq!(written, back);
    }

    #[test]
    fn any_value_in_any_place_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        with in prop::sample::select(vec![
            json!(null), json!(true), json!(-1), json!(1e300), json!(""), json!("x"), json!([]),
            json!([[]]), json!({}), json!({"type": "x"}), json!([{"type": "text", "content": {}}]),
        ]),
    ) {
        let all: Vec<(Dialect, Value)> =
            Feature::ALL.iter().flat_map(|feature| samples(*feature)).collect();
        let (source, members) = at.get(&all).clone();
        let mut body = plain(source);
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let mut places = Vec::new();
        paths(&body, String::new(), &mut places);
        let place: &String = place.get(&places);
        *body.pointer_mut(place).unwrap() = with;
        if let Ok(request) = read_request(source, body.to_string().as_bytes()) {
            for target in Dialect::TRANSLATED.into_iter().filter(|target| *target != source) {
                if let Ok(translated) = write_request(&request, target) {
                    prop_assert!(serde_json::from_slice::<Value>(&translated.body).is_ok());
                }
            }
        }
    }
}

/// Collects the JSON pointers of all values.
fn paths(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| paths(value, format!("{path}/{name}"), found));
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                paths(value, format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
    found.push(path);
}
