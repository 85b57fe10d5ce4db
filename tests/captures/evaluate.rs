//! Evaluations of captured traffic under other documents, through the API. Each report equals a
//! count by hand. Also the gate that a change of the document may have to pass.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, provider};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, full};

const EVALUATE: &str = "/v1/router/replay/evaluate";

/// Two providers that answer and one that fails. Each strategy has an alias of its own, and one
/// recipe has conditions.
fn document(well: &str, other: &str, bad: &str) -> String {
    let strategy = |name: &str, extra: &str, w: &str| {
        format!(
            "  {name}:\n    rules: [ {{ name: only, strategy: {name}{extra}, \
             targets: [ {{ target: well/a{w} }}, {{ target: other/a{w} }}, \
             {{ target: other/b{w} }} ] }} ]\n"
        )
    };
    format!(
        "providers:\n{}{}{}models:\n  well/a: {{ input_per_mtok: 1.0, output_per_mtok: 2.0 }}\n  \
         other/a: {{ input_per_mtok: 3.0, output_per_mtok: 4.0 }}\n  \
         other/b: {{ input_per_mtok: 2.0, output_per_mtok: 8.0 }}\n\
         keywords: {{ code: [refactor] }}\nrecipes:\n{}{}{}{}{}  priority:\n    rules:\n      \
         - {{ name: code, when: \"'code' in keywords\", \
         targets: [ {{ target: other/b }} ] }}\n      \
         - {{ name: long, when: \"prompt_tokens > 60\", targets: [ {{ target: other/a }}, \
         {{ target: well/a }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: bad/m }}, {{ target: well/a }} ] }}\n    \
         retry: {{ attempts: 3, on: [connect, timeout, 429, 5xx] }}\n\
         aliases: {{ weighted: weighted, least_latency: least_latency, least_busy: least_busy, \
         cheapest: cheapest, sticky: sticky, auto: priority }}\n",
        provider("well", well, "k1"),
        provider("other", other, "k2"),
        provider("bad", bad, "k3"),
        strategy("weighted", "", ", weight: 1"),
        strategy("least_latency", "", ""),
        strategy("least_busy", "", ""),
        strategy("cheapest", "", ""),
        strategy("sticky", ", key: key.id", ""),
    )
}

/// The number of requests to evaluate: `many` in the full test run, else `few`.
fn requests(many: u64, few: u64) -> usize {
    usize::try_from(count("REROUTER_EVALUATED", if full() { many } else { few })).unwrap()
}

struct Scene {
    gateway: Gateway,
    key: Key,
    /// The document as its file has it.
    text: String,
    /// The document as the API takes it: it names its credentials by variables.
    given: String,
    // Kept so that the providers stay up.
    _providers: [Provider; 3],
}

async fn scene() -> Scene {
    scene_with(|setup| setup).await
}

async fn scene_with(settings: impl FnOnce(Setup) -> Setup) -> Scene {
    let providers = [
        Provider::always(scripted::completion("well")).await,
        Provider::always(scripted::completion("other")).await,
        Provider::always(scripted::failure(500, "broken")).await,
    ];
    let text = document(&providers[0].url(), &providers[1].url(), &providers[2].url());
    let gateway = settings(Setup::new(&text).env("ANY_API_KEY", "k")).start().await;
    let key = gateway.create_key().await;
    let given = by_name(&text);
    Scene { gateway, key, text, given, _providers: providers }
}

fn by_name(text: &str) -> String {
    ["k1", "k2", "k3"].iter().fold(text.to_owned(), |text, key| {
        text.replace(&format!("\"{key}\""), "\"${ANY_API_KEY}\"")
    })
}

impl Scene {
    async fn ask(&self, model: &str, words: &str) {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": words }] })
            .to_string();
        let answer = self.gateway.chat(&self.key, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Sends traffic of every kind.
    async fn traffic(&self, rounds: usize) {
        for round in 0..rounds {
            for model in ["weighted", "least_latency", "least_busy", "cheapest", "sticky", "well/a"]
            {
                self.ask(model, &format!("Say a word, {round}.")).await;
            }
            self.ask("auto", "Please REFACTOR this.").await;
            self.ask("auto", &"a long story ".repeat(40)).await;
            self.ask("auto", "Short.").await;
        }
    }

    /// Sends this many requests of a key with every kind of limit, one of which is reached. Returns
    /// how many requests were refused.
    async fn limited_traffic(&self, requests: usize) -> u64 {
        let rpm = requests.div_ceil(10);
        let limits = json!({
            "rpm": rpm, "tpm": 1_000_000, "concurrency": 8,
            "budget": { "usd": 1_000.0, "per": "day" }
        });
        let limited = self.gateway.limited_key(limits).await;
        // Streams with tools, which no other request of the test has.
        let body = json!({
            "model": "cheapest", "stream": true,
            "messages": [{ "role": "user", "content": "Say it." }],
            "tools": [{ "type": "function", "function": { "name": "say" } }],
        });
        let mut refused = 0;
        for _ in 0..requests {
            match self.gateway.chat(&limited, body.to_string().as_bytes()).await.status {
                200 => {}
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert!(refused > 0, "no limit was met");
        refused
    }

    async fn evaluate(&self, body: &Value) -> Answer {
        self.gateway.manage("POST", EVALUATE, &self.gateway.admin_key, Some(body)).await
    }

    async fn report(&self, body: &Value) -> Value {
        let answer = self.evaluate(body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Every capture of live traffic, with all fields that the API shows.
    async fn captures(&self) -> Vec<Value> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = self
                .gateway
                .manage(
                    "GET",
                    &format!("/v1/router/replay?limit=100{after}"),
                    &self.gateway.admin_key,
                    None,
                )
                .await
                .json();
            for summary in page["data"].as_array().unwrap() {
                found.push(self.gateway.capture(summary["id"].as_str().unwrap()).await);
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return found,
            }
        }
    }

    async fn put(&self, query: &str, text: &str) -> Answer {
        let bearer = format!("Bearer {}", self.gateway.admin_key);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        self.gateway
            .send("PUT", &format!("/v1/router/config{query}"), &headers, Some(text.as_bytes()))
            .await
    }
}

#[tokio::test]
async fn the_document_that_is_live_changes_nothing() {
    let mut scene = scene().await;
    let rounds = requests(12_000, 60) / 10;
    scene.traffic(rounds / 2).await;
    let mut refused = scene.limited_traffic(rounds / 2).await;
    // The same document with a comment, after another document that had no traffic.
    scene.gateway.write_routing(&scene.text.replace("weight: 1 }", "weight: 2 }")).await;
    scene.gateway.write_routing(&format!("# a comment\n{}", scene.text)).await;
    scene.traffic(rounds - rounds / 2).await;
    refused += scene.limited_traffic(rounds - rounds / 2).await;
    // A request for an unknown model, and a replay, which does not count as traffic.
    assert_eq!(
        scene.gateway.chat(&scene.key, chat_body("unknown", false).as_bytes()).await.status,
        404
    );
    let id =
        scene.captures().await.into_iter().find(|capture| capture["status"] == 200).unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned();
    let again = scene.gateway.reroute(&id, &scene.gateway.admin_key).await;
    assert_eq!(again.status, 200, "{}", again.text());
    scene.gateway.restart().await;

    let turned = turned_json(&scene.gateway).await;
    for document in [
        Value::Null,
        json!(scene.given),
        json!(format!("{}# another comment\n", scene.given)),
        json!(turned.to_string()),
        turned,
    ] {
        let report = scene.report(&json!({ "document": document })).await;
        // The unknown model is decided again, and is as unknown as before.
        assert_eq!(report["evaluated"], rounds as u64 * 10 - refused + 1, "{report}");
        assert_eq!((&report["unroutable_before"], &report["newly_routed"]), (&json!(1), &json!(0)));
        assert!(!full() || report["evaluated"].as_u64().unwrap() >= 10_000, "{report}");
        for nothing in
            ["changed", "rule_changed", "plan_changed", "unroutable", "inexact", "assumed"]
        {
            assert_eq!(report[nothing], 0, "{nothing} of {report:#}");
        }
        // What a limit refused is captured once a second.
        let heads = report["refused_by_limits"].as_u64().unwrap();
        assert!((1..=refused).contains(&heads), "{report}");
        assert_eq!(report["skipped"]["undecided"], 0);
        assert_eq!(report["skipped"]["replays"], 1);
        assert_eq!(report["cost"]["before"], report["cost"]["after"]);
        assert!(report["cost"]["before"].as_f64().unwrap() > 0.0);
    }
    let few =
        scene.report(&json!({ "filter": { "alias": "auto", "status": 200 }, "limit": 4 })).await;
    assert_eq!(
        few["evaluated"].as_u64().unwrap() + few["skipped"]["replays"].as_u64().unwrap(),
        4,
        "{few}"
    );
}

/// The live document as JSON, with its sections in another order.
async fn turned_json(gateway: &Gateway) -> Value {
    // A document with a literal credential is shown as JSON without the credential.
    let shown = gateway.manage("GET", "/v1/router/config", &gateway.admin_key, None).await.json();
    let document: Value = serde_json::from_str(shown["document"].as_str().unwrap()).unwrap();
    let mut turned: Value = document
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .rev()
        .collect::<serde_json::Map<_, _>>()
        .into();
    for (_, provider) in turned["providers"].as_object_mut().unwrap() {
        provider["api_key"] = json!("${ANY_API_KEY}");
    }
    turned
}

#[tokio::test]
async fn a_rule_that_moves_is_told_as_counted_by_hand() {
    let scene = scene().await;
    scene.traffic(4).await;
    let moved = scene.given.replace(
        "targets: [ { target: other/a }, { target: well/a } ] }",
        "targets: [ { target: other/b } ] }",
    );
    assert_ne!(moved, scene.given);
    let report = scene.report(&json!({ "document": moved })).await;

    // The count by hand: everything that the rule `long` decided goes to other/b, and nothing else
    // changes.
    let (mut matched, mut delta, mut before) = (0, 0.0, 0.0);
    let prices: BTreeMap<&str, (f64, f64)> =
        BTreeMap::from([("well/a", (1.0, 2.0)), ("other/a", (3.0, 4.0)), ("other/b", (2.0, 8.0))]);
    for capture in scene.captures().await {
        let (decision, served) = (&capture["decision"], &capture["served"]);
        let target = format!(
            "{}/{}",
            served["provider"].as_str().unwrap(),
            served["model"].as_str().unwrap()
        );
        let (prompt, completion) = (
            capture["usage"]["prompt_tokens"].as_f64().unwrap(),
            capture["usage"]["completion_tokens"].as_f64().unwrap(),
        );
        let (input, output) = prices[target.as_str()];
        let cost = (prompt * input + completion * output) / 1e6;
        before += cost;
        if decision["rule"] == "long" {
            matched += 1;
            delta += (prompt * 2.0 + completion * 8.0) / 1e6 - cost;
        }
    }
    assert_eq!(matched, 4);
    assert_eq!(
        (&report["changed"], &report["plan_changed"], &report["rule_changed"]),
        (&json!(4), &json!(4), &json!(0))
    );
    let change = &report["by_change"][0];
    assert_eq!(
        (&change["from"], &change["to"], &change["count"]),
        (&json!("other/a"), &json!("other/b"), &json!(4))
    );
    assert_eq!(
        (
            report["by_change"].as_array().unwrap().len(),
            change["examples"].as_array().unwrap().len()
        ),
        (1, 4)
    );
    let close = |told: &Value, counted: f64| (told.as_f64().unwrap() - counted).abs() < 1e-12;
    assert!(close(&change["cost_delta_usd"], delta), "{change} is not {delta}");
    assert!(
        close(&report["cost"]["before"], before) && close(&report["cost"]["after"], before + delta),
        "{report}"
    );
    let reasons: Vec<&str> = change["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason["detail"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        [
            "rule priority.long no longer has other/a",
            "rule priority.long no longer has well/a",
            "rule priority.long now has other/b"
        ]
    );
    // After a failover, the cost is that of the target that served the request, even if the first
    // target has no price.
    assert_eq!(
        (&report["cost"]["unpriced"], &report["cost"]["unpriced_targets"]),
        (&json!(0), &json!([]))
    );

    // Another threshold makes another rule match, and the reason names the condition.
    let narrower = scene.given.replace("prompt_tokens > 60", "prompt_tokens > 60000");
    let report = scene.report(&json!({ "document": narrower })).await;
    assert_eq!((&report["changed"], &report["rule_changed"]), (&json!(4), &json!(4)));
    let reason = &report["by_change"][0]["reasons"][0];
    assert_eq!((&reason["reason"], &reason["count"]), (&json!("rule"), &json!(4)));
    assert_eq!(
        reason["detail"],
        "rule priority.default instead of priority.long: priority.long does not match \
         (prompt_tokens > 60000)"
    );
    // A request to a target without a price has no known cost, and the report says so.
    let missing = json!([{ "target": "bad/m", "lacks": "price", "count": 4 }]);
    assert_eq!(
        (&report["cost"]["unpriced"], &report["cost"]["unpriced_targets"]),
        (&json!(4), &missing)
    );
    assert_eq!(
        (&report["by_change"][0]["unpriced"], &report["by_change"][0]["cost_delta_usd"]),
        (&json!(4), &Value::Null)
    );
    assert_eq!(
        report["cost"]["after"], report["cost"]["before"],
        "what is not known changes no sum"
    );

    // A keyword set that is not in the captures is searched for in their text.
    let other_words = scene.given.replace("code: [refactor]", "code: [story]");
    let report = scene.report(&json!({ "document": other_words })).await;
    assert_eq!((&report["changed"], &report["inexact"]), (&json!(8), &json!(0)), "{report:#}");
    // An alias that no longer exists.
    let gone = scene.given.replace(", sticky: sticky, ", ", ");
    let report = scene.report(&json!({ "document": gone })).await;
    assert_eq!(
        (&report["unroutable"], &report["changed"], &report["by_change"][0]["to"]),
        (&json!(4), &json!(4), &json!("none"))
    );
    assert_eq!(report["by_change"][0]["reasons"][0]["reason"], "name");
}

#[tokio::test]
async fn a_changed_weight_moves_its_share_and_nothing_back() {
    let scene = scene().await;
    let requests = requests(10_000, 300);
    let half = scene.text.replace(
        "{ target: well/a, weight: 1 }, { target: other/a, weight: 1 }, \
         { target: other/b, weight: 1 }",
        "{ target: well/a, weight: 50 }, { target: other/a, weight: 50 }",
    );
    scene.gateway.write_routing(&half).await;
    for n in 0..requests {
        scene.ask("weighted", &format!("Say {n}.")).await;
    }
    let report = scene.report(
        &json!({ "document": by_name(&half).replace("well/a, weight: 50", "well/a, weight: 75") })
    ).await;
    assert_eq!(report["evaluated"], requests);
    assert!(!full() || requests >= 10_000);
    // Weights change from 50/50 to 60/40. A tenth of the requests moves, within five standard
    // deviations.
    let (changed, expected) = (report["changed"].as_f64().unwrap(), requests as f64 * 0.1);
    assert!(
        (changed - expected).abs() < 5.0 * (requests as f64 * 0.09).sqrt(),
        "{changed} of {requests}"
    );
    let changes = report["by_change"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "nothing moves back: {report:#}");
    assert_eq!((&changes[0]["from"], &changes[0]["to"]), (&json!("other/a"), &json!("well/a")));
    assert_eq!(
        changes[0]["reasons"][0]["detail"],
        "rule weighted.only: weight of well/a 75 instead of 50"
    );
}

#[tokio::test]
async fn health_may_be_that_of_then_of_now_or_none() {
    let scene = scene().await;
    let breaking =
        scene.text.replacen("\"k3\"\n", "\"k3\"\n    breaker: { consecutive: 2, open: 10m }\n", 1);
    scene.gateway.write_routing(&breaking).await;
    for _ in 0..6 {
        scene.ask("auto", "Short.").await;
    }
    // The first two requests went to the failing provider. Then its breaker was open.
    for (health, changed) in [("recorded", 0), ("healthy", 4), ("current", 2)] {
        let report = scene.report(&json!({ "health": health })).await;
        assert_eq!(
            (&report["evaluated"], &report["changed"]),
            (&json!(6), &json!(changed)),
            "{health}: {report:#}"
        );
    }
    let report = scene.report(&json!({ "health": "current" })).await;
    assert_eq!(
        report["by_change"][0]["reasons"][0],
        json!({
            "reason": "eligibility", "detail": "bad/m: breaker_open instead of eligible", "count": 2
        })
    );
    let report = scene.report(&json!({ "health": "healthy", "baseline": "current" })).await;
    assert_eq!(report["changed"], 0, "the same document twice: {report:#}");
    // A target that did not exist at the time of the captures.
    let newer = by_name(&breaking).replace("{ target: bad/m }", "{ target: well/newer }");
    let report = scene.report(&json!({ "document": newer })).await;
    assert_eq!((&report["assumed"], &report["changed"]), (&json!(6), &json!(6)), "{report:#}");
}

#[tokio::test]
async fn everybody_evaluates_his_own_and_documents_by_leave_only() {
    let scene = scene().await;
    scene.ask("auto", "Short.").await;
    let mine = scene.gateway.manage("POST", EVALUATE, &scene.key.secret, Some(&json!({}))).await;
    assert_eq!((mine.status, &mine.json()["evaluated"]), (200, &json!(1)), "{}", mine.text());
    let refused = scene
        .gateway
        .manage("POST", EVALUATE, &scene.key.secret, Some(&json!({ "document": scene.text })))
        .await;
    envelope::management(&refused, 403, "insufficient_scope");
    let user = json!({ "email": "a@example.com", "password": "a long enough password" });
    for path in ["/v1/auth/register", "/v1/auth/login"] {
        scene
            .gateway
            .send(
                "POST",
                path,
                &[("content-type", "application/json")],
                Some(user.to_string().as_bytes()),
            )
            .await;
    }
    let login = scene
        .gateway
        .send(
            "POST",
            "/v1/auth/login",
            &[("content-type", "application/json")],
            Some(user.to_string().as_bytes()),
        )
        .await;
    let token = login.json()["token"].as_str().unwrap().to_owned();
    let foreign = scene.gateway.manage("POST", EVALUATE, &token, Some(&json!({}))).await;
    assert_eq!(
        (foreign.status, &foreign.json()["evaluated"]),
        (200, &json!(0)),
        "{}",
        foreign.text()
    );
    let foreign = scene
        .gateway
        .manage("POST", EVALUATE, &token, Some(&json!({ "filter": { "owner": "usr_admin" } })))
        .await;
    envelope::management(&foreign, 403, "forbidden");

    // Only callers who may read the live document see its conditions.
    scene.ask("auto", &"a long story ".repeat(40)).await;
    scene
        .gateway
        .write_routing(&scene.text.replace("prompt_tokens > 60", "prompt_tokens > 60000"))
        .await;
    for (credential, quoted) in [(&scene.key.secret, false), (&scene.gateway.admin_key, true)] {
        let report =
            scene.gateway.manage("POST", EVALUATE, credential, Some(&json!({}))).await.json();
        let detail = report["by_change"][0]["reasons"][0]["detail"].as_str().unwrap().to_owned();
        let says = "rule priority.default instead of priority.long: priority.long does not match";
        assert!(detail.starts_with(says) && detail.contains("prompt_tokens") == quoted, "{detail}");
    }
    scene.gateway.write_routing(&scene.text).await;

    let with_scope = json!({ "name": "ci", "scopes": ["replay:all", "evaluate"] });
    let made = scene
        .gateway
        .manage("POST", "/v1/router/keys", &scene.gateway.admin_key, Some(&with_scope))
        .await
        .json();
    let allowed = scene
        .gateway
        .manage(
            "POST",
            EVALUATE,
            made["key"].as_str().unwrap(),
            Some(&json!({ "document": scene.text })),
        )
        .await;
    // Literal credentials are only allowed in files. A document to evaluate names variables.
    assert_eq!(
        (allowed.status, allowed.json()["problems"].as_array().unwrap().len()),
        (400, 3),
        "{}",
        allowed.text()
    );
    let allowed = scene
        .gateway
        .manage(
            "POST",
            EVALUATE,
            made["key"].as_str().unwrap(),
            Some(&json!({ "document": scene.given })),
        )
        .await;
    assert_eq!(
        (allowed.status, &allowed.json()["changed"]),
        (200, &json!(0)),
        "{}",
        allowed.text()
    );
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_and_hostile_documents_are_bounded() {
    let scene = scene().await;
    scene.ask("auto", "Short.").await;
    for (body, field) in [
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": "10" }), "limit"),
        (json!({ "health": "sick" }), "health"),
        (json!({ "baseline": "none" }), "baseline"),
        (json!({ "filter": { "colour": "red" } }), "colour"),
        (json!({ "filter": { "since": "yesterday" } }), "since"),
        (json!({ "filter": { "status": [200] } }), "filter.status"),
        (json!({ "document": 3 }), "document"),
        (json!({ "document": " " }), "document"),
        (json!({ "documents": "" }), "documents"),
        (json!({ "document": "x".repeat((1 << 20) + 1) }), "document"),
    ] {
        let answer = scene.evaluate(&body).await;
        envelope::management(&answer, 400, "invalid_request");
        assert_eq!(answer.json()["field"], field, "{}", answer.text());
    }
    let deep = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    let bomb = scene.given.replace("prompt_tokens > 60", &"(".repeat(95));
    let spy = scene.given.replace("name: long", "name: \"${REROUTER_MASTER_KEY}\"");
    let many =
        scene.given.replace("prompt_tokens > 60", &vec!["prompt_tokens > 60"; 200].join(" || "));
    for document in [
        deep.as_str(),
        &bomb,
        "a: &x [1]\nb: *x",
        "aliases: 3",
        "\u{0}",
        &many,
        "🦀",
        &spy.replace("${ANY_API_KEY}", "${ADMIN_API_KEY}"),
    ] {
        let answer = scene.evaluate(&json!({ "document": document })).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(!answer.json()["problems"].as_array().unwrap().is_empty(), "{}", answer.text());
        assert!(!answer.text().contains(&scene.gateway.admin_key));
    }
}

/// Variables are not expanded in a document that is only evaluated.
#[tokio::test]
async fn a_variable_s_value_is_nowhere_in_a_report() {
    // The base64 of 32 bytes.
    let value = "ZXZhbHVhdGUtY2FuYXJ5LTAxMjM0NTY3ODlhYmNkZWY=";
    let answering = Provider::always(scripted::completion("well")).await;
    let text = document(&answering.url(), &answering.url(), &answering.url());
    let gateway =
        Setup::new(&text).env("ANY_API_KEY", "k").env("REROUTER_MASTER_KEY", value).start().await;
    let key = gateway.create_key().await;
    let long = json!({ "model": "auto",
            "messages": [{ "role": "user", "content": "a long story ".repeat(40) }] })
    .to_string();
    assert_eq!(gateway.chat(&key, long.as_bytes()).await.status, 200);
    let scopes = json!({ "scopes": ["replay:all", "evaluate"] });
    let made =
        gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&scopes)).await.json();
    // The condition does not match, so the reason quotes the condition.
    let spy = by_name(&text).replace("prompt_tokens > 60", "model == '${REROUTER_MASTER_KEY}'");
    let answer = gateway
        .manage("POST", EVALUATE, made["key"].as_str().unwrap(), Some(&json!({ "document": spy })))
        .await;
    assert_eq!((answer.status, &answer.json()["changed"]), (200, &json!(1)), "{}", answer.text());
    assert!(
        answer.text().contains("${REROUTER_MASTER_KEY}") && !answer.text().contains(value),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn lines_tell_how_far_it_has_come() {
    let scene = scene().await;
    scene.traffic(2).await;
    let bearer = format!("Bearer {}", scene.gateway.admin_key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/x-ndjson"),
    ];
    let answer = scene.gateway.send("POST", EVALUATE, &headers, Some(b"{}")).await;
    assert_eq!(
        (answer.status, answer.header("content-type"), answer.whole),
        (200, Some("application/x-ndjson"), true)
    );
    let text = answer.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["object"] == "evaluation.progress"));
    assert_eq!((&last["object"], &last["evaluated"]), (&json!("evaluation"), &json!(18)));
    let refused =
        scene.gateway.send("POST", EVALUATE, &headers, Some(br#"{"document":"aliases: 3"}"#)).await;
    assert_eq!((refused.status, refused.header("content-type")), (400, Some("application/json")));
    // A client that leaves makes room for the next evaluation.
    for _ in 0..6 {
        let mut connection = scene.gateway.connect().await;
        let host = scene.gateway.host();
        connection
            .send(&crate::support::client::request("POST", EVALUATE, &host, &headers, Some(b"{}")))
            .await;
        connection.abandon();
    }
    crate::support::until("room for an evaluation", async || {
        (scene.evaluate(&json!({})).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_gate_lets_pass_what_changes_little() {
    let scene = scene().await;
    let moved = scene.given.replace(
        "targets: [ { target: other/a }, { target: well/a } ] }",
        "targets: [ { target: other/b } ] }",
    );
    // A request that finds no target with any document says nothing about this one.
    let typo = scene.gateway.chat(&scene.key, chat_body("gpt-typo", false).as_bytes()).await;
    assert_eq!(typo.status, 404, "{}", typo.text());
    let empty = scene.put("?max_changed=0.5", &moved).await;
    envelope::management(&empty, 409, "no_captures");
    for bad in ["?forbid_unroutable=yes", "?allow_empty=true"] {
        assert_eq!(scene.put(bad, &moved).await.status, 400, "{bad}");
    }
    for bad in ["2", "200%25", "200%", "-1", "1.5", "x", ""] {
        let refused = scene.put(&format!("?max_changed={bad}"), &moved).await;
        envelope::management(&refused, 400, "invalid_request");
        assert!(
            refused.text().contains("like 2%, or a fraction from 0 to 1, like 0.02"),
            "{bad}: {}",
            refused.text()
        );
    }
    scene.traffic(3).await;
    let before = scene.gateway.revision().await;
    // 3 of 27 requests would go elsewhere.
    for written in ["2%25", "2%", "0.02"] {
        let refused =
            scene.put(&format!("?forbid_unroutable=true&max_changed={written}"), &moved).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]),
            (409, &json!("gate_refused")),
            "{written}: {}",
            refused.text()
        );
        assert!(
            refused.text().contains("(11.11 %) would change their target; the maximum is 2.00 %"),
            "{}",
            refused.text()
        );
    }
    let refused = scene.put("?max_changed=0.02&forbid_unroutable=true", &moved).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (409, &json!("gate_refused")),
        "{}",
        refused.text()
    );
    let report = &refused.json()["report"];
    assert_eq!(
        (&report["evaluated"], &report["changed"], &report["unroutable"]),
        (&json!(27 + 1), &json!(3), &json!(0)),
        "the share is of those that found a target"
    );
    assert_eq!(scene.gateway.revision().await, before, "nothing has changed");
    let taken = scene.put("?max_changed=0.2&forbid_unroutable=true", &moved).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    // Requests that an earlier change moved do not count for the next change.
    let commented = format!("# the same\n{moved}").replace("refactor", "REFACTOR");
    let next = scene.put("?max_changed=0&forbid_unroutable=true", &commented).await;
    assert_eq!(next.status, 200, "{}", next.text());
    let without = moved.replace(", sticky: sticky, ", ", ");
    let refused = scene.put("?forbid_unroutable=true", &without).await;
    assert_eq!(
        (refused.status, &refused.json()["report"]["unroutable"]),
        (409, &json!(3)),
        "{}",
        refused.text()
    );
    let refused = scene.put("?max_unroutable=2", &without).await;
    envelope::management(&refused, 400, "invalid_request");
    let refused = scene.put("?max_unroutable=2%", &without).await;
    assert!(
        refused.status == 409 && refused.text().contains("would have no target; the maximum"),
        "{}",
        refused.text()
    );
    assert_eq!(scene.put("?max_changed=1&max_unroutable=1", &without).await.status, 200);
    // Names that an earlier change removed do not count for the next change.
    assert_eq!(
        scene
            .put(
                "?max_changed=0&forbid_unroutable=true",
                &without.replace("prompt_tokens > 60", "prompt_tokens > 61")
            )
            .await
            .status,
        200
    );

    let texts: Vec<String> = (0..4)
        .map(|n| without.replace("prompt_tokens > 60", &format!("prompt_tokens > {}", 70 + n)))
        .collect();
    let answers =
        futures::future::join_all(texts.iter().map(|text| scene.put("?max_changed=0.5", text)))
            .await;
    let revisions: Vec<Value> = answers
        .iter()
        .filter(|answer| answer.status == 200)
        .map(|answer| answer.json()["revision"].clone())
        .collect();
    assert!(
        answers.iter().all(|answer| matches!(answer.status, 200 | 429 | 503)),
        "{:?}",
        answers.iter().map(Answer::text).collect::<Vec<_>>()
    );
    assert!(revisions.contains(&json!(scene.gateway.revision().await)), "one of them is live");
}

/// Each change alone stays within the bound, but both together do not.
#[tokio::test]
async fn of_two_changes_at_once_the_second_is_tried_against_the_first() {
    let scene = scene().await;
    scene.traffic(3).await;
    let long = scene.given.replace(
        "targets: [ { target: other/a }, { target: well/a } ] }",
        "targets: [ { target: other/b } ] }",
    );
    let code = scene
        .given
        .replace("targets: [ { target: other/b } ] }", "targets: [ { target: other/a } ] }");
    assert!(long != scene.given && code != scene.given);
    // 3 of 27 requests move under each change. From one change to the other, 6 move.
    let answers =
        futures::future::join_all([&long, &code].map(|text| scene.put("?max_changed=0.15", text)))
            .await;
    let mut told: Vec<(u16, Value)> =
        answers.iter().map(|answer| (answer.status, answer.json()["error"].clone())).collect();
    told.sort_by_key(|(status, _)| *status);
    assert_eq!(told, [(200, Value::Null), (409, json!("gate_refused"))]);
    let refused = answers.iter().find(|answer| answer.status == 409).unwrap().json();
    assert_eq!(
        (&refused["report"]["evaluated"], &refused["report"]["changed"]),
        (&json!(27), &json!(6))
    );
    let taken = answers.iter().find(|answer| answer.status == 200).unwrap().json();
    assert_eq!(taken["revision"], scene.gateway.revision().await.as_str());
}

#[tokio::test]
async fn a_gate_goes_by_the_gateway_s_own_traffic_and_names_captures_to_admins_only() {
    let (from, scene) = (scene().await, scene().await);
    from.traffic(1).await;
    for capture in from.captures().await {
        let import = scene
            .gateway
            .manage("POST", "/v1/router/replay/import", &scene.gateway.admin_key, Some(&capture))
            .await;
        assert_eq!(
            (import.status, &import.json()["imported"]),
            (200, &json!(1)),
            "{}",
            import.text()
        );
    }
    let moved = scene.given.replace(
        "targets: [ { target: other/a }, { target: well/a } ] }",
        "targets: [ { target: other/b } ] }",
    );
    envelope::management(&scene.put("?max_changed=0.5", &moved).await, 409, "no_captures");
    assert_eq!(
        scene.report(&json!({})).await["evaluated"],
        9,
        "an evaluation is about them all the same"
    );
    scene.traffic(1).await;
    let scopes = json!({ "scopes": ["config"] });
    let made = scene
        .gateway
        .manage("POST", "/v1/router/keys", &scene.gateway.admin_key, Some(&scopes))
        .await
        .json();
    for (credential, named) in
        [(scene.gateway.admin_key.as_str(), 1), (made["key"].as_str().unwrap(), 0)]
    {
        let bearer = format!("Bearer {credential}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        let refused = scene
            .gateway
            .send("PUT", "/v1/router/config?max_changed=0.02", &headers, Some(moved.as_bytes()))
            .await;
        assert_eq!(
            (refused.status, &refused.json()["error"]),
            (409, &json!("gate_refused")),
            "{}",
            refused.text()
        );
        let report = &refused.json()["report"];
        assert_eq!(
            (&report["evaluated"], &report["skipped"]["imported"]),
            (&json!(9), &json!(9)),
            "{report}"
        );
        assert_eq!(report["by_change"][0]["examples"].as_array().unwrap().len(), named, "{report}");
    }
}

#[tokio::test]
async fn an_evaluation_reads_headers_that_are_signals_since() {
    let mut scene = scene_with(|setup| setup.routing("signal_headers: [x-tier]")).await;
    for team in ["red", "red", "blue"] {
        let bearer = format!("Bearer {}", scene.key.secret);
        let headers = [("authorization", bearer.as_str()), ("x-team", team)];
        let body = chat_body("sticky", false);
        let path = "/v1/chat/completions";
        let answer = scene.gateway.send("POST", path, &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let path = scene.gateway.dir().join("rerouter.yaml");
    let server = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, server.replace("[x-tier]", "[x-tier, x-team]")).unwrap();
    scene.gateway.restart().await;
    let red = "rules: [ { name: red, when: \"headers['x-team'] == 'red'\", \
               targets: [ { target: bad/m } ] }, { name: only, strategy: sticky";
    let moved = scene.given.replace("rules: [ { name: only, strategy: sticky", red);
    let report = scene.report(&json!({ "document": moved })).await;
    assert_eq!((&report["changed"], &report["inexact"]), (&json!(2), &json!(0)), "{report}");
    let one = &scene.captures().await[2]["id"];
    let path = format!("/v1/router/replay/{}/reroute", one.as_str().unwrap());
    assert_eq!(scene.put("", &moved).await.status, 200);
    let dry = json!({ "dry_run": true });
    let admin = &scene.gateway.admin_key;
    let decided = scene.gateway.manage("POST", &path, admin, Some(&dry)).await.json();
    assert_eq!(decided["decision"]["rule"], "red", "{decided}");
}

#[tokio::test]
async fn a_gate_needs_captures_that_have_what_the_document_reads() {
    let scene = scene_with(|setup| setup.server("capture: { bodies: false }")).await;
    scene.traffic(1).await;
    let moved = scene.given.replace("code: [refactor]", "code: [refactor], more: [word]");
    let moved = moved.replace(
        "- { name: code, when",
        "- { name: more, when: \"'more' in keywords\", targets: [ { target: other/b } ] }\n      - \
         { name: code, when",
    );
    let report = scene.report(&json!({ "document": moved })).await;
    assert_eq!(report["inexact"], report["evaluated"], "{report}");
    envelope::management(&scene.put("?max_changed=0.5", &moved).await, 409, "no_captures");
    let allowed = scene.put("?max_changed=0.5&allow_empty=true", &moved).await;
    assert_eq!(allowed.status, 200, "{}", allowed.text());
}

#[tokio::test]
async fn a_gate_lets_a_document_pass_that_routes_again_what_the_live_one_does_not() {
    let scene = scene().await;
    scene.ask("auto", "Short.").await;
    let broken = scene.given.replace("aliases: {", "aliases: { other: weighted } #");
    assert_eq!(scene.put("", &broken).await.status, 200);
    let repaired = scene.put("?max_changed=2%", &scene.given).await;
    assert_eq!(repaired.status, 200, "{}", repaired.text());
}
