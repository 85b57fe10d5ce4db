//! Translation of recorded requests, of a sample for each feature, and of generated bodies.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Dialect;
use super::feature::{Fate, Feature};
use super::fixtures::{plain, samples};
use super::neutral::part::Source;
use super::neutral::seal::Seal;
use super::request_translation::{
    MalformedRequest, Translated, TranslationRefusal, read_request, write_request,
};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

#[derive(Deserialize)]
pub(super) struct Recorded {
    pub(super) id: String,
    kind: String,
    pub(super) request: Box<RawValue>,
}

pub(super) fn recorded() -> Vec<(Dialect, Recorded)> {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let text: String = CLIENTS
        .map(|client| format!("recorded_{}.jsonl", client.name()))
        .map(|file| std::fs::read_to_string(data.join(file)).unwrap())
        .concat();
    let read = |line| {
        let exchange: Recorded = serde_json::from_str(line).unwrap();
        (Dialect::named(&exchange.kind).unwrap(), exchange)
    };
    let all: Vec<_> = text.lines().map(read).collect();
    assert_eq!(all.len(), 228);
    all
}

fn translate(
    source: Dialect,
    target: Dialect,
    body: &str,
) -> Result<Translated, TranslationRefusal> {
    write_request(&read_request(source, body.as_bytes()).unwrap(), target)
}

fn value(translated: &Translated) -> Value {
    serde_json::from_slice(&translated.body).unwrap()
}

pub(super) fn others(source: Dialect) -> impl Iterator<Item = Dialect> {
    Dialect::TRANSLATED.into_iter().filter(move |target| *target != source)
}

// The table is shown with `--nocapture`.
#[allow(clippy::print_stderr)]
#[test]
fn recorded_requests_are_carried_or_refused_by_a_feature() {
    let mut carried: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut refused: BTreeMap<(&str, &str, String), Vec<String>> = BTreeMap::new();
    let mut carried_somewhere: BTreeMap<&str, usize> = BTreeMap::new();
    for (source, exchange) in recorded() {
        let mut count = 0;
        for target in others(source) {
            match translate(source, target, exchange.request.get()) {
                Ok(translated) => {
                    let body = value(&translated);
                    let has_model = body["model"].is_string() || target == Dialect::Gemini;
                    assert!(has_model, "{} {body}", exchange.id);
                    *carried.entry((source.name(), target.name())).or_default() += 1;
                    count += 1;
                }
                Err(TranslationRefusal { feature, member, .. }) => refused
                    .entry((source.name(), target.name(), format!("{}: {member}", feature.title())))
                    .or_default()
                    .push(exchange.id.clone()),
            }
        }
        *carried_somewhere.entry(source.name()).or_default() += usize::from(count > 0);
    }
    for ((source, target), count) in &carried {
        eprintln!("{source} to {target}: {count} carried");
    }
    for ((source, target, why), ids) in &refused {
        eprintln!("{source} to {target}: {} refused, {why}: {}", ids.len(), ids.join(" "));
    }
    eprintln!("carried to some other dialect: {carried_somewhere:?}");
    let least = [
        ("chat", 72, [72, 71, 71]),
        ("messages", 72, [63, 68, 69]),
        ("responses", 65, [61, 65, 64]),
    ];
    for (source, somewhere, each) in least {
        assert!(carried_somewhere[source] >= somewhere, "{carried_somewhere:?}");
        let targets = others(Dialect::named(source).unwrap());
        for (target, least) in targets.zip(each) {
            assert!(carried[&(source, target.name())] >= least, "{source} to {}", target.name());
        }
    }
}

#[test]
fn every_feature_is_carried_dropped_or_refused_as_the_table_says() {
    for feature in Feature::ALL.iter().copied() {
        for (source, members) in samples(feature) {
            let mut body = plain(source);
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let request = read_request(source, body.to_string().as_bytes()).unwrap();
            let is_noted = request.uses.iter().any(|used| used.feature == feature);
            assert!(is_noted || feature == Feature::Text, "{}: {body}", feature.title());
            for target in others(source) {
                let what =
                    format!("{}, {} to {}: {body}", feature.title(), source.name(), target.name());
                let before = translate(source, target, &plain(source).to_string()).unwrap();
                assert!(before.dropped.is_empty(), "{what}");
                match (feature.fate(target), write_request(&request, target)) {
                    (Fate::Carried, Ok(after)) => {
                        // For Gemini, streaming is part of the path.
                        let is_path = (feature, target) == (Feature::Stream, Dialect::Gemini);
                        assert_eq!(value(&before) == value(&after), is_path, "{what}");
                        assert!(after.dropped.is_empty(), "{what}: {:?}", after.dropped);
                    }
                    (Fate::Dropped, Ok(after)) => {
                        assert!(!after.dropped.is_empty(), "{what}");
                        let told = String::from_utf8(after.body.to_vec()).unwrap();
                        assert!(!told.contains("mystery") && !told.contains("encrypted"), "{what}");
                    }
                    (Fate::Refused, Err(refused)) => assert_eq!(refused.feature, feature, "{what}"),
                    (fate, outcome) => panic!("{what}: {fate:?}, but {outcome:?}"),
                }
            }
        }
    }
}

#[test]
fn schemas_and_arguments_keep_their_text() {
    let schema = r#"{ "type":"object",  "properties":{"n":{"type":"number","maximum":1.50e3}} }"#;
    let arguments = r#"{ "n" : 1.50e1, "big": 12345678901234567890123 }"#;
    let body = format!(
        r#"{{"model":"m","max_tokens":5,"messages":[{{"role":"user","content":"hi"}},
        {{"role":"assistant","content":[
            {{"type":"tool_use","id":"a","name":"f","input":{arguments}}}
        ]}}],
        "tools":[{{"name":"f","input_schema":{schema}}}]}}"#
    );
    for target in others(Dialect::Messages) {
        let translated = translate(Dialect::Messages, target, &body).unwrap();
        let text = std::str::from_utf8(&translated.body).unwrap();
        assert!(text.contains(schema), "{text}");
        let quoted = serde_json::to_string(arguments).unwrap();
        assert!(text.contains(arguments) || text.contains(&quoted), "{text}");
        if target != Dialect::Gemini {
            let back = read_request(target, text.as_bytes()).unwrap();
            let back = write_request(&back, Dialect::Messages).unwrap();
            let text = std::str::from_utf8(&back.body).unwrap();
            assert!(text.contains(schema) && text.contains(arguments), "{text}");
        }
    }
}

#[test]
fn broken_arguments_and_ids_fit_the_rules_of_anthropic() {
    let call = |arguments: &str| {
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "call.1", "type": "function", "function": function});
        json!({"model": "m", "messages": [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call.1", "content": ""},
            {"role": "user", "content": "and"},
        ]})
    };
    for (arguments, input) in [
        ("", json!({})),
        ("{\"a", json!({"arguments": "{\"a"})),
        ("[1]", json!({"arguments": "[1]"})),
    ] {
        let body = call(arguments).to_string();
        let messages = value(&translate(Dialect::Chat, Dialect::Messages, &body).unwrap());
        let expected = json!([
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "call_2e1", "name": "f", "input": input},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_2e1"}, {"type": "text", "text": "and"},
            ]},
        ]);
        assert_eq!(messages["messages"], expected);
        let gemini = value(&translate(Dialect::Chat, Dialect::Gemini, &body).unwrap());
        assert_eq!(gemini["contents"][0]["parts"][0]["functionCall"]["args"], input);
        assert_eq!(gemini["contents"][1]["parts"][0]["functionResponse"]["name"], "f");
    }
}

#[test]
fn a_seal_goes_to_its_own_dialect_and_no_other() {
    let seal =
        Seal { dialect: "responses", value: json!({"id": "rs_1", "encrypted_content": "e"}) };
    assert_eq!(Seal::from_text(&seal.to_text()), Some(seal.clone()));
    assert_eq!(Seal::from_text("EqQBCkYIBxgCKkAyf"), None);
    assert_eq!(Seal::from_text("rerouter.chat.e30"), None);
    let sealed = seal.to_text();
    let thinking = json!({"type": "thinking", "thinking": "t", "signature": sealed});
    let body = json!({"model": "m", "max_tokens": 5, "messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": [thinking]},
    ]});
    let own = translate(Dialect::Messages, Dialect::Responses, &body.to_string()).unwrap();
    assert!(own.dropped.is_empty(), "{:?}", own.dropped);
    let item = json!({
        "type": "reasoning", "id": "rs_1", "encrypted_content": "e",
        "summary": [{"type": "summary_text", "text": "t"}],
    });
    assert_eq!(value(&own)["input"][1], item);
    let other = translate(Dialect::Messages, Dialect::Chat, &body.to_string()).unwrap();
    assert_eq!(other.dropped, ["messages.content.thinking"]);
    // Google refuses a turn without parts, as that of an answer that was cut off while it thought.
    let seal = Seal { dialect: "gemini", value: json!({"signature": "c2ln"}) };
    let cut = body.to_string().replace(&sealed, &seal.to_text());
    let gemini = translate(Dialect::Messages, Dialect::Gemini, &cut).unwrap();
    let signed = json!([{"text": "", "thoughtSignature": "c2ln"}]);
    assert_eq!((&value(&gemini)["contents"][1]["parts"], gemini.dropped.len()), (&signed, 0));
}

#[test]
fn what_is_dropped_is_bounded_and_fits_a_header() {
    let members: Vec<String> = (0..100_000).map(|at| format!("\"é\\n{at}\":1")).collect();
    let parts: Vec<String> =
        (0..1000).map(|at| format!(r#"{{"type":"text","text":"x","a{at}":1}}"#)).collect();
    let (members, parts) = (members.join(","), parts.join(","));
    let body = format!(
        r#"{{"model":"m",{members},"background":false,"n":1,
        "messages":[{{"role":"user","content":[{parts}]}}]}}"#
    );
    let dropped = translate(Dialect::Chat, Dialect::Messages, &body).unwrap().dropped;
    assert!(dropped.len() < 50 && dropped.contains(&"more".to_owned()), "{dropped:?}");
    assert!(dropped.iter().all(|name| http::HeaderValue::from_str(name).is_ok()));
    // A refused member is found behind any number of unknown ones.
    let body = body.replace(r#""n":1"#, r#""logprobs":true"#);
    let refused = translate(Dialect::Chat, Dialect::Messages, &body).unwrap_err();
    assert_eq!((refused.feature, refused.member.as_str()), (Feature::Logprobs, "logprobs"));
}

#[test]
fn a_malformed_body_is_named_without_its_values() {
    for (source, body, told) in [
        (
            Dialect::Chat,
            r#"{"messages":[{"role":"user","content":7}],"secret":1}"#,
            "messages at line 1 column",
        ),
        (Dialect::Messages, r#"{"thinking":"sk-secret"}"#, "thinking at line 1 column"),
        (Dialect::Responses, r#"{"input":[{"role":"sk-secret"}]}"#, "input.role"),
        (Dialect::Responses, r#"["sk-secret"]"#, "the body at line 1 column"),
    ] {
        let Err(MalformedRequest(text)) = read_request(source, body.as_bytes()) else {
            panic!("{body}")
        };
        assert!(text.starts_with(told) && !text.contains("secret"), "{text}");
    }
}

#[test]
fn urls_with_data_are_read() {
    let text = Source::of_file("data:text/plain;charset=utf-8;base64,aMOk".to_owned());
    assert_eq!(text, Source::Text("hä".to_owned()));
    for url in ["data:text/plain,x", "data:", "https://e.example/data:,;base64,"] {
        assert_eq!(Source::of_file(url.to_owned()), Source::Url(url.to_owned()));
    }
}

#[test]
fn tools_of_one_name_are_refused_by_it() {
    let tools = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({"type": "function", "name": name})).collect()
    };
    let namespace = |name: &str, tools| json!({"type": "namespace", "name": name, "tools": tools});
    let long = "n".repeat(64);
    for (more, refused) in [
        (json!({"type": "function", "name": "a__b"}), Some("tools.a__b".to_owned())),
        (namespace("x", tools(&["b"])), None),
        (namespace("a", tools(&["b"])), None),
        (namespace(&long, tools(&["b", &long])), None),
        (namespace("m", tools(&[&format!("n{long}"), &long])), Some(format!("tools.{long}"))),
    ] {
        let tools = json!([namespace("a", tools(&["b", "c"])), more]);
        let body = json!({"model": "m", "input": "hi", "tools": tools}).to_string();
        let request = read_request(Dialect::Responses, body.as_bytes()).unwrap();
        for target in [Dialect::Chat, Dialect::Messages, Dialect::Gemini] {
            let member = write_request(&request, target).err().map(|refused| refused.member);
            assert_eq!(member, refused, "{body}");
        }
    }
}

#[test]
fn tools_in_namespaces_are_functions_with_both_names() {
    let function = |name: &str| json!({"type": "function", "name": name, "description": "does"});
    let long = "n".repeat(70);
    let body = json!({
        "model": "m",
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c", "namespace": "agents", "name": "spawn",
                "arguments": "{}"},
        ],
        "tools": [
            function("plain"),
            {"type": "namespace", "name": "agents", "description": "Other agents.",
                "tools": [function("spawn"), {"type": "custom", "name": "wait"}]},
            {"type": "namespace", "name": long, "tools": [function("f")]},
        ],
        "tool_choice": {"type": "function", "namespace": "agents", "name": "spawn"},
    });
    let request = read_request(Dialect::Responses, body.to_string().as_bytes()).unwrap();
    let namespaced = request.tools.iter().filter_map(|tool| tool.namespaced.clone());
    let expected = [["agents", "spawn"], ["agents", "wait"], [long.as_str(), "f"]];
    assert_eq!(namespaced.collect::<Vec<_>>(), expected);
    let chat = write_request(&request, Dialect::Chat).unwrap();
    assert!(chat.dropped.is_empty(), "{:?}", chat.dropped);
    let chat = value(&chat);
    let at = |pointer: &str| chat.pointer(pointer).unwrap().clone();
    assert_eq!(at("/tools/1/function/description"), "agents: Other agents.\n\ndoes");
    let written: Vec<Value> =
        (0..4).map(|at| chat["tools"][at]["function"]["name"].clone()).collect();
    let cut = format!("{}__f", "n".repeat(61));
    assert_eq!(written, ["plain", "agents__spawn", "agents__wait", &cut]);
    assert_eq!(at("/tool_choice/function/name"), "agents__spawn");
    assert_eq!(at("/messages/1/tool_calls/0/function/name"), "agents__spawn");
}

#[test]
fn a_search_is_dropped_only_where_the_model_has_other_tools() {
    let body = |tools: Value, choice: Value| {
        json!({
            "model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
            "tools": tools, "tool_choice": choice,
        })
        .to_string()
    };
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let function = json!({"name": "f", "input_schema": {"type": "object"}});
    let forced = json!({"type": "tool", "name": "web_search"});
    let alone = body(json!([search]), forced.clone());
    let alone = translate(Dialect::Messages, Dialect::Chat, &alone).unwrap();
    assert_eq!((&value(&alone)["web_search_options"], alone.dropped.len()), (&json!({}), 0));
    let offered = body(json!([search, function]), json!({"type": "auto"}));
    for (target, keeps) in
        [(Dialect::Chat, false), (Dialect::Gemini, false), (Dialect::Responses, true)]
    {
        let offered = translate(Dialect::Messages, target, &offered).unwrap();
        let text = value(&offered).to_string();
        assert_eq!(text.contains("web_search") || text.contains("googleSearch"), keeps, "{text}");
        assert_eq!(offered.dropped.is_empty(), keeps);
    }
    let chosen = body(json!([search, function]), forced);
    for target in others(Dialect::Messages) {
        let refused = translate(Dialect::Messages, target, &chosen).unwrap_err();
        assert_eq!(refused.member, "tool_choice.name");
    }
}

#[test]
fn thinking_that_is_disabled_is_said_to_the_provider() {
    let body = json!({
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
        "thinking": {"type": "disabled"}, "output_config": {"effort": "high"},
    });
    for (target, pointer, said) in [
        (Dialect::Chat, "/reasoning_effort", json!("none")),
        (Dialect::Responses, "/reasoning", json!({"effort": "none"})),
        (Dialect::Gemini, "/generationConfig/thinkingConfig", json!({"thinkingBudget": 0})),
    ] {
        let translated = translate(Dialect::Messages, target, &body.to_string()).unwrap();
        assert_eq!(value(&translated).pointer(pointer), Some(&said));
        assert_eq!(translated.dropped, ["output_config.effort"]);
    }
}

#[test]
fn marks_of_the_cache_stay_where_they_were() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let text = |text: &str, is_marked: bool| match is_marked {
        true => json!({"type": "text", "text": text, "cache_control": mark}),
        false => json!({"type": "text", "text": text}),
    };
    let call = json!({
        "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"},
    });
    let body = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "one"},
            {"role": "system", "content": [
                text("", false), text("two", true), text("three", false),
            ]},
            {"role": "user", "content": [text("a", false), text("b", true), text("c", false)]},
            {"role": "user", "content": "d", "cache_control": mark},
            {"role": "assistant", "content": null, "tool_calls": [call, call]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
            {"role": "tool", "tool_call_id": "c", "content": [text("y", true)]},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}, "cache_control": mark}],
    });
    let body = body.to_string();
    let translated = translate(Dialect::Chat, Dialect::Messages, &body).unwrap();
    assert!(translated.dropped.is_empty());
    let sent = value(&translated);
    assert_eq!(
        sent["system"],
        json!([text("one", false), text("two", true), text("three", false)])
    );
    let user = json!([text("a", false), text("b", true), text("c", false), text("d", true)]);
    assert_eq!(sent["messages"][0]["content"], user);
    let results = &sent["messages"][2]["content"];
    assert_eq!((results[0].get("cache_control"), &results[1]["cache_control"]), (None, &mark));
    assert_eq!(sent["tools"][0]["cache_control"], mark);
    let chat = translate(Dialect::Chat, Dialect::Responses, &body).unwrap();
    let names = ["messages.content.cache_control", "messages.cache_control", "tools.cache_control"];
    assert_eq!(chat.dropped, names);
    // Text of the system between turns is moved, and would end the cache elsewhere.
    let later = body.replacen(
        "\"role\":\"assistant\"",
        "\"role\":\"system\",\"cache_control\":{\"type\":\"x\"}",
        1,
    );
    let later = translate(Dialect::Chat, Dialect::Messages, &later).unwrap();
    assert_eq!(later.dropped, ["messages.cache_control"]);
}

#[test]
fn system_text_alone_is_what_the_user_says() {
    let body = json!({"model": "m", "messages": [{"role": "system", "content": "Say hi."}]});
    for (target, pointer, turn) in [
        (Dialect::Messages, "/messages/0", "user"),
        (Dialect::Responses, "/input/0", "user"),
        (Dialect::Gemini, "/contents/0", "user"),
    ] {
        let sent = value(&translate(Dialect::Chat, target, &body.to_string()).unwrap());
        assert_eq!(sent.pointer(pointer).unwrap()["role"], turn);
        assert_eq!(sent.to_string().matches("Say hi.").count(), 1);
    }
}

#[test]
fn clients_of_chat_send_seals_of_thinking_back() {
    let sealed = |dialect: &'static str, value: Value| Seal { dialect, value }.to_text();
    let body = |text: Value, data: &str| {
        json!({ "model": "m", "messages": [
            { "role": "user", "content": "2+2?" },
            { "role": "assistant", "content": null, "reasoning_content": text,
              "reasoning_details": [
                { "type": "reasoning.encrypted", "data": data, "format": "rerouter", "index": 0 }],
              "tool_calls": [{ "id": "c", "type": "function",
                "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "c", "content": "4" },
        ] })
    };
    let sent = |body: &Value, target| {
        let request = read_request(Dialect::Chat, body.to_string().as_bytes()).unwrap();
        let made = write_request(&request, target).unwrap();
        (value(&made), made.dropped)
    };
    let signature = sealed("messages", json!({ "signature": "c2ln" }));
    let (messages, dropped) = sent(&body(json!("Hm."), &signature), Dialect::Messages);
    let block = &messages["messages"][1]["content"][0];
    assert_eq!(block, &json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }));
    assert_eq!(dropped, Vec::<String>::new());
    // Without its text, or for another dialect, it is named.
    for (text, target) in [(Value::Null, Dialect::Messages), (json!("Hm."), Dialect::Gemini)] {
        let (_, dropped) = sent(&body(text, &signature), target);
        assert!(dropped.contains(&"messages.reasoning_details".to_owned()), "{dropped:?}");
    }
    // Beside thinking that is hidden, the text is that of the other.
    let mut both = body(json!("Hm."), &signature);
    let hidden = json!({ "type": "reasoning.encrypted", "format": "rerouter", "index": 1,
        "data": sealed("messages", json!({ "redacted": "cg==" })) });
    both["messages"][1]["reasoning_details"].as_array_mut().unwrap().push(hidden);
    let (messages, _) = sent(&both, Dialect::Messages);
    let blocks = &messages["messages"][1]["content"];
    assert_eq!((&blocks[0], &blocks[1]["type"]), (block, &json!("redacted_thinking")));
    // A signature is that of the call, also where a text stands between.
    let google = sealed("gemini", json!({ "signature": "c2ln" }));
    let mut said = body(Value::Null, &google);
    said["messages"][1]["content"] = json!("I look.");
    let (gemini, dropped) = sent(&said, Dialect::Gemini);
    let parts = &gemini["contents"][1]["parts"];
    assert_eq!(
        (&parts[0], &parts[1]["thoughtSignature"]),
        (&json!({ "text": "I look." }), &json!("c2ln"))
    );
    assert!(dropped.is_empty(), "{dropped:?}");
    let encrypted = sealed("responses", json!({ "id": "rs_1", "encrypted_content": "x" }));
    let (response, dropped) = sent(&body(Value::Null, &encrypted), Dialect::Responses);
    assert_eq!(response["input"][1]["encrypted_content"], "x");
    assert!(dropped.is_empty(), "{dropped:?}");
}
