//! The segment that captures are written to, on the one thread that does it. What is in the file and in the index is the
//! same after every call: a write that fails in either is taken back in both.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::segment::format::{self, FIRST};
use super::segment::group::{self, Grave, Ready};
use super::segment::reader::{Damage, Segment};
use super::segment::writer::{self, Pace, Writer};
use crate::bounds;
use crate::clock::Clock;
use crate::id::{Random, RequestId};
use crate::secret::SecretBytes;
use crate::store::{CaptureIndex, Faults, PanicPoint, SegmentRow, StoreError};

/// How segments are made.
#[derive(Clone)]
pub(super) struct Make {
    /// Where they are.
    pub(super) dir: PathBuf,
    /// What their keys are sealed under.
    pub(super) keys: Arc<[SecretBytes]>,
    /// Where their keys come from.
    pub(super) random: Random,
    /// Whether blocks are sealed.
    pub(super) encrypt: bool,
    /// When they are begun.
    pub(super) clock: Clock,
    /// Bytes before the next one begins.
    pub(super) bytes: u64,
    /// Age at which the next one begins.
    pub(super) age: Duration,
    /// How writing fails, in tests.
    pub(super) faults: Faults,
}

/// The segment that is written to, if one is.
pub(super) struct Shelf {
    make: Make,
    open: Option<Open>,
    /// The largest number that was given out.
    last: i64,
    /// A segment was left at what it holds, of which the index may know nothing.
    left: bool,
}

struct Open {
    writer: Writer,
    row: SegmentRow,
    began: Timestamp,
    synced: Instant,
    /// A sync failed: what the file holds then is for a reader of it to see, no later sync says.
    doubtful: bool,
}

impl Make {
    /// A new file of a segment that stands for another, if `replaces` is not 0; `ending` as [`Writer::create`] has it.
    pub(super) fn create(
        &self,
        number: i64,
        replaces: i64,
        ending: Option<&str>,
    ) -> io::Result<Writer> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let seal = if self.encrypt {
            let key = self
                .keys
                .first()
                .ok_or_else(|| io::Error::other("there is no key to seal with"))?;
            Some((key, &self.random))
        } else {
            None
        };
        let head = writer::begin(number, replaces, self.clock.now().as_microsecond(), seal)?;
        Writer::create_failing(&self.dir, head, ending, self.faults.clone())
    }

    /// A segment, open to be read.
    pub(super) fn open(&self, number: i64) -> Result<Segment, Damage> {
        Segment::open(&self.dir, number, &self.keys)
    }

    /// Makes what was done to names in the directory survive the loss of power.
    pub(super) fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl Shelf {
    pub(super) fn new(make: Make) -> Self {
        Shelf { make, open: None, last: 0, left: false }
    }

    /// Numbers from now on are larger than this.
    pub(super) fn above(&mut self, number: i64) {
        self.last = self.last.max(number);
    }

    /// A number that no segment has: the time, unless that was given out.
    pub(super) fn next_number(&mut self) -> i64 {
        self.last = self.make.clock.now().as_microsecond().max(self.last.saturating_add(1));
        self.last
    }

    /// Whether a segment was left since this was last asked that the index may know nothing of.
    pub(super) fn has_left(&mut self) -> bool {
        std::mem::take(&mut self.left)
    }

    /// Whether this segment is the one that is written to.
    pub(super) fn writes(&self, number: i64) -> bool {
        self.open.as_ref().is_some_and(|open| open.row.number == number)
    }

    /// Writes captures and enters them into the index: all or none. Gives how many.
    pub(super) fn append(
        &mut self,
        index: &mut CaptureIndex<'_>,
        captures: impl IntoIterator<Item = Ready>,
        pace: Pace,
    ) -> Result<usize, StoreError> {
        let faults = self.make.faults.clone();
        self.write(index, |index, open| {
            open.writer.set_pace(pace);
            let rows = group::push(&mut open.writer, captures)?;
            open.writer.commit()?;
            faults.pass(PanicPoint::Written);
            let newest = rows.iter().map(|(row, _)| row.created_at_us).max();
            open.row.newest_us = open.row.newest_us.max(newest.unwrap_or(i64::MIN));
            open.row.bytes = open.writer.length();
            if open.synced.elapsed() >= bounds::CAPTURE_SYNC {
                open.sync()?;
            }
            index.append(&open.row, &rows, || _ = pace.give_way())?;
            Ok(rows.len())
        })
    }

    /// The same into a segment of their own, closed and durable when it returns: what is written beside has another age.
    pub(super) fn append_apart(
        &mut self,
        index: &mut CaptureIndex<'_>,
        captures: Vec<Ready>,
    ) -> Result<usize, StoreError> {
        let mut apart = Shelf { last: self.last, ..Shelf::new(self.make.clone()) };
        let written = apart.append(index, captures, Pace::beside());
        let closed = apart.close(index);
        self.last = apart.last;
        self.left |= apart.left;
        let written = written?;
        closed.map(|()| written)
    }

    /// Takes captures out of the index, and keeps them out of it for good: durable when it returns.
    pub(super) fn bury(
        &mut self,
        index: &mut CaptureIndex<'_>,
        ids: &[RequestId],
    ) -> Result<(), StoreError> {
        let at_us = self.make.clock.now().as_microsecond();
        self.write(index, |index, open| {
            let graves: Vec<Grave> = ids.iter().map(|id| Grave { id: id.clone(), at_us }).collect();
            group::push_graves(&mut open.writer, &graves)?;
            open.writer.commit()?;
            open.row.newest_us = open.row.newest_us.max(at_us);
            open.row.bytes = open.writer.length();
            open.sync()?;
            let graves: Vec<(RequestId, i64)> = ids.iter().map(|id| (id.clone(), at_us)).collect();
            index.bury(Some(&open.row), &graves)
        })
    }

    /// Does `write` on the open segment; what it wrote is taken back when it fails. Where that fails too, or on a panic, the segment
    /// is left as after a crash: what is written once more then lies in two of them.
    fn write<T>(
        &mut self,
        index: &mut CaptureIndex<'_>,
        write: impl FnOnce(&mut CaptureIndex<'_>, &mut Open) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut open = self.take_open(index)?;
        let before = (open.writer.length(), open.row.clone());
        let left = std::mem::replace(&mut self.left, true);
        let written = write(index, &mut open);
        if written.is_err() {
            open.row = before.1;
            if let Err(error) = open.writer.rewind(before.0) {
                log::error!(
                    "a segment of captures could not be mended and is left at that: {error}"
                );
                // What is beyond its length in the index is not looked at, and cut off at the next start.
                return written;
            }
        }
        self.left = left;
        self.keep(open);
        written
    }

    /// Goes on with a segment, unless a sync of it failed: the system may have dropped what it could not write, and would say
    /// so only once. Such a segment is left as after a crash: it is read again, and closed, later.
    fn keep(&mut self, open: Open) {
        if open.doubtful {
            log::error!(
                "a segment of captures could not be made durable and is left at that: another one begins"
            );
        } else {
            self.open = Some(open);
        }
    }

    /// The open segment; another one when it is full or old.
    fn take_open(&mut self, index: &mut CaptureIndex<'_>) -> Result<Open, StoreError> {
        if self.is_full() {
            self.close(index)?;
        }
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let writer = loop {
            let number = self.next_number();
            match self.make.create(number, 0, None) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => break made?,
            }
        };
        // Nothing is in it yet, and nobody knows of it.
        let abandon = |_: &io::Error| {
            _ = std::fs::remove_file(format::path(&self.make.dir, writer.head().number))
        };
        self.make.sync_dir().inspect_err(abandon)?;
        let row = SegmentRow {
            number: writer.head().number,
            sealed: false,
            newest_us: i64::MIN,
            bytes: FIRST,
            synced: FIRST,
        };
        Ok(Open {
            writer,
            row,
            began: self.make.clock.now(),
            synced: Instant::now(),
            doubtful: false,
        })
    }

    fn is_full(&self) -> bool {
        let old = |open: &Open| {
            self.make.clock.now().duration_since(open.began).unsigned_abs() >= self.make.age
        };
        self.open.as_ref().is_some_and(|open| open.writer.length() >= self.make.bytes || old(open))
    }

    /// Makes what was written survive the loss of power.
    pub(super) fn sync(&mut self, index: &mut CaptureIndex<'_>) -> Result<(), StoreError> {
        let Some(mut open) = self.open.take_if(|open| open.row.synced < open.row.bytes) else {
            return Ok(());
        };
        let synced = open.sync().and_then(|()| index.put_segment(&open.row));
        self.keep(open);
        synced
    }

    /// Closes the segment if it is full or old, or larger than this.
    pub(super) fn close_if_due(
        &mut self,
        index: &mut CaptureIndex<'_>,
        most: u64,
    ) -> Result<(), StoreError> {
        let large = self.open.as_ref().is_some_and(|open| open.writer.length() > most);
        if large || self.is_full() { self.close(index) } else { Ok(()) }
    }

    /// Closes the segment: all of it is durable then.
    pub(super) fn close(&mut self, index: &mut CaptureIndex<'_>) -> Result<(), StoreError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut row = open.row;
        if open.writer.is_empty() {
            std::fs::remove_file(format::path(&self.make.dir, row.number))?;
            return index.forget_segment(row.number);
        }
        // When that fails the segment is left as after a crash; the next start closes it.
        row.bytes = open.writer.finish()?;
        (row.synced, row.sealed) = (row.bytes, true);
        index.put_segment(&row)
    }
}

impl Open {
    fn sync(&mut self) -> Result<(), StoreError> {
        self.writer.sync().inspect_err(|_| self.doubtful = true)?;
        (self.synced, self.row.synced) = (Instant::now(), self.writer.length());
        Ok(())
    }
}

#[cfg(test)]
impl Shelf {
    /// Forgets the open segment, as when it could not be closed.
    pub(super) fn let_go_for_tests(&mut self) {
        self.open = None;
    }

    /// Makes what was written durable without telling the index.
    pub(super) fn sync_for_tests(&mut self) {
        if let Some(open) = &mut self.open {
            open.sync().unwrap();
        }
    }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
