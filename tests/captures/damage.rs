//! Bytes of captures that are damaged on disk cost only the capture that they belong to.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::captures::on_disk::{answering, body, files, user};
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key};

/// Flips a bit in the middle of a capture's head or bodies, in its segment. `part` says which.
fn flip(gateway: &Gateway, id: &str, part: &str) {
    let data = gateway.dir().join("data");
    let index = rusqlite::Connection::open(data.join("captures.db")).unwrap();
    let columns = format!("SELECT segment, {part}_at, {part}_len FROM captures WHERE id = ?1");
    let (segment, at, length): (i64, i64, i64) =
        index.query_row(&columns, [id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let name = format!("{segment:016x}.seg");
    let file: PathBuf =
        files(&data.join("captures")).into_iter().find(|path| path.ends_with(&name)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let (mut byte, at) = ([0], u64::try_from(at + length / 2).unwrap());
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Which of these captures can be read whole. The others must answer 503.
async fn whole(gateway: &Gateway, key: &Key, ids: &[String]) -> BTreeSet<String> {
    let mut whole = BTreeSet::new();
    for id in ids {
        let answer =
            gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        if answer.status == 200 {
            let capture = answer.json();
            assert!(capture["request"]["body"].as_str().unwrap().contains("canary-"), "{capture}");
            assert!(
                capture["response"]["body"].as_str().unwrap().contains("canary-answer-"),
                "{capture}"
            );
            whole.insert(id.clone());
        } else {
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(answer.text().contains("damaged"), "{}", answer.text());
            assert_eq!(answer.header("x-should-retry"), Some("false"));
        }
    }
    whole
}

#[tokio::test]
async fn a_flipped_bit_costs_its_capture() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let (_, stranger) = user(&gateway, "ann@example.com").await;
    let mut ids = Vec::new();
    for number in 0..12 {
        let mut sent = body(number);
        if number == 5 {
            // Bodies so large that they are stored apart from the head.
            sent = String::from_utf8(sent)
                .unwrap()
                .replace("canary-", &"canary-".repeat(1_000))
                .into();
        }
        ids.push(gateway.chat(&key, &sent).await.request_id());
    }
    gateway.capture(&ids[11]).await;
    gateway.stop().await;
    flip(&gateway, &ids[5], "bodies");
    gateway.start_again().await;
    let left = whole(&gateway, &key, &ids).await;
    assert!(left.len() == 11 && !left.contains(&ids[5]));
    assert_eq!(
        gateway.metric("rerouter_capture_blocks_damaged_total", &[]).await,
        1.0,
        "it is counted once"
    );
    let path = format!("/v1/router/replay/{}", ids[5]);
    assert_eq!(
        gateway.manage("GET", &path, &stranger.secret, None).await.status,
        404,
        "nobody else learns of it"
    );
    let reroute = gateway.manage("POST", &format!("{path}/reroute"), &key.secret, None).await;
    assert_eq!(reroute.status, 503, "nor is it run again");
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", key.secret.as_str())];
    let exported = crate::captures::replay_cli::run(gateway.dir(), &["export"], &environment).await;
    let exported = exported.partly(3, "1 captures cannot be read");
    let exported: BTreeSet<String> = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(exported, left, "the others are exported");
    // A capture with a damaged head is missing from lists and evaluations.
    let evaluate = async |gateway: &Gateway| {
        let answer = gateway
            .answers(200, "POST", "/v1/router/replay/evaluate", &key.secret, Some(&json!({})))
            .await;
        answer.json()
    };
    let before = evaluate(&gateway).await;
    assert_eq!(
        (&before["evaluated"], before.get("unreadable")),
        (&json!(ids.len()), None),
        "its head is whole: {before}"
    );
    gateway.stop().await;
    flip(&gateway, &ids[7], "head");
    gateway.start_again().await;
    let after = evaluate(&gateway).await;
    assert_eq!((&after["evaluated"], &after["unreadable"]), (&json!(11), &json!(1)), "{after}");
    let page = gateway.manage("GET", "/v1/router/replay", &key.secret, None).await.json();
    let listed = page["data"].as_array().unwrap().len();
    assert_eq!((listed, &page["unreadable"]), (11, &json!(1)), "{page}");
    gateway.answers(204, "DELETE", &path, &key.secret, None).await;
    gateway.answers(404, "GET", &path, &key.secret, None).await;
}
