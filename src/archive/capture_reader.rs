//! Reads captures from segments by their locations.

use std::{fmt, io};

use super::capture_codec::{self, RecordDecoder, RecordPart};
use super::capture_key::CaptureKeys;
use super::segment_folder::{SegmentFolder, SegmentReader};
use crate::capture::packed_head::PackedHead;
use crate::capture::record::{Bodies, Capture, Head};
use crate::id::RequestId;
use crate::store::{ByteRange, CaptureLocation};

/// Why a capture cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// Its segment is not there.
    Absent,
    /// Its segment cannot be read.
    Io(io::Error),
    /// Its bytes are not what was written.
    Damaged(&'static str),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Absent => f.write_str("its segment is not there"),
            Unreadable::Io(error) => write!(f, "{error}"),
            Unreadable::Damaged(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Unreadable::Absent,
            io::ErrorKind::UnexpectedEof => Unreadable::Damaged("it is cut off"),
            _ => Unreadable::Io(error),
        }
    }
}

/// Reads captures, on a thread that may wait. Keeps the last segment open: captures made together
/// lie together.
pub struct CaptureReader {
    folder: SegmentFolder,
    keys: CaptureKeys,
    decoder: Option<RecordDecoder>,
    open: Option<(i64, SegmentReader)>,
}

impl CaptureReader {
    pub(super) fn new(folder: SegmentFolder, keys: CaptureKeys) -> Self {
        CaptureReader { folder, keys, decoder: None, open: None }
    }

    pub(super) fn head(
        &mut self,
        id: &RequestId,
        location: &CaptureLocation,
    ) -> Result<Head, Unreadable> {
        Ok(self.head_and_bodies(id, location)?.0)
    }

    pub(super) fn bodies(
        &mut self,
        id: &RequestId,
        location: &CaptureLocation,
    ) -> Result<Bodies, Unreadable> {
        let Some(range) = location.bodies else { return Ok(self.head_and_bodies(id, location)?.1) };
        let plain = self.read(id, location, range, RecordPart::Bodies)?;
        capture_codec::bodies(plain).ok_or(Unreadable::Damaged("its bodies are cut off"))
    }

    pub(super) fn capture(
        &mut self,
        id: &RequestId,
        location: &CaptureLocation,
    ) -> Result<Capture, Unreadable> {
        let (head, small) = self.head_and_bodies(id, location)?;
        let bodies = if location.bodies.is_some() { self.bodies(id, location)? } else { small };
        Ok(Capture { head, bodies })
    }

    /// The head, and the bodies that lie with it.
    fn head_and_bodies(
        &mut self,
        id: &RequestId,
        location: &CaptureLocation,
    ) -> Result<(Head, Bodies), Unreadable> {
        let plain = self.read(id, location, location.head, RecordPart::Head)?;
        let (head, bodies) = capture_codec::head_and_bodies(plain)
            .and_then(|(head, bodies)| Some((PackedHead::split(&head)?.read()?, bodies)))
            .ok_or(Unreadable::Damaged("its head is not one"))?;
        if head.version > Head::VERSION {
            return Err(Unreadable::Damaged("it was written by a newer build"));
        }
        Ok((head, bodies))
    }

    fn read(
        &mut self,
        id: &RequestId,
        location: &CaptureLocation,
        range: ByteRange,
        part: RecordPart,
    ) -> Result<Vec<u8>, Unreadable> {
        let segment = match self.open.take() {
            Some((number, segment)) if number == location.segment => segment,
            _ => self.folder.open(location.segment)?,
        };
        let (_, segment) = self.open.insert((location.segment, segment));
        let record = segment.read(range)?;
        let decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => RecordDecoder::new()?,
        };
        let decoder = self.decoder.insert(decoder);
        decoder
            .decode(id, part, record, location.salt.as_ref(), &self.keys)
            .map_err(Unreadable::Damaged)
    }
}
