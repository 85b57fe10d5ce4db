//! What is left when a process ends wherever it ends, or loses its index, or comes from before there were segments.

use std::path::Path;

use super::*;
use crate::capture::index::tests::{archive, captures, ids, ids_of, segments};
use crate::capture::record::Capture;
use crate::id::Random;
use crate::secret::{Keyring, Purpose, SecretBytes};

/// The archive of the next process: the one before left without a word.
async fn restarted(dir: &Path) -> (Archive, Recovered) {
    let archive = archive(dir).await;
    let recovered = archive.recover().await.unwrap();
    archive.catch_up().await.unwrap();
    (archive, recovered)
}

async fn append(archive: &Archive, captures: &[Capture]) {
    for capture in captures {
        archive.append(Arc::new(vec![capture.clone()])).await.unwrap();
    }
}

fn drop_index(dir: &Path) {
    for name in ["captures.db", "captures.db-wal", "captures.db-shm"] {
        let _none = std::fs::remove_file(dir.join(name));
    }
}

async fn all_read(archive: &Archive, all: &[Capture]) {
    assert_eq!(ids(archive).await, ids_of(all));
    for capture in all {
        assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
    }
}

#[tokio::test]
async fn a_process_that_is_killed_loses_nothing_that_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..4 {
        let (archive, recovered) = restarted(dir.path()).await;
        assert_eq!((recovered.lost, recovered.unknown, recovered.read > 0), (0, 0, round > 0));
        all_read(&archive, &all).await;
        let more = captures(3 * round..3 * round + 3);
        append(&archive, &more).await;
        all.extend(more);
        // Half a block that was being written.
        let file = std::fs::File::options()
            .append(true)
            .open(segments(dir.path()).pop().unwrap())
            .unwrap();
        std::io::Write::write_all(&mut &file, b"RRb1 and so on").unwrap();
    }
    let (archive, _) = restarted(dir.path()).await;
    all_read(&archive, &all).await;
    append(&archive, &captures(20..21)).await;
    archive.close().await.unwrap();
    drop(archive);
    let (archive, recovered) = restarted(dir.path()).await;
    assert_eq!(
        (recovered, ids(&archive).await.len()),
        (Recovered::default(), 13),
        "after an orderly end there is nothing to read"
    );
}

#[tokio::test]
async fn a_new_index_is_complete_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    assert_eq!(archive.recover().await.unwrap(), Recovered::default());
    archive.check_complete().expect("nothing is there that it could not know");
}

#[tokio::test]
async fn what_only_one_of_index_and_segment_kept_is_told_to_the_other_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..6);
    let first = archive(dir.path()).await;
    append(&first, &all[..2]).await;
    first.shelf.lock().unwrap().sync_for_tests();
    append(&first, &all[2..3]).await;
    first.store.write_captures(|index| index.empty_log()).await.unwrap();
    let index = std::fs::read(dir.path().join("captures.db")).unwrap();
    append(&first, &all[3..]).await;
    drop(first);
    // The index as it was a while ago.
    drop_index(dir.path());
    std::fs::write(dir.path().join("captures.db"), index).unwrap();
    let (archive, recovered) = restarted(dir.path()).await;
    assert_eq!((recovered.found, recovered.lost), (3, 0));
    all_read(&archive, &all).await;
    append(&archive, &captures(10..13)).await;
    let length = std::fs::metadata(segments(dir.path()).pop().unwrap()).unwrap().len();
    drop(archive);
    // The segment as it was a while ago: the loss of power.
    std::fs::File::options()
        .write(true)
        .open(segments(dir.path()).pop().unwrap())
        .unwrap()
        .set_len(length - 20)
        .unwrap();
    let (archive, recovered) = restarted(dir.path()).await;
    assert_eq!(recovered.lost, 1);
    all_read(&archive, &[&all[..], &captures(10..12)].concat()).await;
}

#[tokio::test]
async fn an_index_that_is_gone_is_made_again_without_what_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = captures(0..6);
    let first = archive(dir.path()).await;
    append(&first, &all[..3]).await;
    first.close().await.unwrap();
    append(&first, &all[3..]).await;
    assert_eq!(first.delete(&all[1].head.id, false).await.unwrap(), []);
    first.delete(&all[4].head.id, false).await.unwrap();
    drop(first);
    drop_index(dir.path());
    let archive = archive(dir.path()).await;
    assert_eq!(archive.recover().await.unwrap(), Recovered { unknown: 2, ..Recovered::default() });
    for id in [&all[0].head.id, &all[1].head.id] {
        assert_eq!(archive.get(id).await.unwrap_err().status().as_u16(), 503, "nobody can say yet");
        assert_eq!(archive.delete(id, false).await.unwrap_err().status().as_u16(), 503);
    }
    // Writing goes on meanwhile.
    append(&archive, &captures(9..10)).await;
    archive.catch_up().await.unwrap();
    assert_eq!(archive.get(&all[1].head.id).await.unwrap(), None);
    all.extend(captures(9..10));
    all.remove(4);
    all.remove(1);
    all_read(&archive, &all).await;
    let due = archive.store.write_captures(|index| index.due(i64::MAX, i64::MAX)).await.unwrap();
    assert_eq!(due.len(), 2, "the bytes of both are still to go");
}

#[tokio::test]
async fn a_segment_that_is_not_there_or_no_segment_costs_what_it_held() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..6);
    let first = archive(dir.path()).await;
    for pair in all.chunks(2) {
        append(&first, pair).await;
        first.close().await.unwrap();
    }
    drop(first);
    let files = segments(dir.path());
    std::fs::remove_file(&files[0]).unwrap();
    let (archive, recovered) = restarted(dir.path()).await;
    assert_eq!(recovered.lost, 2);
    all_read(&archive, &all[2..]).await;
    drop(archive);
    drop_index(dir.path());
    std::fs::write(&files[1], b"nonsense").unwrap();
    let (archive, _) = restarted(dir.path()).await;
    all_read(&archive, &all[4..]).await;
}

#[tokio::test]
async fn a_start_between_a_segment_and_the_one_that_replaces_it_ends_the_exchange() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..3);
    let first = archive(dir.path()).await;
    append(&first, &all).await;
    first.close().await.unwrap();
    first.delete(&all[1].head.id, false).await.unwrap();
    first.close().await.unwrap();
    let files = segments(dir.path());
    let old = std::fs::read(&files[0]).unwrap();
    let later = first.make.clock.now() + crate::bounds::REWRITE_AFTER;
    first.tend(later, i64::MIN, u64::MAX).await.unwrap();
    drop(first);
    assert!(!files[0].exists() && segments(dir.path()).len() == 2);
    let left = [all[0].clone(), all[2].clone()];
    // The process ended before the old file went; and once more without the index.
    for keeps_index in [true, false] {
        std::fs::write(&files[0], &old).unwrap();
        if !keeps_index {
            drop_index(dir.path());
        }
        let (archive, _) = restarted(dir.path()).await;
        all_read(&archive, &left).await;
        assert_eq!(archive.get(&all[1].head.id).await.unwrap(), None);
        assert!(!files[0].exists(), "keeps_index: {keeps_index}");
    }
}

#[tokio::test]
async fn captures_of_the_store_before_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = captures(0..70);
    let key = Keyring::from(&SecretBytes::new([9; 32])).derive(Purpose::Captures, b"");
    std::fs::create_dir_all(dir.path()).unwrap();
    crate::store::make_captures_of_the_second_schema(&dir.path().join("captures.db"), |insert| {
        for (at, capture) in all.iter().enumerate() {
            let Bodies { request, response } = &capture.bodies;
            let mut plain = vec![1];
            plain.extend(
                (request.len() as u64)
                    .to_be_bytes()
                    .into_iter()
                    .chain((response.len() as u64).to_be_bytes()),
            );
            plain.extend(request.iter().chain(response));
            let sealed =
                secret::seal(&key, capture.head.id.as_str().as_bytes(), &plain, &Random::System)
                    .unwrap();
            let kept =
                if at == 1 { [&[0][..], &plain].concat() } else { [&[1][..], &sealed].concat() };
            let kept = if at == 2 { vec![1; 90] } else { kept };
            insert(
                &prepare::of(&capture.head, Bodies::default()).unwrap().row,
                &serde_json::to_vec(&capture.head).unwrap(),
                &kept,
            );
        }
    });
    // What does not open is not there.
    all[2].bodies = Bodies::default();
    all[2].head.request_captured = false;
    // The first start ends after a step.
    let first = archive(dir.path()).await;
    assert_eq!(first.recover().await.unwrap(), Recovered::default());
    assert_eq!(first.get(&all[0].head.id).await.unwrap_err().status().as_u16(), 503);
    first
        .store
        .write_captures(|index| {
            let old = index.old(1)?;
            assert!(index.has_old()? && old.len() == 1);
            Ok(())
        })
        .await
        .unwrap();
    drop(first);
    let (archive, _) = restarted(dir.path()).await;
    all_read(&archive, &all).await;
    assert!(!archive.store.write_captures(|index| index.has_old()).await.unwrap());
    drop(archive);
    let (archive, recovered) = restarted(dir.path()).await;
    assert_eq!(recovered, Recovered::default());
    all_read(&archive, &all).await;
}

/// What was moved, and what is new, makes no room for what waits to be moved.
#[tokio::test]
async fn captures_of_the_store_before_do_not_count_before_they_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..12);
    let row = |capture: &Capture| prepare::of(&capture.head, Bodies::default()).unwrap().row;
    crate::store::make_captures_of_the_second_schema(&dir.path().join("captures.db"), |insert| {
        for capture in &all[..10] {
            insert(&row(capture), &serde_json::to_vec(&capture.head).unwrap(), &[1; 100_000]);
        }
    });
    let archive = archive(dir.path()).await;
    for capture in &all[10..] {
        append(&archive, std::slice::from_ref(capture)).await;
        archive.close().await.unwrap();
    }
    let held: u64 = segments(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    archive.tend(archive.make.clock.now(), i64::MIN, held).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 2);
    archive.tend(archive.make.clock.now(), i64::MIN, held - 1).await.unwrap();
    assert_eq!(segments(dir.path()).len(), 1, "what is in segments counts");
    let ids: Vec<_> = all[..10].iter().map(|capture| capture.head.id.clone()).collect();
    archive.store.write_captures(move |index| index.forget_old(&ids)).await.unwrap();
    archive
        .store
        .write_captures(|index| index.bytes().map(|bytes| assert_eq!(bytes, 0, "they are gone")))
        .await
        .unwrap();
}

#[tokio::test]
async fn segments_that_were_only_begun_go_at_the_start_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = crate::metrics::Metrics::new().unwrap();
    let first = archive(dir.path()).await;
    let all = captures(0..2);
    append(&first, &all).await;
    first.close().await.unwrap();
    drop(first);
    let whole = std::fs::read(&segments(dir.path())[0]).unwrap();
    let named = |number: i64| format::path(&dir.path().join("captures"), number);
    let begun: [&[u8]; 4] = [b"", &whole[..5], &whole[..FIRST as usize], &[0; FIRST as usize]];
    for (number, bytes) in (1..).zip(begun) {
        std::fs::write(named(number), bytes).unwrap();
    }
    std::fs::write(named(9), b"nonsense").unwrap();
    let archive = archive(dir.path()).await.counting(metrics.clone());
    let recovered = archive.recover().await.unwrap();
    assert_eq!(
        (recovered.unknown, segments(dir.path()).len()),
        (1, 2),
        "what may have been one stays"
    );
    archive.catch_up().await.unwrap();
    all_read(&archive, &all).await;
    assert!(metrics.render().contains("rerouter_capture_blocks_damaged_total 1"));
}

#[tokio::test]
async fn a_start_that_could_not_look_says_so_and_looks_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = archive(dir.path()).await;
    let all = captures(0..4);
    append(&first, &all[..2]).await;
    first.close().await.unwrap();
    append(&first, &all[2..3]).await;
    drop(first);
    let archive = archive(dir.path()).await;
    archive.make.faults.fail_syncs(1);
    archive.recover().await.unwrap_err();
    let absent = RequestId::known("req_absent");
    assert_eq!(archive.get(&absent).await.unwrap_err().status().as_u16(), 503, "nobody can say");
    append(&archive, &all[3..]).await;
    archive.make.faults.fail_syncs(1);
    archive.catch_up().await.unwrap_err();
    assert_eq!(archive.get(&absent).await.unwrap_err().status().as_u16(), 503);
    archive.catch_up().await.unwrap();
    assert_eq!(archive.get(&absent).await.unwrap(), None);
    all_read(&archive, &all).await;
    let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test]
async fn captures_whose_rows_are_damaged_are_found_by_their_heads() {
    let all = captures(0..6);
    // A byte of the block, and of its head.
    for within in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let first = archive(dir.path()).await;
        for pair in all.chunks(2) {
            first.append(Arc::new(pair.to_vec())).await.unwrap();
        }
        first.close().await.unwrap();
        let bodies =
            first.store.locate_capture(&all[2].head.id).await.unwrap().unwrap().bodies.unwrap();
        let file = segments(dir.path())[0].clone();
        let segment = first
            .segment(format::number(file.file_name().unwrap().to_str().unwrap()).unwrap())
            .unwrap();
        let rows = segment.block_head(bodies).unwrap().end(bodies) as usize;
        drop(first);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[rows + if within { 60 } else { 9 }] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        drop_index(dir.path());
        let (archive, _) = restarted(dir.path()).await;
        all_read(&archive, &all).await;
    }
}

/// As many rows as one step takes, and more: whichever change of the index fails, nothing that was deleted is back, and nothing
/// is said to be absent before it is known.
#[tokio::test]
async fn a_rebuild_that_fails_at_any_step_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = captures(0..INDEX_STEP as i64 + 200);
    let first = archive(dir.path()).await;
    for part in all.chunks(100) {
        first.append(Arc::new(part.to_vec())).await.unwrap();
    }
    first.close().await.unwrap();
    let deleted = [all.remove(INDEX_STEP + 150), all.remove(7)].map(|capture| capture.head.id);
    for id in &deleted {
        first.delete(id, false).await.unwrap();
    }
    drop(first);
    let list = async |archive: &Archive| {
        let heads = archive
            .list(crate::store::CaptureFilter::default(), 2 * INDEX_STEP, None)
            .await
            .unwrap();
        heads.into_iter().map(|head| head.id).collect::<Vec<_>>()
    };
    let mut failures = 0;
    for spared in 0.. {
        drop_index(dir.path());
        let archive = archive(dir.path()).await;
        archive.recover().await.unwrap();
        archive.make.faults.fail_append_after(spared);
        let failed = archive.catch_up().await.is_err();
        archive.make.faults.clear();
        if failed {
            // What is done now and then must not take it for done either.
            for tends in [false, true] {
                if tends {
                    archive.tend(archive.make.clock.now(), i64::MIN, u64::MAX).await.unwrap();
                }
                for id in &deleted {
                    assert_eq!(
                        archive.get(id).await.unwrap_err().status().as_u16(),
                        503,
                        "{spared} {tends}"
                    );
                    assert_eq!(
                        archive.delete(id, false).await.unwrap_err().status().as_u16(),
                        503,
                        "{spared} {tends}"
                    );
                }
            }
            failures += 1;
            archive.catch_up().await.unwrap();
        }
        assert_eq!(list(&archive).await, ids_of(&all), "{spared}");
        for id in &deleted {
            assert_eq!(archive.get(id).await.unwrap(), None, "{spared}");
        }
        let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [true, true], "{spared}");
        if !failed {
            break;
        }
    }
    assert!(failures >= 7, "{failures} steps");
}

/// The same when the process ends there.
#[tokio::test]
async fn a_rebuild_that_is_killed_between_two_steps_goes_on_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = captures(0..4);
    let first = archive(dir.path()).await;
    append(&first, &all).await;
    first.close().await.unwrap();
    let deleted = all.remove(1).head.id;
    first.delete(&deleted, false).await.unwrap();
    first.close().await.unwrap();
    drop(first);
    drop_index(dir.path());
    let second = archive(dir.path()).await;
    second.recover().await.unwrap();
    // What is deleted was read, the segments were learnt from the newest on, and of the oldest a step went well.
    second.make.faults.fail_append_after(5);
    second.catch_up().await.unwrap_err();
    let rows = second.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [false, true]);
    drop(second);
    let third = archive(dir.path()).await;
    assert_eq!(third.recover().await.unwrap().unknown, 1);
    assert_eq!(third.get(&deleted).await.unwrap_err().status().as_u16(), 503);
    third.catch_up().await.unwrap();
    all_read(&third, &all).await;
    assert_eq!(third.get(&deleted).await.unwrap(), None);
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_now_is_neither_lost_nor_closed() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = crate::metrics::Metrics::new().unwrap();
    let all = captures(0..2);
    let first = archive(dir.path()).await;
    append(&first, &all).await;
    drop(first);
    let (file, aside) = (segments(dir.path()).remove(0), dir.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    // It opens and does not read.
    std::fs::create_dir(&file).unwrap();
    let archive = archive(dir.path()).await.counting(metrics.clone());
    archive.recover().await.unwrap_err();
    assert_eq!(
        archive.get(&RequestId::known("req_absent")).await.unwrap_err().status().as_u16(),
        503,
        "nobody can say"
    );
    let rows = archive.store.write_captures(|index| index.segments()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.sealed).collect::<Vec<_>>(), [false]);
    assert!(
        metrics.render().contains("rerouter_capture_blocks_damaged_total 0"),
        "{}",
        metrics.render()
    );
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    archive.catch_up().await.unwrap();
    all_read(&archive, &all).await;
}

#[tokio::test]
async fn what_says_that_captures_were_deleted_stays_as_long_after_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let all = captures(0..2);
    let first = archive(dir.path()).await;
    append(&first, &all).await;
    first.close().await.unwrap();
    let before_us = first.make.clock.now().as_microsecond();
    first.delete(&all[0].head.id, false).await.unwrap();
    first.close().await.unwrap();
    drop(first);
    drop_index(dir.path());
    let (archive, _) = restarted(dir.path()).await;
    let files = segments(dir.path());
    archive.tend(archive.make.clock.now(), before_us, u64::MAX).await.unwrap();
    assert_eq!(
        segments(dir.path()),
        files[1..],
        "the captures are old, that one of them was deleted is not"
    );
}

#[tokio::test]
async fn what_the_index_takes_counts() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    for part in 0..4 {
        archive.append(Arc::new(captures(part * 400..(part + 1) * 400))).await.unwrap();
        archive.close().await.unwrap();
    }
    // As after the first look at what an earlier build left.
    archive
        .store
        .write_captures(|index| if index.has_old()? { index.forget_old(&[]) } else { Ok(()) })
        .await
        .unwrap();
    let held = async || {
        let all = archive
            .store
            .write_captures(|index| Ok((index.segments()?, index.bytes()?)))
            .await
            .unwrap();
        (all.0.iter().map(|segment| segment.bytes).sum::<u64>(), all.1)
    };
    let (segments_hold, index_takes) = held().await;
    assert!((100 * 1_600..1_000 * 1_600).contains(&index_takes), "{index_takes}");
    let tend =
        async |bytes: u64| archive.tend(archive.make.clock.now(), i64::MIN, bytes).await.unwrap();
    tend(segments_hold + index_takes).await;
    assert_eq!(segments(dir.path()).len(), 4);
    tend(segments_hold + index_takes - 1).await;
    assert_eq!(
        segments(dir.path()).len(),
        3,
        "the oldest makes room for the index as well, and no other"
    );
    let (segments_left, index_left) = held().await;
    assert!(segments_left < segments_hold && index_left < index_takes);
    tend(segments_left).await;
    assert!(segments(dir.path()).len() < 3);
}
