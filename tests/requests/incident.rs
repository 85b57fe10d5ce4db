//! An incident: every request is counted once, as answered, failed, or refused for one reason, and
//! all views agree.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::browser::{EMAIL, account};
use crate::support::command::{Ran, run};
use crate::support::documents::{chat_body, provider};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// A rule for each provider but `warm`, which stands behind `cool`, and an alias of the same name.
fn document(urls: &[(&str, String)]) -> String {
    let mut text = String::from("providers:\n");
    let opens = |name: &str| match name {
        "dead" => "    breaker: { consecutive: 2, open: 300s }\n",
        _ => "    breaker: { consecutive: 50 }\n",
    };
    for (name, url) in urls {
        text += &provider(name, url, "${ANY_API_KEY}");
        text += opens(name);
    }
    text += "models:\n";
    for (name, _) in urls {
        text += &format!("  {name}/m: {{ input_per_mtok: 1, output_per_mtok: 2 }}\n");
    }
    text += "recipes:\n";
    for (recipe, targets) in [
        ("busy", "{ target: cool/m }, { target: warm/m }"),
        ("down", "{ target: dead/m }"),
        ("half", "{ target: half/m }"),
        ("well", "{ target: well/m }"),
    ] {
        text += &format!(
            "  {recipe}:\n    rules: [ {{ name: only, targets: [ {targets} ] }} ]\n    \
             retry: {{ attempts: 2, on: [429] }}\n"
        );
    }
    text + "aliases: { busy: busy, down: down, half: half, well: well }\n"
}

struct Scene {
    gateway: Gateway,
    text: String,
    plain: Key,
    limited: Key,
    /// The most seconds in which the limited key was refused.
    seconds: u64,
    // Kept so that the providers stay up.
    _providers: [Provider; 4],
}

/// Requests by their ends.
const COUNTS: [(&str, u64); 6] =
    [("answered", 13), ("failed", 9), ("limit", 9), ("target", 8), ("model", 4), ("request", 6)];

fn expected(end: &str) -> u64 {
    COUNTS.iter().find(|(name, _)| *name == end).unwrap().1
}

impl Scene {
    async fn begin() -> Scene {
        let limited = || scripted::answer(429, &[("retry-after", "600")], b"{}");
        let providers = [
            Provider::always(limited()).await,
            Provider::always(limited()).await,
            Provider::start(|_, number| match number % 7 {
                0..3 => scripted::failure(500, "broken"),
                _ => scripted::completion("half"),
            })
            .await,
            Provider::always(scripted::completion("well")).await,
        ];
        let dead = Provider::always(Vec::new()).await;
        dead.kill().await;
        let [cool, warm, half, well] = providers.each_ref().map(Provider::url);
        let names = ["cool", "warm", "half", "well", "dead"];
        let urls: Vec<_> = names.into_iter().zip([cool, warm, half, well, dead.url()]).collect();
        let text = document(&urls);
        let gateway = Setup::new(&text).env("ANY_API_KEY", "k").start().await;
        let plain = gateway.create_key().await;
        let limited = gateway.limited_key(json!({ "rpm": 1 })).await;
        Scene { gateway, text, plain, limited, seconds: 0, _providers: providers }
    }

    async fn ask(&self, key: &Key, body: &str, times: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..times {
            statuses.push(self.gateway.chat(key, body.as_bytes()).await.status);
        }
        statuses
    }

    async fn happens(&mut self) {
        let of = |model: &str| chat_body(model, false);
        let plain = &self.plain;
        assert_eq!(self.ask(plain, &of("busy"), 6).await, [429; 6]);
        assert_eq!(self.ask(plain, &of("down"), 5).await, [502, 502, 503, 503, 503]);
        let half = self.ask(plain, &of("half"), 14).await;
        assert_eq!(half.iter().filter(|status| **status == 500).count(), 6);
        assert_eq!(self.ask(plain, &of("well"), 4).await, [200; 4]);
        assert_eq!(self.ask(plain, &of("nope"), 3).await, [404; 3]);
        assert_eq!(self.ask(plain, &of("agent/nobody"), 1).await, [404]);
        assert_eq!(self.ask(plain, "{", 2).await, [400; 2]);
        // What a key may not do is known before the body is read, or after it.
        let narrow = self.gateway.limited_key(json!({ "models": ["well"] })).await;
        assert_eq!(self.ask(&narrow, &of("busy"), 3).await, [404; 3]);
        let wanted = json!({ "name": "reader", "scopes": ["replay"] });
        let reader =
            self.gateway.make_key("/v1/router/keys", &self.gateway.admin_key, &wanted).await;
        assert_eq!(self.ask(&reader, &of("well"), 1).await, [403]);
        let began = Instant::now();
        let limited = self.ask(&self.limited, &of("well"), 10).await;
        self.seconds = began.elapsed().as_secs() + 2;
        assert_eq!(limited.iter().filter(|status| **status == 429).count(), 9);
    }

    async fn data(&self, path: &str) -> Vec<Value> {
        let admin = &self.gateway.admin_key;
        let answer = self.gateway.answers(200, "GET", path, admin, None).await;
        answer.json()["data"].as_array().unwrap().clone()
    }

    async fn command(&self, arguments: &[&str]) -> Ran {
        let url = format!("http://{}", self.gateway.host());
        let admin = self.gateway.admin_key.as_str();
        let environment =
            [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", admin), ("ANY_API_KEY", "k")];
        run(self.gateway.dir(), arguments, &environment).await
    }
}

/// The counts of rows of usage.
fn counts(rows: &[Value]) -> BTreeMap<String, u64> {
    let sum = |pointer: &str| -> u64 {
        rows.iter().map(|row| row.pointer(pointer).unwrap().as_u64().unwrap()).sum()
    };
    let mut counts: BTreeMap<String, u64> = ["limit", "target", "model", "request"]
        .iter()
        .map(|reason| ((*reason).to_owned(), sum(&format!("/refused/{reason}"))))
        .collect();
    let refused: u64 = counts.values().sum();
    counts.insert("failed".to_owned(), sum("/errors"));
    counts.insert("answered".to_owned(), sum("/requests") - sum("/errors") - refused);
    counts
}

#[tokio::test]
async fn each_request_of_an_incident_is_counted_once_in_every_view() {
    let mut scene = Scene::begin().await;
    scene.happens().await;
    let all: BTreeMap<String, u64> =
        COUNTS.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let requests: u64 = all.values().sum();
    // An answer may be faster than its count.
    let total = until("all requests in usage", async || {
        let found = scene.data("/v1/router/usage").await;
        (found.first()?["requests"].as_u64()? >= requests).then_some(found)
    })
    .await;
    assert_eq!(counts(&total), all, "{total:?}");
    assert_eq!(total[0]["prompt_tokens"], 13 * 7, "what is refused uses nothing");

    // Names that clients choose are no groups. A refusal for want of a target has its alias.
    let mut by_alias = BTreeMap::new();
    for row in scene.data("/v1/router/usage?group_by=alias").await {
        let alias = row["alias"].as_str().unwrap_or("-").to_owned();
        by_alias.insert(alias, row["refused"]["target"].as_u64().unwrap());
    }
    let names = ["-", "busy", "down", "half", "well"];
    assert_eq!(by_alias.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!((by_alias["busy"], by_alias["down"]), (5, 3));
    for interval in ["5m&group_by=time", "1h&group_by=key"] {
        let rows = scene.data(&format!("/v1/router/usage?interval={interval}")).await;
        assert_eq!(counts(&rows), all, "{interval}");
    }

    // The metrics.
    for (end, count) in COUNTS {
        let is_refusal = !["answered", "failed"].contains(&end);
        let outcome = format!("{}{end}", if is_refusal { "refused_" } else { "" });
        let label = format!("outcome=\"{outcome}\"");
        let found = scene.gateway.metric("rerouter_calls_total", &[label.as_str()]).await;
        assert!((found - count as f64).abs() < 0.5, "{outcome}: {found}");
    }

    // The command.
    let told = scene.command(&["usage", "--json"]).await.well();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(counts(told["data"].as_array().unwrap()), all);
    let table = scene.command(&["usage", "--by", "key"]).await.well();
    let line = table.lines().find(|line| line.contains(&scene.limited.id)).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert!(table.contains("FAILED  REFUSED"), "{table}");
    assert_eq!([cells[2], cells[4], cells[5]], ["10", "0", "9"], "{table}");

    check_captures(&scene).await;
    check_console(&scene).await;
}

/// Everything is captured that could be read, but for what a limit refused: of that one head a
/// second.
async fn check_captures(scene: &Scene) {
    let listed = async |filter: &str| {
        scene.data(&format!("/v1/router/replay?limit=100{filter}")).await.len() as u64
    };
    assert_eq!(listed("&state=completed").await, expected("answered"));
    assert_eq!(listed("&state=failed").await, expected("failed"));
    assert_eq!(listed("&refused=target").await, expected("target"));
    assert_eq!(listed("&refused=model").await, expected("model"));
    assert_eq!(listed("&refused=request").await, 3, "a body that is no request is not kept");
    let heads = scene.data("/v1/router/replay?refused=limit").await;
    let most = scene.seconds.min(expected("limit"));
    assert!((1..=most).contains(&(heads.len() as u64)), "{} in {} s", heads.len(), scene.seconds);
    assert_eq!(heads[0]["not_replayable"], "not_captured");
    let all = listed("&state=refused").await;
    assert_eq!(all, expected("target") + expected("model") + 3 + heads.len() as u64);
    let whole = scene.gateway.capture(heads[0]["id"].as_str().unwrap()).await;
    assert_eq!((&whole["request"]["body"], &whole["refused"]), (&Value::Null, &json!("limit")));
    assert!(whole["inputs"].is_object() && whole["decision"].is_null(), "{whole}");
}

async fn check_console(scene: &Scene) {
    let gateway = &scene.gateway;
    account(gateway, EMAIL, "admin").await;
    let form = format!("email={}&password=correct+horse", EMAIL.replace('@', "%40"));
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let signed = gateway.send("POST", "/console/sign-in", &[kind], Some(form.as_bytes())).await;
    let cookie = signed.header("set-cookie").unwrap();
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    let page = gateway.send("GET", "/console/", &[("accept", "text/html"), cookie], None).await;
    let text = page.text();
    let mut words = String::new();
    for piece in text.split('<').map(|tag| tag.split_once('>').map_or("", |(_, text)| text)) {
        words += piece;
        words += " ";
    }
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let bad: u64 = COUNTS[1..].iter().map(|(_, count)| count).sum();
    let all = bad + COUNTS[0].1;
    let share = format!("{:.1} %", bad as f64 / all as f64 * 100.0);
    for said in [
        format!("Requests {all}"),
        format!(
            "Errors {bad} {share}, 9 failed , 9 refused by limits , 8 without a target , \
                 4 of unknown models , 6 refused as they are"
        ),
        "half/m : failing, 43 %. 6 of 14 attempts of the last minute failed.".to_owned(),
        "dead/m : breaker open".to_owned(),
        "8 requests of the last hour: refused because no target could take them.".to_owned(),
        "9 requests of the last hour: refused by limits of keys or users.".to_owned(),
        "4 requests of the last hour: refused because the routing document does not know"
            .to_owned(),
        "6 requests of the last hour: refused for what they ask for".to_owned(),
    ] {
        assert!(words.contains(&said), "no {said:?} in {words}");
    }
    let link = "/console/captures?span=1h&amp;outcome=target";
    assert!(text.contains(link), "{text}");
    let list = gateway.send("GET", &link.replace("&amp;", "&"), &[cookie], None).await.text();
    assert_eq!(list.matches("href=\"/console/captures/req_").count() as u64, expected("target"));
}

#[tokio::test]
async fn an_evaluation_decides_again_what_the_document_refused() {
    let mut scene = Scene::begin().await;
    scene.happens().await;
    let third = scene
        .text
        .replace("{ target: warm/m }", "{ target: warm/m }, { target: well/m }")
        .replace("aliases: { ", "aliases: { nope: well, ");
    std::fs::write(scene.gateway.dir().join("third.yaml"), &third).unwrap();
    let evaluate = async |document: &str, more: &[&str]| {
        let mut arguments = vec!["replay", "evaluate", "--document", document];
        arguments.extend(more);
        scene.command(&arguments).await
    };
    let heads = scene.data("/v1/router/replay?refused=limit").await.len() as u64;
    let report = |told: &str| serde_json::from_str::<Value>(told).unwrap();
    let json = evaluate("third.yaml", &["--json"]).await.well();
    let json = report(&json);
    let found = |report: &Value, name: &str| report[name].as_u64().unwrap();
    let decided = 13 + 9 + expected("target") + expected("model");
    assert_eq!(found(&json, "evaluated"), decided, "{json:#}");
    // Five found all targets of their rule cooling down, three had an unknown model. The rule of
    // the dead target and the unknown agent are as before.
    assert_eq!(found(&json, "newly_routed"), 8, "{json:#}");
    assert_eq!(found(&json, "unroutable_before"), 4);
    assert_eq!((found(&json, "changed"), found(&json, "unroutable")), (0, 0));
    assert_eq!(found(&json, "refused_by_limits"), heads);
    assert_eq!(json["skipped"]["undecided"], 3, "what the key may not ask for");
    let change = &json["by_change"][0];
    let told = ["from", "to", "count", "cost_delta_usd"].map(|name| change[name].clone());
    assert_eq!(told, [json!("none"), json!("well/m"), json!(8), Value::Null]);
    // They save nothing, and cost nothing that is known.
    assert_eq!(json["cost"]["before"], json["cost"]["after"]);
    assert!(json["cost"]["before"].as_f64().unwrap() > 0.0);
    let bounds = ["--max-changed", "0%", "--max-unroutable", "0%", "--max-cost-increase", "0%"];
    let told = evaluate("third.yaml", &bounds).await.well();
    assert!(told.contains("8 that found no target before find one"), "{told}");
    assert!(told.contains(&format!("{heads} refused by limits")), "{told}");

    // A document without the rule of `well` saves nothing by that.
    let without = third.replace(", well: well }", " }");
    std::fs::write(scene.gateway.dir().join("without.yaml"), &without).unwrap();
    let lost = evaluate("without.yaml", &["--max-unroutable", "1%"]).await;
    let told = lost.partly(1, "");
    assert!(told.contains("BROKEN  max-unroutable: 5 of 22 captures"), "{told}");

    // A reroute that finds no target is counted among the replays only.
    let refused = scene.data("/v1/router/replay?refused=target&limit=100").await;
    let busy = refused.iter().find(|capture| capture["model"] == "busy").unwrap();
    let again = scene.gateway.reroute(busy["id"].as_str().unwrap(), &scene.gateway.admin_key).await;
    assert_eq!(again.status, 429, "{}", again.text());
    let total = scene.data("/v1/router/usage").await;
    assert_eq!(total[0]["replays"]["refused"]["target"], 1, "{total:?}");
    assert_eq!(counts(&total).values().sum::<u64>(), COUNTS.iter().map(|(_, n)| n).sum::<u64>());
}
