//! Evaluations of thousands of captures: the progress bar, the limit on concurrent evaluations, and
//! their end when the client leaves.

use std::process::{Command, Stdio};

use rerouter::internals::bounds;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::captures::replay_cli::{Scene, corpus, scene};
use crate::support::client::{self, find};
use crate::support::documents::chat_body;

const EVALUATE: &str = "/v1/router/replay/evaluate";

/// The document with more rules, none of which matches, so that a decision under it takes long.
fn slow(text: &str) -> String {
    // Each condition can match where the ones before it do not, because `check` refuses unreachable
    // rules.
    let condition = |n: usize| vec![format!("prompt_tokens > {}", 6_000_000 - n); 50].join(" || ");
    let rule = |n: usize| {
        format!(
            "      - {{ name: r{n}, when: \"{}\", targets: [ {{ target: p/large }} ] }}\n",
            condition(n)
        )
    };
    let rules: String = (0..bounds::RULES - 4).map(rule).collect();
    let slow = text.replacen("    rules:\n", &format!("    rules:\n{rules}"), 1);
    assert_ne!(slow, text);
    slow
}

/// Begins an evaluation of all captures, and waits for its first line. The task reads on to the
/// end. If it is aborted, its client leaves.
async fn begin(scene: &Scene, body: &Value) -> JoinHandle<()> {
    let (bearer, body) = (format!("Bearer {}", scene.gateway.admin_key), body.to_string());
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/x-ndjson"),
    ];
    let mut connection = scene.gateway.connect().await;
    connection
        .send(&client::request(
            "POST",
            EVALUATE,
            &scene.gateway.host(),
            &headers,
            Some(body.as_bytes()),
        ))
        .await;
    let head = connection.head().await.expect("an answer");
    assert_eq!(head.status, 200);
    let first = connection.piece().await.expect("a line");
    assert!(find(&first, b"evaluation.progress").is_some(), "{}", String::from_utf8_lossy(&first));
    tokio::spawn(async move { while connection.piece().await.is_some() {} })
}

#[tokio::test]
async fn an_evaluation_ends_with_its_client_and_callers_take_turns() {
    let scene = scene().await;
    scene.write("corpus.jsonl", &corpus(&scene, 6_000, |_| "small").await);
    assert_eq!(scene.replay(&["import", "corpus.jsonl"]).await.well(), "6000 imported\n");
    let all = json!({ "document": slow(&scene.text) });
    let admin = scene.gateway.admin_key.clone();
    let other = json!({ "scopes": ["replay:all", "evaluate"] });
    let other = scene.gateway.manage("POST", "/v1/router/keys", &admin, Some(&other)).await.json();
    let other = other["key"].as_str().unwrap();
    let one = async |key: &str| {
        scene.gateway.answers(200, "POST", EVALUATE, key, Some(&json!({ "limit": 1 }))).await;
    };
    let (runs, mut waits) = (begin(&scene, &all).await, Box::pin(one(&admin)));
    // The other caller gets a turn while the second evaluation of the first caller waits.
    tokio::select! {
        biased;
        () = &mut waits => panic!("a caller had two turns at once"),
        () = one(other) => {}
    }
    assert!(!runs.is_finished(), "it ended too soon to show anything");
    runs.abort();
    waits.await;
}

/// There is no bar if standard error is not a terminal. `script` provides a terminal.
#[tokio::test]
async fn people_see_how_far_an_evaluation_has_come() {
    let scene = scene().await;
    scene.write("corpus.jsonl", &corpus(&scene, 2_500, |_| "small").await);
    scene.write("candidate.yaml", &scene.text);
    let told = format!(
        "{} replay evaluate --document candidate.yaml --corpus corpus.jsonl",
        env!("CARGO_BIN_EXE_rerouter")
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &told, "/dev/null"])
        .current_dir(scene.gateway.dir())
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .expect("the command `script` (of bsdutils)");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("..]") && shown.contains(" %") && shown.contains(" captures"),
        "{shown}"
    );
    assert!(shown.contains("2500 captures decided"), "{shown}");
}

/// Peak memory of the gateway's process, in bytes.
fn peak(scene: &Scene) -> usize {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", scene.gateway.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A document with the most rules, the largest conditions and the most words that are allowed.
/// Evaluating it takes bounded work and memory, and other requests are answered meanwhile.
#[tokio::test]
async fn the_dearest_document_that_is_taken_costs_time_and_nothing_else() {
    let scene = scene().await;
    scene.write("corpus.jsonl", &corpus(&scene, 2_000, |_| "small").await);
    assert_eq!(scene.replay(&["import", "corpus.jsonl"]).await.well(), "2000 imported\n");
    let condition = |n: usize| vec![format!("prompt_tokens > {}", 6_000_000 - n); 120].join(" || ");
    assert!(condition(0).len() <= bounds::CEL_BYTES && 120 * 4 <= bounds::CEL_NODES);
    let rule = |n: usize| {
        format!(
            "      - {{ name: r{n}, when: \"{}\", targets: [ {{ target: p/large }} ] }}\n",
            condition(n)
        )
    };
    let rules: String = (0..bounds::RULES - 2).map(rule).collect();
    let words =
        |set: usize| (0..200).map(|n| format!("word{set}x{n}")).collect::<Vec<_>>().join(", ");
    let sets: String =
        (1..bounds::KEYWORD_SETS).map(|set| format!(", s{set}: [{}]", words(set))).collect();
    let document = scene
        .text
        .replacen("    rules:\n", &format!("    rules:\n{rules}"), 1)
        .replace("[refactor]", &format!("[refactor]{sets}"));
    assert!(document.len() < bounds::DOCUMENT_BYTES);
    let scopes = json!({ "scopes": ["replay:all", "evaluate"] });
    let made = scene
        .gateway
        .manage("POST", "/v1/router/keys", &scene.gateway.admin_key, Some(&scopes))
        .await
        .json();
    let (key, body, before) = (
        made["key"].as_str().unwrap(),
        json!({ "document": document, "limit": 2_000 }),
        peak(&scene),
    );
    let evaluation = scene.gateway.manage("POST", EVALUATE, key, Some(&body));
    let asked = chat_body("auto", false);
    let (answer, chat) = tokio::join!(evaluation, scene.gateway.chat(&scene.key, asked.as_bytes()));
    assert_eq!(chat.status, 200, "{}", chat.text());
    let report = answer.json();
    assert_eq!(
        (answer.status, &report["evaluated"], &report["changed"]),
        (200, &json!(2_000), &json!(0)),
        "{}",
        answer.text()
    );
    assert!(peak(&scene) - before < 200 << 20, "{} bytes more than before", peak(&scene) - before);
}
