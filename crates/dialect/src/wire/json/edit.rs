//! Edits of a JSON text. All bytes outside the edited spans stay.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::cursor::read_object;
use rerouter_base::error::Error;

/// One edit, which replaces the bytes of a span. The span may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub span: Range<usize>,
    pub with: Cow<'static, [u8]>,
}

impl Edit {
    pub fn new(span: Range<usize>, with: impl Into<Cow<'static, [u8]>>) -> Self {
        Edit { span, with: with.into() }
    }
}

/// Applies edits, whose spans must not overlap.
pub fn splice(body: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    edits.sort_by_key(|edit| edit.span.start);
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let gone: usize = edits.iter().map(|edit| edit.span.len()).sum();
    // The capacity is exact, so freezing the result allocates nothing.
    let mut out = BytesMut::with_capacity((body.len() + added).saturating_sub(gone));
    let mut from = 0;
    for Edit { span, with } in edits {
        out.put_slice(body.get(from..span.start).unwrap_or_default());
        out.put_slice(&with);
        from = span.end;
    }
    out.put_slice(body.get(from..).unwrap_or_default());
    out.freeze()
}

/// Removes the top-level members with these names, and their commas.
pub(crate) fn without_members(body: &Bytes, names: &[&str]) -> Result<Bytes, Error> {
    let mut members: Vec<(Range<usize>, bool)> = Vec::new();
    read_object(body, |cursor, name| {
        let value = cursor.skip()?;
        members.push((name.start..value.end, names.contains(&&*name.text())));
        Ok(())
    })?;
    Ok(splice(body, removals(&members)))
}

/// The edits that remove some members of an object, or elements of an array, with their commas.
/// Takes the spans of all, and whether each goes.
pub(crate) fn removals(members: &[(Range<usize>, bool)]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut kept_before = None;
    let mut following = members.iter().skip(1);
    let mut last_end = 0;
    for (span, goes) in members {
        let next = following.next();
        if !goes {
            kept_before = Some(span.end);
        } else if kept_before.is_some() {
            edits.push(Edit::new(last_end..span.end, &b""[..]));
        } else {
            edits.push(Edit::new(
                span.start..next.map_or(span.end, |(next, _)| next.start),
                &b""[..],
            ));
        }
        last_end = span.end;
    }
    edits
}
