//! A capture as its request hands it over: a run of bytes. What the request allocated is freed on
//! its own thread; another thread would get it cold and give it back slowly.

use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use http::HeaderMap;

use super::packed_head::{self, PackedHead};
use super::raw_capture::RawCapture;
use super::record::{Bodies, Capture, Head};

/// Bytes of both bodies that are copied beside the head. Larger ones are one allocation each
/// anyhow, and are handed over as they are.
const COPIED: usize = 16 << 10;
/// Bytes of memory that a capture takes beside its own: handles, its place in the queue, its entry
/// among those that are pending.
const OVERHEAD: usize = 512;
/// Bytes that a thread keeps to pack the next head into.
const KEPT: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A capture, packed. Its headers may hold the client's credential, so it is not `Debug`.
#[derive(Clone)]
pub struct PackedCapture {
    head: Bytes,
    pub(crate) bodies: Bodies,
}

impl PackedCapture {
    /// Packs a capture; `None` if its head is too large.
    pub(crate) fn new(raw: RawCapture) -> Option<Self> {
        let RawCapture { mut head, request_headers, response_headers, bodies } = raw;
        // They are written apart from the other fields.
        let requests = std::mem::take(&mut head.request_headers);
        let responses = std::mem::take(&mut head.response_headers);
        let mut buffer = BUFFER.take();
        buffer.clear();
        let written = packed_head::write(
            &mut buffer,
            &head,
            pairs(&requests).chain(lines(&request_headers)),
            pairs(&responses).chain(lines(&response_headers)),
        );
        let packed = written.map(|()| PackedCapture::of(&buffer, bodies));
        if buffer.capacity() <= KEPT {
            BUFFER.set(buffer);
        }
        packed
    }

    fn of(head: &[u8], bodies: Bodies) -> Self {
        let Bodies { request, response } = bodies;
        if request.len() + response.len() > COPIED {
            let head = Bytes::copy_from_slice(head);
            return PackedCapture { head, bodies: Bodies { request, response } };
        }
        let mut head = Bytes::from([head, &request, &response].concat());
        let response = head.split_off(head.len() - response.len());
        let request = head.split_off(head.len() - request.len());
        PackedCapture { head, bodies: Bodies { request, response } }
    }

    /// Its head; `None` if it is damaged.
    pub(crate) fn head(&self) -> Option<PackedHead<'_>> {
        PackedHead::split(&self.head)
    }

    /// The capture; `None` if it is damaged.
    pub(crate) fn unpack(&self) -> Option<Capture> {
        Some(Capture { head: self.head()?.read()?, bodies: self.bodies.clone() })
    }

    /// Bytes of memory that it holds.
    pub(super) fn size(&self) -> usize {
        OVERHEAD + self.head.len() + self.bodies.request.len() + self.bodies.response.len()
    }
}

/// A head as it is stored, with its own headers; `None` if it is too large.
pub(crate) fn packed_head(head: &Head) -> Option<Vec<u8>> {
    let mut fields = head.clone();
    let requests = std::mem::take(&mut fields.request_headers);
    let responses = std::mem::take(&mut fields.response_headers);
    let mut out = Vec::new();
    packed_head::write(&mut out, &fields, pairs(&requests), pairs(&responses)).map(|()| out)
}

fn pairs(headers: &[(String, String)]) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    headers.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value.as_str())))
}

/// The headers without those that are known to be sensitive.
fn lines(headers: &HeaderMap) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    let kept = headers.iter().filter(|(_, value)| !value.is_sensitive());
    kept.map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
}
