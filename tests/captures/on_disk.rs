//! Captures on disk after the process was killed or their index damaged, and what somebody can read
//! there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rerouter::internals::bounds;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::process::plugin::{ADMIN, Host};
use crate::support::client::{self, Connection, find};
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{PATIENCE, count, full, until};

pub fn body(number: usize) -> Vec<u8> {
    json!({"model": "auto",
            "messages": [{"role": "user", "content": format!("canary-{number:06}")}]})
    .to_string()
    .into_bytes()
}

pub async fn answering() -> Provider {
    Provider::start(|_, number| scripted::completion(&format!("canary-answer-{number}"))).await
}

/// The dictionary with which captures are compressed.
const DICTIONARY: &[u8] = include_bytes!("../../crates/captures/src/archive/captures.zdict");

/// All parts of these bytes that zstd can decompress.
pub fn zstd_frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let frames = memchr::memmem::find_iter(bytes, b"\x28\xb5\x2f\xfd");
    let read = frames.map(|at| {
        let frame = zstd::stream::Decoder::with_dictionary(&bytes[at..], DICTIONARY).unwrap();
        let mut whole = Vec::new();
        let _rest = std::io::Read::read_to_end(&mut frame.single_frame(), &mut whole);
        whole
    });
    read.collect()
}

/// The ids of all captures in the list, read page by page.
pub async fn listed(gateway: &Gateway, key: &Key) -> Vec<String> {
    listed_by(gateway, key, "limit=7").await
}

/// The ids of all captures in the list with this query, read page by page.
async fn listed_by(gateway: &Gateway, key: &Key, query: &str) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway
            .manage("GET", &format!("/v1/router/replay?{query}{after}"), &key.secret, None)
            .await
            .json();
        assert_eq!(page["unreadable"].as_u64().unwrap_or(0), 0, "{page}");
        ids.extend(
            page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry["id"].as_str().unwrap().to_owned()),
        );
        match &page["next"] {
            Value::Null => return ids,
            next => after = format!("&after={}", next.as_str().unwrap()),
        }
    }
}

/// Files of the data directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        // Skips the socket of an upgrade.
        .filter(|path| path.is_file())
        .collect()
}

#[tokio::test]
async fn what_was_seen_stored_survives_a_kill_and_what_is_listed_is_whole() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let (mut journal, mut number) = (BTreeSet::new(), 0);
    for round in 0..count("REROUTER_ROUNDS", 4).min(100) {
        let mut sent = BTreeSet::new();
        for _ in 0..5 + round % 7 {
            sent.insert(gateway.chat(&key, &body(number)).await.request_id());
            number += 1;
        }
        // A client that has seen an answer finds its capture, which is then durable.
        let seen: BTreeSet<String> = listed(&gateway, &key).await.into_iter().collect();
        assert!(sent.is_subset(&seen));
        journal.extend(sent);
        // Some of these captures may be lost.
        let late = async |number: usize| gateway.chat(&key, &body(number)).await.request_id();
        let late = tokio::join!(late(number), late(number + 1), late(number + 2));
        number += 3;
        gateway.kill_9();
        if round % 3 == 2 {
            // A power loss also damages what was being written.
            let newest = files(&gateway.dir().join("data/captures")).into_iter().max().unwrap();
            let file = std::fs::File::options().append(true).open(newest).unwrap();
            std::io::Write::write_all(&mut &file, &[0x52; 77]).unwrap();
        }
        gateway.start_again().await;
        let left: BTreeSet<String> = listed(&gateway, &key).await.into_iter().collect();
        assert!(journal.is_subset(&left), "{:?}", journal.difference(&left));
        let late = BTreeSet::from([late.0, late.1, late.2]);
        assert!(
            left.difference(&journal).all(|id| late.contains(id)),
            "nothing is there that nobody asked for"
        );
        for id in left.difference(&seen) {
            assert!(
                gateway.capture(id).await["request"]["body"].as_str().unwrap().contains("canary-")
            );
        }
        journal = left;
    }
    for id in &journal {
        assert_eq!(gateway.capture(id).await["status"], 200);
    }
}

/// Ids of requests that a client sent, each with the time when its answer was complete.
type Journal = Arc<Mutex<Vec<(String, Instant)>>>;

/// Sends requests on one connection until the connection breaks. Writes down the ids of complete
/// answers.
async fn ask_until_it_breaks(to: SocketAddr, key: String, journal: Journal) {
    let (host, bearer) = (to.to_string(), format!("Bearer {key}"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let Some(mut connection) = Connection::try_open(to).await else { return };
    for number in 0.. {
        let request =
            client::request("POST", "/v1/chat/completions", &host, &headers, Some(&body(number)));
        let Some(answer) = connection.try_exchange(&request).await.filter(|answer| answer.whole)
        else {
            return;
        };
        assert_eq!(answer.status, 200, "{}", answer.text());
        journal.lock().unwrap().push((answer.request_id(), Instant::now()));
    }
}

#[tokio::test]
async fn a_kill_under_load_costs_what_was_answered_last_and_nothing_else() {
    // The time for which a power loss may lose captures, which is more than a kill does. If other
    // work is running, the disk alone may take longer.
    let window = bounds::CAPTURE_LINGER
        + bounds::CAPTURE_SYNC
        + if full() { Duration::ZERO } else { Duration::from_secs(3) };
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let (mut sure, mut read, mut sessions) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for round in 0..count("REROUTER_ROUNDS", 3).min(100) {
        let (journal, begun) = (Journal::default(), jiff::Timestamp::now());
        let clients: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn(ask_until_it_breaks(
                    gateway.address(),
                    key.secret.clone(),
                    Arc::clone(&journal),
                ))
            })
            .collect();
        let before = |limit: Instant| -> BTreeSet<String> {
            journal
                .lock()
                .unwrap()
                .iter()
                .filter(|(_, at)| *at < limit)
                .map(|(id, _)| id.clone())
                .collect()
        };
        let window_ago =
            || Instant::now().checked_sub(window).expect("a machine that has run for longer");
        until("answers from before the window", async || {
            (before(window_ago()).len() >= 20).then_some(())
        })
        .await;
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "they ask while the kill comes"
        );
        // Everything but captures is durable once it is answered, even if a kill follows at once.
        let (session, kept) = user(&gateway, &format!("user-{round}@example.com")).await;
        let revoked = gateway.create_key().await;
        gateway
            .answers(
                204,
                "DELETE",
                &format!("/v1/router/keys/{}", revoked.id),
                &gateway.admin_key,
                None,
            )
            .await;
        let asked_for = before(window_ago());
        gateway.kill_9();
        for client in clients {
            client.await.unwrap();
        }
        gateway.start_again().await;
        let left: BTreeSet<String> = listed_by(&gateway, &key, &format!("limit=100&since={begun}"))
            .await
            .into_iter()
            .collect();
        assert!(asked_for.is_subset(&left), "lost: {:?}", asked_for.difference(&left));
        // Captures that were not promised must be whole if they exist. Of thousands, the last ones
        // before the kill are read now, and some of all at the end.
        let new: Vec<&String> = left.difference(&read).collect();
        read_whole(&gateway, &key, new.into_iter().rev().take(400)).await;
        read.extend(left.iter().cloned());
        sessions.extend([(session, 200), (kept.secret, 200), (revoked.secret, 401)]);
        for (credential, expected) in &sessions {
            assert_eq!(
                gateway.manage("GET", "/v1/router/keys", credential, None).await.status,
                *expected,
                "round {round}"
            );
        }
        sure.extend(asked_for);
    }
    let left: BTreeSet<String> = listed_by(&gateway, &key, "limit=100").await.into_iter().collect();
    assert!(
        sure.is_subset(&left) && read.is_subset(&left),
        "what survived one kill survives the next"
    );
    read_whole(&gateway, &key, read.iter().step_by(read.len() / 5_000 + 1)).await;
}

/// Reads these captures, eight at a time. Each must have its request and answer.
async fn read_whole(gateway: &Gateway, key: &Key, ids: impl IntoIterator<Item = &String>) {
    let ids: Vec<&String> = ids.into_iter().collect();
    let read = async |id: &String| {
        let answer =
            gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        assert_eq!(answer.status, 200, "{id} is listed: {}", answer.text());
        let capture = answer.json();
        assert!(capture["request"]["body"].as_str().unwrap().contains("canary-"), "{capture}");
        assert!(
            capture["response"]["body"].as_str().unwrap().contains("canary-answer-"),
            "{capture}"
        );
    };
    for some in ids.chunks(8) {
        futures::future::join_all(some.iter().map(|id| read(id))).await;
    }
}

/// The value of a series, or 0 if it does not exist yet.
fn reading(metrics: &str, series: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_costs_captures_and_no_request() {
    const LARGE: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (provider, faults) = (answering().await, Faults::default());
    let host = Host::start_failing(
        dir.path(),
        provider.address(),
        &in_order(&[("a", &provider.url())], ""),
        faults.clone(),
    )
    .await;
    let scopes = r#"{"scopes":["inference","replay","keys"]}"#;
    let key = host.ask("POST", "/v1/router/keys", Some(ADMIN), Some(scopes)).await.json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let chat = async |content: &str| {
        let body = json!({"model": "auto", "messages": [{"role": "user", "content": content}]})
            .to_string();
        let answer = host.ask("POST", "/v1/chat/completions", Some(&key), Some(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.request_id()
    };
    let capture = async |id: &str| {
        host.ask("GET", &format!("/v1/router/replay/{id}"), Some(&key), None).await
    };
    let counted = async |outcome: &str| {
        reading(&host.metrics().await, &format!("rerouter_captures_total{{outcome=\"{outcome}\"}}"))
    };
    let queued = async || reading(&host.metrics().await, "rerouter_capture_queue_bytes");
    let first = chat("before").await;
    until("the capture before", async || (capture(&first).await.status == 200).then_some(())).await;
    faults.stall_appends();
    // Somewhat more than the queue holds. Every request is answered, and so are other calls.
    let (more, large) = (bounds::CAPTURE_QUEUE_BYTES / LARGE + 8, "so much ".repeat(LARGE / 8));
    for _ in 0..more {
        chat(&large).await;
        let waiting = queued().await;
        assert!(waiting <= bounds::CAPTURE_QUEUE_BYTES as f64, "{waiting} bytes wait");
    }
    assert_eq!(host.ask("GET", "/health", None, None).await.status, 200);
    assert_eq!(host.ask("GET", "/v1/router/keys", Some(&key), None).await.status, 200);
    until("captures to be dropped", async || (counted("dropped_full").await > 0.0).then_some(()))
        .await;
    assert!(queued().await > (bounds::CAPTURE_QUEUE_BYTES / 2) as f64, "it is full of what hangs");
    until("the writer to hang", async || (faults.hanging() > 0).then_some(())).await;
    assert_eq!(counted("stored").await, 1.0);
    faults.clear();
    // This writes many megabytes, on a machine with other work.
    let written = async {
        while queued().await > 0.0 {
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    };
    tokio::time::timeout(4 * PATIENCE, written)
        .await
        .expect("what waited is written when the disk goes on");
    let again = chat("after").await;
    let kept = until("captures to come again", async || {
        Some(capture(&again).await).filter(|answer| answer.status == 200)
    })
    .await;
    assert!(kept.json()["request"]["body"].as_str().unwrap().contains("after"));
    let all = until("each to be counted", async || {
        let (stored, dropped) = (counted("stored").await, counted("dropped_full").await);
        (stored + dropped >= (more + 2) as f64).then_some((stored, dropped))
    });
    let (stored, dropped) = all.await;
    assert!(
        stored + dropped == (more + 2) as f64 && dropped >= 8.0 && stored > 2.0,
        "{stored} stored, {dropped} dropped of {more} and two"
    );
    assert_eq!(counted("dropped_store").await, 0.0, "what waited was not lost");
    host.stop().await;
}

/// Deleted captures stay deleted after a kill. A damaged index is set aside together with its
/// segments, whose keys it holds, and captures begin anew. Restoring both restores the captures.
#[tokio::test]
async fn a_damaged_index_is_set_aside_and_captures_begin_anew() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(gateway.chat(&key, &body(number)).await.request_id());
    }
    gateway.capture(&ids[7]).await;
    let deleted = format!("/v1/router/replay/{}", ids.remove(3));
    gateway.answers(204, "DELETE", &deleted, &key.secret, None).await;
    gateway.kill_9();
    gateway.start_again().await;
    gateway.answers(404, "GET", &deleted, &key.secret, None).await;
    assert_eq!(listed(&gateway, &key).await.len(), 7);
    gateway.stop().await;
    let (data, copy) = (gateway.dir().join("data"), gateway.dir().join("copy"));
    std::fs::copy(data.join("captures.db"), &copy).unwrap();
    let length = std::fs::metadata(data.join("captures.db")).unwrap().len();
    let file = std::fs::File::options().write(true).open(data.join("captures.db")).unwrap();
    file.set_len(length / 2).unwrap();
    gateway.start_again().await;
    assert!(listed(&gateway, &key).await.is_empty());
    let new = gateway.chat(&key, &body(100)).await.request_id();
    assert_eq!(listed(&gateway, &key).await, [new]);
    gateway.stop().await;
    let aside = data.join("captures-damaged-1");
    assert!(aside.join("captures.db").exists());
    std::fs::remove_dir_all(data.join("captures")).unwrap();
    std::fs::rename(aside.join("captures"), data.join("captures")).unwrap();
    std::fs::rename(&copy, data.join("captures.db")).unwrap();
    gateway.start_again().await;
    // Ids from one millisecond have no order.
    let mut back = listed(&gateway, &key).await;
    back.sort();
    ids.sort();
    assert_eq!(back, ids);
    read_whole(&gateway, &key, &ids).await;
}

/// A disk that can be filled and emptied. It is a small file system under the gateway's data
/// directory. If none can be mounted, it is a limit on the size of the process's files.
pub enum Disk {
    Small(PathBuf),
    Limited(u32),
}

impl Disk {
    /// Puts a disk under a gateway that is not running, and starts the gateway.
    pub async fn under(gateway: &mut Gateway, may_mount: bool) -> Disk {
        let data = gateway.dir().join("data");
        let aside = gateway.dir().join("aside");
        let run =
            |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        std::fs::rename(&data, &aside).unwrap();
        std::fs::create_dir(&data).unwrap();
        let mounted = may_mount
            && run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
                .arg(&data));
        if !mounted {
            std::fs::remove_dir(&data).unwrap();
            std::fs::rename(&aside, &data).unwrap();
            gateway.start_again().await;
            return Disk::Limited(gateway.process());
        }
        assert!(run(Command::new("cp").arg("-a").arg(aside.join(".")).arg(&data)));
        gateway.start_again().await;
        Disk::Small(data)
    }

    pub fn fill(&self) {
        match self {
            Disk::Small(data) => {
                let mut filler = std::fs::File::create(data.join("filler")).unwrap();
                let full =
                    std::iter::repeat_with(|| std::io::Write::write_all(&mut filler, &[7; 1024]))
                        .find_map(Result::err);
                assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
            }
            Disk::Limited(process) => limit(*process, "4096"),
        }
    }

    pub fn empty(&self) {
        match self {
            Disk::Small(data) => std::fs::remove_file(data.join("filler")).unwrap(),
            Disk::Limited(process) => limit(*process, "unlimited"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Disk::Small(data) = self {
            let _unmounted = Command::new("umount").arg("-l").arg(data).status();
        }
    }
}

/// Sets the size limit, in bytes, of files of this process. The limit can be raised again.
pub fn limit(process: u32, bytes: &str) {
    let run = Command::new("prlimit")
        .args(["--pid", &process.to_string(), &format!("--fsize={bytes}:unlimited")])
        .status();
    assert!(run.unwrap().success());
}

async fn a_disk_without_room(may_mount: bool) {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    gateway.kill_9();
    let disk = Disk::under(&mut gateway, may_mount).await;
    let kept = gateway.chat(&key, &body(0)).await.request_id();
    assert_eq!(gateway.capture(&kept).await["status"], 200);
    let dropped = async || {
        gateway.metric("rerouter_captures_total", &["outcome=\"dropped_disk_full\""]).await
    };
    assert_eq!(dropped().await, 0.0);
    disk.fill();
    // The last page of a file may have room for some captures.
    let full = until("captures to be dropped", async || {
        let incompressible: String = (0..800)
            .map(|_| format!("{:016x}", rerouter::internals::id::Random::System.next_u64()))
            .collect();
        let chat =
            json!({"model": "auto", "messages": [{"role": "user", "content": incompressible}]})
                .to_string();
        assert_eq!(
            gateway.chat(&key, chat.as_bytes()).await.status,
            200,
            "requests are answered whatever the disk does"
        );
        (dropped().await > 0.0).then_some(())
    });
    full.await;
    assert_eq!(gateway.chat(&key, &body(1)).await.status, 200);
    let health = gateway.send("GET", "/health", &[], None).await.status;
    match disk {
        Disk::Small(_) => assert_eq!(health, 200),
        // A commit that fails for a reason other than a full disk may be complete in the log. If
        // one was due by now, the database refuses writes until that commit is cut off.
        Disk::Limited(_) => assert!(matches!(health, 200 | 503), "{health}"),
    }
    assert_eq!(gateway.capture(&kept).await["status"], 200, "what was kept before is read");
    disk.empty();
    until("the database to take writes", async || {
        (gateway.send("GET", "/health", &[], None).await.status == 200).then_some(())
    })
    .await;
    let again = until("captures to be kept again", async || {
        let id = gateway.chat(&key, &body(2)).await.request_id();
        let read =
            gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        (read.status == 200).then_some(id)
    });
    let again = again.await;
    gateway.kill_9();
    gateway.start_again().await;
    let left: BTreeSet<String> = listed(&gateway, &key).await.into_iter().collect();
    assert!(left.contains(&kept) && left.contains(&again));
    assert_eq!(
        gateway.capture(&again).await["request"]["body"],
        String::from_utf8(body(2)).unwrap()
    );
    drop(disk);
}

#[tokio::test]
async fn a_full_disk_costs_captures_and_no_request() {
    a_disk_without_room(true).await;
}

#[tokio::test]
async fn files_that_may_not_grow_cost_captures_and_no_request() {
    a_disk_without_room(false).await;
}

#[tokio::test]
async fn what_the_document_keeps_out_is_in_no_capture() {
    let provider = Provider::start(|_, _| scripted::stream("card 4000-1234 and so on")).await;
    let setup = Setup::new(&in_order(&[("a", &provider.url())], ""))
        .server("capture: { redact: ['\\d{4}-\\d{4}', 'canary'], encrypt: false }");
    let gateway = setup.start().await;
    let key = gateway.create_key().await;
    let chat = json!({
        "model": "auto", "stream": true,
        "messages": [{"role": "user", "content": "my card is 5000-4321"}]
    });
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str())];
    let answer = gateway
        .send(
            "POST",
            "/v1/chat/completions?card=6000-7654",
            &headers,
            Some(chat.to_string().as_bytes()),
        )
        .await;
    assert_eq!(provider.last().target, "/v1/chat/completions?card=6000-7654");
    assert!(
        answer.text().contains("4000-1234")
            && provider.last().json()["messages"][0]["content"] == "my card is 5000-4321"
    );
    let id = answer.request_id();
    let capture = gateway.capture(&id).await;
    assert!(
        !capture.to_string().contains("4000-1234") && !capture.to_string().contains("5000-4321"),
        "{capture}"
    );
    assert!(
        capture["request"]["body"].as_str().unwrap().contains("my card is [redacted]"),
        "{capture}"
    );
    assert_eq!(capture["request"]["query"], "card=[redacted]");
    assert_eq!(
        (&capture["redacted"], &capture["not_replayable"]),
        (&json!(true), &json!("redacted"))
    );
    assert_eq!(capture["response"]["body"], Value::Null, "a stream is kept as what it amounts to");
    assert_eq!(
        capture["response"]["assembled"]["choices"][0]["message"]["content"],
        "card [redacted] and so on"
    );
    let reroute = gateway.reroute(&id, &key.secret).await;
    crate::support::envelope::management(&reroute, 409, "redacted");
    let plain = gateway
        .chat(&key, &json!({"model": "auto", "messages": []}).to_string().into_bytes())
        .await
        .request_id();
    assert_eq!(
        gateway.capture(&plain).await["request"]["body"],
        json!({"model": "auto", "messages": []}).to_string()
    );
    let kept: Vec<Vec<u8>> = files(&gateway.dir().join("data"))
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .flat_map(|bytes| zstd_frames(&bytes).into_iter().chain([bytes]))
        .collect();
    let holds = |text: &[u8]| kept.iter().any(|bytes| find(bytes, text).is_some());
    assert!(holds(b"my card is [redacted]"), "it lies there in the clear");
    assert!(![&b"4000-1234"[..], b"5000-4321", b"6000-7654"].into_iter().any(holds));
}

/// If nothing was decided, the list treats the requested name as the alias.
#[tokio::test]
async fn a_list_by_alias_has_what_was_refused() {
    let provider = answering().await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.limited_key(json!({"rpm": 1})).await;
    let admin = Key { id: String::new(), secret: gateway.admin_key.clone() };
    let mut asked = Vec::new();
    for (model, status) in
        [("nothing", 404), (key.secret.as_str(), 404), ("auto", 200), ("auto", 429)]
    {
        let answer =
            gateway.chat(&key, crate::support::documents::chat_body(model, false).as_bytes()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        gateway.capture(&answer.request_id()).await;
        asked.push(answer.request_id());
    }
    assert_eq!(listed_by(&gateway, &admin, "alias=auto").await, [asked[3].as_str(), &asked[2]]);
    assert_eq!(listed_by(&gateway, &admin, "alias=nothing").await, [asked[0].as_str()]);
    assert_eq!(listed_by(&gateway, &admin, "alias=auto&state=refused").await, [asked[3].as_str()]);
    assert_eq!(listed_by(&gateway, &admin, &format!("alias={}", key.secret)).await, [""; 0]);
    gateway.restart().await;
    for path in files(&gateway.dir().join("data")) {
        assert!(
            find(&std::fs::read(&path).unwrap(), key.secret.as_bytes()).is_none(),
            "{}",
            path.display()
        );
    }
}

/// Registers and logs in. Returns the session's token, and a ROUTER key of that user.
pub async fn user(gateway: &Gateway, email: &str) -> (String, Key) {
    let token = gateway.session(email).await;
    let key = gateway.make_key("/v1/router/keys", &token, &json!({})).await;
    (token, key)
}

#[tokio::test]
async fn on_no_way_does_anybody_come_to_the_captures_of_another_user() {
    let provider = answering().await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let ((_, ann), (session, bob)) =
        (user(&gateway, "ann@example.com").await, user(&gateway, "bob@example.com").await);
    let (hers, his) = (
        gateway.chat(&ann, &body(111_111)).await.request_id(),
        gateway.chat(&bob, &body(222_222)).await.request_id(),
    );
    for id in [&hers, &his] {
        gateway.capture(id).await;
    }
    let (path, own) = (format!("/v1/router/replay/{hers}"), format!("/v1/router/replay/{his}"));
    for credential in [&session, &bob.secret] {
        for (method, target, status) in [
            ("GET", "/v1/router/replay".to_owned(), 200),
            ("GET", format!("/v1/router/replay?key={}", ann.id), 200),
            ("GET", path.clone(), 404),
            ("GET", format!("{path}/compare/{his}"), 404),
            ("GET", format!("{own}/compare/{hers}"), 404),
            ("POST", format!("{path}/reroute"), 404),
            ("DELETE", path.clone(), 404),
            ("DELETE", format!("{path}?replays=true"), 404),
            ("POST", "/v1/router/replay/evaluate".to_owned(), 200),
            ("GET", "/v1/router/usage?group_by=key".to_owned(), 200),
        ] {
            let answer = gateway.manage(method, &target, credential, None).await;
            assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
            let shown = answer.text();
            // Ids from his own request may be in the answer.
            let ids =
                [hers.as_str(), ann.id.as_str()].into_iter().filter(|id| !target.contains(id));
            assert!(
                ids.chain(["canary-111111"]).all(|word| !shown.contains(word)),
                "{method} {target}: {shown}"
            );
        }
        let mine = gateway.manage("GET", "/v1/router/replay", credential, None).await.json();
        assert_eq!(
            (mine["data"].as_array().unwrap().len(), &mine["data"][0]["id"]),
            (1, &json!(his))
        );
        let evaluate = "/v1/router/replay/evaluate";
        let report = gateway.manage("POST", evaluate, credential, None).await.json();
        assert_eq!(report["evaluated"], 1);
        let used = gateway.manage("GET", "/v1/router/usage", credential, None).await.json();
        assert_eq!(
            (used["data"].as_array().unwrap().len(), &used["data"][0]["requests"]),
            (1, &json!(1)),
            "{used}"
        );
    }
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", bob.secret.as_str())];
    let exported =
        crate::captures::replay_cli::run(gateway.dir(), &["export"], &environment).await.well();
    let lines: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["id"]), (1, &json!(his)));
    assert!(
        exported.contains("canary-222222") && !exported.contains("canary-111111"),
        "{exported}"
    );
    assert_eq!(gateway.capture(&hers).await["status"], 200, "it is where it was");
    assert_eq!(provider.count(), 2, "and nobody ran it again");
}
