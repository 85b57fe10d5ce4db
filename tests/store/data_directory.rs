//! What lies in the data directory: write-ahead logs that hold little, the lock, marks that are
//! damaged, and backups.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::captures::on_disk::{answering, body, listed};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, command};
use crate::support::until;

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

async fn revoke(gateway: &Gateway, key: &Key) {
    let path = format!("/v1/router/keys/{}", key.id);
    gateway.answers(204, "DELETE", &path, &gateway.admin_key, None).await;
}

/// The status of a request with this key.
async fn asks(gateway: &Gateway, key: &Key) -> u16 {
    gateway.chat(key, chat_body("auto", false).as_bytes()).await.status
}

/// A clean stop leaves everything in the databases: nothing is lost with their logs.
#[tokio::test]
async fn a_clean_stop_leaves_nothing_in_the_write_ahead_logs() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let data = gateway.dir().join("data");
    let (lives, dies) = (gateway.create_key().await, gateway.create_key().await);
    let id = gateway.chat(&lives, &body(1)).await.request_id();
    gateway.capture(&id).await;
    revoke(&gateway, &dies).await;
    assert!(length(&data.join("accounts.db-wal")) > 0, "it was written to");
    gateway.stop().await;
    for log in ["accounts.db-wal", "captures.db-wal"] {
        assert_eq!(length(&data.join(log)), 0, "{log}");
        let _none = std::fs::remove_file(data.join(log));
    }
    gateway.start_again().await;
    assert_eq!((asks(&gateway, &lives).await, asks(&gateway, &dies).await), (200, 401));
    gateway.capture(&id).await;
}

/// A running gateway empties the logs too, the first time when it starts.
#[tokio::test]
async fn a_running_gateway_moves_what_a_killed_one_left_in_the_log() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let log = gateway.dir().join("data/accounts.db-wal");
    for _ in 0..40 {
        gateway.create_key().await;
    }
    let key = gateway.create_key().await;
    revoke(&gateway, &key).await;
    gateway.kill_9();
    let left = length(&log);
    assert!(left > 400 << 10, "{left}");
    gateway.start_again().await;
    until("a short log", async || (length(&log) < left / 4).then_some(())).await;
    assert_eq!(asks(&gateway, &key).await, 401);
}

/// What was written last is lost with a damaged log, and nothing before it. A start says so, and
/// goes on where it is told to.
#[tokio::test]
async fn a_damaged_log_is_told_and_costs_what_was_written_since_the_last_checkpoint() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let log = gateway.dir().join("data/accounts.db-wal");
    let (lives, before, after) =
        (gateway.create_key().await, gateway.create_key().await, gateway.create_key().await);
    revoke(&gateway, &before).await;
    gateway.restart().await;
    // Else the checkpoint of the start may have what comes now.
    until("the checkpoint of the start", async || (length(&log) == 0).then_some(())).await;
    revoke(&gateway, &after).await;
    gateway.kill_9();
    let length = length(&log);
    assert!(length > 1_024 && length < 256 << 10, "it holds what is recent: {length}");
    let mut file = std::fs::File::options().write(true).open(&log).unwrap();
    // Behind its head.
    file.seek(SeekFrom::Start(32)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(length).unwrap() - 32]).unwrap();
    for deleted in [false, true] {
        if deleted {
            // The refused start may have removed it.
            let _gone = std::fs::remove_file(&log);
        }
        let refused = gateway.try_start_again().await.unwrap_err();
        assert!(refused.contains("accounts.db lacks the last"), "{refused}");
    }
    std::fs::remove_file(gateway.dir().join("data/accounts.revision")).unwrap();
    gateway.start_again().await;
    assert_eq!((asks(&gateway, &lives).await, asks(&gateway, &before).await), (200, 401));
    // The last one may have to be ended again, and can be.
    revoke(&gateway, &after).await;
    assert_eq!(asks(&gateway, &after).await, 401);
}

#[tokio::test]
async fn a_second_process_does_not_start_whatever_became_of_the_lock_file() {
    let provider = answering().await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let lock = gateway.dir().join("data/lock");
    // At addresses of its own: it is the directory that is in use.
    let free =
        || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let text = std::fs::read_to_string(gateway.dir().join("rerouter.yaml")).unwrap();
    let (address, metrics) = (gateway.address().to_string(), gateway.metrics_address().to_string());
    let text = text.replace(&address, &free()).replace(&metrics, &free());
    std::fs::write(gateway.dir().join("second.yaml"), text).unwrap();
    let second = || {
        let out = command(&gateway.dir().join("second.yaml"), &[])
            .current_dir(gateway.dir())
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for deleted in [false, true] {
        if deleted {
            std::fs::remove_file(&lock).unwrap();
        }
        let (code, said) = second();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("another process uses the data directory"), "{said}");
    }
}

/// `rerouter` with these arguments: its exit code and all that it wrote.
fn rerouter(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_rerouter"))
        .args(arguments)
        .env_clear()
        .current_dir(dir)
        .output()
        .unwrap();
    (
        out.status.code(),
        [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat(),
    )
}

/// Takes a backup while clients ask and keys are made, restores it, and finds all that was there
/// when it began.
#[tokio::test]
async fn a_backup_of_a_running_gateway_is_a_gateway() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let dir = gateway.dir().to_owned();
    let (lives, dies) = (gateway.create_key().await, gateway.create_key().await);
    let mut before = Vec::new();
    for number in 0..40 {
        before.push(gateway.chat(&lives, &body(number)).await.request_id());
    }
    let deleted = before.pop().unwrap();
    gateway.capture(&deleted).await;
    gateway
        .answers(204, "DELETE", &format!("/v1/router/replay/{deleted}"), &gateway.admin_key, None)
        .await;
    until("all captures", async || {
        (listed(&gateway, &lives).await.len() == before.len()).then_some(())
    })
    .await;
    revoke(&gateway, &dies).await;
    let done = Arc::new(AtomicBool::new(false));
    let backing_up = {
        let (dir, done) = (dir.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let made =
                rerouter(&dir, &["backup", "--config", "rerouter.yaml", "--out", "backups/one"]);
            done.store(true, Ordering::Release);
            made
        })
    };
    let mut meanwhile = 0;
    while !done.load(Ordering::Acquire) {
        assert_eq!(asks(&gateway, &lives).await, 200);
        gateway.create_key().await;
        meanwhile += 1;
    }
    let (code, said) = backing_up.join().unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(meanwhile > 0 && said.contains("The master key is not in the copy"), "{said}");
    assert!(said.contains(&dir.join("data/master.key").display().to_string()), "{said}");
    let backup = dir.join("backups/one");
    assert!(!backup.join("master.key").exists() && !backup.join("accounts.db-wal").exists());

    let (code, said) = rerouter(&dir, &["backup", "--data-dir", "data", "--out", "backups/one"]);
    assert!(code == Some(1) && said.contains("exists already"), "{said}");
    let (code, said) = rerouter(&dir, &["backup", "--data-dir", "none", "--out", "backups/two"]);
    assert!(code == Some(1) && said.contains("there is no store in none"), "{said}");

    // What happens after it is not in it.
    let later = gateway.create_key().await;
    gateway.stop().await;
    let key = std::fs::read(dir.join("data/master.key")).unwrap();
    std::fs::rename(dir.join("data"), dir.join("data.lost")).unwrap();
    std::fs::rename(&backup, dir.join("data")).unwrap();
    let said = gateway.try_start_again().await.unwrap_err();
    assert!(
        said.contains("master.key is missing, and the store was made with a master key"),
        "{said}"
    );
    std::fs::write(dir.join("data/master.key"), key).unwrap();
    gateway.start_again().await;
    let found = listed(&gateway, &lives).await;
    for (number, id) in before.iter().enumerate() {
        assert!(found.contains(id), "capture {number} is not in {found:?}");
        let capture = gateway.capture(id).await;
        let said = format!("canary-{number:06}");
        assert!(
            capture["request"]["body"].as_str().is_some_and(|body| body.contains(&said)),
            "{capture}"
        );
    }
    assert!(!found.contains(&deleted));
    assert_eq!(
        (asks(&gateway, &lives).await, asks(&gateway, &dies).await, asks(&gateway, &later).await),
        (200, 401, 401)
    );
    let audit =
        gateway.manage("GET", "/v1/audit?action=key.revoke", &gateway.admin_key, None).await.json();
    assert!(
        audit["data"].as_array().unwrap().iter().any(|row: &Value| row["target"]["id"] == dies.id),
        "{audit}"
    );
}

/// Of a gateway that does not run, with what a killed one left in its logs; the copy is for nobody
/// else to read.
#[tokio::test]
async fn a_backup_of_what_a_killed_gateway_left_has_what_was_acknowledged() {
    use std::os::unix::fs::PermissionsExt;
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let dir = gateway.dir().to_owned();
    let (lives, dies) = (gateway.create_key().await, gateway.create_key().await);
    let id = gateway.chat(&lives, &body(1)).await.request_id();
    gateway.capture(&id).await;
    revoke(&gateway, &dies).await;
    gateway.kill_9();
    let (code, said) = rerouter(&dir, &["backup", "--data-dir", "data", "--out", "copy"]);
    assert_eq!(code, Some(0), "{said}");
    for path in crate::captures::on_disk::files(&dir.join("copy")) {
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o077,
            0,
            "{}",
            path.display()
        );
        let mut beginning = [0; 8];
        std::fs::File::open(&path).unwrap().read_exact(&mut beginning).unwrap();
    }
    std::fs::copy(dir.join("data/master.key"), dir.join("copy/master.key")).unwrap();
    std::fs::rename(dir.join("data"), dir.join("data.lost")).unwrap();
    std::fs::rename(dir.join("copy"), dir.join("data")).unwrap();
    gateway.start_again().await;
    assert_eq!((asks(&gateway, &lives).await, asks(&gateway, &dies).await), (200, 401));
    gateway.capture(&id).await;
}
