//! The archive on real files: an appended capture is read back, is encrypted, and is gone after it
//! is deleted.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::*;
use crate::archive::segment_folder::FOLDER;
use crate::capture::fixtures::capture;
use rerouter_base::secret::SecretBytes;
use rerouter_store::ByteRange;

/// Opens an archive in `dir`, as a process does.
pub(crate) async fn archive(dir: &Path) -> Archive {
    let store = Store::open(dir).await.unwrap();
    Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true)
}

/// Captures of one owner, one second apart.
pub(crate) fn captures(seconds: std::ops::Range<i64>) -> Vec<Capture> {
    let owner = UserId::known("usr_1");
    seconds.map(|second| capture(second, &owner, &Random::seeded(second as u64 + 100))).collect()
}

/// The ids of all captures, newest first.
pub(crate) async fn ids(archive: &Archive) -> Vec<RequestId> {
    archive
        .page(CaptureFilter::default(), 1_000, None)
        .await
        .unwrap()
        .heads
        .into_iter()
        .map(|head| head.id)
        .collect()
}

/// The ids of these captures, newest first.
pub(crate) fn ids_of(captures: &[Capture]) -> Vec<RequestId> {
    captures.iter().rev().map(|capture| capture.head.id.clone()).collect()
}

/// The files of segments.
pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join(FOLDER)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
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
    let clear = {
        let mut clear = sealing.clone();
        clear.settings.cipher.encrypt = false;
        clear
    };
    let mut both = captures(0..2);
    both[1].bodies.response = Bytes::from_static(b"canary");
    clear.append_with(Arc::new(vec![both[0].clone()]), Effort::None).await.unwrap();
    sealing.append_with(Arc::new(vec![both[1].clone()]), Effort::None).await.unwrap();
    let files = segments(dir.path());
    let holds = |path: &PathBuf| {
        memchr::memmem::find(&std::fs::read(path).unwrap(), &both[0].bodies.request).is_some()
    };
    assert!(files.len() == 1 && holds(&files[0]));
    let bytes = std::fs::read(&files[0]).unwrap();
    assert!(memchr::memmem::find(&bytes, &both[1].bodies.response).is_none());
    for file in files.iter().chain([&dir.path().join(FOLDER)]) {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o077, 0);
    }
    for capture in both {
        assert_eq!(sealing.get(&capture.head.id).await.unwrap().as_ref(), Some(&capture));
    }
}

#[tokio::test]
async fn a_damaged_byte_costs_its_capture_and_no_other() {
    for encrypt in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Metrics::new().unwrap();
        let mut archive = archive(dir.path()).await.counting(metrics.clone());
        archive.settings.cipher.encrypt = encrypt;
        let mut all = captures(0..3);
        // These bodies are too large to be stored with their head.
        all[1].bodies.response = vec![b'a'; 10_000].into();
        archive.append(Arc::new(all.clone())).await.unwrap();
        let location = archive.index.locate(&all[1].head.id).await.unwrap().unwrap();
        let path = segments(dir.path()).remove(0);
        let bend = |range: ByteRange| {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[(range.offset + u64::from(range.length) / 2) as usize] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        };
        bend(location.bodies.unwrap());
        assert_eq!(archive.get(&all[1].head.id).await.unwrap_err().status().as_u16(), 503);
        assert_eq!(ids(&archive).await, ids_of(&all), "its head is whole");
        bend(location.head);
        assert_eq!(archive.get(&all[1].head.id).await.unwrap_err().status().as_u16(), 503);
        let page = archive.page(CaptureFilter::default(), 10, None).await.unwrap();
        assert_eq!((page.heads.len(), page.unreadable), (2, 1));
        for whole in [0, 2] {
            assert_eq!(archive.get(&all[whole].head.id).await.unwrap().as_ref(), Some(&all[whole]));
        }
        assert!(
            metrics.render().contains("rerouter_capture_blocks_damaged_total 1"),
            "each capture is counted once"
        );
        archive.delete(&all[1].head.id, false, Reach::All).await.unwrap();
        assert_eq!(archive.get(&all[1].head.id).await.unwrap(), None, "it can be deleted");
    }
}

#[tokio::test]
async fn a_record_reads_only_as_the_capture_that_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let mut both = captures(0..2);
    both[0].bodies.response = vec![b'a'; 10_000].into();
    archive.append(Arc::new(both.clone())).await.unwrap();
    let locate = async |at: usize| archive.index.locate(&both[at].head.id).await.unwrap().unwrap();
    let (first, second) = (locate(0).await, locate(1).await);
    let mut reader = archive.reader();
    let (id, other) = (&both[0].head.id, &both[1].head.id);
    assert!(reader.head(id, &first).is_ok() && reader.bodies(id, &first).is_ok());
    assert!(reader.head(other, &first).is_err());
    assert!(reader.head(id, &CaptureLocation { salt: second.salt, ..first.clone() }).is_err());
    let head = first.bodies.unwrap();
    assert!(reader.head(id, &CaptureLocation { head, ..first.clone() }).is_err());
    let bodies = Some(first.head);
    assert!(reader.bodies(id, &CaptureLocation { bodies, ..first.clone() }).is_err());
}

/// A deletion only has to destroy the salt.
#[tokio::test]
async fn the_salt_of_a_deleted_capture_is_nowhere_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..40);
    archive.append(Arc::new(all.clone())).await.unwrap();
    let salt = archive.index.locate(&all[20].head.id).await.unwrap().unwrap().salt.unwrap();
    let holds = || {
        ["captures.db", "captures.db-wal"].into_iter().any(|name| {
            let bytes = std::fs::read(dir.path().join(name)).unwrap_or_default();
            memchr::memmem::find(&bytes, &salt).is_some()
        })
    };
    assert!(archive.index.empty_log().await.unwrap() && holds());
    assert!(archive.delete(&all[20].head.id, false, Reach::All).await.unwrap().is_empty());
    archive.retain(i64::MIN, u64::MAX).await.unwrap();
    assert!(!holds());
    for capture in all.iter().filter(|capture| capture.head.id != all[20].head.id) {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

#[tokio::test]
async fn a_capture_in_a_segment_that_is_not_there_is_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..2);
    for capture in &all {
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
        archive.close().await.unwrap();
    }
    std::fs::remove_file(&segments(dir.path())[0]).unwrap();
    let page = archive.page(CaptureFilter::default(), 10, None).await.unwrap();
    assert_eq!((page.heads.len(), page.unreadable), (1, 1));
    assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 503);
    assert_eq!(archive.get(&all[1].head.id).await.unwrap().as_ref(), Some(&all[1]));
}

#[tokio::test]
async fn a_panic_costs_the_capture_that_it_comes_with_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = Metrics::new().unwrap();
    let archive = archive(dir.path()).await.counting(metrics.clone());
    let all = captures(0..4);
    archive.settings.faults.panic_at(PanicPoint::Ready, 1, "a mistake");
    assert_eq!(archive.append(Arc::new(all[..3].to_vec())).await.unwrap(), 2);
    for place in [PanicPoint::Append, PanicPoint::Written] {
        archive.settings.faults.panic_at(place, 1, "a mistake");
        archive.append(Arc::new(all[3..].to_vec())).await.unwrap_err();
    }
    assert_eq!((ids(&archive).await.len(), metrics.process.panics.get()), (2, 3));
    archive.append(Arc::new(all[3..].to_vec())).await.unwrap();
    assert_eq!(archive.get(&all[3].head.id).await.unwrap().as_ref(), Some(&all[3]));
}

#[tokio::test]
async fn a_batch_is_stored_although_its_caller_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..2);
    {
        let mut append = std::pin::pin!(archive.append(Arc::new(all[..1].to_vec())));
        assert!(futures::poll!(&mut append).is_pending());
    }
    archive.append(Arc::new(all[1..].to_vec())).await.unwrap();
    assert_eq!(ids(&archive).await, ids_of(&all));
    for capture in &all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
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
    assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 503);
}

#[tokio::test]
async fn a_list_is_in_order_however_captures_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..9);
    for turn in 0..3 {
        let batch: Vec<Capture> = all.iter().skip(turn).step_by(3).cloned().collect();
        archive.append(Arc::new(batch)).await.unwrap();
    }
    assert_eq!(ids(&archive).await, ids_of(&all));
}
