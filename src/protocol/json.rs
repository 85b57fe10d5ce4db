//! A cursor over the raw bytes of a JSON text: it validates (RFC 8259), finds spans and skips, without a copy and without
//! recursion, so that edits are made in place and every byte that is not edited survives. Depth is bounded.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::bounds;
use crate::error::{Error, Kind};

// The stack of open brackets is one bit each.
const _: () = assert!(bounds::JSON_DEPTH <= 128);

/// Why a walk over a text ended early.
#[derive(Debug)]
pub enum Fault {
    /// Not JSON; where and why is asked of `serde_json`, whose messages people know.
    Syntax,
    /// Nested beyond [`bounds::JSON_DEPTH`].
    Deep,
    /// A number or a name longer than [`bounds::JSON_WORD_BYTES`].
    Long,
    /// JSON as far as it goes, which is into a string.
    Cut,
    /// JSON, but not what the reader wants.
    Refused(Box<Error>),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(Box::new(error))
    }
}

/// The kind of the value ahead, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // JSON's own words
pub enum Shape {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// A member's name, as written.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    quoted: &'a [u8],
    /// Where its opening quote stands.
    pub start: usize,
}

impl<'a> Name<'a> {
    /// As it is written, without its quotes.
    pub fn written(&self) -> &'a [u8] {
        self.quoted.get(1..self.quoted.len().saturating_sub(1)).unwrap_or_default()
    }

    /// Whether it reads `name`, which needs no escapes; without a copy as a rule.
    pub fn is(&self, name: &str) -> bool {
        let inner = self.written();
        inner == name.as_bytes()
            || (inner.len() > name.len() && inner.contains(&b'\\') && self.text() == name)
    }

    /// Whether it reads `name` in letters of any case: to some readers (Go's) that is the same name.
    pub fn resembles(&self, name: &str) -> bool {
        let inner = self.written();
        inner.eq_ignore_ascii_case(name.as_bytes())
            || (inner.len() > name.len()
                && inner.contains(&b'\\')
                && self.text().eq_ignore_ascii_case(name))
    }

    /// Where it stands, with its quotes.
    pub fn span(&self) -> Range<usize> {
        self.start..self.start + self.quoted.len()
    }

    /// The name with its escapes resolved; one that has no Unicode text (a lone surrogate) matches nothing.
    pub fn text(&self) -> Cow<'a, str> {
        text(self.quoted).unwrap_or(Cow::Borrowed("\u{fffd}"))
    }
}

/// The text of a quoted JSON string; `None` when it holds a lone surrogate.
pub fn text(quoted: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', quoted).is_none() {
        let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned)
}

/// A place in a text that is walked through once, forward.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(Fault::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Fault> {
        self.at += 1;
        self.depth += 1;
        if self.depth > bounds::JSON_DEPTH { Err(Fault::Deep) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Where it stands: at the value ahead, once that was asked for its [`shape`](Self::shape).
    pub fn place(&self) -> usize {
        self.at
    }

    /// The bytes of a span that this cursor gave.
    pub fn raw(&self, span: &Range<usize>) -> &'a [u8] {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The bytes from there on.
    pub fn rest(&self, from: usize) -> &'a [u8] {
        self.text.get(from..).unwrap_or_default()
    }

    /// What value comes next.
    pub fn shape(&mut self) -> Result<Shape, Fault> {
        self.blank();
        Ok(match self.peek() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            Some(b'"') => Shape::String,
            Some(b't') => Shape::True,
            Some(b'f') => Shape::False,
            Some(b'n') => Shape::Null,
            Some(b'-' | b'0'..=b'9') => Shape::Number,
            _ => return Err(Fault::Syntax),
        })
    }

    fn string(&mut self) -> Result<Range<usize>, Fault> {
        let start = self.at;
        self.expect(b'"')?;
        // Most are short, names above all: found byte by byte sooner than by a search that has to be set up.
        let near = self.text.get(self.at..).unwrap_or_default().iter().take(24);
        let plain = near.take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
        self.at += plain;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(start..self.at);
        }
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let found = memchr::memchr2(b'"', b'\\', rest);
            let length = found.unwrap_or(rest.len());
            let plain = rest.get(..length).unwrap_or_default();
            // No early exit, so that this runs many bytes at a time.
            if plain.iter().fold(false, |bad, byte| bad | (*byte < 0x20)) {
                return Err(Fault::Syntax);
            }
            if found.is_none() {
                return Err(Fault::Cut);
            }
            self.at += length + 1;
            if rest.get(length) == Some(&b'"') {
                return Ok(start..self.at);
            }
            match self.peek() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                Some(b'u') => {
                    let after = self.text.get(self.at + 1..).unwrap_or_default();
                    let digits = after.get(..4).unwrap_or(after);
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return Err(Fault::Syntax);
                    }
                    if digits.len() < 4 {
                        return Err(Fault::Cut);
                    }
                    self.at += 5;
                }
                None => return Err(Fault::Cut),
                _ => return Err(Fault::Syntax),
            }
        }
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(Fault::Syntax) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        short(self.at - start)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(Fault::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    fn name(&mut self) -> Result<Name<'a>, Fault> {
        self.blank();
        let span = self.string()?;
        short(span.len())?;
        self.blank();
        self.expect(b':')?;
        Ok(Name { quoted: self.raw(&span), start: span.start })
    }

    /// Reads a scalar or opens a bracket; true when a value is complete.
    fn begin(&mut self, objects: &mut u128) -> Result<bool, Fault> {
        match self.shape()? {
            Shape::String => self.string().map(|_| true),
            Shape::Number => self.number().map(|()| true),
            Shape::True => self.word(b"true").map(|()| true),
            Shape::False => self.word(b"false").map(|()| true),
            Shape::Null => self.word(b"null").map(|()| true),
            shape => {
                self.enter()?;
                self.blank();
                let object = shape == Shape::Object;
                if self.peek() == Some(if object { b'}' } else { b']' }) {
                    self.leave();
                    return Ok(true);
                }
                *objects = (*objects << 1) | u128::from(object);
                if object {
                    self.name()?;
                }
                Ok(false)
            }
        }
    }

    /// Passes over one value of any kind and tells where it was.
    pub fn skip(&mut self) -> Result<Range<usize>, Fault> {
        self.blank();
        let (start, depth) = (self.at, self.depth);
        let mut objects: u128 = 0;
        loop {
            if !self.begin(&mut objects)? {
                continue;
            }
            loop {
                if self.depth == depth {
                    return Ok(start..self.at);
                }
                self.blank();
                let object = objects & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => self.leave(),
                    Some(b']') if !object => self.leave(),
                    _ => return Err(Fault::Syntax),
                }
                objects >>= 1;
            }
        }
    }

    /// Passes over one value, wherever it is.
    pub fn pass(&mut self) -> Result<(), Fault> {
        self.skip().map(|_| ())
    }

    /// Walks through the object ahead; `each` has to consume the member's value. Any other value is skipped.
    pub fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, Name<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.shape()? != Shape::Object {
            return self.skip().map(|_| ());
        }
        self.enter()?;
        self.blank();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(());
        }
        loop {
            let name = self.name()?;
            each(self, name)?;
            self.blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(Fault::Syntax),
            }
        }
    }

    /// Walks through the array ahead; `each` has to consume the element. Any other value is skipped.
    pub fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.shape()? != Shape::Array {
            return self.skip().map(|_| ());
        }
        self.enter()?;
        self.blank();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(());
        }
        loop {
            each(self)?;
            self.blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(Fault::Syntax),
            }
        }
    }
}

/// Walks through the members of a body that has to be one JSON object and nothing else.
pub fn read_object<'a>(
    body: &'a [u8],
    each: impl FnMut(&mut Cursor<'a>, Name<'a>) -> Result<(), Fault>,
) -> Result<(), Error> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(Error::new(
            Kind::InvalidRequest,
            format!("The body is not UTF-8 text: byte {} is wrong.", error.valid_up_to()),
        ));
    }
    let mut cursor = Cursor { text: body, at: 0, depth: 0 };
    let walked = match cursor.shape() {
        Ok(Shape::Object) => cursor.members(each),
        Ok(_) => cursor.skip().and_then(|_| {
            cursor.blank();
            if cursor.at != body.len() {
                return Err(Fault::Syntax);
            }
            Err(Error::new(Kind::InvalidRequest, "The body has to be a JSON object.").into())
        }),
        Err(fault) => Err(fault),
    };
    let ended = walked.and_then(|()| {
        cursor.blank();
        if cursor.at == body.len() { Ok(()) } else { Err(Fault::Syntax) }
    });
    ended.map_err(|fault| match fault {
        Fault::Refused(error) => *error,
        Fault::Deep => Error::new(
            Kind::InvalidRequest,
            format!("The body is nested deeper than {} levels.", bounds::JSON_DEPTH),
        ),
        Fault::Long => {
            let longest = bounds::JSON_WORD_BYTES;
            Error::new(
                Kind::InvalidRequest,
                format!("The body holds a number or a name of more than {longest} bytes."),
            )
        }
        Fault::Syntax | Fault::Cut => {
            let why = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Err(error) => error.to_string(),
                Ok(_) => format!("unexpected character at byte {}", cursor.at),
            };
            Error::new(Kind::InvalidRequest, format!("The body is not valid JSON: {why}."))
        }
    })
}

/// Walks with `each` through a text that may be the beginning of JSON only, or turn into something else. Gives how many of its
/// bytes are the beginning of one value: all of them, or as many as stand before what cannot be.
pub fn read_part<'a>(
    text: &'a [u8],
    each: impl FnOnce(&mut Cursor<'a>) -> Result<(), Fault>,
) -> usize {
    let readable = match std::str::from_utf8(text) {
        // A character that is cut off, where the text is.
        Err(error) if error.error_len().is_some() => {
            text.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => text,
    };
    let mut cursor = Cursor { text: readable, at: 0, depth: 0 };
    match each(&mut cursor) {
        Ok(()) => cursor.blank(),
        Err(Fault::Cut) => return readable.len(),
        Err(_) => {
            let rest = readable.get(cursor.at..).unwrap_or_default();
            if [&b"true"[..], b"false", b"null"].iter().any(|word| word.starts_with(rest)) {
                return readable.len();
            }
        }
    }
    cursor.at
}

fn short(length: usize) -> Result<(), Fault> {
    if length > bounds::JSON_WORD_BYTES { Err(Fault::Long) } else { Ok(()) }
}

/// One change of a text: other bytes in the place of those of a span, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What goes.
    pub span: Range<usize>,
    /// What comes there.
    pub with: Cow<'static, [u8]>,
}

impl Edit {
    /// These bytes in the place of the span.
    pub fn new(span: Range<usize>, with: impl Into<Cow<'static, [u8]>>) -> Self {
        Edit { span, with: with.into() }
    }
}

/// The body with its edits made, whose spans do not overlap. Every other byte is as it was: the one way in which a body is changed.
pub fn splice(body: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    edits.sort_by_key(|edit| edit.span.start);
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let mut out = BytesMut::with_capacity(body.len() + added);
    let mut from = 0;
    for Edit { span, with } in edits {
        out.put_slice(body.get(from..span.start).unwrap_or_default());
        out.put_slice(&with);
        from = span.end;
    }
    out.put_slice(body.get(from..).unwrap_or_default());
    out.freeze()
}

/// The object with the top-level members of these names taken out, commas and all.
pub fn without_members(body: &Bytes, names: &[&str]) -> Result<Bytes, Error> {
    let mut members: Vec<(Range<usize>, bool)> = Vec::new();
    read_object(body, |cursor, name| {
        let value = cursor.skip()?;
        members.push((name.start..value.end, names.contains(&&*name.text())));
        Ok(())
    })?;
    let mut edits = Vec::new();
    let mut kept_before = None;
    let mut following = members.iter().skip(1);
    let mut last_end = 0;
    for (span, goes) in &members {
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
    Ok(splice(body, edits))
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
