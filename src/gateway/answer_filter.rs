//! What of a provider's answer may leave. This is the one place that hides our credentials in an
//! answer that repeats them: in its headers, and in its body however that is cut. It also takes out
//! the usage of a stream that only we asked for.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::dialect::chat::usage_strip::UsageStrip;
use crate::secret::{Mask, StreamMask};

/// Puts stars in the place of our credentials in the headers of an answer.
pub(super) fn mask_headers(headers: &mut HeaderMap, credentials: &Mask) {
    for value in headers.values_mut().filter(|value| credentials.matches(value.as_bytes())) {
        let masked = credentials.mask(Bytes::copy_from_slice(value.as_bytes()));
        // A star is valid wherever another visible character is.
        *value = HeaderValue::from_maybe_shared(masked).unwrap_or(HeaderValue::from_static("*"));
    }
}

/// The filter of one body.
#[derive(Default)]
pub(super) struct AnswerFilter {
    mask: StreamMask,
    usage: UsageStrip,
}

impl AnswerFilter {
    /// Whether this piece, the next of the body, leaves unchanged. `strips`: usage is taken out.
    pub(super) fn passes(&self, piece: &[u8], credentials: Option<&Mask>, strips: bool) -> bool {
        !strips && credentials.is_none_or(|credentials| self.mask.passes(credentials, piece))
    }

    /// Takes the next piece of the body, the last one where `end`, and gives the bytes that may
    /// leave. The others wait for more.
    pub(super) fn feed(
        &mut self,
        piece: Bytes,
        end: bool,
        credentials: Option<&Mask>,
        strips: bool,
    ) -> Bytes {
        let mut left = match credentials {
            Some(credentials) => self.mask.feed(credentials, piece),
            None => piece,
        };
        if end {
            left = joined(left, self.mask.finish());
        }
        if strips {
            left = self.usage.feed(&left);
            if end {
                left = joined(left, self.usage.finish());
            }
        }
        left
    }
}

fn joined(first: Bytes, second: Bytes) -> Bytes {
    if second.is_empty() { first } else { [first, second].concat().into() }
}
