//! Captures of several gateways in each kind of object store, from the upload of segments to their
//! removal. Also a store that refuses the credentials.

use futures::future::{join, join_all};
use serde_json::{Value, json};

use crate::captures::shared::{
    REPLAYS, RETENTION, captured, doctor_with, is_listed, listed, read, read_later,
};
use crate::support::fleet::{MASTER_KEY, setup};
use crate::support::gateway::Gateway;
use crate::support::object_store::{ObjectServer, ObjectVendor};
use crate::support::postgres::Cluster;
use crate::support::until;

/// A gateway on this database and this object store.
async fn gateway(objects: &ObjectServer, url: &str) -> Gateway {
    let capture = format!("capture: {{ {RETENTION}, objects: \"{}\" }}\n", objects.location());
    let setup = setup(url, "10s", &capture);
    let variables = objects.environment();
    variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value)).start().await
}

/// The line of `rerouter doctor` about the object store.
async fn doctor(gateway: &Gateway, objects: &ObjectServer) -> String {
    let variables = objects.environment();
    let variables = variables.iter().map(|(name, value)| (*name, value.as_str()));
    let master_key = [("REROUTER_MASTER_KEY", MASTER_KEY)];
    doctor_with(gateway, &master_key.into_iter().chain(variables).collect::<Vec<_>>()).await
}

#[tokio::test]
async fn segments_go_to_each_object_store_and_leave_it() {
    join_all(ObjectVendor::tried().into_iter().map(keep_and_delete)).await;
}

async fn keep_and_delete(vendor: ObjectVendor) {
    let objects = ObjectServer::start(vendor).await;
    let url = Cluster::shared().database().await;
    let (mut a, b) = join(gateway(&objects, &url), gateway(&objects, &url)).await;
    let key = a.create_key().await;
    // More bytes than one part of a multipart upload.
    let noise = (0..20_000_u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let noise: String = noise.map(|number| format!("{number:x}")).collect();
    let body = json!({"model": "auto", "messages": [{"role": "user", "content": noise}]});
    let body = body.to_string();
    for _ in 0..4 {
        let answers = join_all((0..20).map(|_| a.chat(&key, body.as_bytes()))).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{}", answers[0].text());
    }
    let large = captured(&a, &key, true).await;
    is_listed(&b, &large).await;
    assert_eq!(read_later(&b, &large).await, read(&a, &large).await.json());
    for id in listed(&b).await.into_iter().step_by(9) {
        assert_eq!(read_later(&b, &id).await["id"], id);
    }
    let stored = objects.objects();
    assert!(stored.contains(">captures/eu/") && stored.contains(".seg</"), "{stored}");
    let told = doctor(&a, &objects).await;
    assert!(told.starts_with("ok") && told.contains("read and deleted"), "{told}");
    // A segment without captures is removed from the store too.
    for id in listed(&b).await {
        let path = format!("{REPLAYS}/{id}");
        assert_eq!(b.manage("DELETE", &path, &b.admin_key, None).await.status, 204);
    }
    // A start enforces the retention first.
    a.restart().await;
    until("no objects", async || (!objects.objects().contains(".seg</")).then_some(())).await;
}

#[tokio::test]
async fn wrong_credentials_are_told_and_stop_neither_traffic_nor_captures() {
    join_all(ObjectVendor::tried().into_iter().map(refuse_and_accept)).await;
}

async fn refuse_and_accept(vendor: ObjectVendor) {
    let mut objects = ObjectServer::start(vendor).await;
    objects.refuse_all(true).await;
    let gateway = gateway(&objects, &Cluster::shared().database().await).await;
    // Before there is any segment.
    until("the first answer", async || (!takes(&gateway).await).then_some(())).await;
    let key = gateway.create_key().await;
    let large = captured(&gateway, &key, true).await;
    until("a failed upload", async || {
        let failed = gateway.metric("rerouter_capture_uploads_total", &["failed"]).await;
        (failed >= 1.0).then_some(())
    })
    .await;
    assert!(!takes(&gateway).await);
    assert_eq!(gateway.capture(&large).await["id"], large.as_str());
    let doctor = doctor(&gateway, &objects).await;
    assert!(doctor.starts_with("fail"), "{doctor}");
    let (log, secret) = (gateway.log(), objects.secret());
    for said in [&doctor, &log] {
        assert!(said.contains("403") && !said.contains(&secret), "{said}");
    }
    assert!(!gateway.metrics().await.contains(&secret));
    objects.refuse_all(false).await;
    let told = async |from: usize, line: &str| {
        until(line, async || gateway.log()[from..].contains(line).then_some(())).await;
        gateway.log().len()
    };
    let fails = "captures do not reach the other gateways";
    let ends = "captures reach the other gateways again";
    let then = told(0, ends).await;
    assert!(objects.objects().contains(".seg</") && takes(&gateway).await);
    // The store refuses requests while there is nothing to upload.
    objects.refuse_all(true).await;
    let then = told(then, fails).await;
    assert!(!takes(&gateway).await);
    objects.refuse_all(false).await;
    told(then, ends).await;
    assert!(takes(&gateway).await);
}

/// Whether the object store takes segments, according to `/health`.
async fn takes(gateway: &Gateway) -> bool {
    let told = gateway.manage("GET", "/health", "", None).await;
    let word = &told.json()["objects"];
    assert!(told.status == 200 && ["ok", "unavailable"].map(Value::from).contains(word));
    word == "ok"
}
