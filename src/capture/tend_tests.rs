//! Captures as they age, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::capture::index::tests::{archive, captures, ids, ids_of, segments};
use crate::capture::record::Capture;
use crate::clock::Clock;

async fn append(archive: &Archive, captures: &[Capture]) {
    archive.append(Arc::new(captures.to_vec())).await.unwrap();
}

#[tokio::test]
async fn segments_leave_by_age_and_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let start = captures(0..1)[0].head.created_at;
    let clock = Clock::manual(captures(6..7)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let all = captures(0..6);
    for pair in all.chunks(2) {
        append(&archive, pair).await;
        archive.close().await.unwrap();
    }
    let us = |second: i64| start.as_microsecond() + second * 1_000_000;
    archive.tend(clock.now(), us(1), u64::MAX).await.unwrap();
    assert_eq!(
        (ids(&archive).await, segments(dir.path()).len()),
        (ids_of(&all), 3),
        "its newest is young enough"
    );
    archive.tend(clock.now(), us(2), u64::MAX).await.unwrap();
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&all[2..]), 2));
    let held: u64 = segments(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    archive.tend(clock.now(), i64::MIN, held).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    archive.tend(clock.now(), i64::MIN, held - 1).await.unwrap();
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&all[4..]), 1));
    assert_eq!(archive.get(&all[0].head.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_segment_is_closed_when_it_is_old_or_larger_than_all_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(0..1)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let sealed = async || {
        archive
            .store
            .write_captures(|index| index.segments())
            .await
            .unwrap()
            .iter()
            .map(|row| row.sealed)
            .collect::<Vec<_>>()
    };
    append(&archive, &captures(0..1)).await;
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(sealed().await, [false]);
    clock.advance(bounds::SEGMENT_AGE);
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(sealed().await, [true]);
    append(&archive, &captures(1..2)).await;
    archive.tend(clock.now(), i64::MIN, 1).await.unwrap();
    assert!(sealed().await.is_empty() && segments(dir.path()).is_empty());
    append(&archive, &captures(2..3)).await;
    assert_eq!(ids(&archive).await, ids_of(&captures(2..3)));
}

#[tokio::test]
async fn the_bytes_of_what_was_deleted_leave_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(0..1)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let mut all = captures(0..6);
    // Two groups in one segment, and one whose every capture goes.
    append(&archive, &all[..3]).await;
    append(&archive, &all[3..5]).await;
    append(&archive, &all[5..]).await;
    for at in [1, 5] {
        archive.delete(&all[at].head.id, false).await.unwrap();
        assert_eq!(archive.get(&all[at].head.id).await.unwrap(), None);
    }
    archive.close().await.unwrap();
    let before = segments(dir.path());
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(segments(dir.path()), before, "others may still be deleted");
    clock.advance(bounds::REWRITE_AFTER);
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    let after = segments(dir.path());
    assert!(after.len() == 1 && after != before);
    all.remove(5);
    all.remove(1);
    assert_eq!(ids(&archive).await, ids_of(&all));
    for capture in &all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
    let segment = archive
        .segment(format::number(after[0].file_name().unwrap().to_str().unwrap()).unwrap())
        .unwrap();
    let (mut heads, mut graves) = (0, 0);
    segment
        .scan(FIRST, true, |found| {
            match found.head.kind {
                Kind::Heads => heads += found.head.count,
                Kind::Graves => graves += found.head.count,
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    assert_eq!((heads, graves), (4, 2), "and who was deleted is still known");
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(segments(dir.path()), after, "once");
    assert!(REWRITE_WITHIN < Duration::from_secs(24 * 3600));
}

/// A deletion waits for so much, for the segment to be closed, and for the next look.
const REWRITE_WITHIN: Duration = bounds::REWRITE_AFTER
    .saturating_add(bounds::SEGMENT_AGE)
    .saturating_add(bounds::SWEEP_INTERVAL);

#[tokio::test]
async fn a_segment_that_is_replaced_in_part_is_replaced_later() {
    for restarts in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path()).await;
        let mut all = captures(0..4);
        append(&archive, &all).await;
        archive.delete(&all[1].head.id, false).await.unwrap();
        archive.close().await.unwrap();
        let old =
            format::number(segments(dir.path())[0].file_name().unwrap().to_str().unwrap()).unwrap();
        let graves = archive.store.write_captures(move |index| index.graves(old)).await.unwrap();
        let Anew { row, places } = archive.write_anew(old, &graves).unwrap();
        let path = format::path(&archive.make.dir, row.number);
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        let step = places[..1].to_vec();
        archive.store.write_captures(move |index| index.place_anew(old, &step)).await.unwrap();
        all.remove(1);
        assert_eq!(
            (ids(&archive).await, segments(dir.path()).len()),
            (ids_of(&all), 2),
            "either is read"
        );
        // One that is where it was is deleted in between, and one that has moved.
        for _ in 0..2 {
            archive.delete(&all.remove(0).head.id, false).await.unwrap();
        }
        let archive = if restarts {
            drop(archive);
            let archive = crate::capture::index::tests::archive(dir.path()).await;
            archive.recover().await.unwrap();
            archive.catch_up().await.unwrap();
            archive
        } else {
            archive.shared.half_done.store(true, Ordering::Release);
            archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
            archive
        };
        assert_eq!(ids(&archive).await, ids_of(&all), "restarts: {restarts}");
        assert!(!format::path(&archive.make.dir, old).exists() && path.exists());
        let graves =
            archive.store.write_captures(move |index| index.graves(row.number)).await.unwrap();
        assert_eq!(graves.len(), 2, "what was deleted meanwhile is to leave the new one");
    }
}

/// As many rows as one step moves, and more.
#[tokio::test]
async fn a_large_segment_is_replaced_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(0..1)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let all = captures(0..INDEX_STEP as i64 * 2 + 2);
    append(&archive, &all).await;
    archive.delete(&all[0].head.id, false).await.unwrap();
    archive.close().await.unwrap();
    let before = segments(dir.path());
    clock.advance(bounds::REWRITE_AFTER);
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_ne!(segments(dir.path()), before);
    let listed =
        archive.list(crate::store::CaptureFilter::default(), all.len(), None).await.unwrap();
    assert_eq!(listed.into_iter().map(|head| head.id).collect::<Vec<_>>(), ids_of(&all[1..]));
}

#[tokio::test]
async fn a_segment_that_could_not_be_closed_is_closed_later() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    append(&archive, &captures(0..2)).await;
    // As after a disk that was full when the segment was to be closed.
    archive.shelf.lock().unwrap().let_go_for_tests();
    append(&archive, &captures(2..3)).await;
    archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
    let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.sealed).collect::<Vec<_>>(),
        [true, false],
        "the one that is written to is left alone"
    );
    assert_eq!(ids(&archive).await, ids_of(&captures(0..3)));
}

#[tokio::test]
async fn a_step_that_fails_keeps_no_segment_from_leaving() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let faults = archive.make.faults.clone();
    let all = captures(0..5);
    for capture in &all[..3] {
        append(&archive, std::slice::from_ref(capture)).await;
        archive.close().await.unwrap();
    }
    append(&archive, &all[3..4]).await;
    let tend = async |bytes: u64| archive.tend(archive.make.clock.now(), i64::MIN, bytes).await;
    let held = async || {
        archive
            .store
            .write_captures(|index| index.segments())
            .await
            .unwrap()
            .iter()
            .map(|row| row.bytes)
            .sum::<u64>()
    };
    // The open segment cannot be closed, nor what is left of two be mended.
    faults.fail_syncs(3);
    archive.shelf.lock().unwrap().let_go_for_tests();
    append(&archive, &all[4..]).await;
    tend(1).await.unwrap_err();
    assert_eq!(segments(dir.path()).len(), 2, "what was closed has left all the same");
    assert_eq!(ids(&archive).await, ids_of(&all[3..]));
    tend(u64::MAX).await.unwrap();
    // One that cannot leave keeps no other.
    append(&archive, &captures(5..6)).await;
    archive.close().await.unwrap();
    let files = segments(dir.path());
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::create_dir(&files[0]).unwrap();
    tend(held().await - 1).await.unwrap_err();
    assert_eq!(segments(dir.path()).len(), files.len() - 1);
    assert!(files[0].exists());
}

#[tokio::test]
async fn a_segment_leaves_also_when_the_index_has_no_room_to_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    append(&archive, &captures(0..2)).await;
    archive.close().await.unwrap();
    archive.make.faults.fill_index(2);
    archive.tend(archive.make.clock.now(), i64::MIN, 1).await.unwrap_err();
    assert!(segments(dir.path()).is_empty(), "the disk has its bytes");
    archive.make.faults.clear();
    archive.tend(archive.make.clock.now(), i64::MIN, 1).await.unwrap();
    assert_eq!(ids(&archive).await, []);
    assert!(archive.store.write_captures(|index| index.segments()).await.unwrap().is_empty());
}

#[tokio::test]
async fn segments_leave_while_the_index_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    for capture in captures(0..2) {
        append(&archive, &[capture]).await;
        archive.close().await.unwrap();
    }
    let _rebuilding = archive.shared.rebuilding.lock().await;
    archive.tend(archive.make.clock.now(), i64::MIN, 1).await.unwrap();
    assert!(segments(dir.path()).is_empty());
}

/// Bends a byte in the middle of a block.
fn bend(file: &std::path::Path, archive: &Archive, at: u64) {
    let number = format::number(file.file_name().unwrap().to_str().unwrap()).unwrap();
    let head = archive.segment(number).unwrap().block_head(at).unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[(head.end(at) - u64::from(head.stored) / 2) as usize] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

/// In each of two groups: one without deletions, and one with.
#[tokio::test]
async fn a_damaged_block_costs_what_it_holds_also_when_its_segment_is_made_anew() {
    for kind in [Kind::Bodies, Kind::Rows, Kind::Heads] {
        for group in 0..2 {
            let dir = tempfile::tempdir().unwrap();
            let clock = Clock::manual(captures(0..1)[0].head.created_at);
            let archive = archive(dir.path()).await.with_clock(clock.clone());
            let all = captures(0..7);
            append(&archive, &all[..3]).await;
            append(&archive, &all[3..6]).await;
            append(&archive, &all[6..]).await;
            archive.delete(&all[4].head.id, false).await.unwrap();
            archive.close().await.unwrap();
            let place =
                archive.store.locate_capture(&all[3 * group].head.id).await.unwrap().unwrap();
            let file = segments(dir.path())[0].clone();
            let segment = archive.segment(place.segment).unwrap();
            let rows_at =
                segment.block_head(place.bodies.unwrap()).unwrap().end(place.bodies.unwrap());
            bend(
                &file,
                &archive,
                match kind {
                    Kind::Bodies => place.bodies.unwrap(),
                    Kind::Rows => rows_at,
                    _ => place.heads,
                },
            );
            archive.let_go(place.segment);
            clock.advance(bounds::REWRITE_AFTER);
            archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
            assert_ne!(segments(dir.path()), [file]);
            for (at, capture) in all.iter().enumerate().filter(|(at, _)| *at != 4) {
                let read = archive.get(&capture.head.id).await.unwrap();
                let hit = at / 3 == group;
                match kind {
                    Kind::Bodies if hit => {
                        let read = read.unwrap();
                        assert_eq!(
                            (read.head.not_replayable(), read.bodies),
                            (Some(crate::error::Kind::NotCaptured), Bodies::default())
                        );
                    }
                    Kind::Heads if hit => assert_eq!(read, None, "{at}"),
                    _ => assert_eq!(read.as_ref(), Some(capture), "{kind:?} {group} {at}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_leaves_when_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    append(&archive, &captures(0..1)).await;
    archive.close().await.unwrap();
    let begun = archive.make.clock.now().as_microsecond();
    let stray = format::path(&archive.make.dir, begun);
    std::fs::write(&stray, b"nonsense").unwrap();
    let tend = async |before_us: i64| {
        archive.tend(archive.make.clock.now(), before_us, u64::MAX).await.unwrap()
    };
    for before_us in [i64::MIN, begun] {
        tend(before_us).await;
        assert!(stray.exists(), "what was in it may be younger");
    }
    tend(begun + 2 * bounds::SEGMENT_AGE.as_micros() as i64 + 1).await;
    assert!(segments(dir.path()).is_empty());
}

/// The index as it was before, the files as they were after.
#[tokio::test]
async fn a_loss_of_power_that_only_files_outlived_brings_nothing_back() {
    for moved in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path()).await;
        let all = captures(0..4);
        append(&archive, &all).await;
        archive.delete(&all[1].head.id, false).await.unwrap();
        archive.close().await.unwrap();
        let old =
            format::number(segments(dir.path())[0].file_name().unwrap().to_str().unwrap()).unwrap();
        let graves = archive.store.write_captures(move |index| index.graves(old)).await.unwrap();
        let Anew { row, places } = archive.write_anew(old, &graves).unwrap();
        let path = format::path(&archive.make.dir, row.number);
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        let step = places[..moved].to_vec();
        archive.store.write_captures(move |index| index.place_anew(old, &step)).await.unwrap();
        for at in [0, 2] {
            archive.delete(&all[at].head.id, false).await.unwrap();
        }
        std::fs::remove_file(format::path(&archive.make.dir, old)).unwrap();
        drop(archive);
        let archive = crate::capture::index::tests::archive(dir.path()).await;
        let recovered = archive.recover().await.unwrap();
        assert_eq!((recovered.lost, recovered.unknown), (0, 1), "what stands for it has them");
        assert_eq!(archive.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 503);
        archive.catch_up().await.unwrap();
        assert_eq!(ids(&archive).await, ids_of(&all[3..]), "moved: {moved}");
        assert_eq!(archive.get(&all[3].head.id).await.unwrap().as_ref(), Some(&all[3]));
        for capture in &all[..3] {
            assert_eq!(archive.get(&capture.head.id).await.unwrap(), None);
        }
    }
}

#[tokio::test]
async fn who_deletes_without_end_keeps_no_segment_from_being_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(captures(999..1_000)[0].head.created_at);
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let all = captures(0..400);
    append(&archive, &all).await;
    archive.delete(&all[0].head.id, false).await.unwrap();
    archive.close().await.unwrap();
    clock.advance(bounds::REWRITE_AFTER);
    let before = archive.lock().next_number();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let deleted = async {
        let mut deleted = 1;
        while !ended.load(Ordering::Acquire) && deleted < all.len() - 1 {
            archive.delete(&all[deleted].head.id, false).await.unwrap();
            deleted += 1;
        }
        deleted
    };
    let tended = async {
        archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
        ended.store(true, Ordering::Release);
    };
    let (deleted, ()) = tokio::join!(deleted, tended);
    let numbers = archive.lock().next_number() - before - 1;
    assert!(numbers <= 2, "{numbers}: one is written anew, and one the deletions are in");
    assert_eq!(ids(&archive).await, ids_of(&all[deleted..]));
    // What was deleted meanwhile has its own hour.
    clock.advance(bounds::REWRITE_AFTER);
    archive.tend(clock.now(), i64::MIN, u64::MAX).await.unwrap();
    assert_eq!(ids(&archive).await, ids_of(&all[deleted..]));
    let mut heads = 0;
    for path in segments(dir.path()) {
        let segment = archive
            .segment(format::number(path.file_name().unwrap().to_str().unwrap()).unwrap())
            .unwrap();
        let count = |found: crate::capture::segment::reader::Found| {
            heads += if found.head.kind == Kind::Heads { found.head.count as usize } else { 0 };
            Ok(())
        };
        segment.scan(FIRST, true, count).unwrap();
    }
    assert_eq!(heads, all.len() - deleted, "no byte of them is left");
}

fn set(clock: &Clock, at: Timestamp) {
    let Clock::Manual(time) = clock else { panic!("the machine's clock is not set by tests") };
    time.store(at.as_microsecond(), Ordering::Release);
}

const DAY: i64 = 24 * 3_600;

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_nothing_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let at = |second: i64| captures(second..second + 1)[0].head.created_at;
    let clock = Clock::manual(at(10 * DAY));
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    let all = captures(10 * DAY - 2..10 * DAY);
    append(&archive, &all).await;
    archive.delete(&all[0].head.id, false).await.unwrap();
    archive.close().await.unwrap();
    let files = segments(dir.path());
    set(&clock, at(0));
    let tend = async || {
        archive
            .tend(clock.now(), clock.now().as_microsecond() - DAY * 1_000_000, u64::MAX)
            .await
            .unwrap()
    };
    tend().await;
    let anew = segments(dir.path());
    assert!(anew.len() == 1 && anew != files, "its bytes have left");
    tend().await;
    assert_eq!(segments(dir.path()), anew, "once");
    assert_eq!(ids(&archive).await, ids_of(&all[1..]));
    // A start does not begin the wait anew.
    drop(archive);
    let archive = crate::capture::index::tests::archive(dir.path()).await.with_clock(clock.clone());
    let tend = async || {
        archive
            .tend(clock.now(), clock.now().as_microsecond() - DAY * 1_000_000, u64::MAX)
            .await
            .unwrap()
    };
    archive.recover().await.unwrap();
    set(&clock, at(DAY));
    tend().await;
    assert_eq!(ids(&archive).await, ids_of(&all[1..]), "it may be as young");
    set(&clock, at(DAY + 1));
    tend().await;
    assert!(segments(dir.path()).is_empty(), "it is as old, whatever it says");
}

#[tokio::test]
async fn what_is_old_leaves_also_when_nothing_can_be_noted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |second: i64| captures(second..second + 1)[0].head.created_at;
    let clock = Clock::manual(at(0));
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    for second in [0, 10 * DAY, 20 * DAY] {
        append(&archive, &captures(second..second + 1)).await;
        archive.close().await.unwrap();
    }
    let left = async |bytes: u64| {
        let tended =
            archive.tend(clock.now(), clock.now().as_microsecond() - DAY * 1_000_000, bytes).await;
        (tended.is_ok(), ids(&archive).await)
    };
    let of = |second: i64| ids_of(&captures(second..second + 1));
    // Two are ahead, and noted; of one of them time has come since.
    assert!(left(u64::MAX).await.0);
    set(&clock, at(10 * DAY));
    archive.make.faults.fill_notes();
    assert_eq!(left(u64::MAX).await, (false, of(10 * DAY)));
    archive.make.faults.clear();
    append(&archive, &captures(30 * DAY..30 * DAY + 1)).await;
    archive.close().await.unwrap();
    archive.make.faults.fill_notes();
    assert_eq!(left(1).await, (false, Vec::new()));
}

/// As on a machine that learns the time a while after it starts.
#[tokio::test]
async fn a_clock_that_was_behind_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |second: i64| captures(second..second + 1)[0].head.created_at;
    let clock = Clock::manual(at(0));
    let archive = archive(dir.path()).await.with_clock(clock.clone());
    append(&archive, &captures(0..2)).await;
    archive.close().await.unwrap();
    for second in [-100 * DAY, 10] {
        set(&clock, at(second));
        archive
            .tend(clock.now(), clock.now().as_microsecond() - DAY * 1_000_000, u64::MAX)
            .await
            .unwrap();
        assert_eq!(ids(&archive).await, ids_of(&captures(0..2)), "{second}");
    }
}

#[tokio::test]
async fn a_segment_that_is_never_closed_leaves_when_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let all = captures(0..3);
    append(&archive, &all[..2]).await;
    archive.shelf.lock().unwrap().let_go_for_tests();
    append(&archive, &all[2..]).await;
    let newest_us =
        all[1].head.created_at.as_microsecond() + bounds::SEGMENT_AGE.as_micros() as i64;
    for (before_us, left) in [(newest_us, &all[..]), (newest_us + 1, &all[2..])] {
        archive.make.faults.fail_syncs(1);
        archive.tend(archive.make.clock.now(), before_us, u64::MAX).await.unwrap_err();
        assert_eq!(ids(&archive).await, ids_of(left), "and the one that is written to never");
    }
}
