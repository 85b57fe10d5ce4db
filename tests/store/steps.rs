//! Stores that builds from before the numbered steps left (`tests/data/store_of_step_1.tar.gz`):
//! this one starts on them, and has all that they held.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::store::postgres::rerouter;
use crate::support::client::request;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::{Node, next_second};
use crate::support::postgres::{self, Cluster};

/// Puts the files of a store of this name into a directory. Returns what is known of them.
fn unpack(name: &str, to: &Path) -> Value {
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/store_of_step_1.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["-xzf", archive, "--strip-components=1", "-C"]).arg(to).arg(name);
    assert!(tar.status().unwrap().success());
    serde_json::from_slice(&std::fs::read(to.join("facts.json")).unwrap()).unwrap()
}

/// A gateway that is stopped, without a store. Its documents are to be those of the store. What is
/// in the archive never becomes too old.
async fn stopped(name: &str) -> (Gateway, Value) {
    let setup = Setup::new("").stored().env("STORE", "sqlite").server(
        "store: { url: '${STORE}' }\ncapture: { retention: { age: 36500d } }\n\
         audit: { retention: { age: 36500d } }",
    );
    let mut gateway = setup.start().await;
    gateway.stop().await;
    std::fs::remove_dir_all(gateway.dir().join("data")).unwrap();
    let facts = unpack(name, gateway.dir());
    (gateway, facts)
}

fn key(facts: &Value, name: &str) -> Key {
    let text = |field: &str| facts[name][field].as_str().unwrap().to_owned();
    Key { id: text("id"), secret: text("key") }
}

async fn get(gateway: &Gateway, by: &str, path: &str) -> Value {
    let answer = gateway.manage("GET", path, by, None).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// All of the store is there, and the gateway works with it.
async fn has_all(gateway: &Gateway, facts: &Value) {
    let (works, revoked) = (key(facts, "key"), key(facts, "revoked"));
    let chat = async |key| gateway.chat(key, chat_body("auto", false).as_bytes()).await;
    let answered = chat(&works).await;
    assert_eq!((answered.status, chat(&revoked).await.status), (200, 401), "{}", answered.text());
    gateway.capture(&answered.request_id()).await;
    gateway.session("ann@example.org").await;
    let admin = &gateway.admin_key;
    let user = get(gateway, admin, "/v1/users").await["data"][0].clone();
    assert_eq!((&user["id"], user["name"].as_str()), (&facts["user"], Some("Ann")));
    let record = get(gateway, admin, &format!("/v1/router/keys/{}", works.id)).await;
    assert_eq!(record["metadata"], json!({ "a": "b" }));
    let agent = format!("/v1/agents/{}", facts["agent"].as_str().unwrap());
    assert_eq!(get(gateway, admin, &agent).await["instructions"], "Be brief.");
    for (id, text) in facts["captures"].as_object().unwrap() {
        let capture = gateway.capture(id).await;
        assert!(capture.to_string().contains(text.as_str().unwrap()), "{capture}");
    }
    let listed = get(gateway, admin, "/v1/router/replay?limit=100").await;
    assert!(listed["data"].as_array().unwrap().len() >= 4, "{listed}");
    for revision in facts["revisions"].as_array().unwrap() {
        let path = format!("/v1/router/config/revisions/{}", revision.as_str().unwrap());
        let headers = [("authorization", format!("Bearer {admin}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let asked = request("GET", &path, &gateway.host(), &headers, None);
        let document = gateway.connect().await.exchange(&asked).await;
        assert!(document.text().contains("protocol: mock"), "{}", document.text());
    }
    let usage = get(gateway, admin, "/v1/router/usage").await;
    assert!(usage["data"][0]["requests"].as_u64() >= Some(3), "{usage}");
    next_second().await;
    let told = Node::of(&facts["node"]).call(gateway, "events", &json!({ "events": [] })).await;
    assert_eq!(told.status, 202, "{}", told.text());
    gateway.create_key().await;
    let audit = get(gateway, admin, "/v1/audit?limit=1").await;
    assert_eq!(audit["data"][0]["action"], "key.create");
}

#[tokio::test]
async fn a_store_from_before_the_steps_is_brought_forward() {
    let (mut gateway, facts) = stopped("sqlite").await;
    // What a start left that was killed while it did so.
    std::fs::write(gateway.dir().join("data/accounts.db-next"), "half").unwrap();
    gateway.start_again().await;
    has_all(&gateway, &facts).await;
    gateway.restart().await;
    has_all(&gateway, &facts).await;
    gateway.upgrade().await;
    has_all(&gateway, &facts).await;
    let names = std::fs::read_dir(gateway.dir().join("data")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("next")), "{names:?}");
}

#[tokio::test]
async fn a_database_from_before_the_steps_is_brought_forward() {
    let (mut gateway, facts) = stopped("postgres").await;
    let url = Cluster::shared().database().await;
    let dump = std::fs::read_to_string(gateway.dir().join("dump.sql")).unwrap();
    postgres::run(&url, &dump).await;
    gateway.set_env("STORE", &url);
    gateway.set_env("REROUTER_MASTER_KEY", crate::support::fleet::MASTER_KEY);
    gateway.start_again().await;
    has_all(&gateway, &facts).await;
    gateway.restart().await;
    has_all(&gateway, &facts).await;
}

#[tokio::test]
async fn a_store_from_before_the_steps_moves_to_postgresql() {
    let (mut gateway, facts) = stopped("sqlite").await;
    let url = Cluster::shared().database().await;
    let (code, told) = rerouter(gateway.dir(), &["migrate", "--data-dir", "data", "--to", &url]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("           2  keys "), "{told}");
    gateway.set_env("STORE", &url);
    gateway.start_again().await;
    has_all(&gateway, &facts).await;
}
