//! Numbers and names in spellings that some provider may read otherwise, and prompts beside the
//! messages: what they cost is never more than the budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use proptest::prelude::*;
use rerouter::protocol::endpoint::Endpoint;
use rerouter::protocol::{openai, tokens};
use serde_json::{Value, json};

use crate::fuzzing::targets::lenient::{self, Rules};
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded;

/// Dollars a million tokens, of a prompt and of an answer.
const PRICES: (u64, u64) = (3, 15);
const CONTEXT: u64 = 200_000;
/// Requests at once.
const BURST: usize = 64;
const DOLLAR: f64 = 1e9;

/// What each attack was billed, by what its requests say as their `user`, in billionths of a
/// dollar.
type Billed = Arc<Mutex<HashMap<String, u64>>>;

/// A provider that takes any spelling and bills all that it could. It takes its time, so that
/// requests are there at once.
async fn lenient_provider() -> (Provider, Billed) {
    let billed = Billed::default();
    let sums = Arc::clone(&billed);
    let provider = Provider::start(move |request, _| {
        let (prompt, answers) = bill(request);
        let user = request.json()["user"].as_str().unwrap().to_owned();
        *sums.lock().unwrap().entry(user).or_default() += prompt * PRICES.0 * 1_000 + answers * PRICES.1 * 1_000;
        let steps = scripted::json_answer(200, &answer(request, prompt, answers));
        let late = |step| if let Step::Write(bytes) = step { Step::Later(Duration::from_millis(300), bytes) } else { step };
        steps.into_iter().map(late).collect()
    })
    .await;
    (provider, billed)
}

fn endpoint(request: &Received) -> Endpoint {
    Endpoint::ALL.into_iter().find(|endpoint| request.target.ends_with(endpoint.path())).unwrap()
}

/// Text counts as it does with most tokenizers.
fn bill(request: &Received) -> (u64, u64) {
    let rules = Rules { bytes_a_token: 4, image: 765, ..Rules::dearest(CONTEXT) };
    let bill = lenient::bill(endpoint(request), &request.body, rules).unwrap();
    // No model writes more than its context, as often as it is asked to.
    (bill.prompt, bill.answers.min(CONTEXT * 128))
}

fn answer(request: &Received, prompt: u64, answers: u64) -> Value {
    match endpoint(request) {
        Endpoint::Messages => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "a word"}], "usage": {"input_tokens": prompt, "output_tokens": answers}}),
        Endpoint::Responses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a word"}]}],
            "usage": {"input_tokens": prompt, "output_tokens": answers, "total_tokens": prompt + answers}}),
        _ => {
            let mut said = scripted::completion_body("a word");
            said["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": answers, "total_tokens": prompt + answers});
            said
        }
    }
}

async fn gateway(provider_url: &str) -> Gateway {
    let open = provider("o", provider_url, "k");
    let anthropic = provider("a", provider_url, "k").replace("protocol: openai", "protocol: anthropic");
    let (input, output) = PRICES;
    let model = format!("{{ input_per_mtok: {input}, output_per_mtok: {output}, context: {CONTEXT} }}");
    Setup::new(&format!(
        "providers:\n{open}{anthropic}recipes:\n  open: {{ rules: [{{ name: x, targets: [{{ target: o/m }}] }}] }}\n  \
         claude: {{ rules: [{{ name: x, targets: [{{ target: a/m }}] }}] }}\naliases: {{ open: open, claude: claude }}\n\
         models:\n  o/m: {model}\n  a/m: {model}\n"
    ))
    .threads(2)
    .start()
    .await
}

/// A key that may spend a dollar a day.
async fn key(gateway: &Gateway) -> Key {
    let limits = json!({"limits": {"budget": {"usd": 1, "per": "day"}}});
    let made = gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&limits)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    Key { id: made["id"].as_str().unwrap().to_owned(), secret: made["key"].as_str().unwrap().to_owned() }
}

/// A burst of one request with a key of a dollar a day: how many were answered, and how many
/// refused as bad.
async fn burst(gateway: &Gateway, path: &str, body: &str) -> (usize, usize) {
    let key = key(gateway).await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    // Who is told to come back soon does, as long as the first ones wait for their answers.
    let once = async |_| {
        for _ in 0..30 {
            let answer = gateway.send("POST", path, &headers, Some(body.as_bytes())).await;
            assert!([200, 400, 429].contains(&answer.status), "{}: {body:.300}", answer.text());
            if answer.status != 429 || answer.header("x-should-retry").is_some() {
                return answer.status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        429
    };
    let statuses = futures::future::join_all((0..BURST).map(once)).await;
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    (count(200), count(400))
}

/// Bodies that ask for more than they seem to; a mark stands for what is added to a plain one.
fn attacks() -> Vec<(&'static str, &'static str, String)> {
    const CHAT: &str = "/v1/chat/completions";
    let chat = |more: &str| format!(r#"{{"model":"open","messages":[{{"role":"user","content":"Say a word."}}]{more}}}"#);
    let responses = |more: &str| format!(r#"{{"model":"open","input":"Say a word."{more}}}"#);
    let messages = |more: &str| format!(r#"{{"model":"claude","messages":[{{"role":"user","content":"Say a word."}}]{more}}}"#);
    let prose = "The members agreed to postpone the vote until next month. ".repeat((400 << 10) / 58);
    let pdf = format!("JVBERi0xLjQK{}", "A".repeat(200 << 10));
    let mut all: Vec<(&str, &str, String)> = vec![
        ("max_tokens 50000", CHAT, chat(r#","max_tokens":50000"#)),
        ("max_tokens \"100000\"", CHAT, chat(r#","max_tokens":"100000""#)),
        ("max_tokens 1e5", CHAT, chat(r#","max_tokens":1e5"#)),
        ("max_tokens 100000.0", CHAT, chat(r#","max_tokens":100000.0"#)),
        ("max_tokens [100000]", CHAT, chat(r#","max_tokens":[100000]"#)),
        ("max_tokens 2^64", CHAT, chat(r#","max_tokens":18446744073709551616"#)),
        ("MAX_TOKENS", CHAT, chat(r#","MAX_TOKENS":100000"#)),
        ("max_token\\u0073 twice", CHAT, chat(r#","max_tokens":5,"max_token\u0073\u0000":100000"#)),
        ("maxTokens", CHAT, chat(r#","maxTokens":100000"#)),
        ("max_completion_tokens \"100000\"", CHAT, chat(r#","max_completion_tokens":"100000""#)),
        ("max_new_tokens", CHAT, chat(r#","max_tokens":5,"max_new_tokens":100000"#)),
        ("extra_body", CHAT, chat(r#","max_tokens":5,"extra_body":{"max_tokens":100000}"#)),
        ("thinking_budget", CHAT, chat(r#","max_tokens":5,"thinking_budget":100000"#)),
        ("n \"128\"", CHAT, chat(r#","n":"128""#)),
        ("n 1e2", CHAT, chat(r#","n":1e2"#)),
        ("N 128", CHAT, chat(r#","N":128"#)),
        ("best_of 128", CHAT, chat(r#","best_of":128"#)),
        ("n \"128\", max_tokens \"100000\"", CHAT, chat(r#","n":"128","max_tokens":"100000""#)),
        ("max_output_tokens \"100000\"", "/v1/responses", responses(r#","max_output_tokens":"100000""#)),
        ("MAX_OUTPUT_TOKENS", "/v1/responses", responses(r#","MAX_OUTPUT_TOKENS":100000"#)),
        ("previous_response_id", "/v1/responses", responses(r#","previous_response_id":"resp_1","max_output_tokens":5"#)),
        ("messages max_tokens \"100000\"", "/v1/messages", messages(r#","max_tokens":"100000""#)),
        (
            "thinking.budget_tokens \"100000\"",
            "/v1/messages",
            messages(r#","max_tokens":5,"thinking":{"type":"enabled","budget_tokens":"100000"}"#),
        ),
        ("thinking.BUDGET_TOKENS", "/v1/messages", messages(r#","max_tokens":5,"thinking":{"type":"enabled","BUDGET_TOKENS":100000}"#)),
        (
            "a PDF",
            "/v1/messages",
            json!({"model": "claude", "max_tokens": 5, "messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}]}]})
            .to_string(),
        ),
    ];
    let function = json!({"name": "f", "description": prose, "parameters": {}});
    all.push(("functions", CHAT, chat(&format!(r#","max_tokens":5,"functions":[{function}]"#))));
    let prediction = json!({"type": "content", "content": prose});
    all.push(("prediction", CHAT, chat(&format!(r#","max_tokens":5,"prediction":{prediction}"#))));
    let refused =
        json!({"model": "open", "max_tokens": 5, "messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": prose}]}]});
    all.push(("refusal parts", CHAT, refused.to_string()));
    let upper = json!({"model": "open", "max_tokens": 5, "messages": [{"role": "user", "CONTENT": prose}]});
    all.push(("CONTENT", CHAT, upper.to_string()));
    let said = json!({"model": "open", "max_tokens": 5, "messages": [{"role": "user", "content": prose}]});
    all.push(("text", CHAT, said.to_string()));
    all
}

#[tokio::test]
async fn no_spelling_makes_a_burst_cost_more_than_the_budget() {
    let (provider, billed) = lenient_provider().await;
    let gateway = gateway(&provider.url()).await;
    let gateway = &gateway;
    let ends = futures::stream::iter(attacks()).map(async |(name, path, body)| {
        let member = format!(r#","user":{}}}"#, json!(name));
        let body = format!("{}{member}", body.strip_suffix('}').unwrap());
        (name, burst(gateway, path, &body).await)
    });
    let ends: Vec<_> = ends.buffered(6).collect().await;
    let billed = billed.lock().unwrap();
    let mut beyond = Vec::new();
    for (name, (answered, refused)) in ends {
        let cost = billed.get(name).map_or(0.0, |billed| *billed as f64 / DOLLAR);
        eprintln!("{name:40} {cost:10.2} USD, {answered} answered, {refused} refused as bad");
        if cost > 1.0 {
            beyond.push((name, cost));
        }
    }
    assert!(beyond.is_empty(), "cost more than a dollar: {beyond:?}");
}

/// A name as some reader takes it: as it is, in another case, in camel case, with an escape, before
/// a NUL, with a letter that folds.
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

/// A number in the spellings that some reader takes for one.
fn count() -> impl Strategy<Value = String> {
    let number = prop_oneof![0u64..10, 900u64..100_000, Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1)];
    (number, 0u8..16).prop_map(|(number, how)| match how {
        0 => format!("\"{number}\""),
        1 => format!("{number}.0"),
        2 => format!("{number}e0"),
        3 => format!("[{number}]"),
        4 => format!("-{number}"),
        5 => format!("{number}0000000000"),
        6 => "null".to_owned(),
        7 => "true".to_owned(),
        8 => format!("{{\"a\":{number}}}"),
        9 => format!("\" {number}_000\""),
        _ => number.to_string(),
    })
}

/// What stands in a prompt.
fn told() -> impl Strategy<Value = String> {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAMgAAADICAIAAAAiOjnJ";
    let text = prop_oneof!["[ -~]{0,20}", "\\PC{0,12}", Just("\u{7}\t\u{2028}".to_owned())].prop_map(|text| json!(text).to_string());
    let wrapped = prop::sample::select(
        &[
            "TEXT",
            r#"[{"type":"text","text":TEXT}]"#,
            r#"[{"type":"refusal","refusal":TEXT},TEXT]"#,
            r#"{"type":"thinking","thinking":TEXT}"#,
            r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,PNG","detail":"low"}}]"#,
            r#"[{"type":"text","text":TEXT,"image_url":"https://a.test/b.png"}]"#,
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PNG"}},{"type":"document","source":{"type":"text","data":TEXT}}]"#,
            r#"[{"type":"document","source":{"type":"base64","data":"JVBERi0xLjQK"}}]"#,
            r#"[{"type":"document","source":{"type":"url","url":TEXT}}]"#,
            r#"[{"type":"input_file","file_id":"file_1"},{"type":"input_image","file_id":"file_1"}]"#,
            r#"[{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0xLjQK"}}]"#,
            r#"[{"type":"video_url","video_url":{"url":TEXT}}]"#,
            r#"[{"type":"input_audio","input_audio":{"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}]"#,
            r#"[{"type":"tool_result","content":[{"type":"text","text":TEXT}]}]"#,
            r#"[{"type":"unheard_of","unheard_of":TEXT}]"#,
        ][..],
    );
    (text, wrapped).prop_map(|(text, content)| content.replace("PNG", PNG).replace("TEXT", &text))
}

/// One member of a request, as it is written.
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
    let nested = nested.prop_map(|(outer, inner, count)| format!("\"{outer}\":{{\"{inner}\":{count},\"type\":\"enabled\"}}"));
    let content = (name("content"), told()).prop_map(|(name, told)| format!("\"{name}\":{told}"));
    let message = prop_oneof![
        4 => content,
        1 => told().prop_map(|told| format!("\"refusal\":{told}")),
        1 => told().prop_map(|told| format!("\"function_call\":{{\"name\":\"f\",\"arguments\":{told}}}")),
        1 => told().prop_map(|told| format!("\"tool_calls\":[{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":{told}}}}}]")),
        1 => told().prop_map(|told| format!("\"type\":\"function_call_output\",\"output\":{told}")),
        1 => Just("\"type\":\"item_reference\",\"id\":\"msg_1\"".to_owned()),
    ];
    let message = prop::collection::vec(message, 0..3)
        .prop_map(|members| ["{\"role\":\"user\"".to_owned()].into_iter().chain(members).collect::<Vec<_>>().join(",") + "}");
    let conversation = (prop::sample::select(&["messages", "input", "MESSAGES", "system"][..]), prop::collection::vec(message, 0..4));
    let conversation = conversation.prop_map(|(name, messages)| format!("\"{name}\":[{}]", messages.join(",")));
    let beside = (
        prop::sample::select(
            &["functions", "tools", "prediction", "system", "instructions", "input", "response_format", "metadata", "Tools"][..],
        ),
        told(),
    );
    let beside = beside.prop_map(|(name, told)| match name {
        "functions" => format!("\"functions\":[{{\"name\":\"f\",\"description\":{told},\"parameters\":[1,2,[3]]}}]"),
        "tools" | "Tools" => format!(
            "\"{name}\":[{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\"description\":{told}}}}},{{\"type\":\"web_search\"}}]"
        ),
        "prediction" => format!("\"prediction\":{{\"type\":\"content\",\"content\":{told}}}"),
        "response_format" => format!("\"response_format\":{{\"type\":\"json_schema\",\"json_schema\":{{\"schema\":{told}}}}}"),
        name => format!("\"{name}\":{told}"),
    });
    let elsewhere = prop::sample::select(
        &[
            "\"previous_response_id\":\"resp_1\"",
            "\"conversation\":null",
            "\"web_search_options\":{}",
            "\"mcp_servers\":[{\"url\":\"https://a.test\"}]",
        ][..],
    );
    prop_oneof![4 => counted, 1 => nested, 3 => conversation, 2 => beside, 1 => elsewhere.prop_map(str::to_owned)]
}

proptest! {
    /// Whatever a client spells: it is refused, or no provider can bill more than is reserved.
    #[test]
    fn nothing_that_is_read_can_be_billed_beyond_its_ceiling(members in prop::collection::vec(member(), 0..6)) {
        let body = ["\"model\":\"m\"".to_owned()].into_iter().chain(members).collect::<Vec<_>>().join(",");
        let body = format!("{{{body}}}");
        for endpoint in Endpoint::ALL {
            match openai::read_request(body.as_bytes(), endpoint) {
                Ok(request) => lenient::never_bills_more(endpoint, body.as_bytes(), &request),
                Err(error) => prop_assert!(error.status().as_u16() == 400 && error.field().is_some(), "{error}: {body}"),
            }
        }
    }
}

/// What providers counted of the recorded prompts is less than what would have been reserved; but
/// for a model that searches of its own accord, and one that was served by another with a long
/// prompt of its own: nothing in the request tells that.
#[test]
fn no_recorded_prompt_took_more_than_its_ceiling() {
    let (mut closed, mut beyond) = (0, Vec::new());
    for exchange in recorded::all().into_iter().filter(|exchange| exchange.status == 200) {
        let request = openai::read_request(exchange.request.get().as_bytes(), exchange.endpoint()).unwrap();
        let Some(counted) = exchange.counted() else { continue };
        let ceiling = request.ceiling.prompt_tokens(u64::MAX, tokens::dearest_image(&request.model));
        closed += u64::from(!request.ceiling.is_open);
        let adds = request.model.starts_with("compound") || exchange.request.get().contains("\"models\"");
        if counted > ceiling && !adds {
            beyond.push(format!("{} {}: {counted} of {ceiling}: {:.900}", exchange.id, request.model, exchange.request.get()));
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
    assert!(closed > 100, "{closed}");
}
