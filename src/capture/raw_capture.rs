//! A capture as its request leaves it, before redaction.

use http::HeaderMap;

use super::record::{Bodies, Capture, Head};
use super::size;
use crate::secret::is_credential;

/// A finished call as its request leaves it. The capture writer does the rest, off the request's
/// path.
///
/// Not `Debug`: the client's headers hold its credential.
pub struct RawCapture {
    /// Everything but the headers, which [`RawCapture::finish`] adds.
    pub head: Head,
    /// As the client sent them.
    pub request_headers: HeaderMap,
    /// As the client got them.
    pub response_headers: HeaderMap,
    pub bodies: Bodies,
}

impl RawCapture {
    /// The capture, without credentials in its headers.
    pub fn finish(self) -> Capture {
        let mut head = self.head;
        head.request_headers.extend(keep_headers(&self.request_headers));
        head.response_headers.extend(keep_headers(&self.response_headers));
        Capture { head, bodies: self.bodies }
    }

    /// Estimated bytes of memory that it holds.
    pub fn size(&self) -> usize {
        let headers = self.request_headers.iter().chain(&self.response_headers);
        let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
        self.bodies.request.len() + self.bodies.response.len() + headers + size::head(&self.head)
    }
}

impl From<Capture> for RawCapture {
    fn from(capture: Capture) -> Self {
        let Capture { head, bodies } = capture;
        RawCapture {
            head,
            request_headers: HeaderMap::new(),
            response_headers: HeaderMap::new(),
            bodies,
        }
    }
}

/// The headers without those that carry a credential by their name.
fn keep_headers(headers: &HeaderMap) -> impl Iterator<Item = (String, String)> {
    let kept = headers
        .iter()
        .filter(|(name, value)| !value.is_sensitive() && !is_credential(name.as_str()));
    kept.map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    })
}
