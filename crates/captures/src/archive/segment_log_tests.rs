//! Captures whose active segment has disk failures.

use std::path::Path;
use std::sync::Arc;

use crate::archive::Archive;
use crate::archive::service::tests::{archive, captures, ids, ids_of, segments};
use crate::capture::record::Capture;
use rerouter_base::clock::Clock;
use rerouter_store::StoreError;

async fn append(archive: &Archive, captures: &[Capture]) -> Result<usize, StoreError> {
    archive.append(Arc::new(captures.to_vec())).await
}

async fn all_read(archive: &Archive, all: &[Capture]) {
    assert_eq!(ids(archive).await, ids_of(all));
    for capture in all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

async fn restarted(dir: &Path) -> Archive {
    let archive = archive(dir).await;
    let recovered = archive.recover().await.unwrap();
    assert_eq!((recovered.unknown, recovered.missing), (0, 0));
    archive
}

#[tokio::test]
async fn a_torn_write_stores_nothing_and_the_next_one_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..7);
    append(&archive, &all[..1]).await.unwrap();
    let length = || segments(dir.path())[0].metadata().unwrap().len();
    for (capture, bytes) in all[1..].iter().zip([0, 1, 35, 36, 700, usize::MAX]) {
        archive.settings.faults.tear_write(bytes);
        let (batch, before) = (std::slice::from_ref(capture), length());
        append(&archive, batch).await.unwrap_err();
        assert_eq!(length(), before, "{bytes}");
        assert_eq!(append(&archive, batch).await.unwrap(), 1);
    }
    assert_eq!(segments(dir.path()).len(), 1);
    all_read(&archive, &all).await;
    drop(archive);
    all_read(&restarted(dir.path()).await, &all).await;
}

/// Bytes that are written but not in the index are overwritten.
#[tokio::test]
async fn a_batch_that_the_index_refuses_is_stored_the_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..4);
    append(&archive, &all[..1]).await.unwrap();
    archive.settings.faults.fail_appends(1);
    append(&archive, &all[1..3]).await.unwrap_err();
    assert_eq!(ids(&archive).await, ids_of(&all[..1]), "all or none");
    append(&archive, &all[1..3]).await.unwrap();
    append(&archive, &all[3..]).await.unwrap();
    all_read(&archive, &all).await;
    // A crash between the bytes and their rows: the bytes are ignored.
    let file = std::fs::File::options().append(true).open(&segments(dir.path())[0]).unwrap();
    std::io::Write::write_all(&mut &file, &[0x52; 77]).unwrap();
    drop(archive);
    all_read(&restarted(dir.path()).await, &all).await;
}

#[tokio::test]
async fn after_a_failed_sync_another_segment_begins() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..3);
    append(&archive, &all[..1]).await.unwrap();
    archive.settings.faults.fail_syncs(1);
    archive.sync().await.unwrap_err();
    archive.sync().await.unwrap();
    append(&archive, &all[1..2]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2, "a later sync of the first would say nothing");
    archive.settings.faults.fail_syncs(1);
    archive.close().await.unwrap_err();
    append(&archive, &all[2..]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 3);
    all_read(&archive, &all).await;
    drop(archive);
    all_read(&restarted(dir.path()).await, &all).await;
}

#[tokio::test]
async fn a_segment_is_closed_when_it_is_full_or_old() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(0..1)[0].head.created_at);
    let mut archive = archive(dir.path()).await.with_clock(clock.clone());
    let all = captures(0..4);
    append(&archive, &all[..1]).await.unwrap();
    append(&archive, &all[1..2]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 1);
    clock.advance(archive.settings.age);
    append(&archive, &all[2..3]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    archive.settings.bytes = 1;
    append(&archive, &all[3..]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 3);
    all_read(&archive, &all).await;
}

/// The batch has several groups of heads and bodies, bodies of megabytes, and captures without
/// bodies.
#[tokio::test]
async fn captures_of_all_sizes_lie_in_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let mut all = captures(0..60);
    for (at, capture) in all.iter_mut().enumerate() {
        let text = (0..at * at * 60).map(|byte| (byte * byte % 251) as u8);
        capture.bodies.response = text.collect::<Vec<u8>>().into();
        if at % 7 == 3 {
            (capture.bodies, capture.head.request_captured) = Default::default();
        }
    }
    assert_eq!(append(&archive, &all).await.unwrap(), 60);
    all_read(&archive, &all).await;
}
