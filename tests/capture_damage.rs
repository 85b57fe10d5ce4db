//! Bytes of captures that go bad on the disk: what they held is lost and said to be, and nothing else is.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rerouter::capture::segment::format::{self, BlockHead, FIRST, Kind};
use serde_json::{Value, json};

use crate::captures::{answering, body, files, listed, user};
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key};
use crate::support::until;

/// The first block of a kind in a segment: where it begins, and its head.
fn first_of(file: &Path, kind: Kind) -> (u64, BlockHead) {
    let number = format::number(file.file_name().unwrap().to_str().unwrap()).unwrap();
    let (bytes, mut at) = (std::fs::read(file).unwrap(), FIRST);
    loop {
        let head = BlockHead::decode(&bytes[at as usize..], number, at).expect("a block");
        if head.kind == kind {
            return (at, head);
        }
        at = head.end(at);
    }
}

fn segments(gateway: &Gateway) -> Vec<PathBuf> {
    let mut all = files(&gateway.dir().join("data/captures"));
    all.sort();
    all
}

/// Which of these can be read whole; the others are 500.
async fn whole(gateway: &Gateway, key: &Key, ids: &[String]) -> BTreeSet<String> {
    let mut whole = BTreeSet::new();
    for id in ids {
        let answer =
            gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        match answer.status {
            200 => {
                let capture = answer.json();
                assert!(
                    capture["request"]["body"].as_str().unwrap().contains("canary-"),
                    "{capture}"
                );
                assert!(
                    capture["response"]["body"].as_str().unwrap().contains("canary-answer-"),
                    "{capture}"
                );
                whole.insert(id.clone());
            }
            status => assert_eq!(status, 500, "{}", answer.text()),
        }
    }
    whole
}

#[tokio::test]
async fn a_flipped_byte_costs_its_block_whatever_becomes_of_the_index() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let (_, stranger) = user(&gateway, "ann@example.com").await;
    let mut ids = Vec::new();
    for number in 0..12 {
        ids.push(gateway.chat(&key, &body(number)).await.request_id());
        if number % 4 == 3 {
            // Until it is written: what comes next is in another block.
            gateway.capture(&ids[number]).await;
        }
    }
    // An orderly end closes the segment; what comes after is in another one.
    gateway.restart().await;
    ids.push(gateway.chat(&key, &body(12)).await.request_id());
    gateway.capture(&ids[12]).await;
    gateway.kill_9();
    let file = segments(&gateway).remove(0);
    let (at, head) = first_of(&file, Kind::Bodies);
    let segment = std::fs::File::options().read(true).write(true).open(&file).unwrap();
    let (mut byte, bent) = ([0], at + (head.end(at) - at) / 2);
    segment.read_exact_at(&mut byte, bent).unwrap();
    segment.write_all_at(&[byte[0] ^ 1], bent).unwrap();
    let mut newest_first = ids.clone();
    newest_first.sort_by(|a, b| b.cmp(a));
    let index = gateway.dir().join("data/captures.db");
    for cut in [false, true] {
        if cut {
            gateway.kill_9();
            let length = std::fs::metadata(&index).unwrap().len();
            std::fs::File::options().write(true).open(&index).unwrap().set_len(length / 2).unwrap();
            for journal in ["captures.db-wal", "captures.db-shm"] {
                let _none = std::fs::remove_file(gateway.dir().join("data").join(journal));
            }
        }
        gateway.start_again().await;
        until("the index to be complete", async || {
            (listed(&gateway, &key).await == newest_first).then_some(())
        })
        .await;
        let left = whole(&gateway, &key, &ids).await;
        assert_eq!(
            left.len(),
            ids.len() - head.count as usize,
            "what was in the block, and nothing else"
        );
        assert!(ids[8..].iter().all(|id| left.contains(id)));
        assert_eq!(
            gateway.metric("rerouter_capture_blocks_damaged_total", &[]).await,
            1.0,
            "and that is counted, once"
        );
        let lost = ids.iter().find(|id| !left.contains(*id)).unwrap();
        let path = format!("/v1/router/replay/{lost}");
        assert_eq!(
            gateway.manage("GET", &path, &stranger.secret, None).await.status,
            404,
            "nobody else learns of it"
        );
        assert_eq!(
            gateway.manage("POST", &format!("{path}/reroute"), &key.secret, None).await.status,
            500,
            "nor is it run again"
        );
        let url = format!("http://{}", gateway.host());
        let environment =
            [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", key.secret.as_str())];
        let exported = crate::replay_cli::run(gateway.dir(), &["export"], &environment).await;
        let exported = exported.partly(3, &format!("{} captures cannot be read", head.count));
        let exported: Vec<Value> =
            exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let exported: BTreeSet<String> =
            exported.iter().map(|capture| capture["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(exported, left, "the others are exported");
    }
    // Heads that go bad are missed by whoever asks what a document would have done.
    let evaluate = async |gateway: &Gateway| {
        let answer = gateway
            .manage("POST", "/v1/router/replay/evaluate", &key.secret, Some(&json!({})))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let before = evaluate(&gateway).await;
    assert_eq!(
        (&before["evaluated"], before.get("unreadable")),
        (&json!(ids.len()), None),
        "their heads are whole: {before}"
    );
    let (at, head) = first_of(&file, Kind::Heads);
    segment.write_all_at(&[7; 8], head.end(at) - 16).unwrap();
    gateway.restart().await;
    let after = evaluate(&gateway).await;
    assert_eq!(
        (&after["evaluated"], &after["unreadable"]),
        (&json!(ids.len() as u32 - head.count), &json!(head.count)),
        "{after}"
    );
    until("what the index was to be taken away", async || {
        (!index.with_extension("damaged").exists()).then_some(())
    })
    .await;
    assert_eq!(
        gateway.manage("GET", "/v1/router/replay?limit=1", &key.secret, None).await.json()["has_more"],
        json!(true)
    );
}
