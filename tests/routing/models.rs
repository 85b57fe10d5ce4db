//! `GET /v1/models`: what a key may ask for, in both dialects, and one model by its name.

use serde_json::{Value, json};

use crate::support::envelope;
use crate::support::gateway::{Gateway, Key};

const DOCUMENT: &str = "providers:\n  demo: { protocol: mock }\nmodels:\n  \
    demo/priced: { input_per_mtok: 1 }\n  \"demo/org/deep:1\": { input_per_mtok: 1 }\nrecipes:\n  \
    main:\n    rules: [ { name: only, targets: [ { target: demo/echo } ] } ]\n\
    aliases: { auto: main, fast: main }\n";

async fn get(
    gateway: &Gateway,
    key: &Key,
    target: &str,
    headers: &[(&str, &str)],
) -> crate::support::client::Answer {
    let bearer = format!("Bearer {}", key.secret);
    let headers: Vec<(&str, &str)> =
        [("authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
    gateway.send("GET", target, &headers, None).await
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect()
}

async fn limited_key(gateway: &Gateway, models: &[&str]) -> Key {
    gateway.limited_key(json!({ "models": models })).await
}

#[tokio::test]
async fn a_list_and_its_entries_in_openai_s_shape() {
    let gateway = Gateway::start(DOCUMENT).await;
    let key = gateway.create_key().await;
    let answer = get(&gateway, &key, "/v1/models?limit=1&after=x&colour=red", &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let list = answer.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list.as_object().unwrap().len(), 2, "{list}");
    assert_eq!(ids(&list), ["auto", "fast", "demo/echo", "demo/priced", "demo/org/deep:1"]);
    let created = list["data"][0]["created"].as_i64().expect("epoch seconds");
    assert_eq!(
        list["data"][0],
        json!({"id": "auto", "object": "model", "created": created, "owned_by": "rerouter"})
    );
    assert_eq!(
        list["data"][2],
        json!({"id": "demo/echo", "object": "model", "created": created, "owned_by": "demo"})
    );

    let deep = &list["data"][4];
    for target in [
        "/v1/models/demo/org/deep:1",
        "/v1/models/demo%2Forg%2fdeep%3A1",
        "/v1/models/demo%2Forg/deep:1?x=1",
    ] {
        let one = get(&gateway, &key, target, &[]).await;
        assert_eq!((one.status, &one.json()), (200, deep), "{target}");
    }
    for target in
        ["/v1/models/none", "/v1/models/demo", "/v1/models/demo/hidden", "/v1/models/demo%252Fecho"]
    {
        let one = get(&gateway, &key, target, &[]).await;
        envelope::openai(&one, 404, "invalid_request_error", Some("model_not_found"));
        assert_eq!(one.json()["error"]["param"], "model");
    }
    envelope::openai(
        &get(&gateway, &key, "/v1/models/", &[]).await,
        404,
        "invalid_request_error",
        None,
    );
    envelope::openai(
        &get(&gateway, &key, "/v1/models/demo%2", &[]).await,
        400,
        "invalid_request_error",
        None,
    );
    envelope::openai(
        &gateway.send("GET", "/v1/models", &[], None).await,
        401,
        "invalid_request_error",
        Some("invalid_api_key"),
    );
    let wrong = gateway.manage("POST", "/v1/models", &key.secret, None).await;
    envelope::openai(&wrong, 405, "invalid_request_error", Some("method_not_allowed"));
}

#[tokio::test]
async fn a_key_s_limits_hide_the_others() {
    let gateway = Gateway::start(DOCUMENT).await;
    let key = limited_key(&gateway, &["fast", "demo/org/*"]).await;
    assert_eq!(
        ids(&get(&gateway, &key, "/v1/models", &[]).await.json()),
        ["fast", "demo/org/deep:1"]
    );
    assert_eq!(get(&gateway, &key, "/v1/models/fast", &[]).await.status, 200);
    envelope::openai(
        &get(&gateway, &key, "/v1/models/auto", &[]).await,
        404,
        "invalid_request_error",
        Some("model_not_found"),
    );
}

#[tokio::test]
async fn anthropic_s_shape_for_those_who_name_its_version() {
    let gateway = Gateway::start(DOCUMENT).await;
    let key = gateway.create_key().await;
    let anthropic = [("anthropic-version", "2023-06-01")];
    let list = get(&gateway, &key, "/v1/models", &anthropic).await.json();
    assert_eq!(ids(&list).len(), 5);
    assert_eq!(
        (&list["has_more"], &list["first_id"], &list["last_id"]),
        (&json!(false), &json!("auto"), &json!("demo/org/deep:1"))
    );
    let created = list["data"][0]["created_at"].as_str().expect("a time");
    let auto = json!({
        "type": "model", "id": "auto", "display_name": "auto", "created_at": created,
        "lifecycle": "active"
    });
    assert_eq!(list["data"][0], auto);
    assert_eq!(get(&gateway, &key, "/v1/models/auto", &anthropic).await.json(), auto);
    let page =
        get(&gateway, &key, "/v1/models?limit=2&after_id=auto&beta=true", &anthropic).await.json();
    assert_eq!(
        (ids(&page), &page["has_more"], &page["last_id"]),
        (vec!["fast", "demo/echo"], &json!(true), &json!("demo/echo"))
    );
    let answer = get(&gateway, &key, "/v1/models?limit=0", &anthropic).await;
    envelope::openai(&answer, 400, "invalid_request_error", None);

    // A document that goes live shows at once.
    gateway.write_routing(&DOCUMENT.replace("fast: main", "quick: main")).await;
    assert_eq!(
        ids(&get(&gateway, &key, "/v1/models", &anthropic).await.json())[..2],
        ["auto", "quick"]
    );
}
