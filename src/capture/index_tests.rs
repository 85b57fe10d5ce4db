//! The archive on real files: what is appended comes back, is sealed, and is gone when it is deleted.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::*;
use crate::capture::record::tests::capture;
use crate::capture::segment::format;

/// An archive in `dir`, as a process opens it.
pub(crate) async fn archive(dir: &Path) -> Archive {
    let store = Store::open(dir, b"fingerprint").await.unwrap();
    Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true)
}

/// Captures of one owner, a second after each other.
pub(crate) fn captures(seconds: std::ops::Range<i64>) -> Vec<Capture> {
    let owner = UserId::known("usr_1");
    seconds.map(|second| capture(second, &owner, &Random::seeded(second as u64 + 100))).collect()
}

/// The ids of all captures, the newest first.
pub(crate) async fn ids(archive: &Archive) -> Vec<RequestId> {
    archive
        .list(CaptureFilter::default(), 1_000, None)
        .await
        .unwrap()
        .into_iter()
        .map(|head| head.id)
        .collect()
}

/// The ids of these, the newest first.
pub(crate) fn ids_of(captures: &[Capture]) -> Vec<RequestId> {
    captures.iter().rev().map(|capture| capture.head.id.clone()).collect()
}

/// The files of segments.
pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("captures")).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| format::number(entry.file_name().to_str().unwrap()).is_some())
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn captures_come_back_whole_and_lie_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let mut both = captures(0..2);
    both[1].bodies.request = Bytes::from_static(
        br#"{"model":"auto","tools":[{"authorization":"canary-mcp"}],"text":"canary-prompt"}"#,
    );
    both[1].head.request_headers.push(("x-note".into(), "canary-header".into()));
    assert_eq!(archive.append(Arc::new(both.clone())).await.unwrap(), 2);
    assert_eq!(archive.get(&both[0].head.id).await.unwrap().as_ref(), Some(&both[0]));
    let read = archive.get(&both[1].head.id).await.unwrap().unwrap();
    assert!(
        read.head.redacted
            && std::str::from_utf8(&read.bodies.request).unwrap().contains("canary-prompt")
    );
    assert_eq!(ids(&archive).await, ids_of(&both));
    archive.close().await.unwrap();
    for path in segments(dir.path())
        .into_iter()
        .chain(["captures.db", "captures.db-wal"].map(|name| dir.path().join(name)))
    {
        assert!(memchr::memmem::find(&std::fs::read(path).unwrap(), b"canary").is_none());
    }
}

#[tokio::test]
async fn what_lies_in_the_clear_reads_as_well_and_nobody_else_reads_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let sealing = archive(dir.path()).await;
    let clear =
        Archive::new(sealing.store.clone(), &SecretBytes::new([9; 32]), Random::seeded(6), false);
    let both = captures(0..2);
    clear.append_with(Arc::new(vec![both[0].clone()]), Effort::None).await.unwrap();
    sealing.append_with(Arc::new(vec![both[1].clone()]), Effort::None).await.unwrap();
    let files = segments(dir.path());
    let holds = |path: &PathBuf| {
        memchr::memmem::find(&std::fs::read(path).unwrap(), &both[0].bodies.request).is_some()
    };
    assert_eq!(files.iter().map(holds).collect::<Vec<_>>(), [true, false]);
    for file in files.iter().chain([&dir.path().join("captures")]) {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o077, 0);
    }
    for capture in both {
        assert_eq!(sealing.get(&capture.head.id).await.unwrap().as_ref(), Some(&capture));
    }
}

#[tokio::test]
async fn what_is_damaged_is_an_error_and_costs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = Metrics::new().unwrap();
    let archive = archive(dir.path()).await.counting(metrics.clone());
    let all = captures(0..3);
    for capture in &all {
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
    }
    let place = archive.store.locate_capture(&all[1].head.id).await.unwrap().unwrap();
    let path = segments(dir.path()).remove(0);
    let bend = |at: u64| {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at as usize + format::BLOCK_HEAD] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    bend(place.bodies.unwrap());
    assert_eq!(archive.get(&all[1].head.id).await.unwrap_err().status().as_u16(), 500);
    assert_eq!(ids(&archive).await, ids_of(&all), "its head is whole");
    bend(place.heads);
    assert_eq!(archive.get(&all[1].head.id).await.unwrap_err().status().as_u16(), 500);
    assert_eq!(ids(&archive).await, [all[2].head.id.clone(), all[0].head.id.clone()]);
    assert_eq!(archive.get(&all[2].head.id).await.unwrap().as_ref(), Some(&all[2]));
    assert!(
        metrics.render().contains("rerouter_capture_blocks_damaged_total 2"),
        "each is told once"
    );
}

/// Where the rows and the head of the bodies are damaged nothing leads to these: they are not taken for empty ones.
#[tokio::test]
async fn bodies_that_nothing_leads_to_are_lost_and_not_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = captures(0..7);
    all[1].head.request_captured = false;
    // Neither is run again.
    (all[2].head.request_truncated, all[3].head.redacted) = (true, true);
    // A group that has none: of one that is kept, all of nothing.
    for capture in &mut all[4..6] {
        (capture.head.request_captured, capture.bodies) = (false, Bodies::default());
    }
    (all[5].head.request_captured, all[5].head.request_truncated) = (true, true);
    let clock = Clock::manual(all[6].head.created_at);
    let first = archive(dir.path()).await.with_clock(clock.clone());
    for group in [&all[..4], &all[4..6], &all[6..]] {
        first.append(Arc::new(group.to_vec())).await.unwrap();
    }
    first.delete(&all[6].head.id, false).await.unwrap();
    first.close().await.unwrap();
    let place = first.store.locate_capture(&all[0].head.id).await.unwrap().unwrap();
    let at = place.bodies.unwrap();
    let rows = first.segment(place.segment).unwrap().block_head(at).unwrap().end(at);
    drop(first);
    let file = segments(dir.path()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    for at in [at, rows] {
        bytes[at as usize + 9] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    for name in ["captures.db", "captures.db-wal", "captures.db-shm"] {
        let _none = std::fs::remove_file(dir.path().join(name));
    }
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    archive.recover().await.unwrap();
    archive.catch_up().await.unwrap();
    let get = async |at: usize| archive.get(&all[at].head.id).await;
    for lost in [0, 2, 3] {
        assert_eq!(get(lost).await.unwrap_err().status().as_u16(), 500, "{lost}");
    }
    for whole in [4, 5] {
        assert_eq!(get(whole).await.unwrap().as_ref(), Some(&all[whole]));
    }
    clock.advance(bounds::REWRITE_AFTER);
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_ne!(segments(dir.path()), [file], "it was made anew");
    for lost in [0, 1, 2, 3] {
        let read = get(lost).await.unwrap().unwrap();
        assert_eq!(
            (read.head.not_replayable(), read.bodies),
            (Some(crate::error::Kind::NotCaptured), Bodies::default()),
            "{lost}"
        );
    }
    for whole in [4, 5] {
        assert_eq!(get(whole).await.unwrap().as_ref(), Some(&all[whole]));
    }
}

#[tokio::test]
async fn a_page_ends_where_what_may_be_looked_at_ends() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..5);
    archive.append(Arc::new(all.clone())).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = archive.page(CaptureFilter::default(), 2, after).await.unwrap();
        seen.extend(page.heads.into_iter().map(|head| head.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids_of(&all));
}

#[tokio::test]
async fn a_head_of_a_newer_build_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let mut all = captures(0..2);
    all[0].head.version = Head::VERSION + 1;
    archive.append(Arc::new(all.clone())).await.unwrap();
    assert_eq!(ids(&archive).await, ids_of(&all[1..]));
    assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 500);
}

/// Blocks of two archives' writers in turn: neighbours of a list lie in different blocks.
#[tokio::test]
async fn a_list_is_in_order_however_its_blocks_are() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..9);
    for turn in 0..3 {
        let batch: Vec<Capture> = all.iter().skip(turn).step_by(3).cloned().collect();
        archive.append(Arc::new(batch)).await.unwrap();
    }
    assert_eq!(ids(&archive).await, ids_of(&all));
}

#[tokio::test]
async fn what_the_document_keeps_out_is_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), b"fingerprint").await.unwrap();
    let archive = Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), false);
    let archive = archive.redacting(Redactor::new(vec![
        crate::capture::redaction::Expression::new("canary-[0-9]+").unwrap(),
    ]));
    let mut all = captures(0..5);
    all[0].bodies.request = Bytes::from_static(
        br#"{"model":"auto","messages":[{"content":"a can\u0061ry-1 b","canary-2":1}]}"#,
    );
    all[0].head.request_headers.push(("x-note".into(), "canary-3".into()));
    all[1].bodies.request =
        Bytes::from_static(br#"{"model":"auto","messages":[{"content":"canary-4"#);
    all[1].head.request_truncated = true;
    all[2].head.response_stream = true;
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    all[2].bodies.response = (event("a can") + &event("ary-5") + &event(" b")).into();
    all[3].bodies.response = Bytes::from_static(b"said canary-6 and left");
    archive.append_with(Arc::new(all.clone()), Effort::None).await.unwrap();
    let bytes = std::fs::read(&segments(dir.path())[0]).unwrap();
    assert!(
        memchr::memmem::find(&bytes, b"canary-").is_none()
            && memchr::memmem::find(&bytes, b"ary-").is_none()
    );
    let read = async |at: usize| archive.get(&all[at].head.id).await.unwrap().unwrap();
    let first = read(0).await;
    let said = std::str::from_utf8(&first.bodies.request).unwrap();
    assert_eq!(
        said,
        r#"{"model":"auto","messages":[{"content":"a [redacted] b","[redacted]":1}]}"#
    );
    assert_eq!(first.head.request_headers.last().unwrap().1, "[redacted]");
    assert_eq!(read(1).await.bodies.request, Bytes::new());
    let streamed = read(2).await;
    assert_eq!(
        (streamed.head.version, first.head.version),
        (2, 1),
        "a build that would take it for a stream refuses it"
    );
    let streamed = streamed.whole();
    assert_eq!(streamed["response"]["body"], serde_json::Value::Null);
    assert_eq!(
        streamed["response"]["assembled"]["choices"][0]["message"]["content"],
        "a [redacted] b"
    );
    assert_eq!(read(3).await.bodies.response, "said [redacted] and left");
    for at in 0..4 {
        let why = [
            "redacted".into(),
            "truncated".into(),
            serde_json::Value::Null,
            serde_json::Value::Null,
        ];
        assert_eq!(
            (&read(at).await.summary()["not_replayable"], read(at).await.head.redacted),
            (&why[at], true)
        );
    }
    assert_eq!(read(4).await, all[4], "what does not match is as it was");
}

#[tokio::test]
async fn a_segment_that_left_while_it_was_opened_is_not_kept_open() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..2);
    for capture in &all {
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
        archive.close().await.unwrap();
    }
    let places = [&all[0], &all[1]].map(|capture| capture.head.id.clone());
    let [left, stays] = [
        archive.store.locate_capture(&places[0]).await,
        archive.store.locate_capture(&places[1]).await,
    ];
    let (left, stays) = (left.unwrap().unwrap().segment, stays.unwrap().unwrap().segment);
    // A reader that is between the two.
    let gone = archive.opened().gone;
    let opened = Arc::new(archive.make.open(left).unwrap());
    archive.remove(left).await.unwrap();
    archive.keep_open(left, &opened, gone);
    assert!(archive.opened().open.is_empty(), "its bytes would stay on the disk");
    archive.segment(stays).unwrap();
    assert_eq!(archive.opened().open.len(), 1);
}
