//! A cursor over the bytes of a JSON text. It validates (RFC 8259), finds spans and skips values
//! without a copy and without recursion. Depth is bounded.

use std::borrow::Cow;
use std::ops::Range;

use rerouter_base::error::{Error, Kind};

/// Limit on the nesting of a JSON request body.
const JSON_DEPTH: usize = 128;
/// Limit on the bytes of a number or member name in a JSON request body. Strings may be as long as
/// the body, as images are. No number needs more digits than an exact double (some 1,100), and
/// parsing a number may take quadratic time.
pub const JSON_WORD_BYTES: usize = 4 << 10;

// The open brackets of a skipped value are bits of a `u128`.
const _: () = assert!(JSON_DEPTH <= 128);

#[derive(Debug)]
pub enum JsonError {
    /// Invalid JSON. The client gets `serde_json`'s error text.
    Syntax,
    Deep,
    /// A number or a name longer than [`JSON_WORD_BYTES`].
    Long,
    /// The text ends within a string.
    Cut,
    /// Valid JSON that the reader refuses.
    Refused(Box<Error>),
}

impl From<Error> for JsonError {
    fn from(error: Error) -> Self {
        JsonError::Refused(Box::new(error))
    }
}

/// The kind of the value ahead, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
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
pub struct MemberName<'a> {
    quoted: &'a [u8],
    /// The offset of the opening quote.
    pub start: usize,
}

impl<'a> MemberName<'a> {
    /// The raw name without its quotes. Escapes are kept.
    pub fn written(&self) -> &'a [u8] {
        self.quoted.get(1..self.quoted.len().saturating_sub(1)).unwrap_or_default()
    }

    /// Whether the name equals `name`, after its escapes are resolved. `name` must need no escapes.
    pub fn is(&self, name: &str) -> bool {
        let inner = self.written();
        inner == name.as_bytes()
            || (inner.len() > name.len() && inner.contains(&b'\\') && self.text() == name)
    }

    /// Whether the name equals `name` in any case, as some JSON parsers (Go's) ignore case.
    pub fn resembles(&self, name: &str) -> bool {
        let inner = self.written();
        inner.eq_ignore_ascii_case(name.as_bytes())
            || (inner.len() > name.len()
                && inner.contains(&b'\\')
                && self.text().eq_ignore_ascii_case(name))
    }

    /// The span of the name with its quotes.
    pub fn span(&self) -> Range<usize> {
        self.start..self.start + self.quoted.len()
    }

    /// The name with its escapes resolved. A lone surrogate makes it U+FFFD, which matches no known
    /// name.
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

/// The number of bytes before the first quote, backslash or control character.
fn plain_bytes(eight: [u8; 8]) -> usize {
    /// One in each byte.
    const EACH: u64 = u64::MAX / 255;
    let text = u64::from_le_bytes(eight);
    // Sets the high bit of the first byte below the bound, and of none before it.
    let below = |bytes: u64, bound: u64| bytes.wrapping_sub(EACH * bound) & !bytes;
    let [quotes, backslashes] = [b'"', b'\\'].map(|byte| below(text ^ (EACH * u64::from(byte)), 1));
    let found = (quotes | backslashes | below(text, 0x20)) & (EACH * 0x80);
    found.trailing_zeros() as usize / 8
}

/// A position in a text, which moves forward only.
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

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(JsonError::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > JSON_DEPTH { Err(JsonError::Deep) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// The offset of the next value, if [`kind`](Self::kind) was called.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn raw(&self, span: &Range<usize>) -> &'a [u8] {
        self.text.get(span.clone()).unwrap_or_default()
    }

    pub fn kind(&mut self) -> Result<JsonKind, JsonError> {
        self.blank();
        Ok(match self.peek() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't') => JsonKind::True,
            Some(b'f') => JsonKind::False,
            Some(b'n') => JsonKind::Null,
            Some(b'-' | b'0'..=b'9') => JsonKind::Number,
            _ => return Err(JsonError::Syntax),
        })
    }

    fn string(&mut self) -> Result<Range<usize>, JsonError> {
        let start = self.at;
        self.expect(b'"')?;
        // Most strings are short. A loop finds their end sooner than `memchr`, which needs some
        // setup.
        let (near, _) = self.text.get(self.at..).unwrap_or_default().as_chunks();
        for eight in near.iter().take(3) {
            let plain = plain_bytes(*eight);
            self.at += plain;
            if plain < eight.len() {
                break;
            }
        }
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(start..self.at);
        }
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let found = memchr::memchr2(b'"', b'\\', rest);
            let length = found.unwrap_or(rest.len());
            let plain = rest.get(..length).unwrap_or_default();
            // Finding the minimum without an early exit is vectorized.
            if plain.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < 0x20 {
                return Err(JsonError::Syntax);
            }
            if found.is_none() {
                return Err(JsonError::Cut);
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
                        return Err(JsonError::Syntax);
                    }
                    if digits.len() < 4 {
                        return Err(JsonError::Cut);
                    }
                    self.at += 5;
                }
                None => return Err(JsonError::Cut),
                _ => return Err(JsonError::Syntax),
            }
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(JsonError::Syntax) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
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

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(JsonError::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    fn name(&mut self) -> Result<MemberName<'a>, JsonError> {
        self.blank();
        let span = self.string()?;
        short(span.len())?;
        self.blank();
        self.expect(b':')?;
        Ok(MemberName { quoted: self.raw(&span), start: span.start })
    }

    /// Reads a scalar or opens a bracket. Returns whether the value is complete.
    fn begin(&mut self, objects: &mut u128) -> Result<bool, JsonError> {
        match self.kind()? {
            JsonKind::String => self.string().map(|_| true),
            JsonKind::Number => self.number().map(|()| true),
            JsonKind::True => self.word(b"true").map(|()| true),
            JsonKind::False => self.word(b"false").map(|()| true),
            JsonKind::Null => self.word(b"null").map(|()| true),
            shape => {
                let object = shape == JsonKind::Object;
                if !self.open(if object { b'}' } else { b']' })? {
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

    pub fn skip(&mut self) -> Result<Range<usize>, JsonError> {
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
                    _ => return Err(JsonError::Syntax),
                }
                objects >>= 1;
            }
        }
    }

    pub fn pass(&mut self) -> Result<(), JsonError> {
        self.skip().map(|_| ())
    }

    /// Enters an object or a list. Returns whether it has any content.
    fn open(&mut self, close: u8) -> Result<bool, JsonError> {
        self.enter()?;
        self.blank();
        let is_empty = self.peek() == Some(close);
        if is_empty {
            self.leave();
        }
        Ok(!is_empty)
    }

    /// Passes the comma after a member or an element, or the bracket. Returns whether more follows.
    fn has_more(&mut self, close: u8) -> Result<bool, JsonError> {
        self.blank();
        if self.peek() == Some(close) {
            self.leave();
            return Ok(false);
        }
        self.expect(b',').map(|()| true)
    }

    /// Calls `each` for the members of the next value, if it is an object. `each` has to consume
    /// the member's value. Skips any other value.
    pub fn members(
        &mut self,
        each: impl FnMut(&mut Self, MemberName<'a>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if self.kind()? != JsonKind::Object {
            return self.pass();
        }
        if self.open(b'}')? { self.more_members(each) } else { Ok(()) }
    }

    /// Calls `each` for a member and all further ones, up to the end of the object.
    fn more_members(
        &mut self,
        mut each: impl FnMut(&mut Self, MemberName<'a>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        loop {
            let name = self.name()?;
            each(self, name)?;
            if !self.has_more(b'}')? {
                return Ok(());
            }
        }
    }

    /// Calls `each` for the elements of the next value, if it is an array. `each` has to consume
    /// the element. Skips any other value.
    pub fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if self.kind()? != JsonKind::Array {
            return self.pass();
        }
        let mut more = self.open(b']')?;
        while more {
            each(self)?;
            more = self.has_more(b']')?;
        }
        Ok(())
    }
}

/// Calls `each` for the members of a body, which must be exactly one JSON object.
pub fn read_object<'a>(
    body: &'a [u8],
    each: impl FnMut(&mut Cursor<'a>, MemberName<'a>) -> Result<(), JsonError>,
) -> Result<(), Error> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(Error::new(
            Kind::InvalidRequest,
            format!("The body is not UTF-8 text: byte {} is wrong.", error.valid_up_to()),
        ));
    }
    let mut cursor = Cursor { text: body, at: 0, depth: 0 };
    let walked = match cursor.kind() {
        Ok(JsonKind::Object) => cursor.members(each),
        Ok(_) => cursor.skip().and_then(|_| {
            cursor.blank();
            if cursor.at != body.len() {
                return Err(JsonError::Syntax);
            }
            Err(Error::new(Kind::InvalidRequest, "The body has to be a JSON object.").into())
        }),
        Err(fault) => Err(fault),
    };
    let ended = walked.and_then(|()| {
        cursor.blank();
        if cursor.at == body.len() { Ok(()) } else { Err(JsonError::Syntax) }
    });
    ended.map_err(|fault| match fault {
        JsonError::Refused(error) => *error,
        JsonError::Deep => Error::new(
            Kind::InvalidRequest,
            format!("The body is nested deeper than {} levels.", JSON_DEPTH),
        ),
        JsonError::Long => {
            let longest = JSON_WORD_BYTES;
            Error::new(
                Kind::InvalidRequest,
                format!("The body holds a number or a name of more than {longest} bytes."),
            )
        }
        JsonError::Syntax | JsonError::Cut => {
            let why = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Err(error) => error.to_string(),
                Ok(_) => format!("unexpected character at byte {}", cursor.at),
            };
            Error::new(Kind::InvalidRequest, format!("The body is not valid JSON: {why}."))
        }
    })
}

/// Splits a text after the JSON string, with quotes, at its beginning.
pub(crate) fn split_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut cursor = Cursor { text, at: 0, depth: 0 };
    let string = cursor.string().ok()?;
    text.split_at_checked(string.end)
}

/// Calls `each` for the members in the last part of an object, which starts at a member. Returns
/// whether the part is valid and ends with the object.
pub(crate) fn read_last_members<'a>(
    part: &'a [u8],
    each: impl FnMut(&mut Cursor<'a>, MemberName<'a>) -> Result<(), JsonError>,
) -> bool {
    let mut cursor = Cursor { text: part, at: 0, depth: 1 };
    let read = cursor.more_members(each).is_ok();
    cursor.blank();
    read && cursor.at == part.len()
}

/// Reads a text that may be truncated, or not be JSON from some point on. Returns how many of its
/// bytes can be the beginning of one value.
pub fn read_part<'a>(
    text: &'a [u8],
    each: impl FnOnce(&mut Cursor<'a>) -> Result<(), JsonError>,
) -> usize {
    let readable = match std::str::from_utf8(text) {
        // An incomplete character at the end is no error, as the text may be truncated there.
        Err(error) if error.error_len().is_some() => {
            text.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => text,
    };
    let mut cursor = Cursor { text: readable, at: 0, depth: 0 };
    match each(&mut cursor) {
        Ok(()) => cursor.blank(),
        Err(JsonError::Cut) => return readable.len(),
        Err(_) => {
            let rest = readable.get(cursor.at..).unwrap_or_default();
            if [&b"true"[..], b"false", b"null"].iter().any(|word| word.starts_with(rest)) {
                return readable.len();
            }
        }
    }
    cursor.at
}

fn short(length: usize) -> Result<(), JsonError> {
    if length > JSON_WORD_BYTES { Err(JsonError::Long) } else { Ok(()) }
}
