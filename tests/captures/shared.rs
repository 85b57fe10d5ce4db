//! Captures of several gateways can be listed, read, replayed, evaluated and deleted at each of
//! them, with one index in PostgreSQL and segments in an object store.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::client::Answer;
use crate::support::command::run;
use crate::support::documents::chat_body;
use crate::support::fleet::{MASTER_KEY, Member, fleet, pause};
use crate::support::gateway::{Gateway, Key};
use crate::support::postgres::Cluster;
use crate::support::until;

pub(super) const REPLAYS: &str = "/v1/router/replay";
const CANARY: &str = "body-canary";
/// Segments are closed after a sixteenth of this age.
pub(super) const RETENTION: &str = "retention: { age: 160s }";

/// Sends a chat and returns the id of its capture. A small capture is in the index, a large one in
/// a segment.
pub(super) async fn captured(gateway: &Gateway, key: &Key, large: bool) -> String {
    let text = CANARY.repeat(if large { 800 } else { 1 });
    let body = json!({"model": "auto", "messages": [{"role": "user", "content": text}]});
    let answer = gateway.chat(key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.request_id()
}

pub(super) async fn get(gateway: &Gateway, path: &str) -> Answer {
    gateway.manage("GET", &format!("{REPLAYS}{path}"), &gateway.admin_key, None).await
}

pub(super) async fn read(gateway: &Gateway, id: &str) -> Answer {
    get(gateway, &format!("/{id}")).await
}

pub(super) async fn listed(gateway: &Gateway) -> Vec<String> {
    let page = get(gateway, "?limit=100").await.json();
    let ids = page["data"].as_array().unwrap().iter();
    ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

pub(super) async fn is_listed(gateway: &Gateway, id: &str) {
    until("a capture in the list", async || {
        listed(gateway).await.iter().any(|listed| listed == id).then_some(())
    })
    .await;
}

/// Reads a capture once its segment is in the object store.
pub(super) async fn read_later(gateway: &Gateway, id: &str) -> Value {
    until("the bodies of a capture of another gateway", async || {
        let answer = read(gateway, id).await;
        assert!([200, 409, 503].contains(&answer.status), "{}", answer.text());
        (answer.status == 200).then(|| answer.json())
    })
    .await
}

async fn two(more: &str) -> (Member, Member) {
    let mut members = fleet(Cluster::shared(), 2, "10s", more).await;
    let second = members.pop().unwrap();
    (members.pop().unwrap(), second)
}

/// Lines of the server document for an object store in this folder.
fn in_folder(folder: &Path) -> String {
    format!("capture: {{ {RETENTION}, objects: \"file://{}\" }}\n", folder.display())
}

/// The line of `rerouter doctor` about the object store.
async fn doctor(gateway: &Gateway) -> String {
    doctor_with(gateway, &[("REROUTER_MASTER_KEY", MASTER_KEY)]).await
}

pub(super) async fn doctor_with(gateway: &Gateway, environment: &[(&str, &str)]) -> String {
    let arguments = ["doctor", "--config", "rerouter.yaml"];
    let ran = run(gateway.dir(), &arguments, environment).await;
    let line = ran.out.lines().find(|line| line.contains("objects"));
    line.unwrap_or_else(|| panic!("{}{}", ran.out, ran.error)).to_owned()
}

fn holds(folder: &Path, text: &str) -> bool {
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.any(|file| {
        let bytes = std::fs::read(file).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn what_one_gateway_answered_is_found_at_another_one_at_once() {
    let (a, b) = two("").await;
    let (a, b) = (&a.gateway, &b.gateway);
    let key = a.create_key().await;
    for _ in 0..3 {
        let id = captured(a, &key, false).await;
        let found = read(b, &id).await;
        assert_eq!(found.status, 200, "{}", found.text());
        let id = captured(a, &key, false).await;
        let reroute = format!("{REPLAYS}/{id}/reroute");
        let rerouted = b.manage("POST", &reroute, &b.admin_key, Some(&json!({}))).await;
        assert_eq!(rerouted.status, 200, "{}", rerouted.text());
        let gone = captured(a, &key, false).await;
        let path = format!("{REPLAYS}/{gone}");
        assert_eq!(b.manage("DELETE", &path, &b.admin_key, None).await.status, 204);
    }
}

#[tokio::test]
async fn every_gateway_sees_the_captures_of_all_without_an_object_store() {
    let (a, b) = two("").await;
    let (a, b) = (&a.gateway, &b.gateway);
    let key = a.create_key().await;
    let (small, large) = (captured(a, &key, false).await, captured(a, &key, true).await);
    let mine = captured(b, &key, true).await;
    for id in [&small, &large, &mine] {
        is_listed(a, id).await;
        is_listed(b, id).await;
    }
    // A small capture is entirely in the index.
    let (here, there) = (read(a, &small).await, read(b, &small).await);
    assert_eq!((here.status, here.json()), (200, there.json()));
    assert_eq!(read(a, &large).await.status, 200);
    let refused = read(b, &large).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("are on the gateway"), "{}", refused.text());
    assert!(refused.text().contains("capture.objects"), "{}", refused.text());
    let reroute = format!("{REPLAYS}/{small}/reroute");
    let rerouted = b.manage("POST", &reroute, &b.admin_key, Some(&json!({}))).await;
    assert_eq!(rerouted.status, 200, "{}", rerouted.text());
    let copy = rerouted.json()["new_id"].as_str().unwrap().to_owned();
    is_listed(a, &copy).await;
    assert_eq!(get(a, &format!("/{small}/compare/{copy}")).await.status, 200);
    let evaluate = format!("{REPLAYS}/evaluate");
    let report = b.manage("POST", &evaluate, &b.admin_key, Some(&json!({}))).await.json();
    assert_eq!(report["evaluated"], 3, "{report}");
    assert_eq!(report["skipped"]["replays"], 1, "{report}");
    // A deletion applies at all gateways, and to replays that others made.
    let delete = format!("{REPLAYS}/{small}?replays=true");
    assert_eq!(a.manage("DELETE", &delete, &a.admin_key, None).await.status, 204);
    let delete = format!("{REPLAYS}/{large}");
    assert_eq!(b.manage("DELETE", &delete, &b.admin_key, None).await.status, 204);
    for gateway in [a, b] {
        assert_eq!(listed(gateway).await, [mine.as_str()]);
        for id in [&small, &copy, &large] {
            assert_eq!(read(gateway, id).await.status, 404);
        }
    }
}

#[tokio::test]
async fn bodies_are_read_from_the_object_store_also_of_a_gateway_that_was_killed_or_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let objects = dir.path().join("objects");
    let (mut a, b) = two(&in_folder(&objects)).await;
    let key = a.gateway.create_key().await;
    let large = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &large).await;
    let early = read(&b.gateway, &large).await;
    if early.status != 200 {
        assert_eq!(early.status, 409, "{}", early.text());
        assert!(early.header("retry-after").is_some(), "{}", early.text());
    }
    let read_there = read_later(&b.gateway, &large).await;
    assert_eq!(read_there, read(&a.gateway, &large).await.json());
    assert!(read_there.to_string().contains(CANARY));
    assert!(!holds(&objects, CANARY), "segments are encrypted");
    let stored = a.gateway.metric("rerouter_capture_uploads_total", &["stored"]).await;
    assert!(stored >= 1.0);
    let told = doctor(&a.gateway).await;
    assert!(told.starts_with("ok") && told.contains("read and deleted"), "{told}");
    // Killed while a segment is incomplete.
    let killed = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &killed).await;
    a.gateway.kill_9();
    assert!([200, 409].contains(&read(&b.gateway, &killed).await.status));
    a.gateway.start_again().await;
    read_later(&b.gateway, &killed).await;
    // A gateway that stops uploads its segments first.
    let stopped = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &stopped).await;
    a.gateway.stop().await;
    assert_eq!(read(&b.gateway, &stopped).await.status, 200, "{}", a.gateway.log());
    let evaluate = format!("{REPLAYS}/evaluate");
    let (admin, all) = (&b.gateway.admin_key, json!({}));
    let report = b.gateway.manage("POST", &evaluate, admin, Some(&all)).await.json();
    assert_eq!(report["evaluated"], 3, "{report}");
    for id in [large, killed, stopped] {
        let path = format!("{REPLAYS}/{id}");
        let deleted = b.gateway.manage("DELETE", &path, &b.gateway.admin_key, None).await;
        assert_eq!(deleted.status, 204);
    }
    a.gateway.start_again().await;
    assert!(listed(&a.gateway).await.is_empty(), "nothing brings them back");
}

#[tokio::test]
async fn an_object_store_that_fails_stops_neither_traffic_nor_captures() {
    let dir = tempfile::tempdir().unwrap();
    let (objects, aside) = (dir.path().join("objects"), dir.path().join("aside"));
    let (a, b) = two(&in_folder(&objects)).await;
    std::fs::rename(&objects, &aside).unwrap();
    std::fs::write(&objects, "no folder").unwrap();
    let key = a.gateway.create_key().await;
    let large = captured(&a.gateway, &key, true).await;
    until("a failed upload", async || {
        let failed = a.gateway.metric("rerouter_capture_uploads_total", &["failed"]).await;
        (failed >= 1.0).then_some(())
    })
    .await;
    assert!(a.gateway.metric("rerouter_capture_upload_lag_seconds", &[]).await > 0.0);
    let more = captured(&a.gateway, &key, true).await;
    assert_eq!(a.gateway.capture(&more).await["id"], more.as_str());
    assert_eq!(read(&a.gateway, &large).await.status, 200);
    assert!([409, 503].contains(&read(&b.gateway, &large).await.status));
    let told = "captures do not reach the other gateways, and wait here";
    assert_eq!(a.gateway.log().matches(told).count(), 1, "{}", a.gateway.log());
    let told = doctor(&a.gateway).await;
    assert!(told.starts_with("fail") && told.contains("objects: "), "{told}");
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&aside, &objects).unwrap();
    read_later(&b.gateway, &large).await;
    read_later(&b.gateway, &more).await;
}

#[tokio::test]
async fn a_folder_of_another_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let objects = dir.path().join("objects");
    let (a, b) = two(&in_folder(&objects)).await;
    let key = a.gateway.create_key().await;
    let large = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &large).await;
    read_later(&b.gateway, &large).await;
    let before = segments(&objects);
    assert!(!before.is_empty());
    // The other cluster's segments have the same numbers.
    let (mut other, _second) = two(&in_folder(&objects)).await;
    until("a refusal", async || {
        other
            .gateway
            .log()
            .contains("captures of another database are in this folder")
            .then_some(())
    })
    .await;
    let health = other.gateway.manage("GET", "/health", "", None).await;
    assert_eq!((health.status, &health.json()["objects"]), (200, &json!("unavailable")));
    let key = other.gateway.create_key().await;
    let waits = captured(&other.gateway, &key, true).await;
    let path = format!("{REPLAYS}/{waits}");
    assert_eq!(other.gateway.capture(&waits).await["id"], waits.as_str());
    let deleted = other.gateway.manage("DELETE", &path, &other.gateway.admin_key, None).await;
    assert_eq!(deleted.status, 204);
    // A start enforces the retention first.
    other.gateway.restart().await;
    until("a refusal to delete", async || {
        other.gateway.log().contains("could not be removed").then_some(())
    })
    .await;
    assert!(segments(&objects) == before);
}

/// Creates a small and a large capture at `a` while its database is unreachable. Their rows wait,
/// and arrive afterwards.
async fn wait_and_move(a: &Member, b: &Member, key: &Key) -> [String; 2] {
    a.proxy.close();
    // Within the lease, `a` still answers.
    let small = captured(&a.gateway, key, false).await;
    let large = captured(&a.gateway, key, true).await;
    until("rows that wait", async || {
        a.gateway.log().contains("their rows wait in captures.db").then_some(())
    })
    .await;
    assert!(!listed(&b.gateway).await.contains(&small));
    a.proxy.open();
    for id in [&small, &large] {
        is_listed(&b.gateway, id).await;
    }
    [small, large]
}

#[tokio::test]
async fn rows_wait_while_the_database_is_away() {
    let (a, b) = two("").await;
    let key = a.gateway.create_key().await;
    let before = captured(&a.gateway, &key, false).await;
    is_listed(&b.gateway, &before).await;
    let [small, large] = wait_and_move(&a, &b, &key).await;
    assert_eq!(read(&b.gateway, &small).await.status, 200);
    until("the lease", async || (read(&a.gateway, &large).await.status == 200).then_some(())).await;
}

/// The segment files in a folder, by name.
fn segments(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let segments = entries.filter(|entry| entry.path().extension() == Some("seg".as_ref()));
    segments.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Begins a request whose provider answers after `latency`.
async fn late(gateway: &Gateway, key: &Key, latency: &str) -> JoinHandle<Answer> {
    let late = json!({
        "providers": {
            "demo": {"protocol": "mock"}, "late": {"protocol": "mock", "latency": latency}
        },
        "recipes": {
            "all": {"rules": [{"name": "default", "targets": [{"target": "demo/echo"}]}]},
            "late": {"rules": [{"name": "default", "targets": [{"target": "late/echo"}]}]}
        },
        "aliases": {"auto": "all", "late": "late"}
    });
    let path = "/v1/router/config";
    gateway.answers(200, "PUT", path, &gateway.admin_key, Some(&late)).await;
    let request = gateway.chat_request(key, chat_body("late", false).as_bytes());
    let mut connection = gateway.connect().await;
    tokio::spawn(async move { connection.exchange(&request).await })
}

#[tokio::test]
async fn of_two_processes_in_an_upgrade_none_uploads_what_the_other_writes() {
    let dir = tempfile::tempdir().unwrap();
    let objects = dir.path().join("objects");
    let (mut a, b) = two(&in_folder(&objects)).await;
    let key = a.gateway.create_key().await;
    let last = late(&a.gateway, &key, "10s").await;
    let mut ids = vec![captured(&a.gateway, &key, true).await];
    is_listed(&b.gateway, &ids[0]).await;
    a.gateway.upgrade().await;
    // Both processes write segments now.
    while !last.is_finished() {
        ids.push(captured(&a.gateway, &key, true).await);
        pause(200).await;
    }
    let answer = last.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    ids.push(answer.request_id());
    a.gateway.predecessor_ends().await;
    for _ in 0..5 {
        ids.push(captured(&a.gateway, &key, true).await);
        pause(200).await;
    }
    for id in &ids {
        read_later(&b.gateway, id).await;
    }
    a.gateway.stop().await;
    let written = segments(&a.gateway.dir().join("data/captures"));
    assert!(written.len() > 1);
    assert!(segments(&objects) == written, "no segment was uploaded before its end");
}

#[tokio::test]
async fn rows_that_wait_during_an_upgrade_move_before_the_first_process_ends() {
    let (mut a, b) = two("").await;
    let key = a.gateway.create_key().await;
    let _last = late(&a.gateway, &key, "60s").await;
    a.gateway.upgrade().await;
    wait_and_move(&a, &b, &key).await;
    assert!(a.gateway.predecessor_runs(), "{}", a.gateway.log());
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_keeps_no_other_from_the_object_store() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, b) = two(&in_folder(&dir.path().join("objects"))).await;
    let key = a.gateway.create_key().await;
    let unreadable = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &unreadable).await;
    a.gateway.kill_9();
    let folder = a.gateway.dir().join("data/captures");
    let segment = folder.join(segments(&folder).pop_first().unwrap().0);
    let aside = dir.path().join("aside");
    std::fs::rename(&segment, &aside).unwrap();
    std::fs::create_dir(&segment).unwrap();
    a.gateway.start_again().await;
    let later = captured(&a.gateway, &key, true).await;
    is_listed(&b.gateway, &later).await;
    read_later(&b.gateway, &later).await;
    let told = format!("{} cannot be read", segment.file_name().unwrap().display());
    // Logged at the end of the round that uploads the other segment.
    let times = || a.gateway.log().matches(&told).count();
    until("the log to name the segment", async || (times() > 0).then_some(())).await;
    assert_eq!(times(), 1, "{}", a.gateway.log());
    assert_eq!(read(&b.gateway, &unreadable).await.status, 409);
    std::fs::remove_dir(&segment).unwrap();
    std::fs::rename(&aside, &segment).unwrap();
    read_later(&b.gateway, &unreadable).await;
}

#[tokio::test]
async fn what_was_deleted_is_there_again_once_it_is_imported() {
    let (a, b) = two("").await;
    let (a, b) = (&a.gateway, &b.gateway);
    let key = a.create_key().await;
    let id = captured(a, &key, false).await;
    is_listed(b, &id).await;
    let reroute = format!("{REPLAYS}/{id}/reroute");
    let rerouted = b.manage("POST", &reroute, &b.admin_key, Some(&json!({}))).await.json();
    let copy = rerouted["new_id"].as_str().unwrap().to_owned();
    is_listed(a, &copy).await;
    let both = [read(a, &id).await.json(), read(a, &copy).await.json()];
    let import = async |capture: &Value| {
        let path = format!("{REPLAYS}/import");
        let done = b.manage("POST", &path, &b.admin_key, Some(capture)).await.json();
        (done["imported"].as_u64().unwrap(), done["refused"].as_u64().unwrap())
    };
    let delete = format!("{REPLAYS}/{id}?replays=true");
    assert_eq!(a.manage("DELETE", &delete, &a.admin_key, None).await.status, 204);
    // A replay of a deleted capture is not imported.
    assert_eq!(import(&both[1]).await, (0, 1));
    assert!(listed(a).await.is_empty());
    for capture in &both {
        assert_eq!(import(capture).await, (1, 0));
    }
    assert_eq!(listed(a).await, [copy, id]);
}
