//! For the same document and the stored inputs of any capture, `decide` returns the stored plan:
//! after failovers, for aliases, direct names and weights, for captures of an older document, and
//! across a restart.

use std::collections::{BTreeMap, BTreeSet};

use rerouter::internals::config;
use rerouter::internals::routing::{Inputs, Routing, decide};
use serde_json::Value;

use crate::support::count;
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider};

fn document(providers: &[(&str, &Provider)], weights: (u32, u32)) -> String {
    let lines: String =
        providers.iter().map(|(name, known)| provider(name, &known.url(), "sk-test")).collect();
    format!(
        "providers:\n{lines}recipes:\n  mixed:\n    rules:\n      \
         - {{ name: streams, when: \"stream\", strategy: priority, \
         targets: [ {{ target: bad/model }}, {{ target: good/model }} ] }}\n      \
         - {{ name: long, when: \"prompt_tokens > 50 || messages > 2\", \
         targets: [ {{ target: good/long }} ] }}\n      - name: default\n        \
         strategy: weighted\n        \
         targets: [ {{ target: good/model, weight: {} }}, {{ target: odd/model, weight: {} }}, \
         {{ target: bad/model, weight: 1 }} ]\n    \
         retry: {{ attempts: 3, on: [connect, timeout, 429, 5xx] }}\n  plain:\n    \
         rules: [ {{ name: few, when: \"prompt_tokens < 40\", strategy: sticky, \
         key: \"string(prompt_tokens)\", targets: [ {{ target: odd/model }}, \
         {{ target: good/model }} ] }}, {{ name: many, strategy: least_latency, \
         targets: [ {{ target: odd/model }}, {{ target: good/model }} ] }} ]\n\
         aliases: {{ auto: mixed, gpt-x: plain }}\n",
        weights.0, weights.1,
    )
}

fn read(text: &str) -> Routing {
    let no_variable = |_: &str| None;
    let server = config::read_server("rerouter.yaml", "", &no_variable)
        .unwrap_or_else(|found| panic!("{}", shown(&found)));
    config::read_routing("routing.yaml", text, &server, &no_variable, None)
        .unwrap_or_else(|found| panic!("{}", shown(&found)))
}

fn shown(problems: &[config::Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// The request number `n`. Model, length and streaming come from a seed.
fn body(n: u64) -> String {
    let seed = count("REROUTER_SEED", 1);
    let draw = n.wrapping_add(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let model = ["auto", "gpt-x", "auto", "good/model", "auto", "odd/model", "bad/model"]
        [(draw % 7) as usize];
    let words = "word ".repeat((draw % 90) as usize);
    format!(
        r#"{{"model":"{model}","messages":[{{"role":"user","content":"{words}"}}],"stream":{}}}"#,
        draw.is_multiple_of(3)
    )
}

async fn send(gateway: &Gateway, key: &Key, rounds: std::ops::Range<u64>, into: &mut Vec<String>) {
    for n in rounds {
        let answer = gateway.chat(key, body(n).as_bytes()).await;
        // 503 if a breaker was open and the request was only for that target.
        assert!(matches!(answer.status, 200 | 429 | 500 | 502 | 503), "{}", answer.text());
        into.push(answer.request_id());
    }
}

/// Whether two values are equal, except for the last bit of fractions, which decimal text may lose.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-12
        }
        _ => a == b,
    }
}

fn check(capture: &Value, routing: &Routing) {
    let inputs: Inputs = serde_json::from_value(capture["inputs"].clone())
        .unwrap_or_else(|error| panic!("{error}: {capture}"));
    let decision = decide(routing, &inputs).unwrap_or_else(|_| panic!("refused: {capture}"));
    let decided = serde_json::to_value(&decision).unwrap();
    assert!(decided["plan"].as_array().is_some_and(|plan| !plan.is_empty()));
    for (field, value) in decided.as_object().unwrap() {
        assert!(
            same(value, &capture["decision"][field]),
            "{field}: decided {value}, stored {}",
            capture["decision"]
        );
    }
}

#[tokio::test]
async fn decide_gives_the_stored_plan_of_every_capture() {
    let answering = |request: &scripted::Received, _: usize| match request.json()["stream"] == true
    {
        true => scripted::stream("well"),
        false => scripted::completion("well"),
    };
    let good = Provider::start(answering).await;
    let bad = Provider::always(scripted::failure(500, "broken")).await;
    let odd = Provider::start(move |request, n| {
        if n % 2 == 0 { scripted::failure(429, "slow down") } else { answering(request, n) }
    })
    .await;
    let providers = [("good", &good), ("bad", &bad), ("odd", &odd)];
    let (first, second) = (document(&providers, (2, 3)), document(&providers, (5, 1)));
    let rounds = count("REROUTER_ROUNDS", 60);

    let mut gateway = Gateway::start(&first).await;
    let key = gateway.create_key().await;
    let mut documents = BTreeMap::from([(gateway.revision().await, read(&first))]);
    let mut ids = Vec::new();
    send(&gateway, &key, 0..rounds, &mut ids).await;
    documents.insert(gateway.write_routing(&second).await, read(&second));
    send(&gateway, &key, rounds..rounds * 3 / 2, &mut ids).await;
    gateway.restart().await;
    send(&gateway, &key, rounds * 3 / 2..rounds * 2, &mut ids).await;

    let (mut firsts, mut failovers, mut revisions) = (BTreeSet::new(), 0, BTreeSet::new());
    for (number, id) in ids.iter().enumerate() {
        let capture = gateway.capture(id).await;
        if capture["state"] == "refused" {
            let inputs: Inputs = serde_json::from_value(capture["inputs"].clone()).unwrap();
            let routing =
                read(if number < usize::try_from(rounds).unwrap() { &first } else { &second });
            assert!(decide(&routing, &inputs).is_err(), "a refusal repeats as well: {capture}");
            continue;
        }
        let revision = capture["decision"]["revision"].as_str().expect("a revision").to_owned();
        let routing =
            documents.get(&revision).unwrap_or_else(|| panic!("unknown revision {revision}"));
        assert_eq!(routing.revision(), revision);
        check(&capture, routing);
        firsts.insert(capture["decision"]["plan"][0]["provider"].to_string());
        failovers += usize::from(
            capture["decision"]["attempts"].as_array().is_some_and(|attempts| attempts.len() > 1),
        );
        revisions.insert(revision);
    }
    assert!(
        firsts.len() == 3 && failovers > 5 && revisions.len() == 2,
        "a mixed run: {firsts:?}, {failovers} failovers, {revisions:?}"
    );
}
