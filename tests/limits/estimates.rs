//! Compares estimates of prompts with the counts of providers over the recorded exchanges, and
//! prints the result by host. Also tests how estimates learn from live requests.

use std::collections::BTreeMap;

use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::request;
use serde_json::{Value, json};

use crate::support::documents::in_order;
use crate::support::gateway::Setup;
use crate::support::provider::{self as scripted, Provider};
use crate::support::recorded;

/// Whether the prompt is only text from the client: no images or files, and no tools that the
/// provider runs itself.
fn is_text(request: &Value) -> bool {
    let all = |list: &Value, kinds: &[&str]| {
        list.as_array().is_none_or(|list| {
            list.iter().all(|item| kinds.iter().any(|kind| item["type"] == *kind))
        })
    };
    // Only the provider can count content that it stores itself.
    let alone = ["previous_response_id", "conversation", "mcp_servers", "container"]
        .iter()
        .all(|name| request[name].is_null());
    let said =
        [&request["messages"], &request["input"]].into_iter().filter_map(Value::as_array).flatten();
    let texts = ["text", "thinking", "input_text", "output_text", "tool_use", "tool_result"];
    let items = ["message", "function_call", "function_call_output"];
    let plain = |item: &Value| {
        item["type"].as_str().is_none_or(|kind| items.contains(&kind))
            && all(&item["content"], &texts)
    };
    let own = |tool: &Value| {
        tool["type"].as_str().is_none_or(|kind| kind == "function" || kind == "custom")
    };
    alone
        && said.into_iter().all(plain)
        && request["tools"].as_array().is_none_or(|tools| tools.iter().all(own))
}

/// A prompt: its host, the provider's count, and the estimate.
struct Prompt {
    host: String,
    counted: f64,
    estimated: f64,
}

impl Prompt {
    fn is_within(&self, share: f64, tokens: f64) -> bool {
        (self.estimated - self.counted).abs() <= self.counted * share + tokens
    }
}

#[test]
fn estimates_are_near_what_providers_count() {
    let mut prompts = Vec::new();
    for exchange in recorded::all().into_iter().filter(|exchange| exchange.status == 200) {
        let written = exchange.request.get();
        let request = request::read_request(written.as_bytes(), exchange.endpoint()).unwrap();
        let Some(counted) =
            exchange.counted().filter(|_| is_text(&serde_json::from_str(written).unwrap()))
        else {
            continue;
        };
        let prompt = Prompt {
            host: format!("{} {}", exchange.host, exchange.kind),
            counted: counted as f64,
            estimated: request.prompt_tokens as f64,
        };
        if !prompt.is_within(0.35, 50.0) {
            eprintln!(
                "far off: {} {}: {counted} counted, {} estimated",
                prompt.host, request.model, request.prompt_tokens
            );
        }
        prompts.push(prompt);
    }
    let mut hosts: BTreeMap<&str, Vec<&Prompt>> = BTreeMap::new();
    for prompt in &prompts {
        hosts.entry(&prompt.host).or_default().push(prompt);
    }
    for (host, prompts) in &hosts {
        let off: Vec<String> = prompts
            .iter()
            .map(|prompt| format!("{}/{}", prompt.estimated, prompt.counted))
            .collect();
        eprintln!("{host:46} estimated/counted: {}", off.join(" "));
    }
    let share = |share: f64, tokens: f64| {
        prompts.iter().filter(|prompt| prompt.is_within(share, tokens)).count() as f64
            / prompts.len() as f64
    };
    let (near, far) = (share(0.15, 20.0), share(0.35, 50.0));
    eprintln!(
        "{} prompts, within 15 % and 20 tokens {:.0} %, within 35 % and 50 tokens {:.0} %",
        prompts.len(),
        near * 100.0,
        far * 100.0
    );
    assert!(
        prompts.len() >= 10 && hosts.len() >= 2,
        "too few to say: {} of {} hosts",
        prompts.len(),
        hosts.len()
    );
    assert!(near >= 0.5, "the median is off by more than 15 % and 20 tokens");
    assert!(far >= 0.9, "more than one in ten is off by more than 35 % and 50 tokens");
}

/// Of a prompt that continues an earlier answer, only the provider knows the whole.
#[tokio::test]
async fn an_estimate_learns_nothing_from_what_only_the_provider_holds() {
    let answer = json!({
        "id": "resp_2", "object": "response", "status": "completed", "model": "model",
        "output": [{ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                     "content": [{ "type": "output_text", "text": "so", "annotations": [] }] }],
        "usage": { "input_tokens": 20_000, "output_tokens": 5, "total_tokens": 20_005 },
    });
    let provider = Provider::always(scripted::json_answer(200, &answer)).await;
    let gateway = Setup::new(&in_order(&[("a", &provider.url())], "")).start().await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let ask = async |more: &str| {
        let body = format!(r#"{{"model":"auto","input":"go on with it, please"{more}}}"#);
        let answer = gateway.send("POST", "/v1/responses", &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let capture = gateway.capture(&answer.request_id()).await;
        capture["inputs"]["request"]["prompt_tokens"].as_u64().unwrap()
    };
    let first = ask(r#","previous_response_id":"resp_1""#).await;
    for _ in 0..5 {
        assert_eq!(ask(r#","previous_response_id":"resp_1""#).await, first);
    }
    // Without the earlier answer the provider counts the same, and that is learnt.
    let plain = ask("").await;
    assert!(ask("").await > plain);
}

#[tokio::test]
async fn an_estimate_learns_from_live_requests_only_and_what_was_decided_stays_exact() {
    let body = |model: &str| {
        json!({ "model": model,
                "messages": [{ "role": "user", "content": "a long story ".repeat(100) }] })
        .to_string()
    };
    let estimate = request::read_request(body("auto").as_bytes(), Endpoint::ChatCompletions)
        .unwrap()
        .prompt_tokens;
    // Live requests report half of the estimate, and reroutes report four times as much.
    let counting = |share: f64| {
        let mut answer = scripted::completion_body("well");
        answer["usage"]["prompt_tokens"] = json!((estimate as f64 * share) as u64);
        scripted::json_answer(200, &answer)
    };
    let (live, rerouted) = (counting(0.5), counting(4.0));
    let provider =
        Provider::start(
            move |_, n| if (1..4).contains(&n) { rerouted.clone() } else { live.clone() },
        )
        .await;
    let long = format!(
        "- {{ name: long, when: \"prompt_tokens > {}\", targets: [ {{ target: a/long }} ] }}",
        estimate - 1
    );
    let text = in_order(&[("a", &provider.url())], "")
        .replace("rules:\n", &format!("rules:\n      {long}\n"));
    let gateway =
        Setup::new(&text.replace("{ auto: main }", "{ auto: main, twin: main }")).start().await;
    let key = gateway.create_key().await;
    let ask = async |model: &str| {
        let answer = gateway.chat(&key, body(model).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let capture = gateway.capture(&answer.request_id()).await;
        let of = |field: &Value| {
            (
                field["rule"].as_str().unwrap().to_owned(),
                capture["inputs"]["request"]["prompt_tokens"].as_u64().unwrap(),
            )
        };
        (answer.request_id(), of(&capture["decision"]))
    };
    let (first, decided) = ask("auto").await;
    assert_eq!(decided, ("long".to_owned(), estimate));
    for _ in 0..3 {
        let again = gateway
            .manage("POST", &format!("/v1/router/replay/{first}/reroute"), &gateway.admin_key, None)
            .await;
        assert_eq!(
            (again.status, &again.json()["decision"]["rule"]),
            (200, &json!("long")),
            "{}",
            again.text()
        );
    }
    let (_, learnt) = ask("auto").await;
    assert!(learnt.0 == "default" && learnt.1 < estimate, "{learnt:?}");
    // Another name, without any reroute, has learnt the same.
    ask("twin").await;
    assert_eq!(ask("twin").await.1, learnt);
    for asked in [json!({}), json!({ "baseline": "current" })] {
        let evaluated = gateway
            .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, Some(&asked))
            .await
            .json();
        assert_eq!(
            (&evaluated["evaluated"], &evaluated["changed"]),
            (&json!(4), &json!(0)),
            "{evaluated}"
        );
    }
}
