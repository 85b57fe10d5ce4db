//! The active segment. Records are appended to it batch by batch. A batch counts only once the
//! index has its rows; otherwise the next batch overwrites it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::capture_codec::{Cipher, RecordBuffers, RecordEncoder};
use super::prepare::PreparedCapture;
use super::segment_folder::SegmentFolder;
use crate::capture::bounds::CAPTURE_SYNC;
use crate::capture::pace::WritePace;
use crate::redaction::HeaderFilter;
use rerouter_base::clock::Clock;
use rerouter_store::{CaptureLocation, CaptureRow, Faults, SegmentRow};

/// Bytes of captures that are written together: first all their heads, then all their bodies.
const CAPTURE_BLOCK: usize = 256 << 10;

#[derive(Clone)]
pub(super) struct SegmentSettings {
    pub(super) folder: SegmentFolder,
    pub(super) cipher: Cipher,
    pub(super) clock: Clock,
    /// Size at which a segment is closed.
    pub(super) bytes: u64,
    /// Age at which a segment is closed, whatever its size.
    pub(super) age: Duration,
    pub(super) faults: Faults,
    /// The number before the first segment's.
    pub(super) before_first: i64,
    /// Whether the index also stores the records of heads.
    pub(super) heads_in_index: bool,
}

/// The active segment, if there is one.
#[derive(Default)]
pub(super) struct SegmentLog {
    active: Option<Active>,
    /// The largest number of a segment so far; `None` before recovery.
    pub(super) last: Option<i64>,
    encoder: Option<RecordEncoder>,
    /// Chooses the headers that captures keep.
    pub(super) filter: HeaderFilter,
}

struct Active {
    row: SegmentRow,
    file: File,
    began: Timestamp,
    synced: Instant,
    /// The segment has rows that a loss of power may destroy.
    unsynced: bool,
}

/// A batch that is written but not yet in the index.
pub(super) struct WrittenBatch {
    /// The segment's row, with this batch included.
    pub(super) segment: SegmentRow,
    pub(super) rows: Vec<(CaptureRow, CaptureLocation)>,
    /// The bytes are synced, so the rows must be synced too.
    pub(super) durable: bool,
}

impl SegmentLog {
    /// The number of the active segment.
    pub(super) fn active(&self) -> Option<i64> {
        self.active.as_ref().map(|active| active.row.number)
    }

    /// Whether the active segment must be closed before the next write: it is full, too old, or
    /// larger than `most`.
    pub(super) fn is_due(&self, settings: &SegmentSettings, most: u64) -> bool {
        self.active.as_ref().is_some_and(|active| {
            let age = settings.clock.now().duration_since(active.began).unsigned_abs();
            active.row.bytes >= settings.bytes || active.row.bytes > most || age >= settings.age
        })
    }

    /// Appends captures to the active segment, or to a new one. They count only after
    /// [`SegmentLog::commit`].
    pub(super) fn write<'a>(
        &mut self,
        settings: &SegmentSettings,
        captures: impl IntoIterator<Item = PreparedCapture<'a>>,
        pace: WritePace,
    ) -> io::Result<WrittenBatch> {
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => RecordEncoder::new()?,
        };
        if self.active.is_none() {
            self.active = Some(self.begin(settings)?);
        }
        let active = self.active.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let mut batch = Batch::new(active, settings);
        for PreparedCapture { row, head, bodies } in captures {
            let cipher = &settings.cipher;
            let mut location =
                encoder.encode(&row.id, &head, &bodies, cipher, pace, &mut batch.buffers)?;
            if settings.heads_in_index {
                // The head's record is the last one in the buffer.
                let begin = usize::try_from(location.head.offset).unwrap_or(usize::MAX);
                location.head_record = batch.buffers.heads.get(begin..).map(Into::into);
            }
            batch.push(row, location)?;
        }
        self.encoder = Some(encoder);
        let (bytes, rows) = batch.finish()?;
        let newest_us = rows.iter().map(|(row, _)| row.created_at_us).max().unwrap_or(i64::MIN);
        let durable = active.synced.elapsed() >= CAPTURE_SYNC;
        if durable {
            self.sync_file(settings)?;
        }
        let active = self.active.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let newest_us = newest_us.max(active.row.newest_us);
        Ok(WrittenBatch { segment: SegmentRow { newest_us, bytes, ..active.row }, rows, durable })
    }

    fn begin(&mut self, settings: &SegmentSettings) -> io::Result<Active> {
        let mut number = self.last.unwrap_or(settings.before_first);
        let file = loop {
            number += 1;
            match settings.folder.create(number) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => break created?,
            }
        };
        self.last = Some(number);
        Ok(Active {
            row: SegmentRow { number, newest_us: i64::MIN, bytes: 0 },
            file,
            began: settings.clock.now(),
            synced: Instant::now(),
            unsynced: false,
        })
    }

    /// Notes that the index has the batch: the next batch is appended after it.
    pub(super) fn commit(&mut self, segment: SegmentRow, durable: bool) {
        if let Some(active) =
            self.active.as_mut().filter(|active| active.row.number == segment.number)
        {
            (active.row, active.unsynced) = (segment, !durable);
        }
    }

    /// Notes that the index does not have the batch. Cuts its bytes off the file; if this fails,
    /// the next batch overwrites them.
    pub(super) fn roll_back(&mut self) {
        if let Some(active) = &self.active {
            let _left = active.file.set_len(active.row.bytes);
        }
    }

    /// Syncs the active segment and returns its row for the index; `None` if there is nothing to
    /// sync.
    pub(super) fn sync(&mut self, settings: &SegmentSettings) -> io::Result<Option<SegmentRow>> {
        if !self.active.as_ref().is_some_and(|active| active.unsynced) {
            return Ok(None);
        }
        self.sync_file(settings)?;
        Ok(self.active.as_ref().map(|active| active.row.clone()))
    }

    /// Syncs the file. If that fails, the state of the disk is unknown, and a later sync would not
    /// report it, so a new segment begins.
    fn sync_file(&mut self, settings: &SegmentSettings) -> io::Result<()> {
        let Some(mut active) = self.active.take() else { return Ok(()) };
        settings.faults.before_sync()?;
        active.file.sync_data()?;
        active.synced = Instant::now();
        self.active = Some(active);
        Ok(())
    }

    /// Takes the active segment, which is no longer written.
    pub(super) fn take_active(&mut self) -> Option<(SegmentRow, File)> {
        self.active.take().map(|active| (active.row, active.file))
    }
}

/// A batch that is being written. The heads of several captures, with small bodies, are written
/// together and before large bodies, so that lists read little from the disk.
struct Batch<'a> {
    file: &'a File,
    faults: &'a Faults,
    number: i64,
    /// The offset at which the next bytes are written.
    end: u64,
    rows: Vec<(CaptureRow, CaptureLocation)>,
    /// The number of `rows` that have their final offsets.
    placed: usize,
    buffers: RecordBuffers,
}

impl<'a> Batch<'a> {
    fn new(active: &'a Active, settings: &'a SegmentSettings) -> Self {
        Batch {
            file: &active.file,
            faults: &settings.faults,
            number: active.row.number,
            end: active.row.bytes,
            rows: Vec::new(),
            placed: 0,
            buffers: RecordBuffers::default(),
        }
    }

    /// Adds a capture whose records are at `location` in the buffers.
    fn push(&mut self, row: CaptureRow, location: CaptureLocation) -> io::Result<()> {
        self.rows.push((row, CaptureLocation { segment: self.number, ..location }));
        if self.buffers.heads.len() + self.buffers.bodies.len() >= CAPTURE_BLOCK {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes heads, then bodies, and changes the offsets in their rows from the buffers to the
    /// file.
    fn flush(&mut self) -> io::Result<()> {
        let RecordBuffers { heads: bytes, bodies } = &mut self.buffers;
        let bodies_at = self.end + bytes.len() as u64;
        for (_, location) in self.rows.iter_mut().skip(self.placed) {
            location.head.offset += self.end;
            if let Some(bodies) = &mut location.bodies {
                bodies.offset += bodies_at;
            }
        }
        self.placed = self.rows.len();
        bytes.append(bodies);
        if let Some(torn) = self.faults.torn_write() {
            self.file.write_all_at(bytes.get(..torn).unwrap_or(bytes), self.end)?;
            return Err(io::Error::other("torn on demand"));
        }
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }

    /// Writes what is left in the buffers. Returns the end of the batch, and its rows.
    fn finish(mut self) -> io::Result<(u64, Vec<(CaptureRow, CaptureLocation)>)> {
        self.flush()?;
        Ok((self.end, self.rows))
    }
}

#[cfg(test)]
#[path = "segment_log_tests.rs"]
mod tests;
