//! Numbers and names in spellings that some provider may read differently, and prompts outside the
//! messages: their cost never exceeds the budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use proptest::prelude::*;
use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::request;
use rerouter::internals::wire::tokens;
use serde_json::{Value, json};

use crate::house::fuzzing::targets::lenient::{self, Rules};
use crate::support::client::Answer;
use crate::support::documents::provider;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded;

/// Prices in dollars per million tokens, of a prompt and of an answer.
const PRICES: (u64, u64) = (3, 15);
const CONTEXT: u64 = 200_000;
/// Concurrent requests of a burst.
const BURST: usize = 64;
const DOLLAR: f64 = 1e9;

/// The bill of each attack in billionths of a dollar, by the `user` in its requests.
type Billed = Arc<Mutex<HashMap<String, u64>>>;

/// A provider that accepts any spelling and bills as much as possible, with `bytes_a_token` bytes
/// of text per token. Its answers are delayed, so that requests overlap.
async fn lenient_provider(bytes_a_token: u64) -> (Provider, Billed) {
    let billed = Billed::default();
    let sums = Arc::clone(&billed);
    let provider = Provider::start(move |request, _| {
        let (prompt, answers) = bill(request, bytes_a_token);
        let user = request.json()["user"].as_str().unwrap().to_owned();
        *sums.lock().unwrap().entry(user).or_default() +=
            prompt * PRICES.0 * 1_000 + answers * PRICES.1 * 1_000;
        let steps = scripted::json_answer(200, &answer(request, prompt, answers));
        let late = |step| {
            if let Step::Write(bytes) = step {
                Step::Later(Duration::from_millis(300), bytes)
            } else {
                step
            }
        };
        steps.into_iter().map(late).collect()
    })
    .await;
    (provider, billed)
}

fn endpoint(request: &Received) -> Endpoint {
    Endpoint::ALL.into_iter().find(|endpoint| request.target.ends_with(endpoint.path())).unwrap()
}

fn bill(request: &Received, bytes_a_token: u64) -> (u64, u64) {
    let rules = Rules { bytes_a_token, image: 765, ..Rules::dearest(CONTEXT) };
    let bill = lenient::bill(endpoint(request), &request.body, rules).unwrap();
    // No model writes more than its context for each of the requested answers.
    (bill.prompt, bill.answers.min(CONTEXT * 128))
}

fn answer(request: &Received, prompt: u64, answers: u64) -> Value {
    match endpoint(request) {
        Endpoint::Messages => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "a word"}],
            "usage": {"input_tokens": prompt, "output_tokens": answers}}),
        Endpoint::Responses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{
                "type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "a word"}]
            }],
            "usage": {"input_tokens": prompt, "output_tokens": answers,
                "total_tokens": prompt + answers}}),
        _ => {
            let mut said = scripted::completion_body("a word");
            said["usage"] = json!({
                "prompt_tokens": prompt, "completion_tokens": answers,
                "total_tokens": prompt + answers
            });
            said
        }
    }
}

async fn gateway(provider_url: &str) -> Gateway {
    let open = provider("o", provider_url, "k");
    let anthropic =
        provider("a", provider_url, "k").replace("protocol: openai", "protocol: anthropic");
    let (input, output) = PRICES;
    let model =
        format!("{{ input_per_mtok: {input}, output_per_mtok: {output}, context: {CONTEXT} }}");
    Setup::new(&format!(
        "providers:\n{open}{anthropic}recipes:\n  \
         open: {{ rules: [{{ name: x, targets: [{{ target: o/m }}] }}] }}\n  \
         claude: {{ rules: [{{ name: x, targets: [{{ target: a/m }}] }}] }}\n\
         aliases: {{ open: open, claude: claude }}\nmodels:\n  o/m: {model}\n  a/m: {model}\n"
    ))
    .threads(2)
    .start()
    .await
}

/// A key with a budget of `usd` dollars a day.
async fn key(gateway: &Gateway, usd: u64) -> Key {
    gateway.limited_key(json!({"budget": {"usd": usd, "per": "day"}})).await
}

async fn ask(gateway: &Gateway, key: &Key, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {}", key.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
    ];
    gateway.send("POST", path, &headers, Some(body.as_bytes())).await
}

/// Sends one request many times at once, with a key of a dollar a day. Returns the number of
/// answers.
async fn burst(gateway: &Gateway, path: &str, body: &str) -> usize {
    let key = key(gateway, 1).await;
    // A refused request is repeated if the answer asks for it, for longer than the first answers
    // take.
    let once = async |_| {
        for _ in 0..60 {
            let answer = ask(gateway, &key, path, body).await;
            assert!([200, 400, 429].contains(&answer.status), "{}: {body:.300}", answer.text());
            if answer.status != 429 || answer.header("x-should-retry").is_some() {
                return answer.status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        429
    };
    let statuses = futures::future::join_all((0..BURST).map(once)).await;
    statuses.into_iter().filter(|status| *status == 200).count()
}

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// A plain request to the endpoint, with `more` members.
fn with(path: &str, more: &str) -> String {
    let said = r#"[{"role":"user","content":"Say a word."}]"#;
    match path {
        CHAT => format!(r#"{{"model":"open","messages":{said}{more}}}"#),
        RESPONSES => format!(r#"{{"model":"open","input":{said}{more}}}"#),
        _ => format!(r#"{{"model":"claude","messages":{said}{more}}}"#),
    }
}

/// Spellings that some reader takes for a hundred thousand tokens or a hundred answers, with the
/// member that the refusal names.
const MISSPELLED: [(&str, &str, &str); 21] = [
    (CHAT, r#","max_tokens":"100000""#, "max_tokens"),
    (CHAT, r#","max_tokens":1e5"#, "max_tokens"),
    (CHAT, r#","max_tokens":100000.0"#, "max_tokens"),
    (CHAT, r#","max_tokens":[100000]"#, "max_tokens"),
    (CHAT, r#","max_tokens":18446744073709551616"#, "max_tokens"),
    (CHAT, r#","MAX_TOKENS":100000"#, "max_tokens"),
    (CHAT, r#","max_tokens":5,"max_token\u0073\u0000":100000"#, "max_tokens"),
    (CHAT, r#","max_tokens":5,"max_tokens":100000"#, "max_tokens"),
    (CHAT, r#","maxTokens":100000"#, "max_tokens"),
    (CHAT, r#","max_completion_tokens":"100000""#, "max_completion_tokens"),
    (CHAT, r#","max_tokens":5,"max_new_tokens":1e5"#, "max_new_tokens"),
    (CHAT, r#","max_tokens":5,"extra_body":{"max_tokens":100000}"#, "extra_body.max_tokens"),
    (CHAT, r#","n":"128""#, "n"),
    (CHAT, r#","n":1e2"#, "n"),
    (CHAT, r#","N":128"#, "n"),
    (CHAT, r#","n":"128","max_tokens":"100000""#, "n"),
    (RESPONSES, r#","max_output_tokens":"100000""#, "max_output_tokens"),
    (RESPONSES, r#","MAX_OUTPUT_TOKENS":100000"#, "max_output_tokens"),
    (MESSAGES, r#","max_tokens":"100000""#, "max_tokens"),
    (
        MESSAGES,
        r#","max_tokens":5,"thinking":{"budget_tokens":"100000"}"#,
        "thinking.budget_tokens",
    ),
    (MESSAGES, r#","max_tokens":5,"thinking":{"BUDGET_TOKENS":100000}"#, "thinking.budget_tokens"),
];

/// Requests that cost more than they seem to.
fn dear() -> Vec<(&'static str, &'static str, String)> {
    let prose =
        "The members agreed to postpone the vote until next month. ".repeat((400 << 10) / 58);
    let pdf = format!("JVBERi0xLjQK{}", "A".repeat(200 << 10));
    let pdf = json!({
        "type": "document", "source": {
            "type": "base64", "media_type": "application/pdf", "data": pdf
        }
    });
    let function = json!({"name": "f", "description": prose, "parameters": {}});
    let saying = |message: Value| {
        json!({"model": "open", "max_tokens": 5, "messages": [message]}).to_string()
    };
    let document = json!({"model": "claude", "max_tokens": 5,
            "messages": [{"role": "user", "content": [pdf]}]})
    .to_string();
    let part = |part: Value| saying(json!({"role": "user", "content": [part]}));
    let pdf_as_image = json!({
        "type": "image_url", "image_url": {"url": "data:application/pdf;base64,JVBERi0xLjQK"}
    });
    let audio_by_address =
        json!({"type": "input_audio", "input_audio": {"data": "https://a.test/long.mp3"}});
    vec![
        ("max_tokens -1", CHAT, with(CHAT, r#","max_tokens":-1,"n":50"#)),
        ("n_predict 5", CHAT, with(CHAT, r#","n_predict":5,"n":50"#)),
        (
            "max_tokens 5, n_predict -1",
            CHAT,
            with(CHAT, r#","max_tokens":5,"n_predict":-1,"n":50"#),
        ),
        ("a PDF as an image", CHAT, part(pdf_as_image)),
        ("audio by its address", CHAT, part(audio_by_address)),
        (
            "an image scaled up",
            CHAT,
            part(json!({
                "type": "image_url", "image_url": {"url": "https://a.test/a.png"},
                "min_pixels": 1_000_000_000
            })),
        ),
        (
            "search_parameters",
            CHAT,
            with(CHAT, r#","max_tokens":5,"search_parameters":{"mode":"on"}"#),
        ),
        (
            "a tool of no name",
            CHAT,
            with(CHAT, r#","max_tokens":5,"tools":[{"google_search":{}}]"#),
        ),
        ("one tool, no list", CHAT, with(CHAT, r#","max_tokens":5,"tools":{"type":"web_search"}"#)),
        (
            "thoughts by their id",
            RESPONSES,
            r#"{"model":"open","max_output_tokens":5,"input":[{"type":"reasoning","id":"rs_1"}]}"#
                .to_owned(),
        ),
        ("max_tokens 50000", CHAT, with(CHAT, r#","max_tokens":50000"#)),
        ("max_new_tokens 100000", CHAT, with(CHAT, r#","max_tokens":5,"max_new_tokens":100000"#)),
        ("thinking_budget 100000", CHAT, with(CHAT, r#","max_tokens":5,"thinking_budget":100000"#)),
        ("best_of 128", CHAT, with(CHAT, r#","best_of":128"#)),
        (
            "previous_response_id",
            RESPONSES,
            with(RESPONSES, r#","previous_response_id":"resp_1","max_output_tokens":5"#),
        ),
        ("a PDF", MESSAGES, document),
        ("functions", CHAT, with(CHAT, &format!(r#","max_tokens":5,"functions":[{function}]"#))),
        (
            "prediction",
            CHAT,
            with(CHAT, &format!(r#","max_tokens":5,"prediction":{{"content":"{prose}"}}"#)),
        ),
        (
            "refusal parts",
            CHAT,
            saying(
                json!({"role": "assistant", "content": [{"type": "refusal", "refusal": prose}]}),
            ),
        ),
        ("text", CHAT, saying(json!({"role": "user", "content": prose}))),
    ]
}

#[tokio::test]
async fn a_number_in_another_spelling_is_refused_and_no_provider_is_asked() {
    let (provider, _) = lenient_provider(4).await;
    let gateway = gateway(&provider.url()).await;
    let key = key(&gateway, 1).await;
    for (path, more, field) in MISSPELLED {
        let answer = ask(&gateway, &key, path, &with(path, more)).await;
        match path {
            MESSAGES => envelope::anthropic(&answer, 400, "invalid_request_error"),
            _ => envelope::openai(&answer, 400, "invalid_request_error", None),
        }
        assert!(
            answer.text().contains(&format!("`{field}`"))
                || answer.json()["error"]["param"] == field,
            "{more}: {}",
            answer.text()
        );
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn no_burst_costs_more_than_the_budget() {
    let (provider, billed) = lenient_provider(4).await;
    let gateway = gateway(&provider.url()).await;
    let gateway = &gateway;
    let misspelled = MISSPELLED.into_iter().map(|(path, more, _)| (more, path, with(path, more)));
    let ends = futures::stream::iter(dear().into_iter().chain(misspelled)).map(
        async |(name, path, body)| {
            let member = format!(r#","user":{}}}"#, json!(name));
            let body = format!("{}{member}", body.strip_suffix('}').unwrap());
            (name, burst(gateway, path, &body).await)
        },
    );
    let ends: Vec<_> = ends.buffered(6).collect().await;
    let billed = billed.lock().unwrap();
    let mut beyond = Vec::new();
    for (name, answered) in ends {
        let cost = billed.get(name).map_or(0.0, |billed| *billed as f64 / DOLLAR);
        eprintln!("{name:60} {cost:10.2} USD, {answered} answered");
        if cost > 1.0 {
            beyond.push((name, cost));
        }
    }
    assert!(beyond.is_empty(), "cost more than a dollar: {beyond:?}");
}

/// Usual requests of SDKs pass at the first try with five dollars a day. That includes content that
/// cannot be read completely, and long prompts with long answers.
#[tokio::test]
async fn ordinary_requests_pass_with_an_ordinary_budget() {
    let (provider, _) = lenient_provider(4).await;
    let gateway = gateway(&provider.url()).await;
    let prose = "The members agreed to postpone the vote until next month. ".repeat(7_000);
    let png = "iVBORw0KGgoAAAANSUhEUgAAAMgAAADICAIAAAAiOjnJ";
    let pdf = format!("JVBERi0xLjQK{}", "A".repeat(200 << 10));
    let chat = |content: Value| {
        let message = json!({"role": "user", "content": content});
        json!({ "model": "open", "user": "u", "messages": [message] })
    };
    let claude = |content: Value| {
        json!({
            "model": "claude", "user": "u", "max_tokens": 32_000,
            "messages": [{"role": "user", "content": content}]
        })
    };
    let with = |mut body: Value, more: Value| {
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let tool = json!({
        "type": "function", "function": {
            "name": "f", "description": prose[..20_000], "parameters": {"type": "object"}
        }
    });
    let coding = json!({"system": [{"type": "text", "text": prose[..60_000],
                    "cache_control": {"type": "ephemeral"}}],
        "tools": [{
            "name": "Bash", "description": prose[..60_000], "input_schema": {"type": "object"}
        }],
        "thinking": {"type": "enabled", "budget_tokens": 31_999}, "metadata": {"user_id": "u"}});
    // Estimates learn from the provider's counts, so the request near the context limit comes
    // first.
    for (path, body) in [
        (MESSAGES, with(claude(json!(prose[..300_000])), coding)),
        (CHAT, chat(json!("hi"))),
        (CHAT, with(chat(json!("hi")), json!({"max_tokens": -1, "n": 1, "stop": null}))),
        (CHAT, with(chat(json!("hi")), json!({"max_completion_tokens": 16_000, "tools": [tool]}))),
        (
            CHAT,
            chat(json!([{
                "type": "image_url", "image_url": {
                    "url": format!("data:image/png;base64,{png}"), "detail": "high"
                }
            }])),
        ),
        (CHAT, chat(json!([{"type": "image_url", "image_url": {"url": "https://a.test/b.jpg"}}]))),
        (
            CHAT,
            chat(json!([{
                "type": "file", "file": {
                    "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")
                }
            }])),
        ),
        (
            CHAT,
            chat(json!([{
                "type": "input_audio", "input_audio": {"data": "A".repeat(400_000), "format": "mp3"}
            }])),
        ),
        (
            RESPONSES,
            json!({"model": "open", "user": "u", "input": "hi", "tools": [{"type": "web_search"}]}),
        ),
        (
            RESPONSES,
            json!({"model": "open", "user": "u", "previous_response_id": "resp_1", "input": "hi"}),
        ),
        (
            MESSAGES,
            claude(json!([{
                "type": "document", "source": {
                    "type": "base64", "media_type": "application/pdf", "data": pdf
                }
            }])),
        ),
    ] {
        let key = key(&gateway, 5).await;
        let answer = ask(&gateway, &key, path, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{}: {:.300}", answer.text(), body.to_string());
    }
}

/// Text with far more tokens than usual. Even the last request on a budget does not exceed it.
#[tokio::test]
async fn text_of_a_token_a_byte_stays_within_the_budget() {
    let (provider, billed) = lenient_provider(1).await;
    let gateway = gateway(&provider.url()).await;
    let text = "qzxjvkw ".repeat(10_625);
    let said = json!({
        "model": "open", "max_tokens": 5, "user": "dear text",
        "messages": [{"role": "user", "content": text}]
    });
    let answered = burst(&gateway, CHAT, &said.to_string()).await;
    let cost = *billed.lock().unwrap().values().next().unwrap() as f64 / DOLLAR;
    eprintln!("{answered} answered, {cost:.3} USD");
    assert!(answered == 3 && (0.76..0.77).contains(&cost), "{answered} cost {cost}");
}

/// A name as some reader takes it: unchanged, in another case, in camel case, with an escape,
/// before a NUL, or with a letter that folds.
fn spelled(name: &str, how: u8) -> String {
    let camel = || {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |camel, word| camel + &word[..1].to_uppercase() + &word[1..])
    };
    match how {
        0 => name.to_uppercase(),
        1 => camel(),
        2 => format!("{}{}", name[..1].to_uppercase(), &name[1..]),
        3 => format!("\\u{:04x}{}", name.as_bytes()[0], &name[1..]),
        4 => format!("{name}\\u0000"),
        5 => name.replacen('s', "ſ", 1),
        6 => name.replacen('k', "\u{212a}", 1),
        _ => name.to_owned(),
    }
}

/// A number in spellings that some reader accepts.
fn count() -> impl Strategy<Value = String> {
    let number =
        prop_oneof![0u64..10, 900u64..100_000, Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1)];
    (number, 0u8..16).prop_map(|(number, how)| match how {
        0 => format!("\"{number}\""),
        1 => format!("{number}.0"),
        2 => format!("{number}e0"),
        3 => format!("[{number}]"),
        4 => format!("-{number}"),
        5 => format!("1{number}0000000000"),
        6 => "null".to_owned(),
        7 => "true".to_owned(),
        8 => format!("{{\"a\":{number}}}"),
        9 => format!("\" {number}_000\""),
        _ => number.to_string(),
    })
}

/// Content of a prompt.
fn told() -> impl Strategy<Value = String> {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAMgAAADICAIAAAAiOjnJ";
    let text = prop_oneof!["[ -~]{0,20}", "\\PC{0,12}", Just("\u{7}\t\u{2028}".to_owned())]
        .prop_map(|text| json!(text).to_string());
    let wrapped = prop::sample::select(
        &[
            "TEXT",
            r#"[{"type":"text","text":TEXT}]"#,
            r#"[{"type":"refusal","refusal":TEXT},TEXT]"#,
            r#"{"type":"thinking","thinking":TEXT}"#,
            concat!(
                r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,PNG","#,
                r#""detail":"low"}}]"#,
            ),
            r#"[{"type":"text","text":TEXT,"image_url":"https://a.test/b.png"}]"#,
            concat!(
                r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","#,
                r#""data":"PNG"}},{"type":"document","source":{"type":"text","data":TEXT}}]"#,
            ),
            r#"[{"type":"document","source":{"type":"base64","data":"JVBERi0xLjQK"}}]"#,
            r#"[{"type":"document","source":{"type":"url","url":TEXT}}]"#,
            concat!(
                r#"[{"type":"input_file","file_id":"file_1"},{"type":"input_image","#,
                r#""file_id":"file_1"}]"#,
            ),
            r#"[{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0xLjQK"}}]"#,
            r#"[{"type":"video_url","video_url":{"url":TEXT}}]"#,
            concat!(
                r#"[{"type":"input_audio","input_audio":{"data":"#,
                r#""AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}]"#,
            ),
            r#"[{"type":"tool_result","content":[{"type":"text","text":TEXT}]}]"#,
            r#"[{"type":"unheard_of","unheard_of":TEXT}]"#,
            r#"[{"type":"text","text":TEXT,"source":{"type":"base64","data":"JVBERi0xLjQK"}}]"#,
            r#"[{"type":"text","text":TEXT,"source":{"type":"image","data":"PNG"}}]"#,
            concat!(
                r#"[{"type":"image_url","image_url":{"url":"data:application/pdf;base64,"#,
                r#"JVBERi0xLjQK"}}]"#,
            ),
            r#"[{"type":"file","file":{"file_data":"data:text/plain;base64,JVBERi0xLjQK"}}]"#,
            r#"[{"type":"input_audio","input_audio":{"data":"https://a.test/b.mp3"}}]"#,
            concat!(
                r#"[{"type":"image_url","image_url":{"url":"https://a.test/b.png"},"#,
                r#""min_pixels":100000000}]"#,
            ),
            r#"[{"text":TEXT,"video":"https://a.test/b.mp4"}]"#,
        ][..],
    );
    (text, wrapped).prop_map(|(text, content)| content.replace("PNG", PNG).replace("TEXT", &text))
}

/// One member of a request, as text.
fn member() -> impl Strategy<Value = String> {
    let counts = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "max_length",
        "num_predict",
        "n_predict",
        "n",
        "candidate_count",
        "num_return_sequences",
        "best_of",
        "thinking_budget",
    ];
    let name = |name: &'static str| (0u8..24).prop_map(move |how| spelled(name, how));
    let count_member = prop::sample::select(counts.to_vec()).prop_flat_map(name);
    let counted = (count_member, count()).prop_map(|(name, count)| format!("\"{name}\":{count}"));
    let nested = prop::sample::select(
        &[
            ("thinking", "budget_tokens"),
            ("reasoning", "max_tokens"),
            ("extra_body", "max_tokens"),
            ("extra_body", "n"),
            ("other", "max_tokens"),
        ][..],
    );
    let nested = nested.prop_flat_map(move |(outer, inner)| (name(outer), name(inner), count()));
    let nested = nested.prop_map(|(outer, inner, count)| {
        format!("\"{outer}\":{{\"{inner}\":{count},\"type\":\"enabled\"}}")
    });
    let content = (name("content"), told()).prop_map(|(name, told)| format!("\"{name}\":{told}"));
    let message = prop_oneof![
        4 => content,
        1 => told().prop_map(|told| format!("\"refusal\":{told}")),
        1 => told().prop_map(
            |told| format!("\"function_call\":{{\"name\":\"f\",\"arguments\":{told}}}")
        ),
        1 => told().prop_map(|told| format!("\"tool_calls\":[{{\"type\":\"function\",\
            \"function\":{{\"name\":\"f\",\"arguments\":{told}}}}}]")),
        1 => told().prop_map(|told| format!("\"type\":\"function_call_output\",\"output\":{told}")),
        1 => Just("\"type\":\"item_reference\",\"id\":\"msg_1\"".to_owned()),
        1 => Just("\"images\":[\"iVBORw0KGgo\"]".to_owned()),
    ];
    let message = prop::collection::vec(message, 0..3).prop_map(|members| {
        ["{\"role\":\"user\"".to_owned()].into_iter().chain(members).collect::<Vec<_>>().join(",")
            + "}"
    });
    let conversation = (
        prop::sample::select(&["messages", "input", "MESSAGES", "system"][..]),
        prop::collection::vec(message, 0..4),
    );
    let conversation =
        conversation.prop_map(|(name, messages)| format!("\"{name}\":[{}]", messages.join(",")));
    let beside = (
        prop::sample::select(
            &[
                "functions",
                "tools",
                "prediction",
                "system",
                "instructions",
                "input",
                "response_format",
                "metadata",
                "Tools",
            ][..],
        ),
        told(),
    );
    let beside = beside.prop_map(|(name, told)| match name {
        "functions" => format!(
            "\"functions\":[{{\"name\":\"f\",\"description\":{told},\"parameters\":[1,2,[3]]}}]"
        ),
        "tools" | "Tools" => format!(
            "\"{name}\":[{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\
             \"description\":{told}}}}},{{\"type\":\"web_search\"}}]"
        ),
        "prediction" => format!("\"prediction\":{{\"type\":\"content\",\"content\":{told}}}"),
        "response_format" => format!(
            "\"response_format\":{{\"type\":\"json_schema\",\
            \"json_schema\":{{\"schema\":{told}}}}}"
        ),
        name => format!("\"{name}\":{told}"),
    });
    let elsewhere = prop::sample::select(
        &[
            "\"previous_response_id\":\"resp_1\"",
            "\"conversation\":null",
            "\"web_search_options\":{}",
            "\"mcp_servers\":[{\"url\":\"https://a.test\"}]",
            "\"search_parameters\":{\"mode\":\"on\"}",
            "\"enable_search\":true",
            "\"enable_search\":false",
            "\"chat_template\":\"{% for i in range(99999) %}a{% endfor %}\"",
            "\"tools\":{\"type\":\"web_search\"}",
            "\"tools\":[{\"google_search\":{}}]",
        ][..],
    );
    prop_oneof![
        4 => counted, 1 => nested, 3 => conversation, 2 => beside, 1 =>
        elsewhere.prop_map(str::to_owned)
    ]
}

proptest! {
    /// Whatever a client spells, the request is refused, or no provider can bill more than is
    /// reserved.
    #[test]
    fn nothing_that_is_read_can_be_billed_beyond_its_ceiling(
        members in prop::collection::vec(member(), 0..6),
    ) {
        let all = ["\"model\":\"m\"".to_owned()].into_iter().chain(members);
        let body = all.collect::<Vec<_>>().join(",");
        let body = format!("{{{body}}}");
        for endpoint in Endpoint::ALL {
            match request::read_request(body.as_bytes(), endpoint) {
                Ok(request) => lenient::never_bills_more(endpoint, body.as_bytes(), &request),
                Err(error) => prop_assert!(
                    error.status().as_u16() == 400 && error.field().is_some(), "{error}: {body}"
                ),
            }
        }
    }
}

/// Counts of providers for the recorded prompts are below the reserves. There are two exceptions
/// that the request does not show: a model that searches by itself, and a model that was replaced
/// by one with a long prompt of its own.
#[test]
fn no_recorded_prompt_took_more_than_its_ceiling() {
    let (mut closed, mut beyond) = (0, Vec::new());
    for exchange in recorded::all().into_iter().filter(|exchange| exchange.status == 200) {
        let request =
            request::read_request(exchange.request.get().as_bytes(), exchange.endpoint()).unwrap();
        let Some(counted) = exchange.counted() else { continue };
        let ceiling =
            request.ceiling.prompt_tokens(1_000_000, tokens::dearest_image(&request.model));
        closed += u64::from(ceiling < 1_000_000);
        let adds =
            request.model.starts_with("compound") || exchange.request.get().contains("\"models\"");
        if counted > ceiling && !adds {
            beyond.push(format!(
                "{} {}: {counted} of {ceiling}: {:.900}",
                exchange.id,
                request.model,
                exchange.request.get()
            ));
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
    assert!(closed > 100, "{closed}");
}
