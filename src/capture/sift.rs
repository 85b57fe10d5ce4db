//! Where credentials stand in JSON, also in JSON that ends early or turns into something else: in the descriptions of tools and
//! MCP servers, and in what quotes such.

use std::borrow::Cow;
use std::ops::Range;

use crate::protocol::json::{self, Cursor, JsonError, JsonKind, MemberName};
use crate::secret::is_credential;

use super::scrub::VALUE;
use super::values::is_tool_credential;

/// Members of a tool that are addresses, which may hold a credential.
const ADDRESSES: [&str; 2] = ["url", "server_url"];

/// Names as `key` and `token` are those of other things too: from so many letters on they are not, `api-key` the shortest.
const QUOTED_NAME: usize = 7;

/// What was found in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sifted {
    /// The values that are credentials, in order; one that is cut off reaches to the end of what could be read.
    pub(super) found: Vec<Range<usize>>,
    /// How many bytes could be read. Nobody knows what the others are.
    pub(super) read: usize,
    /// Whether it ends within a list of tools or MCP servers.
    pub(super) in_tools: bool,
}

/// How closely a text is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// At the lists of tools and MCP servers at the top; all else is passed over.
    Top,
    /// At such lists, wherever they are.
    Deep,
    /// At every object as if it described a tool: what quotes a request may quote a part of it.
    Wary,
}

/// What a value is, by where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    /// What is at the top, or what an event wraps it in: its members are what a request or a response has.
    Top,
    Tools,
    Servers,
    /// What is called as these elsewhere: a list of them, but an object is any.
    Listed,
    Tool,
    /// Of a text that may quote a tool.
    Quoted,
    Headers,
    /// Of one header whose name says nothing.
    Header,
    Address,
    Secret,
}

/// Looks through a text.
pub(super) fn sift(text: &[u8], look: Look) -> Sifted {
    let mut walk = Walk { found: Vec::new(), look, in_tools: false };
    let first = if look == Look::Wary { Role::Quoted } else { Role::Top };
    let read = json::read_part(text, |cursor| walk.value(cursor, first));
    let found = walk.found.into_iter().map(|span| span.start..span.end.min(read)).collect();
    Sifted { found, read, in_tools: walk.in_tools }
}

struct Walk {
    found: Vec<Range<usize>>,
    look: Look,
    in_tools: bool,
}

impl Walk {
    /// Walks through the value ahead. As deep as JSON may be, no deeper.
    fn value(&mut self, cursor: &mut Cursor<'_>, role: Role) -> Result<(), JsonError> {
        let walked = self.walk(cursor, role);
        self.in_tools |=
            walked.is_err() && matches!(role, Role::Tools | Role::Servers | Role::Listed);
        walked
    }

    fn walk(&mut self, cursor: &mut Cursor<'_>, role: Role) -> Result<(), JsonError> {
        let shape = cursor.kind()?;
        match (role, shape) {
            (_, JsonKind::Null) => cursor.pass(),
            (Role::Tools | Role::Servers | Role::Listed | Role::Tool, JsonKind::Array) => {
                cursor.elements(|cursor| self.value(cursor, Role::Tool))
            }
            (Role::Servers, JsonKind::Object) => {
                cursor.members(|cursor, _| self.value(cursor, Role::Tool))
            }
            // One tool, or several by their names.
            (Role::Tools, JsonKind::Object) => cursor.members(|cursor, name| {
                let role = self.role(Role::Tool, name);
                self.value(
                    cursor,
                    if matches!(role, Role::Plain | Role::Quoted) { Role::Tool } else { role },
                )
            }),
            (Role::Headers | Role::Header, JsonKind::Object) => cursor.members(|cursor, name| {
                let role = if is_credential(&plain(name)) { Role::Secret } else { Role::Header };
                self.value(cursor, role)
            }),
            (Role::Header | Role::Address, JsonKind::Array) => {
                cursor.elements(|cursor| self.value(cursor, role))
            }
            (Role::Secret | Role::Headers, _) => self.take(cursor),
            // Where it is cut off it may go on as one.
            (Role::Header, JsonKind::String) => {
                self.take_if(cursor, |text, cut| cut || is_tool_credential(text))
            }
            (Role::Address, JsonKind::String) => {
                self.take_if(cursor, |text, cut| cut || has_credential(text))
            }
            (_, JsonKind::String) if self.look == Look::Wary => {
                self.take_if(cursor, |text, _| quotes_credential(text.as_bytes()))
            }
            (_, JsonKind::Object) => cursor.members(|cursor, name| {
                let role = self.role(role, name);
                match role {
                    Role::Plain if self.look == Look::Top => cursor.pass(),
                    role => self.value(cursor, role),
                }
            }),
            (_, JsonKind::Array) if self.look != Look::Top => {
                let within = if self.look == Look::Wary { Role::Quoted } else { Role::Plain };
                cursor.elements(|cursor| self.value(cursor, within))
            }
            _ => cursor.pass(),
        }
    }

    /// What the member of an object is.
    fn role(&self, of: Role, name: MemberName<'_>) -> Role {
        // Elsewhere it may be the schema of what a function takes, whose members may have any name.
        let placed = matches!(of, Role::Top | Role::Tool | Role::Quoted);
        if name.resembles("tools") {
            return if placed { Role::Tools } else { Role::Listed };
        }
        if name.resembles("mcp_servers") {
            return if placed { Role::Servers } else { Role::Listed };
        }
        if of == Role::Top && self.look == Look::Deep && name.is("response") {
            return Role::Top;
        }
        if matches!(of, Role::Tool | Role::Quoted) {
            if name.resembles("headers") {
                return Role::Headers;
            }
            if ADDRESSES.iter().any(|address| name.resembles(address)) {
                return Role::Address;
            }
            let name = plain(name);
            // What quotes a tool has words of its own, the short ones first.
            if is_credential(&name) && (of == Role::Tool || name.len() >= QUOTED_NAME) {
                return Role::Secret;
            }
        }
        if self.look == Look::Wary { Role::Quoted } else { Role::Plain }
    }

    fn take(&mut self, cursor: &mut Cursor<'_>) -> Result<(), JsonError> {
        let start = cursor.position();
        let taken = cursor.skip();
        let span = taken.as_ref().map_or(start..usize::MAX, Clone::clone);
        // Taken out before, of what is read in again.
        if taken.is_err() || cursor.raw(&span) != VALUE {
            self.found.push(span);
        }
        taken.map(|_| ())
    }

    /// The string ahead, where it is one to take: by its text, and whether that is cut off.
    fn take_if(
        &mut self,
        cursor: &mut Cursor<'_>,
        is_one: impl Fn(&str, bool) -> bool,
    ) -> Result<(), JsonError> {
        let start = cursor.position();
        let taken = cursor.skip();
        let cut = taken.is_err();
        let span = taken.as_ref().map_or(start..usize::MAX, Clone::clone);
        let raw = if cut { cursor.rest(start) } else { cursor.raw(&span) };
        // Not its own quotes: they would be those of what it quotes.
        if is_one(&unescaped(inner(raw, cut)), cut) {
            self.found.push(span);
        }
        taken.map(|_| ())
    }
}

/// Gives `each` every string and number of a text, and every name, of which it is told that they are; a repeated name with each of
/// its values. One that is cut off comes as far as it goes. How many bytes could be read.
pub(super) fn each_string(text: &[u8], each: &mut dyn FnMut(&str, bool)) -> usize {
    json::read_part(text, |cursor| strings(cursor, each))
}

fn strings(cursor: &mut Cursor<'_>, each: &mut dyn FnMut(&str, bool)) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Object => cursor.members(|cursor, name| {
            each(&name.text(), true);
            strings(cursor, each)
        }),
        JsonKind::Array => cursor.elements(|cursor| strings(cursor, each)),
        JsonKind::True | JsonKind::False | JsonKind::Null => cursor.pass(),
        JsonKind::String | JsonKind::Number => {
            let start = cursor.position();
            let passed = cursor.skip();
            let raw = passed.as_ref().map_or_else(|_| cursor.rest(start), |span| cursor.raw(span));
            match json::text(raw) {
                Some(text) => each(&text, false),
                None => each(&unescaped(raw.strip_prefix(b"\"").unwrap_or(raw)), false),
            }
            passed.map(|_| ())
        }
    }
}

/// Gives `each` every string of JSON, names too: where it stands, what it says, and whether it is cut off. How many bytes could be
/// read.
pub(super) fn each_quoted(text: &[u8], each: &mut dyn FnMut(Range<usize>, &str, bool)) -> usize {
    let mut end = 0;
    let read = json::read_part(text, |cursor| {
        quoted(cursor, &mut |span, raw, cut| {
            end = span.end.min(text.len());
            each(span.start..end, &said(raw, cut), cut);
        })
    });
    let rest = text.get(end..).unwrap_or_default();
    // A name that is cut off is none yet.
    if let Some(at) = memchr::memchr(b'"', rest).filter(|_| read == text.len()) {
        each(end + at..text.len(), &said(rest.get(at..).unwrap_or_default(), true), true);
    }
    read
}

/// What is told of a string or a name: where it stands, how it is written there, and whether it is cut off.
type Told<'a> = dyn FnMut(Range<usize>, &[u8], bool) + 'a;

fn quoted(cursor: &mut Cursor<'_>, each: &mut Told<'_>) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Object => cursor.members(|cursor, name| {
            let span = name.span();
            each(span.clone(), cursor.raw(&span), false);
            quoted(cursor, each)
        }),
        JsonKind::Array => cursor.elements(|cursor| quoted(cursor, each)),
        JsonKind::String => {
            let start = cursor.position();
            let passed = cursor.skip();
            match &passed {
                Ok(span) => each(span.clone(), cursor.raw(span), false),
                Err(_) => each(start..usize::MAX, cursor.rest(start), true),
            }
            passed.map(|_| ())
        }
        JsonKind::True | JsonKind::False | JsonKind::Null | JsonKind::Number => cursor.pass(),
    }
}

/// What stands within a string's quotes, of which one that is cut off has no second.
fn inner(raw: &[u8], cut: bool) -> &[u8] {
    let inner = raw.strip_prefix(b"\"").unwrap_or(raw);
    if cut { inner } else { inner.strip_suffix(b"\"").unwrap_or(inner) }
}

/// What a string says, up to the escape or the character that is cut off.
fn said(raw: &[u8], cut: bool) -> Cow<'_, str> {
    let mut inner = inner(raw, cut);
    if !cut && let Some(text) = json::text(raw) {
        return text;
    }
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', inner.get(at..).unwrap_or_default()) {
        let from = at + next;
        at = from + if inner.get(from + 1) == Some(&b'u') { 6 } else { 2 };
        if at > inner.len() {
            inner = inner.get(..from).unwrap_or_default();
        }
    }
    let mut text = unescaped(inner);
    if cut {
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    }
    Cow::Owned(text)
}

/// A member's name, in small letters.
fn plain(name: MemberName<'_>) -> String {
    name.text().to_ascii_lowercase()
}

/// An address with a password in it, or with a parameter that is a credential by its name.
fn has_credential(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@') || parameters(url).any(|(name, _)| is_secret_parameter(name))
}

/// The parameters of an address, as they are written.
pub(super) fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once(['?', '#']).map_or("", |(_, query)| query);
    query.split(['&', ';', '?', '#']).filter_map(|pair| pair.split_once('='))
}

/// Whether a parameter of this name carries a credential.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    const KNOWN: [&str; 9] =
        ["key", "token", "sig", "signature", "secret", "password", "pass", "code", "access"];
    let name = name.to_ascii_lowercase().replace('_', "-");
    // What is spelled by percent signs could be any name.
    name.contains('%')
        || KNOWN.contains(&name.as_str())
        || is_credential(&name)
        || name.ends_with("key")
        || name.ends_with("token")
}

/// Words of somebody who quotes a tool: JSON within a text, or what Python writes of such.
pub(super) fn quotes_credential(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] =
        [b"authorization", b"mcp_servers", b"headers", b"api_key", b"api-key"];
    let text = unescaped(text).to_ascii_lowercase();
    WORDS.iter().any(|word| {
        memchr::memmem::find_iter(text.as_bytes(), word).any(|at| {
            let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
            matches!(before, Some(b'"' | b'\'' | b'\\'))
        })
    })
}

/// A text with its escapes resolved, as JSON has them, as far as they are any: for a look at what it may say, not for use.
pub(super) fn unescaped(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b' | 'f') => out.push(' '),
            Some('u') => {
                let digits: String = rest.clone().take(4).collect();
                match u32::from_str_radix(&digits, 16) {
                    Ok(code) if digits.len() == 4 => {
                        rest.nth(3);
                        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    _ => out.push('u'),
                }
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
