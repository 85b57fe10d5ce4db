//! `rerouter replay` as people and CI run it: the real binary with a real gateway, its tables,
//! files and exit codes.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::command::{self, Ran};
use crate::support::documents::{chat_body, provider};
use crate::support::free_port;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

pub struct Scene {
    pub gateway: Gateway,
    pub key: Key,
    pub text: String,
    /// The provider of all models.
    provider: Provider,
}

/// A gateway with an alias that goes to one model for streams and to another for other requests, at
/// different prices.
pub async fn scene() -> Scene {
    let provider_ = Provider::always(scripted::completion("well said")).await;
    let text = format!(
        "providers:\n{}models:\n  p/small: {{ input_per_mtok: 1.0, output_per_mtok: 2.0 }}\n  \
         p/large: {{ input_per_mtok: 3.0, output_per_mtok: 4.0 }}\n\
         keywords: {{ code: [refactor] }}\nrecipes:\n  main:\n    rules:\n      \
         - {{ name: code, when: \"'code' in keywords\", \
         targets: [ {{ target: p/large }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: p/small }}, {{ target: p/large }} ] }}\n\
         aliases: {{ auto: main }}\n",
        provider("p", &provider_.url(), "${ANY_API_KEY}")
    );
    let gateway = Setup::new(&text).env("ANY_API_KEY", "k").start().await;
    let key = gateway.create_key().await;
    Scene { gateway, key, text, provider: provider_ }
}

impl Scene {
    pub async fn ask(&self, words: &str) -> String {
        let body = json!({ "model": "auto", "messages": [{ "role": "user", "content": words }] })
            .to_string();
        let answer = self.gateway.chat(&self.key, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.request_id();
        self.gateway.capture(&id).await;
        id
    }

    /// Runs `rerouter replay` with the admin's key in the environment.
    pub async fn replay(&self, arguments: &[&str]) -> Ran {
        let url = format!("http://{}", self.gateway.host());
        run(
            self.gateway.dir(),
            arguments,
            &[("REROUTER_URL", &url), ("REROUTER_API_KEY", &self.gateway.admin_key)],
        )
        .await
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.gateway.dir().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.gateway.dir().join(name)).unwrap()
    }
}

/// Runs `rerouter replay` with exactly these variables.
pub async fn run(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    command::run(dir, &[&["replay"], arguments].concat(), environment).await
}

#[tokio::test]
async fn captures_are_listed_and_shown() {
    let scene = scene().await;
    let mut ids = Vec::new();
    for n in 0..105 {
        ids.push(scene.ask(&format!("Say {n}\u{1b}[2J.")).await);
    }
    // Ids from one millisecond have no order in time.
    let mut sorted = ids.clone();
    sorted.sort();
    let table = scene.replay(&["list"]).await.well();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 21, "{table}");
    assert!(lines[0].starts_with("TIME ") && lines[1].contains(sorted[104].as_str()), "{table}");
    assert!(
        lines[1].contains("  completed  200     auto       p/small    main.default  "),
        "{table}"
    );
    // Read page by page.
    let all = scene.replay(&["list", "--json", "--limit", "1000"]).await.well();
    let listed: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        listed.iter().map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(),
        sorted.iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(
        scene.replay(&["list", "--json", "--limit", "101"]).await.well().lines().count(),
        101
    );
    for (filter, count) in [
        (["--since", "1h"], 105),
        (["--until", "1h"], 0),
        (["--since", "2020-01-01T00:00:00Z"], 105),
        (["--alias", "auto"], 105),
        (["--recipe", "other"], 0),
        (["--provider", "p"], 105),
        (["--model", "large"], 0),
        (["--decided-provider", "q"], 0),
        (["--decided-model", "small"], 105),
        (["--status", "4xx,500"], 0),
        (["--state", "completed"], 105),
        (["--by-key", scene.key.id.as_str()], 105),
        (["--owner", "usr_nobody"], 0),
        (["--replay-of", ids[0].as_str()], 0),
        (["--shadow-of", ids[0].as_str()], 0),
    ] {
        let found =
            scene.replay(&["list", "--json", "--limit", "200", filter[0], filter[1]]).await.well();
        assert_eq!(found.lines().count(), count, "{filter:?}");
    }
    assert_eq!(scene.replay(&["list", "--shadow"]).await.well(), "no captures\n");

    let shown = scene.replay(&["show", &ids[3]]).await.well();
    for expected in
        [ids[3].as_str(), "main.default", "p/small", "Say 3\\\\u001b[2J.", "well said", "CANDIDATE"]
    {
        assert!(shown.contains(&expected.replace("\\\\", "\\")), "no {expected} in {shown}");
    }
    let whole: Value =
        serde_json::from_str(&scene.replay(&["show", "--json", &ids[3]]).await.well()).unwrap();
    assert_eq!(whole, scene.gateway.capture(&ids[3]).await);
}

#[tokio::test]
async fn a_reroute_is_compared_with_its_original() {
    let scene = scene().await;
    let id = scene.ask("Say a word.").await;
    scene.gateway.write_routing(&scene.text.replace("{ target: p/small }, ", "")).await;
    let dry = scene.replay(&["reroute", "--dry-run", &id]).await.well();
    assert!(
        dry.contains("dry run of") && line(&dry, "decision.model").ends_with("differs"),
        "{dry}"
    );
    assert_eq!(scene.provider.count(), 1, "nobody was asked");
    let done = scene.replay(&["reroute", &id]).await.well();
    assert!(
        line(&done, "served.model").contains("small")
            && line(&done, "served.model").ends_with("differs"),
        "{done}"
    );
    assert_eq!(
        line(&done, "text").split_whitespace().collect::<Vec<_>>(),
        ["text", "well", "said", "well", "said"],
        "{done}"
    );
    let told: Value =
        serde_json::from_str(&scene.replay(&["reroute", "--json", &id]).await.well()).unwrap();
    assert_eq!((&told["replay_of"], &told["compare"]["b"]), (&json!(id), &told["new_id"]));
    assert_eq!(scene.provider.count(), 3);
}

fn line<'a>(text: &'a str, begins: &str) -> &'a str {
    text.lines()
        .find(|line| line.starts_with(&format!("{begins} ")))
        .unwrap_or_else(|| panic!("no {begins} in {text}"))
}

#[tokio::test]
async fn a_gate_is_one_command_with_a_gateway_or_without() {
    let scene = scene().await;
    for n in 0..8 {
        scene.ask(&format!("Say {n}.")).await;
    }
    for _ in 0..2 {
        scene.ask("Please refactor.").await;
    }
    scene.gateway.reroute(&scene.ask("Last.").await, &scene.gateway.admin_key).await;
    scene.write("current.yaml", &scene.text);
    scene.write("candidate.yaml", &scene.text.replace("code: [refactor]", "code: [nothing]"));
    let out = scene.replay(&["export", "--out", "corpus.jsonl", "--since", "24h"]).await;
    assert!(out.error.contains("12 captures"), "{}", out.error);
    out.well();
    assert_eq!(scene.read("corpus.jsonl").lines().count(), 12);
    let piped = scene.replay(&["export", "--limit", "3"]).await.well();
    assert_eq!(
        piped,
        scene
            .read("corpus.jsonl")
            .lines()
            .take(3)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    );

    // A gateway and a corpus give the same report, against the old document or the current one.
    let json_of = |text: String| -> Value { serde_json::from_str(&text).unwrap() };
    let mut reports = Vec::new();
    for (online, offline) in [
        (&["--health", "recorded"][..], &["--corpus", "corpus.jsonl"][..]),
        (&["--baseline", "current"], &["--corpus", "corpus.jsonl", "--against", "current.yaml"]),
        (&["--health", "healthy"], &["--corpus", "corpus.jsonl", "--health", "healthy"]),
    ] {
        let ask = async |more: &[&str]| {
            let arguments =
                [&["evaluate", "--document", "candidate.yaml", "--json", "--limit", "50"], more]
                    .concat();
            json_of(scene.replay(&arguments).await.well())
        };
        let (online, mut offline) = (ask(online).await, ask(offline).await);
        if offline["baseline"] == "recorded" {
            // The reasons differ if the old document is missing: the corpus does not have it.
            offline["by_change"][0]["reasons"] = online["by_change"][0]["reasons"].clone();
        }
        assert_eq!(online, offline);
        reports.push(online);
    }
    assert_eq!(
        (&reports[0]["evaluated"], &reports[0]["changed"], &reports[0]["skipped"]["replays"]),
        (&json!(11), &json!(2), &json!(1))
    );

    for way in [&["--since", "24h"][..], &["--corpus", "corpus.jsonl"]] {
        let gate = async |bounds: &[&str]| {
            let arguments =
                [&["evaluate", "--document", "candidate.yaml", "--junit", "out.xml"], way, bounds]
                    .concat();
            scene.replay(&arguments).await
        };
        let good =
            gate(&["--max-changed", "20%", "--forbid-unroutable", "--max-cost-increase", "5%"])
                .await
                .well();
        assert!(
            good.contains("11 captures decided")
                && good.contains("2 changed (18.18 %)")
                && good.contains("p/large"),
            "{good}"
        );
        assert!(
            good.contains(" after (") && good.contains(" % less)") && !good.contains("priced"),
            "{good}"
        );
        assert!(
            good.contains(
                "main.code does not match; the request no longer hits keyword set code \
                 ('code' in keywords)\n"
            ) || way[0] == "--corpus",
            "a reason is whole: {good}"
        );
        assert!(
            scene.read("out.xml").contains("tests=\"4\" failures=\"0\" errors=\"0\""),
            "{}",
            scene.read("out.xml")
        );
        let bad = gate(&["--max-changed", "0.02", "--forbid-unroutable"]).await;
        assert_eq!(bad.code, Some(1), "{}{}", bad.out, bad.error);
        assert!(bad.out.contains("BROKEN  max-changed: 2 of 11 captures (18.18 %)"), "{}", bad.out);
        let xml = scene.read("out.xml");
        assert!(
            xml.contains("tests=\"3\" failures=\"1\"")
                && xml.contains("name=\"max-changed\"><failure"),
            "{xml}"
        );
    }
    // One document makes the requests more expensive, the other leaves them without a target.
    scene.write("dear.yaml", &scene.text.replace("{ target: p/small }, ", ""));
    scene.write("gone.yaml", &scene.text.replace("auto: main", "other: main"));
    let dear =
        scene.replay(&["evaluate", "--document", "dear.yaml", "--max-cost-increase", "5%"]).await;
    assert!(
        dear.code == Some(1) && dear.out.contains("BROKEN  max-cost-increase"),
        "{}{}",
        dear.out,
        dear.error
    );
    let gone = scene
        .replay(&[
            "evaluate",
            "--document",
            "gone.yaml",
            "--corpus",
            "corpus.jsonl",
            "--forbid-unroutable",
        ])
        .await;
    assert!(
        gone.code == Some(1) && gone.out.contains("11 of 11 captures would find no target"),
        "{}{}",
        gone.out,
        gone.error
    );
    // A gate without any captures fails.
    let empty =
        ["evaluate", "--document", "candidate.yaml", "--until", "1h", "--max-changed", "2%"];
    assert_eq!(scene.replay(&empty).await.code, Some(1));
    scene.replay(&[&empty[..], &["--allow-empty"]].concat()).await.well();
    let live = scene.replay(&["evaluate", "--live", "--max-changed", "0"]).await.well();
    assert!(live.contains("0 changed"), "{live}");
}

/// The prices in a document count, with a gateway and without. Targets without a price are named,
/// and no bound on costs passes.
#[tokio::test]
async fn what_has_no_price_is_named_by_a_gateway_and_by_a_corpus() {
    let scene = scene().await;
    for n in 0..3 {
        scene.ask(&format!("Say {n}.")).await;
    }
    scene.replay(&["export", "--out", "corpus.jsonl"]).await.well();
    let unpriced =
        scene.text.replace("  p/large: { input_per_mtok: 3.0, output_per_mtok: 4.0 }\n", "");
    assert_ne!(unpriced, scene.text);
    scene.write("current.yaml", &scene.text);
    scene.write("same.yaml", &unpriced);
    scene.write("moved.yaml", &unpriced.replace("{ target: p/small }, ", ""));
    scene.write("dear.yaml", &scene.text.replace("{ target: p/small }, ", ""));
    let ways = [
        [&["--baseline", "recorded"][..], &["--corpus", "corpus.jsonl"]],
        [&["--baseline", "current"], &["--corpus", "corpus.jsonl", "--against", "current.yaml"]],
    ];
    // Three answers, each of seven tokens in and three out.
    let (cost, missing) =
        (3.0 * 13e-6, json!([{ "target": "p/large", "lacks": "price", "count": 3 }]));
    let (known, unknown) = ((3.0 * 33e-6, json!([])), (cost, missing));
    for (document, (after, missing)) in
        [("same.yaml", (cost, json!([]))), ("dear.yaml", known), ("moved.yaml", unknown)]
    {
        for way in ways.concat() {
            let asked = [&["evaluate", "--document", document, "--json"][..], way].concat();
            let report: Value = serde_json::from_str(&scene.replay(&asked).await.well()).unwrap();
            let told = &report["cost"];
            let close =
                |name: &str, expected: f64| (told[name].as_f64().unwrap() - expected).abs() < 1e-12;
            assert!(close("before", cost) && close("after", after), "{document} {way:?}: {told}");
            assert_eq!(
                (&told["unpriced_targets"], &told["unpriced"]),
                (&missing, &json!(if missing == json!([]) { 0 } else { 3 })),
                "{way:?}"
            );
        }
    }
    for way in ways.concat() {
        let asked =
            [&["evaluate", "--document", "moved.yaml", "--max-cost-increase", "100%"][..], way]
                .concat();
        let gate = scene.replay(&asked).await;
        assert!(
            gate.code == Some(1)
                && gate.out.contains("3 captures not priced: no price for p/large (3)"),
            "{}{}",
            gate.out,
            gate.error
        );
        let why = "BROKEN  max-cost-increase: 3 captures would go elsewhere at an unknown cost: no \
            price for p/large (3)";
        assert!(gate.out.contains(why), "{}", gate.out);
        scene
            .replay(
                &[&["evaluate", "--document", "same.yaml", "--max-cost-increase", "0"][..], way]
                    .concat(),
            )
            .await
            .well();
    }
}

#[tokio::test]
async fn a_corpus_becomes_captures_of_another_gateway() {
    let (from, to) = (scene().await, scene().await);
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(from.ask(&format!("Say {n}, or refactor.")).await);
    }
    from.replay(&["export", "--out", "corpus.jsonl"]).await.well();
    to.write("corpus.jsonl", &from.read("corpus.jsonl"));
    to.write("current.yaml", &to.text);
    let exported = from.read("corpus.jsonl");
    assert_eq!(to.replay(&["import", "corpus.jsonl"]).await.well(), "5 imported\n");
    // The captures are unchanged, can be replayed, and are decided again with the same result.
    let imported = exported.replace("\"imported\":false", "\"imported\":true");
    assert_eq!(to.replay(&["export"]).await.well(), imported);
    let again = to.replay(&["reroute", &ids[0], "--json"]).await.well();
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["decision"]["rule"], "code");
    let live = to.replay(&["evaluate", "--live", "--json"]).await.well();
    let live: Value = serde_json::from_str(&live).unwrap();
    assert_eq!(
        (&live["evaluated"], &live["changed"], &live["skipped"]["replays"]),
        (&json!(5), &json!(0), &json!(1)),
        "{live}"
    );
    // Captures that exist stay unchanged. A deleted capture is imported again, as nothing of it is
    // left here.
    let path = |id: &str| format!("/v1/router/replay/{id}");
    to.gateway.answers(204, "DELETE", &path(&ids[1]), &to.gateway.admin_key, None).await;
    assert_eq!(
        to.replay(&["import", "corpus.jsonl"]).await.well(),
        "1 imported, 4 already there\n"
    );
    to.gateway.answers(200, "GET", &path(&ids[1]), &to.gateway.admin_key, None).await;
    // Imported captures survive a restart, whoever owns them.
    let mut third = scene().await;
    third.write("corpus.jsonl", &exported);
    let sums =
        third.replay(&["import", "corpus.jsonl", "--owner", "usr_admin", "--json"]).await.well();
    assert_eq!(serde_json::from_str::<Value>(&sums).unwrap()["imported"], 5);
    third.gateway.kill_9();
    third.gateway.start_again().await;
    assert_eq!(
        third.replay(&["list", "--json", "--owner", "usr_admin"]).await.well().lines().count(),
        5
    );

    // An import needs its scope, and imports nothing from a file with a mistake.
    let url = format!("http://{}", to.gateway.host());
    let environment =
        [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", to.key.secret.as_str())];
    run(to.gateway.dir(), &["import", "corpus.jsonl"], &environment)
        .await
        .failed(3, "insufficient_scope");
    third.write(
        "broken.jsonl",
        &format!("{}{{\"my\":\"secret\"}}\n", exported.replace("\"id\":\"req_0", "\"id\":\"req_1")),
    );
    let broken = third.replay(&["import", "broken.jsonl"]).await;
    broken.failed(3, "ine 1 is not a capture");
    assert!(!broken.error.contains("secret"), "{}", broken.error);
    third
        .replay(&["import", "broken.jsonl", "--owner", "usr_nobody"])
        .await
        .failed(3, "Unknown user");
    third.replay(&["import", "none.jsonl"]).await.failed(2, "none.jsonl");
    let old = exported.lines().next().unwrap().to_owned();
    let sent = async |kind: &str, body: &str| {
        let bearer = format!("Bearer {}", third.gateway.admin_key);
        let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
        third
            .gateway
            .send("POST", "/v1/router/replay/import", &headers, Some(body.as_bytes()))
            .await
    };
    assert_eq!(sent("text/plain", &old).await.status, 415);
    assert_eq!(sent("application/json", &old).await.json()["existing"], 1);
    assert_eq!(sent("application/x-ndjson", "\n").await.status, 400);
}

/// `count` captures in the format of an export, one millisecond apart. `model` returns the serving
/// model for each number, from 1.
pub async fn corpus(scene: &Scene, count: i64, model: impl Fn(i64) -> &'static str) -> String {
    let id = scene.ask("Say a word.").await;
    let capture: Value =
        serde_json::from_str(&scene.replay(&["show", &id, "--json"]).await.well()).unwrap();
    let begin: jiff::Timestamp = capture["created_at"].as_str().unwrap().parse().unwrap();
    let random = rerouter::internals::id::Random::seeded(3);
    let mut corpus = String::new();
    for n in 1..=count {
        let at = begin + jiff::SignedDuration::from_millis(-n);
        let mut one = capture.clone();
        one["id"] = rerouter::internals::id::RequestId::new(at, &random).as_str().into();
        one["created_at"] = rerouter::internals::clock::rfc3339(at).into();
        one["served"]["model"] = model(n).into();
        one["decision"]["served"] = one["served"].clone();
        one["request"]["body"] = Value::Null;
        one["response"]["body"] = Value::Null;
        corpus.push_str(&format!("{one}\n"));
    }
    corpus
}

/// Because of a rare filter, a page may have few captures without being the last page.
#[tokio::test]
async fn an_evaluation_reaches_what_is_behind_many_that_do_not_match() {
    let scene = scene().await;
    let corpus = corpus(&scene, 6_000, |n| if n > 5_990 { "rare" } else { "small" }).await;
    scene.write("corpus.jsonl", &corpus);
    assert_eq!(scene.replay(&["import", "corpus.jsonl"]).await.well(), "6000 imported\n");
    let evaluated = scene
        .replay(&["evaluate", "--live", "--json", "--owner", "usr_admin", "--model", "rare"])
        .await
        .well();
    assert_eq!(serde_json::from_str::<Value>(&evaluated).unwrap()["evaluated"], 10);
    let listed = scene
        .replay(&["list", "--json", "--owner", "usr_admin", "--model", "rare", "--limit", "100"])
        .await
        .well();
    assert_eq!(listed.lines().count(), 10);
}

#[tokio::test]
async fn exit_codes_tell_who_is_at_fault_and_no_output_tells_the_key() {
    let scene = scene().await;
    let id = scene.ask("Say a word.").await;
    scene.write("bad.yaml", "aliases: 3\n");
    scene.write("corpus.jsonl", "{\"id\":\"my secret\"}\n");
    scene.write("good.yaml", &scene.text);
    for (arguments, word) in [
        (&["list", "--since", "yesterday"][..], "--since"),
        (&["list", "--limit", "0"], "--limit"),
        (&["list", "--colour", "red"], "--colour"),
        (&["show", "../keys"], "the id of a capture"),
        (&["evaluate", "--document", "none.yaml"], "none.yaml"),
        (&["evaluate", "--document", "bad.yaml"], "bad.yaml:1:"),
        (&["evaluate"], "--document"),
        (
            &["evaluate", "--document", "good.yaml", "--max-changed", "many"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (
            &["evaluate", "--document", "good.yaml", "--max-changed", "2"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (
            &["evaluate", "--document", "good.yaml", "--max-changed=-1"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (
            &["evaluate", "--document", "good.yaml", "--max-changed", "200%"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (
            &["evaluate", "--document", "good.yaml", "--max-cost-increase", "5"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (
            &["evaluate", "--document", "good.yaml", "--max-cost-increase", "150%"],
            "like 2%, or a fraction from 0 to 1, like 0.02",
        ),
        (&["evaluate", "--document", "bad.yaml", "--corpus", "corpus.jsonl"], "bad.yaml:1:"),
        (
            &["evaluate", "--document", "good.yaml", "--corpus", "corpus.jsonl"],
            "corpus.jsonl:1: not a capture",
        ),
        (&["evaluate", "--document", "good.yaml", "--corpus", "none.jsonl"], "none.jsonl"),
        (
            &["evaluate", "--document", "good.yaml", "--corpus", "corpus.jsonl", "--alias", "auto"],
            "taken whole",
        ),
        (
            &[
                "evaluate",
                "--document",
                "good.yaml",
                "--corpus",
                "corpus.jsonl",
                "--health",
                "current",
            ],
            "--health",
        ),
        (
            &[
                "evaluate",
                "--document",
                "good.yaml",
                "--corpus",
                "corpus.jsonl",
                "--baseline",
                "current",
            ],
            "--against",
        ),
        (&["export", "--out", "no/such/dir"], "no/such/dir"),
        (&["list", "--url", "ftp://x"], "URL"),
        (&["list", "--ca", "good.yaml"], "no certificate"),
    ] {
        let ran = scene.replay(arguments).await;
        ran.failed(2, word);
        assert!(!ran.error.contains("my secret"), "{}", ran.error);
    }
    for (arguments, word) in [
        (&["show", "req_00000000000000000000000000"][..], "404 not_found"),
        (&["list", "--key", "rtr_not-a-key"], "401 unauthorized"),
        (&["list", "--status", "many"], "400 invalid_request"),
        (&["reroute", "req_00000000000000000000000000"], "404 not_found"),
    ] {
        scene.replay(arguments).await.failed(3, word);
    }
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let ran = scene
        .replay(&["evaluate", "--url", &nowhere, "--document", "good.yaml", "--junit", "out.xml"])
        .await;
    ran.failed(3, &nowhere);
    assert!(scene.read("out.xml").contains("errors=\"1\""), "{}", scene.read("out.xml"));
    // No key, then keys that are given on the command line, which no message repeats.
    let url = format!("http://{}", scene.gateway.host());
    run(scene.gateway.dir(), &["list"], &[("REROUTER_URL", &url)])
        .await
        .failed(2, "REROUTER_API_KEY");
    for key in ["canary-key", "canary\nkey", "canary é"] {
        let ran = run(scene.gateway.dir(), &["show", &id, "--key", key, "--url", &url], &[]).await;
        assert!(
            ran.code.is_some_and(|code| code > 1)
                && !format!("{}{}", ran.out, ran.error).contains("canary"),
            "{}",
            ran.error
        );
    }
    let own = run(
        scene.gateway.dir(),
        &["list", "--url", &format!("{url}/")],
        &[("REROUTER_API_KEY", &scene.key.secret)],
    )
    .await
    .well();
    assert!(own.contains(&id), "{own}");
    let help =
        run(scene.gateway.dir(), &["--help"], &[("REROUTER_API_KEY", "canary")]).await.well();
    assert!(
        help.contains("3 the gateway could not be reached, or refused") && !help.contains("canary"),
        "{help}"
    );
}

#[tokio::test]
async fn a_provider_that_fails_a_reroute_is_told() {
    let scene = scene().await;
    let id = scene.ask("Say a word.").await;
    let bad = Provider::always(scripted::failure(500, "broken")).await;
    scene.gateway.write_routing(&scene.text.replace(&scene.provider.url(), &bad.url())).await;
    let ran = scene.replay(&["reroute", &id]).await;
    ran.failed(3, "502 provider_failed");
    assert!(line(&ran.out, "status").ends_with("differs"), "{}", ran.out);
    assert_eq!(
        scene.gateway.chat(&scene.key, chat_body("auto", false).as_bytes()).await.status,
        500
    );
}

#[tokio::test]
async fn an_import_waits_for_its_turn_and_goes_on_after_what_is_too_large() {
    let imported =
        json!({ "object": "import", "imported": 1, "existing": 0, "expired": 0, "refused": 0 });
    let gateway = Provider::start(move |_, number| match number {
        0 => scripted::answer(429, &[("retry-after", "0")], b"{}"),
        1 => scripted::json_answer(413, &json!({ "error": "request_too_large" })),
        _ => scripted::json_answer(200, &imported),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    // The line is longer than one batch, so it is sent alone.
    std::fs::write(
        dir.path().join("corpus.jsonl"),
        format!("{}\n{{}}\n", "x".repeat((4 << 20) + 1)),
    )
    .unwrap();
    let url = format!("http://{}", gateway.address());
    let ran = run(
        dir.path(),
        &["import", "corpus.jsonl"],
        &[("REROUTER_URL", &url), ("REROUTER_API_KEY", "k")],
    )
    .await;
    assert_eq!(ran.well(), "1 imported, 1 too large or refused\n");
    let lengths: Vec<usize> = (0..3).map(|number| gateway.request(number).body.len()).collect();
    assert_eq!(lengths, [(4 << 20) + 2, (4 << 20) + 2, 3]);
}
