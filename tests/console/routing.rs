//! Routing in the console: a document is edited, evaluated on recorded traffic, refused by the
//! gate, applied, rolled back, and edited by two people at once.

use serde_json::json;

use crate::support::browser::{EMAIL, account, drive};
use crate::support::gateway::{Gateway, Setup};

/// Long requests go to the expensive model. The aliases have hostile names.
const DOCUMENT: &str = r#"# Edited in the console.
providers:
  demo: { protocol: mock }
  other: { protocol: mock }
models:
  demo/small: { input_per_mtok: 1.0, output_per_mtok: 2.0 }
  other/large: { input_per_mtok: 100.0, output_per_mtok: 200.0 }
recipes:
  main:
    rules:
      - name: long
        when: "prompt_tokens > 60"
        targets: [ { target: other/large }, { target: demo/small } ]
      - name: default
        targets: [ { target: demo/small } ]
aliases:
  auto: main
  "<img/src=x/onerror=alert(1)>": main
"#;

/// A gateway with an admin and recorded traffic: six short requests, three long ones.
async fn start() -> (Gateway, serde_json::Value) {
    let gateway = Setup::new(DOCUMENT).stored().start().await;
    let bearer = format!("Bearer {}", gateway.admin_key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
    let put = gateway.send("PUT", "/v1/router/config", &headers, Some(DOCUMENT.as_bytes())).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let mut given = account(&gateway, EMAIL, "admin").await;
    let key = gateway.create_key().await;
    let mut last = String::new();
    for words in ["Say a word.", "Say another word.", &"a long story ".repeat(60)].repeat(3) {
        let body = json!({ "model": "auto", "messages": [{ "role": "user", "content": words }] });
        let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        last = answer.request_id();
    }
    gateway.capture(&last).await;
    given["key"] = json!(key.secret);
    given["document"] = json!(DOCUMENT);
    given["base"] = json!(gateway.revision().await);
    (gateway, given)
}

#[tokio::test]
async fn a_document_is_edited_evaluated_applied_and_rolled_back() {
    let (gateway, given) = start().await;
    drive("routing", given).await;
    let log = gateway.log();
    assert!(!log.contains("panic"), "{log}");
}

#[tokio::test]
async fn two_editors_do_not_overwrite_each_other() {
    let (gateway, given) = start().await;
    let last = drive("routing_editors", given).await;
    assert_eq!(last["revision"], gateway.revision().await.as_str());
}

#[tokio::test]
async fn the_pages_work_without_scripts_and_only_for_those_whom_the_api_lets() {
    let (gateway, mut given) = start().await;
    let someone = account(&gateway, "someone@example.com", "user").await;
    given["someone"] = someone["email"].clone();
    drive("routing_plain", given).await;
}
