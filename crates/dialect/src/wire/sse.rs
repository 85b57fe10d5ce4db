//! Server-sent events (WHATWG HTML section 9.2), split as their bytes arrive. No byte is lost, and
//! the chunking does not matter. An event over the limit is passed on in pieces, so memory stays
//! bounded.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Limit on the bytes of an event that is parsed while a stream is relayed.
pub(crate) const SSE_EVENT_BYTES: usize = 1 << 20;

/// A part of a stream. All parts concatenated are the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseEvent<'a> {
    /// A whole event, including the blank line that ends it.
    Whole(&'a [u8]),
    /// A part of an event over the limit. It is not parsed.
    Piece(&'a [u8]),
    /// The rest of the stream, if no blank line ends it.
    Rest(&'a [u8]),
}

impl<'a> SseEvent<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            SseEvent::Whole(bytes) | SseEvent::Piece(bytes) | SseEvent::Rest(bytes) => bytes,
        }
    }

    /// Whether the stream ended inside this event: it has a name but no data, or its last line has
    /// no end and the data are neither JSON nor `[DONE]`.
    pub fn is_cut(&self) -> bool {
        let SseEvent::Rest(bytes) = self else { return false };
        let SseFields { name, data } = fields(bytes);
        match data {
            None => name.is_some(),
            Some(data) => {
                !bytes.ends_with(b"\n")
                    && data.trim_ascii() != b"[DONE]"
                    && serde_json::from_slice::<IgnoredAny>(&data).is_err()
            }
        }
    }
}

/// Splits chunks of any size at the ends of events.
#[derive(Debug)]
pub struct Splitter {
    held: Vec<u8>,
    limit: usize,
    line_start: bool,
    /// Whether the last byte was a carriage return. A line feed after it belongs to the same line
    /// end.
    after_return: bool,
    /// Whether the line that this carriage return ended was blank.
    blank: bool,
    oversized: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Splitter::with_limit(SSE_EVENT_BYTES)
    }
}

impl Splitter {
    /// A splitter that holds up to `limit` bytes of an event.
    pub fn with_limit(limit: usize) -> Self {
        Splitter {
            held: Vec::new(),
            limit,
            line_start: true,
            after_return: false,
            blank: false,
            oversized: false,
        }
    }

    /// Takes the next bytes, and passes each event that is complete to `each`.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(SseEvent<'_>)) {
        let (mut from, mut at) = (0, 0);
        while let Some(&byte) = chunk.get(at) {
            if self.after_return {
                self.after_return = false;
                self.line_start = true;
                at += usize::from(byte == b'\n');
                if self.blank {
                    self.complete(chunk.get(from..at).unwrap_or_default(), &mut each);
                    from = at;
                }
                continue;
            }
            let rest = chunk.get(at..).unwrap_or_default();
            let Some(length) = memchr::memchr2(b'\r', b'\n', rest) else {
                self.line_start = false;
                break;
            };
            let blank = self.line_start && length == 0;
            at += length + 1;
            self.line_start = true;
            if rest.get(length) == Some(&b'\r') {
                // The next byte shows whether the event ends here or one byte later.
                self.after_return = true;
                self.blank = blank;
            } else if blank {
                self.complete(chunk.get(from..at).unwrap_or_default(), &mut each);
                from = at;
            }
        }
        self.hold(chunk.get(from..).unwrap_or_default(), &mut each);
    }

    /// Ends the stream, and passes the rest to `each`.
    pub fn finish(&mut self, mut each: impl FnMut(SseEvent<'_>)) {
        let held = std::mem::take(&mut self.held);
        let ended = self.after_return && self.blank;
        if !held.is_empty() {
            each(match (self.oversized, ended) {
                (true, _) => SseEvent::Piece(&held),
                (false, true) => SseEvent::Whole(&held),
                (false, false) => SseEvent::Rest(&held),
            });
        }
        *self = Splitter::with_limit(self.limit);
    }

    /// Whether no event has begun.
    pub fn is_between_events(&self) -> bool {
        self.held.is_empty() && !self.oversized
    }

    /// Memory use in bytes.
    pub fn held(&self) -> usize {
        self.held.capacity()
    }

    fn complete(&mut self, bytes: &[u8], each: &mut impl FnMut(SseEvent<'_>)) {
        if self.oversized || self.held.len() + bytes.len() > self.limit {
            self.pass(bytes, each);
        } else if self.held.is_empty() {
            each(SseEvent::Whole(bytes));
        } else {
            self.held.extend_from_slice(bytes);
            each(SseEvent::Whole(&self.held));
            self.held.clear();
        }
        self.oversized = false;
        self.line_start = true;
    }

    fn hold(&mut self, bytes: &[u8], each: &mut impl FnMut(SseEvent<'_>)) {
        if self.oversized || self.held.len() + bytes.len() > self.limit {
            self.oversized = true;
            self.pass(bytes, each);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn pass(&mut self, bytes: &[u8], each: &mut impl FnMut(SseEvent<'_>)) {
        for piece in [std::mem::take(&mut self.held).as_slice(), bytes] {
            if !piece.is_empty() {
                each(SseEvent::Piece(piece));
            }
        }
    }
}

/// Whether the bytes end with the end of an event.
pub fn ends_event(bytes: &[u8]) -> bool {
    [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].iter().any(|end| bytes.ends_with(end))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseFields<'a> {
    /// The `event` field, when there is one.
    pub name: Option<&'a [u8]>,
    /// The `data` fields, joined by line breaks; `None` if there are none (comments, keep-alives).
    pub data: Option<Cow<'a, [u8]>>,
}

pub fn fields(event: &[u8]) -> SseFields<'_> {
    let mut found = SseFields::default();
    let event = event.strip_prefix(b"\xef\xbb\xbf").unwrap_or(event);
    for line in event.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => {
                (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default())
            }
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                found.data = Some(match found.data.take() {
                    None => Cow::Borrowed(value),
                    Some(Cow::Borrowed(first)) => {
                        // One allocation serves all lines.
                        let mut joined = Vec::with_capacity(event.len());
                        joined.extend_from_slice(first);
                        Cow::Owned(and_line(joined, value))
                    }
                    Some(Cow::Owned(joined)) => Cow::Owned(and_line(joined, value)),
                });
            }
            b"event" => found.name = Some(value),
            _ => {}
        }
    }
    found
}

fn and_line(mut joined: Vec<u8>, line: &[u8]) -> Vec<u8> {
    joined.push(b'\n');
    joined.extend_from_slice(line);
    joined
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
