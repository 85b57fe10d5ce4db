//! A capture in the form that its request builds.

use http::HeaderMap;

use super::record::{Bodies, Capture, Head};

/// A finished call, to be packed at once on the request's thread.
///
/// Not `Debug`, because the client's headers hold its credential.
pub struct RawCapture {
    /// All fields of the head except the headers.
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
