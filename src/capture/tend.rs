//! What is done to captures as they age: segments beyond their retention leave, and those with deleted captures are made
//! anew without them. All of it in steps beside the writer.

use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::index::Archive;
use super::record::{Bodies, Head};
use super::segment::format::{self, FIRST, Kind};
use super::segment::group::{self, Groups, Parts, Ready, Rows};
use super::segment::reader::{Damage, Segment};
use super::segment::writer::Writer;
use crate::blocking::blocking;
use crate::bounds;
use crate::id::RequestId;
use crate::store::{CaptureIndex, CaptureRow, INDEX_STEP, Place, SegmentRow, StoreError};

/// A segment made anew, not under its name yet.
struct Anew {
    row: SegmentRow,
    places: Vec<(RequestId, Place)>,
}

impl Archive {
    /// Closes the open segment if it is due, lets those leave that are older than `before_us` (microseconds since the epoch)
    /// as a whole, and the oldest while all, with what the index takes for them, hold more than `bytes`; makes those anew whose
    /// deleted captures have waited for [`bounds::REWRITE_AFTER`].
    ///
    /// A step that fails keeps no other: what leaves may be what a full disk needs. The error is that of the last that failed.
    pub async fn tend(&self, now: Timestamp, before_us: i64, bytes: u64) -> Result<(), StoreError> {
        let (archive, closing) = (self.clone(), self.clone());
        let mut failed = self
            .store
            .write_captures(move |index| closing.lock().close_if_due(index, bytes))
            .await
            .err();
        // While the index is made again, segments that are not closed are being read or written, and the rest has time.
        let alone = self.shared.rebuilding.try_lock().ok();
        if alone.is_some() {
            let mended = self.store.write_captures(move |index| archive.mend_left(index)).await;
            failed = mended.err().or(failed);
        }
        failed = self.let_leave(now, before_us, bytes, alone.is_some()).await.err().or(failed);
        if alone.is_some() {
            failed = self.make_due_anew(now).await.err().or(failed);
            failed = self.let_strays_leave(before_us).await.err().or(failed);
        }
        failed = self.empty_log().await.err().or(failed);
        failed.map_or(Ok(()), Err)
    }

    /// Retention: whole segments leave, the oldest first. With `alone` also those that could not be closed yet: nobody knows
    /// when their last captures were, but for the age at which another segment begins.
    async fn let_leave(
        &self,
        now: Timestamp,
        before_us: i64,
        bytes: u64,
        alone: bool,
    ) -> Result<(), StoreError> {
        let (archive, now_us) = (self.clone(), now.as_microsecond());
        let segments = self.store.write_captures(move |index| {
            // What leaves may be the room that this takes: it says no more than which of them age by another time.
            let unnoted =
                archive.make.faults.before_noting().and_then(|()| index.note_ahead(now_us)).err();
            let segments = index.segments()?;
            let left: Vec<bool> = segments.iter().map(|row| archive.is_left(row)).collect();
            Ok((segments, left, index.ahead(now_us)?, index.bytes()?, unnoted))
        });
        let (segments, left, ahead, mut indexed, mut failed) = segments.await?;
        let span = i64::try_from(bounds::SEGMENT_AGE.as_micros()).unwrap_or(i64::MAX);
        let mut held: u64 = segments.iter().map(|segment| segment.bytes).sum();
        for (segment, left) in segments.iter().zip(left) {
            // A clock that was set back leaves captures of times that are yet to come: they age from when that was seen.
            let newest_us = ahead.get(&segment.number).copied().unwrap_or(segment.newest_us);
            let leaves = match segment.sealed {
                true => held.saturating_add(indexed) > bytes || newest_us < before_us,
                false => alone && left && newest_us.saturating_add(span) < before_us,
            };
            if !leaves {
                continue;
            }
            match self.remove(segment.number).await {
                Ok(()) => {
                    // What finds them takes its part of the disk: of what leaves about as much. The next look knows.
                    indexed = indexed.saturating_sub(
                        (indexed as f64 * (segment.bytes as f64 / held.max(1) as f64)) as u64,
                    );
                    held -= segment.bytes;
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// What the index does not know, as it cannot be read, leaves as well when all that can be in it is over its age: files are
    /// named by the time when they were begun.
    async fn let_strays_leave(&self, before_us: i64) -> Result<(), StoreError> {
        let span = i64::try_from(2 * bounds::SEGMENT_AGE.as_micros()).unwrap_or(i64::MAX);
        let unknown = self.unknown().await?;
        let mut failed = None;
        for number in unknown.into_iter().filter(|number| number.saturating_add(span) < before_us) {
            // Of some the index was told in part.
            failed = self.remove(number).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes those segments anew whose deleted captures have waited for long enough.
    async fn make_due_anew(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.shared.half_done.swap(false, Ordering::AcqRel) {
            // As after a crash at that point.
            self.shared.incomplete.store(true, Ordering::Release);
            let half = |_: &StoreError| self.shared.half_done.store(true, Ordering::Release);
            self.catch_up_alone().await.inspect_err(half)?;
        }
        let mut failed = None;
        let due_us = now.as_microsecond()
            - i64::try_from(bounds::REWRITE_AFTER.as_micros()).unwrap_or(i64::MAX);
        let archive = self.clone();
        // By the clock that deletions have their time from, on the thread where they get it: only one that was set back is behind.
        let due = self.store.write_captures(move |index| {
            index.due(due_us, archive.make.clock.now().as_microsecond())
        });
        for number in due.await? {
            // One that cannot be read does not keep the others.
            failed = self.make_anew(number).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    async fn empty_log(&self) -> Result<(), StoreError> {
        if self.shared.log_to_empty.swap(false, Ordering::AcqRel) {
            let emptied = self.store.write_captures(|index| index.empty_log()).await;
            self.shared.log_to_empty.fetch_or(!matches!(emptied, Ok(true)), Ordering::AcqRel);
            emptied?;
        }
        Ok(())
    }

    /// Takes a segment out of the index, in steps, and off the disk.
    pub(super) async fn remove(&self, number: i64) -> Result<(), StoreError> {
        if let Err(error) = self.forget_captures(number).await {
            if !matches!(error, StoreError::Full(_)) {
                return Err(error);
            }
            // The index has no room to say so: the file that leaves makes some.
            self.unlink(number)?;
            self.forget_captures(number).await?;
        }
        let archive = self.clone();
        self.store
            .write_captures(move |index| {
                archive.unlink(number)?;
                archive.shared.log_to_empty.store(true, Ordering::Release);
                index.forget_segment(number)
            })
            .await
    }

    async fn forget_captures(&self, number: i64) -> Result<(), StoreError> {
        self.make.faults.before_forgetting()?;
        while self.store.write_captures(move |index| index.forget(number, INDEX_STEP)).await?
            == INDEX_STEP
        {}
        Ok(())
    }

    /// Takes the file of a segment off the disk, if it is there.
    fn unlink(&self, number: i64) -> Result<(), StoreError> {
        match std::fs::remove_file(format::path(&self.make.dir, number)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        self.let_go(number);
        Ok(())
    }

    /// Puts a segment without the deleted captures in the place of one that holds them. What is deleted meanwhile is in the new
    /// one, and its grave says so: that has its own time.
    async fn make_anew(&self, number: i64) -> Result<(), StoreError> {
        let dead = self.store.write_captures(move |index| index.graves(number)).await?;
        let archive = self.clone();
        let made = blocking(move || archive.write_anew(number, &dead)).await?;
        let anew = made.map_err(|damage| match damage {
            Damage::Io(error) => error.into(),
            Damage::Bytes(what) => StoreError::Damaged(what.to_owned()),
        })?;
        let (archive, new) = (self.clone(), anew.row.number);
        let named = self.store.write_captures(move |_| {
            let path = format::path(&archive.make.dir, new);
            std::fs::rename(path.with_extension("new"), path)?;
            Ok(archive.make.sync_dir()?)
        });
        let half = |_: &StoreError| self.shared.half_done.store(true, Ordering::Release);
        named.await.inspect_err(half)?;
        self.replace(number, anew).await.inspect_err(half)
    }

    /// Leads the index from a segment to the one that was made from it, in steps, so that captures that wait are not held up.
    /// Both are there meanwhile. A process that ends before the last step leaves a segment that the index does not know and
    /// that says what it stands for: [`Archive::catch_up`] finishes that.
    async fn replace(&self, number: i64, anew: Anew) -> Result<(), StoreError> {
        let Anew { row, places } = anew;
        for step in places.chunks(INDEX_STEP) {
            let step = step.to_vec();
            self.store.write_captures(move |index| index.place_anew(number, &step)).await?;
        }
        let archive = self.clone();
        let last = move |index: &mut CaptureIndex<'_>| {
            index.replace(number, &row, &places.into_iter().collect())?;
            archive.unlink(number)?;
            archive.shared.log_to_empty.store(true, Ordering::Release);
            Ok(())
        };
        self.store.write_captures(last).await
    }

    /// Writes a segment anew, durable, under a name that does not count yet; what could not be finished is taken away.
    fn write_anew(&self, number: i64, dead: &[(u64, u32)]) -> Result<Anew, Damage> {
        let segment = self.segment(number)?;
        let new = self.lock().next_number();
        let written = self.fill_anew(&segment, new, dead);
        if written.is_err() {
            // A full disk, perhaps: the next try would leave another.
            let _none =
                std::fs::remove_file(format::path(&self.make.dir, new).with_extension("new"));
        }
        written
    }

    /// Groups without deleted captures stay compressed.
    fn fill_anew(&self, segment: &Segment, new: i64, dead: &[(u64, u32)]) -> Result<Anew, Damage> {
        let number = segment.head().number;
        let mut writer = self.make.create(new, number, Some("new"))?;
        let (mut rows_at, mut graves, mut groups) = (Vec::new(), Vec::new(), Groups::default());
        let scanned = segment.scan(FIRST, false, |found| {
            groups.found(&found);
            match found.head.kind {
                Kind::Rows => rows_at.push(found.offset),
                Kind::Graves => graves.extend(group::read_graves(segment, found.offset)?),
                Kind::Heads | Kind::Bodies | Kind::End => {}
            }
            Ok(())
        })?;
        let mut placed: Vec<(CaptureRow, Place)> = Vec::new();
        let damaged = |at: u64, damage: Damage| match damage {
            Damage::Bytes(_) => {
                self.report(number, at, &damage);
                Ok(())
            }
            Damage::Io(_) => Err(damage),
        };
        let mut copy_group = |rows: Rows| {
            let at = rows.heads;
            match copy(segment, &mut writer, rows, dead, &damaged) {
                Ok(copied) => placed.extend(copied),
                Err(damage) => damaged(at, damage)?,
            }
            if writer.waiting() >= bounds::CAPTURE_COMMIT {
                writer.commit()?;
            }
            Ok::<_, Damage>(())
        };
        for at in rows_at {
            match Rows::read(segment, at) {
                Ok(rows) => {
                    groups.told(rows.heads);
                    copy_group(rows)?;
                }
                Err(damage) => damaged(at, damage)?,
            }
        }
        // What those rows said can be told from the heads.
        for (heads, bodies) in groups.untold(scanned.whole) {
            match Rows::of_heads(segment, heads, bodies) {
                Ok(rows) => copy_group(rows)?,
                Err(damage) => damaged(heads, damage)?,
            }
        }
        if !graves.is_empty() {
            group::push_graves(&mut writer, &graves)?;
        }
        let newest = placed
            .iter()
            .map(|(row, _)| row.created_at_us)
            .chain(graves.iter().map(|grave| grave.at_us))
            .max();
        let bytes = writer.finish()?;
        let row = SegmentRow {
            number: new,
            sealed: true,
            newest_us: newest.unwrap_or(i64::MIN),
            bytes,
            synced: bytes,
        };
        Ok(Anew { row, places: placed.into_iter().map(|(row, place)| (row.id, place)).collect() })
    }
}

type Placed = Vec<(CaptureRow, Place)>;

/// Copies a group without its deleted captures, which are `dead`, in order. Where its bodies are damaged, `damaged` says whether that is an error; else
/// the heads go on without them.
fn copy(
    segment: &Segment,
    writer: &mut Writer,
    rows: Rows,
    dead: &[(u64, u32)],
    damaged: &impl Fn(u64, Damage) -> Result<(), Damage>,
) -> Result<Placed, Damage> {
    let first = dead.partition_point(|(heads, _)| *heads < rows.heads);
    if rows.lost || dead.get(first).is_some_and(|(heads, _)| *heads == rows.heads) {
        return copy_without(segment, writer, rows, dead, damaged);
    }
    let (head, heads) = segment.packed(rows.heads, Kind::Heads)?;
    let bodies = match rows.bodies.map(|at| segment.packed(at, Kind::Bodies)).transpose() {
        Ok(bodies) => bodies,
        Err(_) => return copy_without(segment, writer, rows, dead, damaged),
    };
    let heads =
        writer.push_as(Kind::Heads, head.count, head.raw as usize, head.compressed, heads)?;
    let bodies = match bodies {
        None => None,
        Some((head, bodies)) => Some(writer.push_as(
            Kind::Bodies,
            head.count,
            head.raw as usize,
            head.compressed,
            bodies,
        )?),
    };
    let rows = Rows { heads, bodies, ..rows };
    group::push_rows(writer, &rows)?;
    Ok(rows.placed(writer.head().number).collect())
}

fn copy_without(
    segment: &Segment,
    writer: &mut Writer,
    rows: Rows,
    dead: &[(u64, u32)],
    damaged: &impl Fn(u64, Damage) -> Result<(), Damage>,
) -> Result<Placed, Damage> {
    let heads = Parts::heads(segment, rows.heads)?;
    let (bodies, lost) = match rows
        .bodies
        .map(|at| Parts::bodies(segment, at).map_err(|damage| (at, damage)))
        .transpose()
    {
        Ok(bodies) => (bodies, rows.lost),
        Err((at, damage)) => {
            damaged(at, damage)?;
            (None, true)
        }
    };
    let at = rows.heads;
    let (mut left, mut size) = (Vec::new(), 0);
    for (row, position) in rows.rows.into_iter().zip(0..) {
        if dead.binary_search(&(at, position)).is_ok() {
            continue;
        }
        let fewer = Damage::Bytes("it holds fewer captures");
        let Some(head) = heads.head(position) else { return Err(fewer) };
        let bodies = match &bodies {
            None => Some(Bodies::default()),
            Some(bodies) => bodies.bodies_at(position),
        };
        let Some(bodies) = bodies else { return Err(fewer) };
        let head = if lost { without_bodies(&head)? } else { head.to_vec() };
        size += head.len() + bodies.request.len() + bodies.response.len();
        left.push(Ready { row, head, bodies });
    }
    if left.is_empty() {
        return Ok(Vec::new());
    }
    Ok(group::push_group(writer, left, size)?.collect())
}

/// A head whose bodies are lost: it cannot be run again.
fn without_bodies(head: &[u8]) -> Result<Vec<u8>, Damage> {
    let unread = Damage::Bytes("a head of it does not read");
    let head =
        serde_json::from_slice::<Head>(head).ok().filter(|head| head.version <= Head::VERSION);
    let written =
        head.and_then(|head| serde_json::to_vec(&Head { request_captured: false, ..head }).ok());
    written.ok_or(unread)
}

#[cfg(test)]
#[path = "tend_tests.rs"]
mod tests;
