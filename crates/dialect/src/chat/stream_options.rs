//! `stream_options` of a chat completion.

use super::super::request::member_names::MemberNames;
use crate::wire::json::{Cursor, Edit, JsonError, JsonKind};

#[derive(Default)]
pub(crate) struct StreamOptions {
    pub include_usage: bool,
    /// The edit that requests the usage. `None` if the options request it already, or are invalid.
    pub ask: Option<Edit>,
}

pub(crate) fn read_stream_options(cursor: &mut Cursor<'_>) -> Result<StreamOptions, JsonError> {
    let ask = |edit| Ok(StreamOptions { include_usage: false, ask: Some(edit) });
    match cursor.kind()? {
        JsonKind::Null => return ask(Edit::new(cursor.skip()?, &br#"{"include_usage":true}"#[..])),
        JsonKind::Object => {}
        _ => return cursor.skip().map(|_| StreamOptions::default()),
    }
    let inside = cursor.position() + 1;
    let (mut value, mut empty) = (None, true);
    let mut names = MemberNames::new("stream_options.", &["include_usage"]);
    cursor.members(|cursor, name| {
        empty = false;
        let found = names.find(&name)?;
        let kind = cursor.kind()?;
        let span = cursor.skip()?;
        if !found.is_empty() {
            value = Some((span, kind));
        }
        Ok(())
    })?;
    match value {
        Some((_, JsonKind::True)) => Ok(StreamOptions { include_usage: true, ask: None }),
        Some((span, JsonKind::False | JsonKind::Null)) => ask(Edit::new(span, &b"true"[..])),
        Some(_) => Ok(StreamOptions::default()),
        None if empty => ask(Edit::new(inside..inside, &br#""include_usage":true"#[..])),
        None => ask(Edit::new(inside..inside, &br#""include_usage":true,"#[..])),
    }
}
