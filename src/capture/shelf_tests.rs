//! What becomes of captures when the disk fails under the segment that is written to.

use std::path::Path;
use std::sync::Arc;

use crate::capture::index::Archive;
use crate::capture::index::tests::{captures, ids, ids_of, segments};
use crate::capture::record::Capture;
use crate::id::Random;
use crate::secret::SecretBytes;
use crate::store::{Faults, Store, StoreError};

async fn failing(dir: &Path) -> (Archive, Faults) {
    let faults = Faults::default();
    let store = Store::open(dir, b"fingerprint").await.unwrap().with_faults(faults.clone());
    (Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true), faults)
}

async fn append(archive: &Archive, capture: &Capture) -> Result<usize, StoreError> {
    archive.append(Arc::new(vec![capture.clone()])).await
}

async fn restarted(dir: &Path) -> Archive {
    let (archive, _) = failing(dir).await;
    let recovered = archive.recover().await.unwrap();
    assert_eq!((recovered.lost, recovered.unknown), (0, 0));
    archive
}

async fn all_read(archive: &Archive, all: &[Capture]) {
    assert_eq!(ids(archive).await, ids_of(all));
    for capture in all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

#[tokio::test]
async fn a_torn_write_is_taken_back_wherever_it_tears() {
    let dir = tempfile::tempdir().unwrap();
    let (archive, faults) = failing(dir.path()).await;
    let all = captures(0..7);
    append(&archive, &all[0]).await.unwrap();
    let length = || segments(dir.path())[0].metadata().unwrap().len();
    for (capture, bytes) in all[1..].iter().zip([0, 1, 35, 36, 700, usize::MAX]) {
        faults.tear_write(bytes);
        let before = length();
        append(&archive, capture).await.unwrap_err();
        assert_eq!(length(), before, "{bytes}");
        assert_eq!(append(&archive, capture).await.unwrap(), 1);
    }
    assert_eq!(segments(dir.path()).len(), 1);
    all_read(&archive, &all).await;
    drop(archive);
    all_read(&restarted(dir.path()).await, &all).await;
}

#[tokio::test]
async fn a_torn_write_that_cannot_be_taken_back_costs_its_segment_s_end_only() {
    for bytes in [0, 35, 700, usize::MAX] {
        let dir = tempfile::tempdir().unwrap();
        let (archive, faults) = failing(dir.path()).await;
        let all = captures(0..3);
        append(&archive, &all[0]).await.unwrap();
        faults.tear_write(bytes);
        // When it was torn, and when what was begun is given up.
        faults.fail_truncations(2);
        append(&archive, &all[1]).await.unwrap_err();
        assert_eq!(ids(&archive).await, ids_of(&all[..1]), "all or none");
        append(&archive, &all[1]).await.unwrap();
        append(&archive, &all[2]).await.unwrap();
        assert_eq!(segments(dir.path()).len(), 2, "another one goes on");
        all_read(&archive, &all).await;
        archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
        let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [true, false]);
        all_read(&archive, &all).await;
        drop(archive);
        all_read(&restarted(dir.path()).await, &all).await;
    }
}

#[tokio::test]
async fn a_failed_sync_is_never_followed_by_a_good_one_of_the_same_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (archive, faults) = failing(dir.path()).await;
    let all = captures(0..3);
    append(&archive, &all[0]).await.unwrap();
    faults.fail_syncs(1);
    archive.sync().await.unwrap_err();
    archive.sync().await.unwrap();
    let synced = archive.store.write_captures(|index| index.segments()).await.unwrap()[0].clone();
    assert!(synced.synced < synced.bytes, "what the system may have lost is not said to be durable");
    append(&archive, &all[1]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    all_read(&archive, &all[..2]).await;
    archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
    let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [true, false], "it was read again, and closed");
    // A deletion is durable when it returns, or it did not happen.
    faults.fail_syncs(1);
    archive.delete(&all[0].head.id, false).await.unwrap_err();
    append(&archive, &all[2]).await.unwrap();
    all_read(&archive, &all).await;
    faults.fail_syncs(1);
    archive.close().await.unwrap_err();
    drop(archive);
    all_read(&restarted(dir.path()).await, &all).await;
}

#[tokio::test]
async fn a_segment_that_cannot_be_begun_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (archive, faults) = failing(dir.path()).await;
    let all = captures(0..1);
    for (bytes, truncations) in [(0, 0), (50, 0), (50, 1), (usize::MAX, 1)] {
        faults.tear_write(bytes);
        faults.fail_truncations(truncations);
        append(&archive, &all[0]).await.unwrap_err();
        assert!(segments(dir.path()).is_empty(), "{bytes} {truncations}");
    }
    append(&archive, &all[0]).await.unwrap();
    all_read(&archive, &all).await;
}
