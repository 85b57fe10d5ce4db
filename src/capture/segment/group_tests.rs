//! Segments on real files: what is pushed is read, what is bent or moved is not, and what is cut costs what was cut.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::capture::prepare;
use crate::capture::record::tests::capture;
use crate::capture::redaction::Redactor;
use crate::capture::segment::format::{self, BLOCK_HEAD, BlockHead, FIRST};
use crate::capture::segment::writer::{Effort, begin};
use crate::id::{Random, UserId};
use crate::secret::SecretBytes;

fn master() -> SecretBytes {
    SecretBytes::new([5; 32])
}

fn ready(second: i64) -> Ready {
    prepare::ready(
        &capture(second, &UserId::known("usr_1"), &Random::seeded(second as u64)),
        &Redactor::default(),
    )
    .unwrap()
}

/// A segment of so many groups of two captures each, with graves after the first; gives what the index would be told.
fn write(dir: &Path, groups: i64, sealed: bool) -> Vec<(CaptureRow, Place)> {
    let (master, random) = (master(), Random::System);
    let head = begin(1, 0, 7, sealed.then_some((&master, &random))).unwrap();
    let mut writer = Writer::create(dir, head, None).unwrap();
    let mut rows = Vec::new();
    for group in 0..groups {
        rows.extend(push(&mut writer, [ready(2 * group), ready(2 * group + 1)]).unwrap());
        if group == 0 {
            push_graves(&mut writer, &[Grave { id: RequestId::known("req_gone"), at_us: 3 }])
                .unwrap();
        }
        writer.commit().unwrap();
    }
    rows
}

/// The ids that a rebuild of the index would find, and what the scan saw.
fn found(segment: &Segment) -> (Vec<RequestId>, crate::capture::segment::reader::Scanned) {
    let mut ids = Vec::new();
    let scanned = segment.scan(FIRST, true, |found| {
        if found.head.kind == Kind::Rows {
            ids.extend(Rows::read(segment, found.offset)?.rows.into_iter().map(|row| row.id));
        }
        Ok(())
    });
    (ids, scanned.unwrap())
}

#[test]
fn what_is_pushed_is_read_whatever_the_effort() {
    for (effort, sealed) in
        [(Effort::Usual, true), (Effort::Less, false), (Effort::None, true), (Effort::None, false)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (master, random) = (master(), Random::System);
        let head = begin(9, 4, 7, sealed.then_some((&master, &random))).unwrap();
        let mut writer = Writer::create(dir.path(), head, None).unwrap();
        writer.set_pace(effort);
        let rows = push(&mut writer, (0..5).map(ready)).unwrap();
        writer.commit().unwrap();
        let segment = Segment::open(dir.path(), 9, std::slice::from_ref(&master)).unwrap();
        assert_eq!(
            (segment.head().replaces, rows.len(), segment.has_ended().unwrap()),
            (4, 5, false)
        );
        for (second, (row, place)) in (0..).zip(&rows) {
            let expected = ready(second);
            assert_eq!(*row, expected.row);
            let head = Parts::heads(&segment, place.heads).unwrap().head(place.position).unwrap();
            assert_eq!(head, expected.head);
            let bodies = Parts::bodies(&segment, place.bodies.unwrap()).unwrap();
            assert_eq!(bodies.bodies_at(place.position), Some(expected.bodies));
            assert_eq!((bodies.bodies_at(5), bodies.head(0)), (None, None));
        }
        let bytes = std::fs::read(format::path(dir.path(), 9)).unwrap();
        let in_clear = memchr::memmem::find(&bytes, b"\"model\": \"auto\"").is_some();
        assert!(!(in_clear && sealed) && (in_clear || sealed || effort != Effort::None));
        let length = writer.finish().unwrap();
        assert!(segment.has_ended().unwrap() && segment.length().unwrap() == length);
        assert!(Segment::open(dir.path(), 9, &[SecretBytes::new([6; 32])]).is_ok() != sealed);
    }
}

#[test]
fn a_byte_that_is_bent_costs_its_block_and_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let rows = write(dir.path(), 3, true);
    let path = format::path(dir.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    let (begin, end) = (rows[2].1.heads as usize, rows[4].1.heads as usize);
    for at in begin..end {
        let mut bent = whole.clone();
        bent[at] ^= 1;
        std::fs::write(&path, &bent).unwrap();
        let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
        let (ids, scanned) = found(&segment);
        assert_eq!(scanned.whole, whole.len() as u64, "{at}");
        assert!(!scanned.damaged.is_empty(), "{at}");
        assert!(
            ids.contains(&rows[0].0.id) && ids.contains(&rows[5].0.id),
            "the groups before and after are whole: {at}"
        );
        let place = rows[2].1;
        let read = [
            Parts::heads(&segment, place.heads).is_err(),
            Parts::bodies(&segment, place.bodies.unwrap()).is_err(),
            !ids.contains(&rows[2].0.id),
        ];
        assert_eq!(read.iter().filter(|bad| **bad).count(), 1, "{at}: {read:?}");
    }
}

#[test]
fn a_block_in_another_place_or_segment_does_not_open() {
    for sealed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let rows = write(dir.path(), 2, sealed);
        let path = format::path(dir.path(), 1);
        let mut bytes = std::fs::read(&path).unwrap();
        let (first, second) = (rows[0].1.heads as usize, rows[2].1.heads as usize);
        let block = bytes[first..rows[0].1.bodies.unwrap() as usize].to_vec();
        bytes[second..second + block.len()].copy_from_slice(&block);
        std::fs::write(&path, &bytes).unwrap();
        let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
        assert!(
            Parts::heads(&segment, rows[0].1.heads).is_ok()
                && Parts::heads(&segment, rows[2].1.heads).is_err()
        );
        std::fs::copy(&path, format::path(dir.path(), 2)).unwrap();
        assert!(Segment::open(dir.path(), 2, &[master()]).is_err());
    }
}

/// Checksums are no secret: whoever moves or bends a block can make them right again. Then it is the seal that tells.
#[test]
fn a_block_whose_checksums_were_made_right_opens_only_where_nothing_is_sealed() {
    for sealed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let rows = write(dir.path(), 2, sealed);
        let path = format::path(dir.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        let (first, second) = (rows[0].1.heads, rows[2].1.heads);
        let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
        let (moved, there) =
            (segment.block_head(first).unwrap(), segment.block_head(second).unwrap());
        let begin = first as usize + BLOCK_HEAD;
        let kept = &whole[begin..begin + moved.stored as usize];
        // The block, under a head that is right there, in the place of the other one.
        let put = |head: &BlockHead, kept: &[u8]| {
            let (mut bytes, at) = (whole.clone(), second as usize);
            bytes[at..at + BLOCK_HEAD].copy_from_slice(&head.encode(1, second));
            bytes[at + BLOCK_HEAD..at + BLOCK_HEAD + kept.len()].copy_from_slice(kept);
            std::fs::write(&path, bytes).unwrap();
            let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
            assert_eq!(segment.block_head(second).unwrap(), *head, "the checksums are right");
            Parts::heads(&segment, second).map(|parts| parts.head(0)).map_err(|why| why.to_string())
        };
        let read = [moved.clone(), BlockHead { number: there.number, ..moved.clone() }]
            .map(|head| put(&head, kept));
        let expected = if sealed {
            Err("its seal is broken".to_owned())
        } else {
            Ok(Some(Bytes::from(ready(0).head)))
        };
        assert_eq!(read, [expected.clone(), expected]);
        // One byte of it bent.
        let bent: Vec<u8> = kept
            .iter()
            .enumerate()
            .map(|(at, byte)| if at == kept.len() / 2 { byte ^ 1 } else { *byte })
            .collect();
        let read = put(&BlockHead { sum: crc32fast::hash(&bent), ..moved }, &bent);
        assert!(!sealed || read == Err("its seal is broken".to_owned()));
    }
}

#[test]
fn what_is_taken_back_leaves_no_trace_and_no_number_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (master, random) = (master(), Random::System);
    let mut writer =
        Writer::create(dir.path(), begin(1, 0, 7, Some((&master, &random))).unwrap(), None)
            .unwrap();
    push(&mut writer, [ready(0)]).unwrap();
    writer.commit().unwrap();
    let segment = Segment::open(dir.path(), 1, std::slice::from_ref(&master)).unwrap();
    let first = segment.block_head(FIRST).unwrap();
    writer.rewind(FIRST).unwrap();
    assert!(writer.is_empty() && segment.length().unwrap() == FIRST);
    push(&mut writer, [ready(1)]).unwrap();
    writer.commit().unwrap();
    assert_eq!((first.number, segment.block_head(FIRST).unwrap().number), (0, 3));
    assert_eq!(found(&segment).0, [ready(1).row.id]);
}

#[test]
fn a_block_of_nonsense_is_no_block() {
    assert!(Parts::split(Bytes::from_static(&[0, 0, 0, 2, b'a', b'b']), 1, 1).is_some());
    for (raw, count, each) in [
        (&[0, 0, 0, 2, b'a'][..], 1, 1),
        (&[0, 0, 0, 0, 1], 1, 1),
        (&[0; 7], 1, 2),
        (&[255; 64], usize::MAX, 2),
    ] {
        assert!(Parts::split(Bytes::copy_from_slice(raw), count, each).is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Wherever a crash cuts the file, what was whole before is there, and what follows is cut at a place where one can go on.
    #[test]
    fn a_cut_costs_what_was_cut(at in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..80), sealed: bool) {
        let dir = tempfile::tempdir().unwrap();
        let rows = write(dir.path(), 3, sealed);
        let path = format::path(dir.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        // After which byte each group is whole.
        let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
        let mut ends = Vec::new();
        segment.scan(FIRST, true, |found| {
            if found.head.kind == Kind::Rows {
                ends.push(found.head.end(found.offset));
            }
            Ok(())
        }).unwrap();
        let cut = FIRST as usize + at.index(whole.len() - FIRST as usize);
        std::fs::write(&path, [&whole[..cut], &noise[..]].concat()).unwrap();
        let (ids, scanned) = found(&segment);
        let complete = ends.iter().filter(|end| **end <= cut as u64).count();
        let expected: Vec<RequestId> = rows.iter().take(2 * complete).map(|(row, _)| row.id.clone()).collect();
        prop_assert_eq!(ids, expected);
        prop_assert!(scanned.whole <= cut as u64 && scanned.damaged.is_empty() && !scanned.ended);
        prop_assert!(complete == 0 || scanned.whole >= ends[complete - 1]);
    }
}

#[test]
fn a_block_of_heads_is_small_also_where_no_bodies_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let master = master();
    let mut writer = Writer::create(dir.path(), begin(9, 0, 7, None).unwrap(), None).unwrap();
    let bodiless = |second| Ready { bodies: Bodies::default(), ..ready(second) };
    let (count, largest) = (200, (0..200).map(|second| ready(second).head.len()).max().unwrap());
    let rows = push(&mut writer, (0..count).map(bodiless)).unwrap();
    writer.commit().unwrap();
    let segment = Segment::open(dir.path(), 9, std::slice::from_ref(&master)).unwrap();
    let blocks: std::collections::BTreeSet<u64> =
        rows.iter().map(|(_, place)| place.heads).collect();
    assert!(blocks.len() > 1 && rows.len() as i64 == count);
    for at in blocks {
        assert!(
            segment.block_head(at).unwrap().raw as usize
                <= bounds::HEADS_BLOCK + largest + 4 * rows.len()
        );
    }
}

#[test]
fn blocks_of_all_lengths_are_read_whatever_is_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), begin(1, 0, 7, None).unwrap(), None).unwrap();
    let noise: Vec<u8> = (0..100_000_u64)
        .flat_map(|word| crc32fast::hash(&word.to_le_bytes()).to_le_bytes())
        .collect();
    let piece = crate::bounds::CAPTURE_PIECE;
    let mut pushed = Vec::new();
    for effort in [Effort::Usual, Effort::Less, Effort::None, Effort::Usual] {
        writer.set_pace(effort);
        for length in [0, 1, piece - 1, piece, piece + 1, 4 * piece, noise.len()] {
            for raw in [noise[..length].to_vec(), vec![b'a'; length]] {
                pushed.push((writer.push(Kind::Heads, 1, &raw).unwrap(), raw));
            }
        }
    }
    writer.commit().unwrap();
    let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
    for (offset, raw) in pushed {
        let (head, read) = segment.block(offset, Kind::Heads).unwrap();
        assert_eq!(head.raw as usize, raw.len());
        assert!(read == raw, "{} bytes", raw.len());
    }
}

/// What the disk does not give is not damaged: nobody may cut off what comes after.
#[test]
fn a_scan_ends_at_what_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2, false);
    let segment = Segment::open(dir.path(), 1, &[master()]).unwrap();
    let scanned =
        segment.scan(FIRST, true, |_| Err(Damage::Io(std::io::ErrorKind::OutOfMemory.into())));
    assert!(matches!(scanned, Err(Damage::Io(_))));
    let scanned = segment.scan(FIRST, true, |_| Err(Damage::Bytes("bent"))).unwrap();
    assert_eq!(
        (scanned.whole, scanned.damaged),
        (FIRST, Vec::new()),
        "beyond that is nothing that could be read"
    );
}
