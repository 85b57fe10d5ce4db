//! Captures that expire, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use crate::archive::Archive;
use crate::archive::segment_folder::file_name;
use crate::archive::service::SEGMENT_AGE;
use crate::archive::service::tests::{archive, captures, ids, ids_of, segments};
use crate::capture::bounds::CAPTURE_BATCH;
use crate::capture::record::Capture;
use rerouter_base::clock::Clock;
use rerouter_store::Reach;

async fn append(archive: &Archive, captures: &[Capture]) {
    archive.append(Arc::new(captures.to_vec())).await.unwrap();
}

/// Total bytes of the segments and of the index.
async fn held(archive: &Archive) -> u64 {
    let segments = archive.index.segments().await.unwrap();
    let segments: u64 = segments.iter().map(|(segment, _)| segment.bytes).sum();
    segments + archive.index.bytes().await.unwrap()
}

#[tokio::test]
async fn segments_leave_by_age_and_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let start = captures(0..1)[0].head.created_at;
    let archive = archive(dir.path()).await;
    let all = captures(0..6);
    for pair in all.chunks(2) {
        append(&archive, pair).await;
        archive.close().await.unwrap();
    }
    let us = |second: i64| start.as_microsecond() + second * 1_000_000;
    archive.retain(us(1), u64::MAX).await.unwrap();
    assert_eq!(
        (ids(&archive).await, segments(dir.path()).len()),
        (ids_of(&all), 3),
        "its newest capture is young enough"
    );
    archive.retain(us(2), u64::MAX).await.unwrap();
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&all[2..]), 2));
    let bytes = held(&archive).await;
    archive.retain(i64::MIN, bytes).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    archive.retain(i64::MIN, bytes - 1).await.unwrap();
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&all[4..]), 1));
    assert_eq!(archive.get(&all[0].head.id).await.unwrap(), None);
    assert_eq!(archive.index.segments().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_active_segment_leaves_once_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(0..1)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    append(&archive, &captures(0..1)).await;
    archive.retain(i64::MAX, u64::MAX).await.unwrap();
    assert_eq!(ids(&archive).await, ids_of(&captures(0..1)), "it is written to");
    clock.advance(SEGMENT_AGE);
    archive.retain(i64::MAX, u64::MAX).await.unwrap();
    assert!(ids(&archive).await.is_empty() && segments(dir.path()).is_empty());
    append(&archive, &captures(1..2)).await;
    archive.retain(i64::MIN, 1).await.unwrap();
    assert!(segments(dir.path()).is_empty(), "larger than all may be");
    append(&archive, &captures(2..3)).await;
    assert_eq!(ids(&archive).await, ids_of(&captures(2..3)));
}

#[tokio::test]
async fn captures_of_a_clock_that_was_ahead_age_from_when_they_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (hour, all) = (Duration::from_secs(3_600), captures(0..1));
    // The capture was made while the clock was a day ahead, or the clock is a day behind now.
    let clock = Clock::manual(all[0].head.created_at - 24 * hour);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    append(&archive, &all).await;
    archive.close().await.unwrap();
    let retain = async || {
        archive.retain((clock.now() - 2 * hour).as_microsecond(), u64::MAX).await.unwrap();
        ids(&archive).await.len()
    };
    assert_eq!(retain().await, 1);
    // The clock is right again.
    clock.advance(24 * hour);
    assert_eq!(retain().await, 1);
    assert!(archive.shared.ahead.lock().unwrap().is_empty());
    let clock = Clock::manual(all[0].head.created_at - 24 * hour);
    let archive = archive.with_clock(clock.clone());
    let retain = async || {
        archive.retain((clock.now() - 2 * hour).as_microsecond(), u64::MAX).await.unwrap();
        ids(&archive).await.len()
    };
    assert_eq!(retain().await, 1);
    for since in archive.shared.ahead.lock().unwrap().values_mut() {
        *since -= 3 * hour;
    }
    assert_eq!(retain().await, 0);
}

#[tokio::test]
async fn a_segment_leaves_with_its_last_capture() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..3);
    append(&archive, &all[..2]).await;
    archive.close().await.unwrap();
    append(&archive, &all[2..]).await;
    for (at, left) in [(0, 2), (1, 1)] {
        archive.delete(&all[at].head.id, false, Reach::All).await.unwrap();
        archive.retain(i64::MIN, u64::MAX).await.unwrap();
        assert_eq!(segments(dir.path()).len(), left);
    }
    archive.delete(&all[2].head.id, false, Reach::All).await.unwrap();
    archive.retain(i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 1, "the active one stays");
}

/// The segment has more captures than one step removes.
#[tokio::test]
async fn a_large_segment_leaves_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    append(&archive, &captures(0..CAPTURE_BATCH as i64 * 2 + 2)).await;
    archive.close().await.unwrap();
    archive.retain(i64::MIN, 1).await.unwrap();
    assert!(ids(&archive).await.is_empty() && segments(dir.path()).is_empty());
}

#[tokio::test]
async fn a_step_that_fails_keeps_no_segment_from_leaving() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    for capture in captures(0..3) {
        append(&archive, &[capture]).await;
        archive.close().await.unwrap();
    }
    append(&archive, &captures(3..4)).await;
    // One segment cannot be deleted, another cannot be closed.
    let stuck = dir.path().join("captures").join(file_name(1));
    std::fs::remove_file(&stuck).unwrap();
    std::fs::create_dir(&stuck).unwrap();
    archive.settings.faults.fail_syncs(1);
    archive.retain(i64::MIN, 1).await.unwrap_err();
    assert_eq!(segments(dir.path()), std::slice::from_ref(&stuck));
    std::fs::remove_dir(&stuck).unwrap();
    archive.retain(i64::MIN, 1).await.unwrap();
    assert!(archive.index.segments().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_segment_leaves_the_disk_although_the_index_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    append(&archive, &captures(0..2)).await;
    archive.close().await.unwrap();
    archive.settings.faults.fill_disk();
    archive.retain(i64::MIN, 1).await.unwrap_err();
    assert!(segments(dir.path()).is_empty());
    archive.settings.faults.clear();
    archive.retain(i64::MIN, 1).await.unwrap();
    assert_eq!(ids(&archive).await, []);
    assert!(archive.index.segments().await.unwrap().is_empty());
}
