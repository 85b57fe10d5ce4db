//! What becomes of captures when the disk fails under the segment that is written to.

use std::path::Path;
use std::sync::Arc;

use crate::bounds;
use crate::capture::index::Archive;
use crate::capture::index::tests::{captures, ids, ids_of, segments};
use crate::capture::record::{Capture, Head};
use crate::capture::segment::format::{self, FIRST, Kind};
use crate::capture::segment::group::Parts;
use crate::clock::Clock;
use crate::id::{Random, RequestId};
use crate::secret::SecretBytes;
use crate::store::{Faults, PanicPoint, Store, StoreError};

async fn failing(dir: &Path) -> (Archive, Faults) {
    let faults = Faults::default();
    let store = Store::open(dir).await.unwrap().with_faults(faults.clone());
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
        // What was written whole is there twice, and its first segment was made anew without it.
        let anew = bytes == usize::MAX;
        assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [!anew, anew]);
        assert_eq!(lies(&archive, &all[1].head.id), 1);
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
    assert!(
        synced.synced < synced.bytes,
        "what the system may have lost is not said to be durable"
    );
    append(&archive, &all[1]).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    all_read(&archive, &all[..2]).await;
    archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
    let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.sealed).collect::<Vec<_>>(),
        [true, false],
        "it was read again, and closed"
    );
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

/// In how many places a capture lies, whatever the index says.
fn lies(archive: &Archive, id: &RequestId) -> usize {
    let mut found = 0;
    for file in segments(archive.store.dir()) {
        let number = format::number(file.file_name().unwrap().to_str().unwrap()).unwrap();
        let segment = archive.make.open(number).unwrap();
        segment
            .scan(FIRST, false, |block| {
                if block.head.kind == Kind::Heads {
                    let heads = Parts::heads(&segment, block.offset)?;
                    let ids = (0..)
                        .map_while(|at| heads.head(at))
                        .map(|head| serde_json::from_slice::<Head>(&head).unwrap().id);
                    found += ids.filter(|known| known == id).count();
                }
                Ok(())
            })
            .unwrap();
    }
    found
}

/// What was in its file, could not be taken back, and was written once more: a deletion is one of both.
#[tokio::test]
async fn what_was_written_twice_leaves_both_places_when_it_is_deleted() {
    // By a failure that follows another, or a panic, also in a segment of which the index knows nothing.
    for (panics, is_known) in [(false, true), (true, true), (true, false)] {
        // Before the first of them is read again, after that, and after the index was made anew.
        for deleted in 0..3 {
            let case = format!("panics: {panics}, is_known: {is_known}, deleted: {deleted}");
            let dir = tempfile::tempdir().unwrap();
            let all = captures(0..3);
            let clock = Clock::manual(all[2].head.created_at);
            let (archive, faults) = failing(dir.path()).await;
            let mut archive = archive.with_clock(clock.clone());
            if is_known {
                append(&archive, &all[0]).await.unwrap();
            }
            if panics {
                faults.panic_at(PanicPoint::Written, 1, "a mistake");
            } else {
                faults.tear_write(usize::MAX);
                faults.fail_truncations(2);
            }
            append(&archive, &all[1]).await.unwrap_err();
            if !is_known {
                append(&archive, &all[0]).await.unwrap();
            }
            append(&archive, &all[1]).await.unwrap();
            append(&archive, &all[2]).await.unwrap();
            assert_eq!(lies(&archive, &all[1].head.id), 2, "{case}");
            let tend = async |archive: &Archive| {
                archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap()
            };
            match deleted {
                0 => {}
                1 => tend(&archive).await,
                _ => {
                    archive.close().await.unwrap();
                    drop(archive);
                    for name in ["captures.db", "captures.db-wal", "captures.db-shm"] {
                        let _none = std::fs::remove_file(dir.path().join(name));
                    }
                    archive = failing(dir.path()).await.0.with_clock(clock.clone());
                    archive.recover().await.unwrap();
                    archive.catch_up().await.unwrap();
                }
            }
            all_read(&archive, &all).await;
            archive.delete(&all[1].head.id, false).await.unwrap();
            archive.close().await.unwrap();
            let left = [all[0].clone(), all[2].clone()];
            // The first finds what was left, the second what is due.
            tend(&archive).await;
            clock.advance(bounds::REWRITE_AFTER);
            tend(&archive).await;
            assert_eq!(lies(&archive, &all[1].head.id), 0, "{case}");
            all_read(&archive, &left).await;
            assert_eq!(archive.get(&all[1].head.id).await.unwrap(), None, "{case}");
            drop(archive);
            all_read(&restarted(dir.path()).await, &left).await;
        }
    }
}

/// What nobody deletes is there once, and stays.
#[tokio::test]
async fn what_was_written_twice_stays_in_one_place() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..3);
    let clock = Clock::manual(all[2].head.created_at);
    let (archive, faults) = failing(dir.path()).await;
    let archive = archive.with_clock(clock.clone());
    append(&archive, &all[0]).await.unwrap();
    faults.panic_at(PanicPoint::Written, 1, "a mistake");
    append(&archive, &all[1]).await.unwrap_err();
    append(&archive, &all[1]).await.unwrap();
    append(&archive, &all[2]).await.unwrap();
    archive.close().await.unwrap();
    for (advances, places) in [(false, 2), (true, 1), (true, 1)] {
        if advances {
            clock.advance(bounds::REWRITE_AFTER);
        }
        archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
        all_read(&archive, &all).await;
        assert_eq!(lies(&archive, &all[1].head.id), places);
    }
}
