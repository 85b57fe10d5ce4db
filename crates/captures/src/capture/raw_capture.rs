//! A capture as its request makes it.

use http::HeaderMap;

use super::record::{Bodies, Capture, Head};

/// A finished call. It is packed at once, on the request's thread.
///
/// Not `Debug`: the client's headers hold its credential.
pub struct RawCapture {
    /// Everything but the headers.
    pub head: Head,
    /// Headers of the request, as the client sent them.
    pub request_headers: HeaderMap,
    /// Headers of the answer, as the client got them.
    pub response_headers: HeaderMap,
    pub bodies: Bodies,
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
