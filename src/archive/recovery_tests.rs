//! Starts on what other processes left.

use std::sync::Arc;

use crate::archive::Recovered;
use crate::archive::segment_folder::file_name;
use crate::archive::service::tests::{archive, captures, ids, ids_of, segments};

#[tokio::test]
async fn a_start_after_a_crash_has_all_captures_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..5);
    for (at, capture) in all.iter().enumerate() {
        let archive = archive(dir.path()).await;
        if at % 2 == 0 {
            assert_eq!(archive.recover().await.unwrap(), Recovered::default());
        }
        // Not recovered first, the others do so when they write.
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
        assert_eq!(ids(&archive).await, ids_of(&all[..=at]));
    }
    assert_eq!(segments(dir.path()).len(), 5, "each process writes its own");
    let archive = archive(dir.path()).await;
    for capture in &all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

#[tokio::test]
async fn segments_that_the_index_does_not_know_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let first = archive(dir.path()).await;
    let all = captures(0..2);
    first.append(Arc::new(all[..1].to_vec())).await.unwrap();
    drop(first);
    let begun = dir.path().join("captures").join(file_name(9));
    std::fs::write(&begun, b"written before a crash").unwrap();
    let archive = archive(dir.path()).await;
    assert_eq!(archive.recover().await.unwrap(), Recovered { unknown: 1, missing: 0 });
    assert!(!begun.exists());
    archive.append(Arc::new(all[1..].to_vec())).await.unwrap();
    assert_eq!(ids(&archive).await, ids_of(&all));
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
    assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 500);
    archive.delete(&all[0].head.id, false, None).await.unwrap();
    archive.retain(i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(archive.index.segments().await.unwrap().len(), 1);
}

/// Without the index nobody can read the segments.
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
}
