//! A capture as its request hands it over: packed into one run of bytes. The request's allocations
//! are freed on its own thread, because another thread would find them out of its cache and free
//! them slowly.

use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::packed_head::{self, PackedHead};
use super::raw_capture::RawCapture;
use super::record::{Bodies, Capture, Head};
use rerouter_store::CaptureRow;

/// Bodies of up to this many bytes, together, are copied behind the head. Larger bodies are one
/// allocation each anyway, and are handed over as they are.
const COPIED: usize = 16 << 10;
/// Bytes of memory that a capture takes besides its own: its row and handles in the queue, and its
/// entry among the pending captures.
const OVERHEAD: usize = 768;
/// Bytes of buffer that a thread keeps for packing the next head.
const KEPT: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A packed capture. Not `Debug`, because its headers may hold the client's credential.
#[derive(Clone)]
pub struct PackedCapture {
    /// The row for the index. It shares its texts with the document and the caller, which costs
    /// less than to unpack them.
    pub row: CaptureRow,
    pub facts: HeadFacts,
    head: Bytes,
    pub bodies: Bodies,
}

/// The facts about a head that redaction needs, so that it is not unpacked.
#[derive(Clone, Copy)]
pub struct HeadFacts {
    pub request_captured: bool,
    /// Whether the answer's body is an event stream.
    pub is_stream: bool,
    /// Whether the head holds texts of the client besides headers and names.
    pub has_texts: bool,
}

impl From<&Head> for HeadFacts {
    fn from(head: &Head) -> Self {
        let seen = head.inputs.as_ref().is_some_and(|inputs| !inputs.request.headers.is_empty());
        HeadFacts {
            request_captured: head.request_captured,
            is_stream: head.answers_in_events(),
            has_texts: seen || head.client_request_id.is_some() || head.query.is_some(),
        }
    }
}

impl PackedCapture {
    /// Packs a capture; `None` if its head is too large.
    pub fn new(raw: RawCapture) -> Option<Self> {
        let RawCapture { mut head, request_headers, response_headers, bodies } = raw;
        // The headers are written apart from the other fields.
        let requests = std::mem::take(&mut head.request_headers);
        let responses = std::mem::take(&mut head.response_headers);
        let (row, facts) = (row(&head), HeadFacts::from(&head));
        let mut buffer = BUFFER.take();
        buffer.clear();
        let written = packed_head::write(
            &mut buffer,
            &head,
            pairs(&requests).chain(lines(&request_headers)),
            pairs(&responses).chain(lines(&response_headers)),
        );
        let packed = written.map(|()| {
            let (head, bodies) = run_of(&buffer, bodies);
            PackedCapture { row, facts, head, bodies }
        });
        if buffer.capacity() <= KEPT {
            BUFFER.set(buffer);
        }
        packed
    }

    pub(crate) fn head_bytes(&self) -> &[u8] {
        &self.head
    }

    /// The head in its parts; `None` if it is damaged.
    pub fn head(&self) -> Option<PackedHead<'_>> {
        PackedHead::split(&self.head)
    }

    /// Unpacks the capture; `None` if it is damaged.
    pub(crate) fn unpack(&self) -> Option<Capture> {
        Some(Capture { head: self.head()?.read()?, bodies: self.bodies.clone() })
    }

    /// Bytes of memory that the capture takes.
    pub(super) fn size(&self) -> usize {
        OVERHEAD + self.head.len() + self.bodies.request.len() + self.bodies.response.len()
    }
}

/// Joins head and bodies in one allocation, unless the bodies are large.
fn run_of(head: &[u8], bodies: Bodies) -> (Bytes, Bodies) {
    let Bodies { request, response } = bodies;
    if request.len() + response.len() > COPIED {
        return (Bytes::copy_from_slice(head), Bodies { request, response });
    }
    let mut head = Bytes::from([head, &request, &response].concat());
    let response = head.split_off(head.len() - response.len());
    let request = head.split_off(head.len() - request.len());
    (head, Bodies { request, response })
}

pub(crate) fn row(head: &Head) -> CaptureRow {
    let (decision, served) = (head.decision.as_ref(), head.served.as_ref());
    // Without a decision: the name that the client asked for.
    let asked = || head.inputs.as_ref().map(|inputs| &inputs.request.name);
    CaptureRow {
        id: head.id.clone(),
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner.clone(),
        key: head.key.clone(),
        alias: match decision {
            Some(decision) => decision.alias.clone(),
            None => asked().filter(|name| !name.is_empty()).cloned(),
        },
        recipe: decision.map(|decision| decision.recipe.clone()),
        provider: served.map(|served| served.provider.clone()),
        model: served.map(|served| served.model.clone()),
        decided_provider: decision.map(|decision| decision.provider.clone()),
        decided_model: decision.map(|decision| decision.model.clone()),
        status: head.status,
        state: head.state.as_str().into(),
        replay_of: head.replay_of.clone(),
        shadow_of: head.shadow_of.clone(),
    }
}

/// Packs a stored head, with its own headers; `None` if it is too large.
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

/// The headers, without those that are known to be sensitive, as nearly every request has one.
fn lines(headers: &HeaderMap) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    let kept =
        headers.iter().filter(|(name, value)| *name != AUTHORIZATION && !value.is_sensitive());
    kept.map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
}
