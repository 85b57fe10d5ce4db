//! What a request leaves to the capture's writer.

use std::sync::Arc;

use http::HeaderMap;

use super::record::{Bodies, Capture, Head};
use super::scrub::{credentials, keep_headers, scrub_own};
use super::size;
use crate::routing::provider::Provider;

/// A finished call as its request leaves it: what can be written out later is still as it came. The capture's writer makes
/// the rest of it, beside the request's path.
///
/// Not `Debug`: the client's headers hold its credential.
pub struct Draft {
    /// All that is known of the call; the headers join it in [`Draft::finish`].
    pub head: Head,
    /// As the client sent them.
    pub request_headers: HeaderMap,
    /// As the client got them.
    pub response_headers: HeaderMap,
    /// Who answered: what is its credential stays out of the response's headers.
    pub provider: Option<Arc<Provider>>,
    /// The bodies.
    pub bodies: Bodies,
}

impl Draft {
    /// The capture, without any credential in its headers, and without the provider's in what that says.
    pub fn finish(self) -> Capture {
        let mut head = self.head;
        head.request_headers.extend(keep_headers(&self.request_headers, &[]));
        // A provider can only give away its own credentials.
        let secrets = self.provider.as_deref().map(credentials).unwrap_or_default();
        head.response_headers.extend(keep_headers(&self.response_headers, &secrets));
        let Bodies { request, response } = self.bodies;
        let bodies = Bodies { request, response: scrub_own(&mut head, response, &secrets) };
        Capture { head, bodies }
    }

    /// About how much memory it holds.
    pub fn size(&self) -> usize {
        let headers = self.request_headers.iter().chain(&self.response_headers);
        let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
        self.bodies.request.len() + self.bodies.response.len() + headers + size::head(&self.head)
    }
}

impl From<Capture> for Draft {
    fn from(capture: Capture) -> Self {
        let Capture { head, bodies } = capture;
        Draft { head, request_headers: HeaderMap::new(), response_headers: HeaderMap::new(), provider: None, bodies }
    }
}
