//! Reads captures from segments by their locations.

use super::capture_codec::{self, RecordDecoder, RecordPart};
use super::capture_key::CaptureKeys;
use super::segment_source::SegmentSource;
use super::unreadable::Unreadable;
use crate::capture::packed_head::PackedHead;
use crate::capture::record::{Bodies, Capture, Head};
use rerouter_base::id::RequestId;
use rerouter_store::{ByteRange, CaptureLocation};

/// Reads captures, on a thread that may block.
pub struct CaptureReader {
    segments: SegmentSource,
    keys: CaptureKeys,
    decoder: Option<RecordDecoder>,
}

impl CaptureReader {
    pub(super) fn new(segments: SegmentSource, keys: CaptureKeys) -> Self {
        CaptureReader { segments, keys, decoder: None }
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

    /// The head, and the bodies that are stored with it.
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
        let record = match (&location.head_record, part) {
            (Some(record), RecordPart::Head) => record.to_vec(),
            _ => self.segments.read(location.segment, range)?,
        };
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
