//! The binary form of a head, in the queue and in segments. Only this file writes and reads it.
//! `docs/internals/captures.md` describes the form.

use std::borrow::Cow;

use super::packing::{put_bytes, put_head, skip_bytes, take_head, take_text};
use super::record::Head;

/// The first byte, which identifies the form.
const FORM: u8 = 1;
/// The bytes before the fields: the form, the length of the fields, and that of the request's
/// headers.
const EMPTY: [u8; 9] = [FORM, 0, 0, 0, 0, 0, 0, 0, 0];

#[derive(Clone, Copy)]
pub struct PackedHead<'a> {
    /// All fields except the headers.
    pub fields: &'a [u8],
    pub request_headers: PackedHeaders<'a>,
    pub response_headers: PackedHeaders<'a>,
}

/// Headers as a sequence of texts: each name, then its value.
#[derive(Clone, Copy)]
pub struct PackedHeaders<'a>(&'a [u8]);

#[derive(Clone, Copy)]
pub struct PackedHeader<'a>(pub &'a [u8]);

impl<'a> Iterator for PackedHeaders<'a> {
    type Item = PackedHeader<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.0;
        skip_bytes(&mut rest)?;
        skip_bytes(&mut rest)?;
        let (header, rest) = self.0.split_at_checked(self.0.len() - rest.len())?;
        self.0 = rest;
        Some(PackedHeader(header))
    }
}

impl<'a> PackedHeader<'a> {
    /// The name and the value; `None` if the header is damaged.
    pub fn texts(self) -> Option<(&'a str, &'a str)> {
        let mut rest = self.0;
        Some((take_text(&mut rest)?, take_text(&mut rest)?))
    }
}

impl<'a> PackedHead<'a> {
    /// Splits a packed head into its parts; `None` if it does not have this form.
    pub fn split(packed: &'a [u8]) -> Option<Self> {
        let (form, rest) = packed.split_first()?;
        let (fields, rest) = rest.split_first_chunk::<4>()?;
        let (requests, rest) = rest.split_first_chunk::<4>()?;
        let (fields, rest) = rest.split_at_checked(u32::from_be_bytes(*fields) as usize)?;
        let (requests, responses) = rest.split_at_checked(u32::from_be_bytes(*requests) as usize)?;
        (*form == FORM).then_some(PackedHead {
            fields,
            request_headers: PackedHeaders(requests),
            response_headers: PackedHeaders(responses),
        })
    }

    /// The head without its headers; `None` if it is damaged.
    pub fn fields(self) -> Option<Head> {
        take_head(&mut &*self.fields)
    }

    /// The whole head; `None` if it is damaged.
    pub fn read(self) -> Option<Head> {
        let mut head = self.fields()?;
        let owned = |header: PackedHeader<'_>| {
            header.texts().map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        head.request_headers.extend(self.request_headers.map_while(owned));
        head.response_headers.extend(self.response_headers.map_while(owned));
        Some(head)
    }
}

/// Appends a head to `out`, with these headers instead of its own; `None` if it is too large.
pub(crate) fn write<'h>(
    out: &mut Vec<u8>,
    head: &Head,
    request_headers: impl Iterator<Item = (&'h str, Cow<'h, str>)>,
    response_headers: impl Iterator<Item = (&'h str, Cow<'h, str>)>,
) -> Option<()> {
    let begin = out.len();
    out.extend_from_slice(&EMPTY);
    put_head(head, out);
    let fields_end = out.len();
    request_headers.for_each(|(name, value)| write_header(out, name, &value));
    let requests_end = out.len();
    response_headers.for_each(|(name, value)| write_header(out, name, &value));
    write_lengths(out, begin, fields_end, requests_end)
}

#[derive(Clone, Copy)]
pub(crate) enum HeaderSide {
    Request,
    Response,
}

/// The head with only the headers that `keeps` accepts; `None` if it is too large.
pub(crate) fn rewrite(
    head: PackedHead<'_>,
    mut keeps: impl FnMut(HeaderSide, PackedHeader<'_>) -> bool,
) -> Option<Vec<u8>> {
    let PackedHead { fields, request_headers, response_headers } = head;
    let length = EMPTY.len() + fields.len() + request_headers.0.len() + response_headers.0.len();
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&EMPTY);
    out.extend_from_slice(fields);
    let mut copy = |out: &mut Vec<u8>, side, headers: PackedHeaders<'_>| {
        headers
            .filter(|header| keeps(side, *header))
            .for_each(|PackedHeader(header)| out.extend_from_slice(header));
        out.len()
    };
    let requests_end = copy(&mut out, HeaderSide::Request, request_headers);
    copy(&mut out, HeaderSide::Response, response_headers);
    write_lengths(&mut out, 0, EMPTY.len() + fields.len(), requests_end)?;
    Some(out)
}

fn write_header(out: &mut Vec<u8>, name: &str, value: &str) {
    put_bytes(name.as_bytes(), out);
    put_bytes(value.as_bytes(), out);
}

/// Writes the lengths of a head that begins at `begin`.
fn write_lengths(
    out: &mut [u8],
    begin: usize,
    fields_end: usize,
    requests_end: usize,
) -> Option<()> {
    let fields = u32::try_from(fields_end - begin - EMPTY.len()).ok()?;
    let requests = u32::try_from(requests_end - fields_end).ok()?;
    let (_, prefix) = out.get_mut(begin..)?.split_first_mut()?;
    prefix.get_mut(..4)?.copy_from_slice(&fields.to_be_bytes());
    prefix.get_mut(4..8)?.copy_from_slice(&requests.to_be_bytes());
    Some(())
}

#[cfg(test)]
#[path = "packed_head_tests.rs"]
mod tests;
