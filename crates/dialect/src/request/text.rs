//! Strings of a body.

use std::borrow::Cow;
use std::ops::Range;

use crate::wire::json::{self, Cursor, JsonError, JsonKind};
use crate::wire::tokens;

/// The inside of the JSON string at `span`, escapes included.
pub fn inside<'a>(cursor: &Cursor<'a>, span: &Range<usize>) -> &'a [u8] {
    let quoted = cursor.raw(span);
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()
}

/// Estimated tokens of the string at `span`; 0 for another kind of value.
pub(crate) fn tokens_of(cursor: &Cursor<'_>, span: &Range<usize>) -> u64 {
    if cursor.raw(span).first() == Some(&b'"') { tokens::estimate(inside(cursor, span)) } else { 0 }
}

/// Reads a string, without a copy as a rule; `None` for another kind of value.
pub(crate) fn read_word<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Cow<'a, str>>, JsonError> {
    let span = cursor.skip()?;
    Ok(json::text(cursor.raw(&span)).filter(|_| cursor.raw(&span).first() == Some(&b'"')))
}

/// Reads the inside of a string, escapes included; empty for another kind of value.
pub(crate) fn read_inside<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], JsonError> {
    let is_text = cursor.kind()? == JsonKind::String;
    let span = cursor.skip()?;
    Ok(if is_text { inside(cursor, &span) } else { Default::default() })
}
