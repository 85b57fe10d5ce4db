//! Selects the headers of a capture that stay. Most headers repeat, so those that stay are
//! remembered.

use xxhash_rust::xxh3::xxh3_64;

use super::Redactor;
use crate::capture::packed_head::{HeaderSide, PackedHeader};

/// Number of headers that are remembered. Headers with equal hashes replace each other.
const REMEMBERED: usize = 256;
/// Longest header that is remembered, in bytes.
const LONGEST: usize = 128;

/// Tells which headers may be kept. Used with one redactor only.
#[derive(Default)]
pub(crate) struct HeaderFilter {
    /// Headers that are not credentials, in their packed form.
    clean: Vec<Option<Box<[u8]>>>,
}

impl HeaderFilter {
    /// Whether a header stays. A damaged header does not.
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
