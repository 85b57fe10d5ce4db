//! Starts on the files that other processes left.

use std::path::Path;
use std::sync::Arc;

use crate::archive::recovery::Recovered;
use crate::archive::segment_folder::file_name;
use crate::archive::service::tests::{archive, captures, ids, ids_of, segments};
use rerouter_store::Reach;

#[tokio::test]
async fn a_start_after_a_crash_has_all_captures_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..5);
    for (at, capture) in all.iter().enumerate() {
        let archive = archive(dir.path()).await;
        if at % 2 == 0 {
            assert_eq!(archive.recover().await.unwrap(), Recovered::default());
        }
        // Without `recover`, the next write recovers the other segments.
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
        assert_eq!(ids(&archive).await, ids_of(&all[..=at]));
    }
    assert_eq!(segments(dir.path()).len(), 5, "each process writes its own");
    let archive = archive(dir.path()).await;
    for capture in &all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

/// Puts a copy of the index of one directory into another.
fn copy_index(from: &Path, to: &Path) {
    for name in ["captures.db", "captures.db-wal", "captures.db-shm"] {
        let _none = std::fs::remove_file(to.join(name));
        let _none = std::fs::copy(from.join(name), to.join(name));
    }
}

#[tokio::test]
async fn segments_that_the_index_does_not_know_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let first = archive(dir.path()).await;
    let all = captures(0..2);
    first.append(Arc::new(all[..1].to_vec())).await.unwrap();
    drop(first);
    let begun = |number| dir.path().join("captures").join(file_name(number));
    std::fs::write(begun(8), b"").unwrap();
    std::fs::write(begun(9), b"written before a crash").unwrap();
    let second = archive(dir.path()).await;
    assert_eq!(second.recover().await.unwrap(), Recovered { unknown: 2, missing: 0 });
    assert_eq!(segments(dir.path()), [begun(1)]);
    let aside = dir.path().join("captures-unknown-1");
    assert_eq!(std::fs::read(aside.join(file_name(9))).unwrap(), b"written before a crash");
    assert!(!aside.join(file_name(8)).exists(), "an empty one is deleted");
    drop(second);
    let third = archive(dir.path()).await;
    assert_eq!(third.recover().await.unwrap(), Recovered::default());
    third.append(Arc::new(all[1..].to_vec())).await.unwrap();
    assert_eq!(segments(dir.path()), [begun(1), begun(10)], "no number is used again");
    assert_eq!(ids(&third).await, ids_of(&all));
}

#[tokio::test]
async fn an_older_index_costs_no_segment() {
    let (dir, older, newer) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = captures(0..2);
    for (capture, copy) in all.iter().zip([&older, &newer]) {
        let archive = archive(dir.path()).await;
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
        drop(archive);
        copy_index(dir.path(), copy.path());
    }
    copy_index(older.path(), dir.path());
    let mistaken = archive(dir.path()).await;
    assert_eq!(mistaken.recover().await.unwrap(), Recovered { unknown: 1, missing: 0 });
    assert_eq!(ids(&mistaken).await, ids_of(&all[..1]));
    drop(mistaken);
    copy_index(newer.path(), dir.path());
    let (aside, folder) = (dir.path().join("captures-unknown-1"), dir.path().join("captures"));
    std::fs::rename(aside.join(file_name(2)), folder.join(file_name(2))).unwrap();
    let right = archive(dir.path()).await;
    assert_eq!(right.recover().await.unwrap(), Recovered::default());
    for capture in &all {
        assert_eq!(right.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

#[tokio::test]
async fn a_segment_that_is_missing_is_told_and_its_number_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = archive(dir.path()).await;
    let all = captures(0..2);
    first.append(Arc::new(all[..1].to_vec())).await.unwrap();
    drop(first);
    let lost = segments(dir.path()).remove(0);
    std::fs::remove_file(&lost).unwrap();
    let archive = archive(dir.path()).await;
    assert_eq!(archive.recover().await.unwrap(), Recovered { unknown: 0, missing: 1 });
    archive.append(Arc::new(all[1..].to_vec())).await.unwrap();
    assert!(!lost.exists());
    assert_eq!(ids(&archive).await, ids_of(&all[1..]));
    assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 503);
    archive.delete(&all[0].head.id, false, Reach::All).await.unwrap();
    archive.retain(i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(archive.index.segments().await.unwrap().len(), 1);
}

/// Without the index the segments are unreadable.
#[tokio::test]
async fn without_its_index_an_archive_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let first = archive(dir.path()).await;
    first.append(Arc::new(captures(0..2))).await.unwrap();
    drop(first);
    for name in ["captures.db", "captures.db-wal", "captures.db-shm"] {
        let _none = std::fs::remove_file(dir.path().join(name));
    }
    let archive = archive(dir.path()).await;
    assert_eq!(archive.recover().await.unwrap(), Recovered { unknown: 1, missing: 0 });
    assert!(ids(&archive).await.is_empty() && segments(dir.path()).is_empty());
    assert!(dir.path().join("captures-unknown-1").join(file_name(1)).exists());
}
