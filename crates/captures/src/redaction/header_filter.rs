//! Which headers of a capture stay. Most come again and again: those that stay are remembered.

use xxhash_rust::xxh3::xxh3_64;

use super::Redactor;
use crate::capture::packed_head::{HeaderSide, PackedHeader};

/// Headers that are remembered; one that falls on the place of another takes it.
const REMEMBERED: usize = 256;
/// Bytes of the longest one that is remembered.
const LONGEST: usize = 128;

/// Tells which headers may be kept. Belongs to one redactor.
#[derive(Default)]
pub(crate) struct HeaderFilter {
    /// Headers that are no credentials, as they are packed.
    clean: Vec<Option<Box<[u8]>>>,
}

impl HeaderFilter {
    /// Whether a header stays. A damaged one does not.
    pub(crate) fn keeps(
        &mut self,
        redactor: &Redactor,
        side: HeaderSide,
        header: PackedHeader<'_>,
    ) -> bool {
        let PackedHeader(packed) = header;
        if self.clean.is_empty() {
            self.clean.resize(REMEMBERED, None);
        }
        let place = self.clean.get_mut(xxh3_64(packed) as usize % REMEMBERED);
        if place.as_ref().is_some_and(|place| place.as_deref() == Some(packed)) {
            return true;
        }
        let Some((name, value)) = header.texts() else { return false };
        let is_clean = redactor.keeps(name, value);
        if let Some(place) = place.filter(|_| is_clean && packed.len() <= LONGEST) {
            *place = Some(packed.into());
        }
        is_clean || matches!(side, HeaderSide::Response) && redactor.keeps_challenge(name, value)
    }
}
