//! The examples of the API in `crates/core/src/api/examples.json`. The test makes the same calls to
//! a gateway, and compares the answers. `docs/reference/api-examples.md` shows the examples.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::{Captures, Regex};
use rerouter::internals::api::openapi_document;
use serde_json::{Map, Value, json};

use crate::house::docs::read;
use crate::support::client::Answer;
use crate::support::gateway::{Gateway, Setup};

const FILE: &str = "crates/core/src/api/examples.json";
const PAGE: &str = "docs/reference/api-examples.md";
/// Time within which an answer may still change, because captures are written after the answer.
const SETTLED: Duration = Duration::from_secs(5);

/// A call: the id of its operation, its method, its target and its body. `{name}` in the target
/// becomes a value from an earlier answer.
struct Call(&'static str, &'static str, &'static str, Option<Value>);

/// A routing document. Its rule for code has this target.
fn document(of_code: &str) -> Value {
    json!({
        "providers": { "demo": { "protocol": "mock" } },
        "models": {
            "demo/small": { "input_per_mtok": 0.25, "output_per_mtok": 2.0 },
            "demo/large": { "input_per_mtok": 1.25, "output_per_mtok": 10.0 },
        },
        "keywords": { "code": ["refactor"] },
        "recipes": { "balanced": { "rules": [
            { "name": "code", "when": "'code' in keywords", "targets": [{ "target": of_code }] },
            { "name": "default", "targets": [{ "target": "demo/small" }] },
        ] } },
        "aliases": { "auto": "balanced" },
    })
}

/// The calls of the examples, in order.
fn calls() -> Vec<Call> {
    let hello = json!([{ "role": "user", "content": "Hello!" }]);
    let chat = json!({
        "model": "auto", "messages": [{ "role": "user", "content": "Refactor this." }],
    });
    let mut wrong = document("demo/small");
    wrong["aliases"]["auto"] = "balnaced".into();
    let budget = |usd: u64| json!({ "budget": { "usd": usd, "per": "day" } });
    vec![
        Call("health", "GET", "/health", None),
        Call(
            "createRouterKey",
            "POST",
            "/v1/router/keys",
            Some(json!({ "name": "laptop", "limits": budget(5) })),
        ),
        Call("listRouterKeys", "GET", "/v1/router/keys?limit=20", None),
        Call("createChatCompletion", "POST", "/v1/chat/completions", Some(chat.clone())),
        Call(
            "createMessage",
            "POST",
            "/v1/messages",
            Some(json!({ "model": "auto", "max_tokens": 64, "messages": hello })),
        ),
        Call(
            "createResponse",
            "POST",
            "/v1/responses",
            Some(json!({ "model": "auto", "input": "Hello!" })),
        ),
        Call(
            "createEmbeddings",
            "POST",
            "/v1/embeddings",
            Some(json!({ "model": "demo/small", "input": "Hello!", "dimensions": 4 })),
        ),
        Call(
            "countTokens",
            "POST",
            "/v1/messages/count_tokens",
            Some(json!({ "model": "auto", "messages": hello })),
        ),
        Call("listModels", "GET", "/v1/models", None),
        Call("decide", "POST", "/v1/router/decide", Some(chat)),
        Call("listReplays", "GET", "/v1/router/replay?model=large&limit=1", None),
        Call("getReplay", "GET", "/v1/router/replay/{capture}", None),
        Call("reroute", "POST", "/v1/router/replay/{capture}/reroute", None),
        Call("compareReplays", "GET", "/v1/router/replay/{capture}/compare/{again}", None),
        Call(
            "evaluate",
            "POST",
            "/v1/router/replay/evaluate",
            Some(json!({ "document": document("demo/small"), "filter": { "model": "large" } })),
        ),
        Call("usage", "GET", "/v1/router/usage?group_by=model", None),
        Call("listProviders", "GET", "/v1/router/providers", None),
        Call("validateConfig", "POST", "/v1/router/config/validate", Some(wrong)),
        Call("putConfig", "PUT", "/v1/router/config", Some(document("demo/small"))),
        Call(
            "createAgent",
            "POST",
            "/v1/agents",
            Some(json!({
                "name": "reviewer", "model": "auto", "instructions": "You review code.",
            })),
        ),
        Call(
            "patchRouterKey",
            "PATCH",
            "/v1/router/keys/{key}",
            Some(json!({ "limits": budget(10) })),
        ),
        Call(
            "rotateRouterKey",
            "POST",
            "/v1/router/keys/{key}/rotate",
            Some(json!({ "grace_period_seconds": 3600 })),
        ),
        Call("revokeRouterKey", "DELETE", "/v1/router/keys/{key}", None),
    ]
}

/// Values for the names in later calls, such as `{key}`, and the secret of the key.
#[derive(Default)]
struct Said {
    key: String,
    secret: String,
    capture: String,
    again: String,
}

impl Said {
    fn hear(&mut self, id: &str, answer: &Value) {
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        match id {
            "createRouterKey" => {
                (self.key, self.secret) = (text("/id").to_owned(), text("/key").to_owned());
            }
            "listReplays" => self.capture = text("/data/0/id").to_owned(),
            "reroute" => self.again = text("/new_id").to_owned(),
            _ => {}
        }
    }

    fn fill(&self, target: &str) -> String {
        let named = [("{key}", &self.key), ("{capture}", &self.capture), ("{again}", &self.again)];
        named.iter().fold(target.to_owned(), |target, (name, value)| target.replace(name, value))
    }

    async fn ask(&self, gateway: &Gateway, call: &Call) -> Answer {
        let Call(_, method, target, body) = call;
        // AGENT is open, and health takes no credential.
        let credential = match target.split('/').nth(2) {
            None | Some("agents") => None,
            Some("router") => Some(&gateway.admin_key),
            Some(_) => Some(&self.secret),
        };
        let bearer = credential.map(|credential| format!("Bearer {credential}"));
        let mut headers: Vec<(&str, &str)> =
            bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        let text = body.as_ref().map(Value::to_string);
        headers.extend(text.iter().map(|_| ("content-type", "application/json")));
        let body = text.as_ref().map(String::as_bytes);
        gateway.send(method, &self.fill(target), &headers, body).await
    }
}

/// A value without parts that differ between runs: ids, secrets, numbers, times.
fn masked(value: &Value) -> Value {
    static VARYING: LazyLock<Regex> = LazyLock::new(|| {
        let varying = r"(?x) rtr_[0-9A-Za-z]+(…\w+)? | [a-z]+_[0-9a-z]{26}
            | [A-Z][a-z]{2},\ .*\ GMT | [0-9a-f]{12,} | ([0-9.]+(ms|h|m|s))+ | [0-9]+";
        Regex::new(varying).unwrap()
    });
    match value {
        Value::Number(_) => json!(0),
        Value::String(text) => VARYING.replace_all(text, |_: &Captures<'_>| "0".to_owned()).into(),
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Object(members) => {
            let mut members: Map<String, Value> =
                members.iter().map(|(name, value)| (name.clone(), masked(value))).collect();
            // Two latencies may be equal by chance.
            let field = members.get("field").and_then(Value::as_str).unwrap_or("");
            if field.starts_with("latency.") {
                members.remove("equal");
            }
            members.into()
        }
        other => other.clone(),
    }
}

/// JSON with lines of at most 96 columns if possible. Values that fit stay on one line.
fn pretty(value: &Value, indent: usize, before: usize) -> String {
    let whole = one_line(value);
    let is_long = indent + before + whole.chars().count() > 96;
    let (pad, end) = (" ".repeat(indent + 2), " ".repeat(indent));
    match value {
        Value::Object(members) if is_long => {
            let lines: Vec<String> = members
                .iter()
                .map(|(name, value)| {
                    let name = json!(name).to_string();
                    format!("{pad}{name}: {}", pretty(value, indent + 2, name.len() + 3))
                })
                .collect();
            format!("{{\n{}\n{end}}}", lines.join(",\n"))
        }
        Value::Array(items) if is_long => {
            let lines: Vec<String> =
                items.iter().map(|item| pad.clone() + &pretty(item, indent + 2, 1)).collect();
            format!("[\n{}\n{end}]", lines.join(",\n"))
        }
        _ => whole,
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}: {}", json!(name), one_line(value)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn examples() -> Value {
    serde_json::from_str(&read(FILE)).unwrap()
}

#[tokio::test]
async fn examples_are_what_a_gateway_says() {
    let gateway = Setup::new(&document("demo/large").to_string()).start().await;
    let (written, mut found, mut said) = (examples(), Map::new(), Said::default());
    for call in calls() {
        let Call(id, method, target, body) = &call;
        let start = Instant::now();
        let example = loop {
            let answer = said.ask(&gateway, &call).await;
            assert!(answer.status < 300 || *method == "GET", "{id}: {}", answer.text());
            let mut example = json!({ "method": method, "path": said.fill(target) });
            if let Some(body) = body {
                example["body"] = body.clone();
            }
            example["status"] = answer.status.into();
            if !answer.body.is_empty() {
                example["answer"] = answer.json();
            }
            let settled = masked(&example) == masked(&written[id]);
            if settled || *method != "GET" || start.elapsed() > SETTLED {
                break example;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        said.hear(id, &example["answer"]);
        found.insert((*id).to_owned(), example);
    }
    let found = Value::Object(found);
    if masked(&found) != masked(&written) {
        eprintln!("{}", pretty(&found, 0, 0));
        let differ = |id: &&String| masked(&found[*id]) != masked(&written[*id]);
        let ids: Vec<&String> = found.as_object().unwrap().keys().filter(differ).collect();
        panic!("{FILE}: put the printed examples there; they differ in {ids:?}");
    }
}

#[test]
fn the_page_of_examples_has_those_of_the_document() {
    let page = read(PAGE);
    let (head, _) = page.split_once("\n## ").unwrap();
    let mut made = head.to_owned();
    let document = openapi_document();
    let mut seen = 0;
    for (id, example) in examples().as_object().unwrap() {
        let operations = document["paths"].as_object().unwrap().values();
        let mut operations = operations.flat_map(|item| item.as_object().unwrap().values());
        let operation = operations.find(|operation| operation["operationId"] == **id).unwrap();
        let text = |name: &str| example[name].as_str().unwrap();
        made += &format!("\n## {}\n", operation["summary"].as_str().unwrap());
        made += &format!("\n```http\n{} {}\n```\n", text("method"), text("path"));
        let answer = format!("/responses/{}/content/application~1json/example", example["status"]);
        let body = "/requestBody/content/application~1json/example";
        for (name, place) in [("body", body), ("answer", &answer)] {
            let in_document = operation.pointer(place);
            assert_eq!(in_document, example.get(name), "{id}: {name} in the OpenAPI document");
            if name == "answer" {
                made += &format!("\n{}:\n", example["status"]);
            }
            if let Some(value) = in_document {
                made += &format!("\n```json\n{}\n```\n", pretty(value, 0, 0));
            }
        }
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
    if page != made {
        eprintln!("{made}");
        panic!("{PAGE}: put the printed page there");
    }
}
