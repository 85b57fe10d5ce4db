//! Credentials of a request wherever else they are said: a provider's answer that quotes the request, in whatever spelling, whole
//! or in part, in one event of a stream or over several.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem::Finder;
use memchr::{memchr, memchr2_iter};
use serde_json::Value;

use super::sift::{each_quoted, each_string, is_secret_parameter, parameters, unescaped};
use crate::protocol::json::{self, Edit};

/// Shorter secrets are not looked for in values: they would be found by chance.
pub(super) const SECRET_BYTES: usize = 8;
/// What of a secret may stand at the very end of a text: more is taken out.
const HEAD_BYTES: usize = 3;
/// How often a text may have been quoted within another.
const QUOTED: usize = 3;
/// What stands where a credential stood.
pub(super) const REDACTED: &str = "[redacted]";

/// A longer one is known by its beginning.
const LONGEST: usize = 4096;
/// More are more than anybody looks for.
const MOST: usize = 64;
/// A part of a longer text is a secret by itself from so many bytes on, whatever it is made of: words are shorter.
const WORD_BYTES: usize = 16;
/// Bytes of a text by texts to be found in it, each of which is one pass over it: some seconds of the writer's at the very most.
/// Where it would be more nobody looks, and the text is not kept.
const WORK: usize = 256 << 20;
/// What it takes to begin such a pass, in bytes: most texts are many short strings.
const BEGIN: usize = 32;

/// A text that is looked for, made ready for it once: that takes longer than to look through most strings.
struct Needle(Finder<'static>);

impl Needle {
    fn new(text: &str) -> Self {
        Needle(Finder::new(text.as_bytes()).into_owned())
    }

    fn bytes(&self) -> &[u8] {
        self.0.needle()
    }

    /// Where it stands in a text that is not shorter than it.
    fn each_in<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = usize> {
        #[cfg(test)]
        tests::LOOKS
            .with(|looks| looks.set(looks.get() + usize::from(text.len() >= self.bytes().len())));
        self.0.find_iter(if text.len() < self.bytes().len() { &[] } else { text })
    }
}

/// The credentials that one request holds, by their text.
#[derive(Default)]
pub(super) struct Secrets {
    /// There are more of them than are known here.
    more: bool,
    /// The longest first, so that none is found within another.
    texts: Vec<Needle>,
    /// As they may be written in JSON, beside as they are: longer, all of them.
    spelled: Vec<Needle>,
}

impl Secrets {
    /// Those of which these are the values in `text`, as they stand there; a value that is cut off counts as far as it goes.
    pub(super) fn of(text: &[u8], found: &[Range<usize>]) -> Self {
        let mut texts = HashSet::new();
        for span in found {
            let raw = text.get(span.clone()).unwrap_or_default();
            each_string(raw, &mut |said, is_name| {
                if !is_name {
                    add(said, span.end >= text.len(), &mut |part| {
                        // One more than are looked for tells that there are more.
                        if is_one(part) && texts.len() <= MOST && !texts.contains(beginning(part)) {
                            texts.insert(beginning(part).to_owned());
                        }
                    });
                }
            });
        }
        Secrets::known(texts.into_iter().collect())
    }

    /// These, but for what is too short to be looked for.
    pub(super) fn known(mut texts: Vec<String>) -> Self {
        texts.retain(|text| is_one(text));
        texts.iter_mut().for_each(|text| text.truncate(beginning(text).len()));
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        let more = texts.len() > MOST;
        texts.truncate(MOST);
        let mut spelled: Vec<String> = texts
            .iter()
            .flat_map(|text| spellings(text))
            .filter(|other| !texts.contains(other))
            .collect();
        spelled.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spelled.dedup();
        let ready = |texts: Vec<String>| texts.iter().map(|text| Needle::new(text)).collect();
        Secrets { more, texts: ready(texts), spelled: ready(spelled) }
    }

    /// Whether there are so many, or so many for such a text, that it cannot be said to be without them.
    pub(super) fn are_too_many(&self, text: &[u8]) -> bool {
        if self.more || self.is_empty() {
            return self.more;
        }
        // Each string is looked through by itself, and each line of a stream; the very short ones are not.
        let (mut looks, mut from) = (1_usize, 0);
        for at in memchr2_iter(b'"', b'\n', text) {
            looks += usize::from(at - from > HEAD_BYTES);
            from = at + 1;
        }
        let once = looks.saturating_mul(BEGIN).saturating_add(text.len());
        once.saturating_mul(self.texts.len() + self.spelled.len()) > WORK
    }

    /// Whether there are none that could be looked for.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The text without them, where any are in it; of one that is cut off at the end of the text as much as is there.
    pub(super) fn hide(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.without(text, true)
    }

    /// The same for a text that was not cut off.
    pub(super) fn hide_whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.without(text, false)
    }

    fn without(&self, text: &[u8], cut: bool) -> Option<Vec<u8>> {
        let all = || self.texts.iter().chain(&self.spelled);
        // Which bytes go: as many matches as there are bytes would hold much more than these.
        let mut gone: Vec<bool> = Vec::new();
        let mut take = |span: Range<usize>| {
            gone.resize(text.len(), false);
            gone.get_mut(span).into_iter().for_each(|bytes| bytes.fill(true));
        };
        for secret in all() {
            let mut end = 0;
            for at in secret.each_in(text) {
                // What repeats it within what goes already is not looked at once more.
                if at + secret.bytes().len() > end {
                    end = token_end(text, at + secret.bytes().len());
                    take(at..end);
                }
            }
        }
        if cut
            && let Some(head) = all()
                .filter_map(|secret| head_at_end(text, secret.bytes()))
                .min_by_key(|at| at.start)
        {
            take(head);
        }
        if gone.is_empty() {
            return None;
        }
        let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
        for part in gone.chunk_by(|a, b| a == b) {
            let bytes = text.get(at..at + part.len()).unwrap_or_default();
            out.extend_from_slice(if part.first() == Some(&true) {
                REDACTED.as_bytes()
            } else {
                bytes
            });
            at += part.len();
        }
        Some(out)
    }

    /// The same for a text whose JSON was resolved, whatever it quotes.
    fn hide_text(&self, text: &str, cut: bool) -> Option<String> {
        let shortest = if cut { HEAD_BYTES + 1 } else { self.shortest() };
        if text.len() < shortest {
            return None;
        }
        let hidden = self
            .without(text.as_bytes(), cut)
            .map(|hidden| String::from_utf8_lossy(&hidden).into_owned());
        // What is spelled in two ways.
        let still = self.is_quoted(hidden.as_deref().unwrap_or(text).as_bytes());
        if still { Some(REDACTED.to_owned()) } else { hidden }
    }

    /// The same for every string of a value; whether any were there. Where what it was made of was cut off, any may be.
    pub(super) fn hide_in(&self, value: &mut Value, cut: bool) -> bool {
        match value {
            Value::String(text) => {
                let hidden = self.hide_text(text, cut);
                let there = hidden.is_some();
                hidden.into_iter().for_each(|hidden| *text = hidden);
                there
            }
            Value::Array(items) => {
                items.iter_mut().fold(false, |there, item| self.hide_in(item, cut) | there)
            }
            Value::Object(fields) => {
                let mut there = false;
                let named = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    there |= self.hide_in(&mut value, cut);
                    let hidden = self.hide_text(&name, false);
                    there |= hidden.is_some();
                    (hidden.unwrap_or(name), value)
                });
                *fields = named.collect();
                there
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// A body without them, and whether any were there; `None` where that cannot be said. Of JSON, also of its beginning, nothing
    /// changes but the strings that hold one.
    pub(super) fn hide_body(&self, body: &Bytes, cut: bool) -> Option<(Bytes, bool)> {
        if self.are_too_many(body) {
            return None;
        }
        if self.is_empty() {
            return Some((body.clone(), false));
        }
        if let Some(edits) = self.edits(body) {
            let there = !edits.is_empty();
            return Some((json::splice(body, edits), there));
        }
        let hidden = self.without(body, cut).map(Bytes::from);
        let there = hidden.is_some();
        let kept = hidden.unwrap_or_else(|| body.clone());
        (!self.is_quoted(&kept)).then_some((kept, there))
    }

    /// Whether any is in a body.
    pub(super) fn are_in(&self, body: &[u8], cut: bool) -> bool {
        match self.edits(body) {
            Some(edits) => !edits.is_empty(),
            None => self.is_quoted(body) || self.without(body, cut).is_some(),
        }
    }

    /// What is to change of JSON, or of its beginning; `None` where a text is neither.
    fn edits(&self, text: &[u8]) -> Option<Vec<Edit>> {
        text.trim_ascii_start().first().filter(|first| matches!(first, b'{' | b'[' | b'"'))?;
        let mut edits = Vec::new();
        let read = each_quoted(text, &mut |span, said, cut| {
            if let Some(hidden) = self.hide_text(said, cut) {
                edits.push(Edit::new(span, Value::from(hidden).to_string().into_bytes()));
            }
        });
        (read == text.len()).then_some(edits)
    }

    /// How long a text has to be that could hold any.
    fn shortest(&self) -> usize {
        self.texts.last().map_or(usize::MAX, |text| text.bytes().len())
    }

    /// Whether any is in the text, in whatever spelling, also of JSON within JSON.
    pub(super) fn is_quoted(&self, text: &[u8]) -> bool {
        // It gets no longer when it is resolved.
        if text.len() < self.shortest() {
            return false;
        }
        let are_in =
            |text: &[u8]| self.texts.iter().any(|secret| secret.each_in(text).next().is_some());
        if are_in(text) {
            return true;
        }
        let mut resolved = Cow::Borrowed(text);
        for _ in 0..QUOTED {
            if memchr(b'\\', &resolved).is_none() {
                return false;
            }
            resolved = Cow::Owned(unescaped(&resolved).into_bytes());
            if are_in(&resolved) {
                return true;
            }
        }
        false
    }
}

/// Whether a text is looked for: not what was put in the place of one, of which as little says anything.
fn is_one(text: &str) -> bool {
    text.len() >= SECRET_BYTES
        && !REDACTED.contains(text)
        && (!text.contains(REDACTED) || text.replace(REDACTED, "").len() >= SECRET_BYTES)
}

/// As much of a secret as it is known by.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}

/// A credential, or what of an address or a header's value is the secret in it. It may be cut off.
fn add(said: &str, cut: bool, push: &mut dyn FnMut(&str)) {
    if let Some((_, rest)) = said.split_once("://") {
        let host_ends = rest.find(['/', '?', '#']);
        // Others have the scheme and the host as well.
        if cut && host_ends.is_none_or(|at| at + 1 == rest.len()) {
            return;
        }
        push(said);
        let authority = rest.get(..host_ends.unwrap_or(rest.len())).unwrap_or_default();
        let user = authority.rsplit_once('@').into_iter().flat_map(|(user, _)| user.split(':'));
        let secret =
            parameters(said).filter(|(name, _)| is_secret_parameter(name)).map(|(_, value)| value);
        user.chain(secret).filter(|word| stands_alone(word)).for_each(push);
        return;
    }
    let is_scheme = |word: &str| {
        word.len() <= WORD_BYTES
            && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    };
    match said.split_once(' ').filter(|(scheme, rest)| is_scheme(scheme) && stands_alone(rest)) {
        Some((_, rest)) => push(rest),
        None => push(said),
    }
    if said.contains(' ') {
        said.split(' ').filter(|word| stands_alone(word)).for_each(push);
    }
}

/// Whether a part of a credential is looked for without the rest of it: it is none of the words that people use.
fn stands_alone(part: &str) -> bool {
    let has = |is: fn(&u8) -> bool| part.as_bytes().iter().any(is);
    part.len() >= WORD_BYTES || (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic))
}

/// The ways in which JSON may write a text, and JSON within JSON.
fn spellings(text: &str) -> Vec<String> {
    let inner = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
    };
    let once = inner(text);
    let twice = inner(&once);
    vec![once.replace('/', "\\/"), once, twice]
}

/// Where what began as a secret ends, as the value of which only the head was known goes on.
fn token_end(text: &[u8], from: usize) -> usize {
    let goes_on = |byte: &&u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'-' | b'%')
    };
    from + text.get(from..).unwrap_or_default().iter().take_while(goes_on).count()
}

/// Where at the end of the text a secret begins that does not end there: one pass over as much as could be (Knuth, Morris, Pratt), as
/// both are anybody's.
fn head_at_end(text: &[u8], secret: &[u8]) -> Option<Range<usize>> {
    let longest = secret.len().saturating_sub(1).min(text.len());
    let (head, end) = (secret.get(..longest)?, text.get(text.len() - longest..)?);
    memchr(*end.last()?, head)?;
    // Of each beginning of it: how many of its last bytes are its first as well.
    let mut borders: Vec<usize> = Vec::with_capacity(longest);
    let next = |borders: &[usize], mut held: usize, byte: u8| loop {
        if head.get(held) == Some(&byte) {
            return held + 1;
        }
        let Some(last) = held.checked_sub(1) else { return 0 };
        held = borders.get(last).copied().unwrap_or_default();
    };
    for (at, byte) in head.iter().enumerate() {
        let border = if at == 0 {
            0
        } else {
            next(&borders, borders.last().copied().unwrap_or_default(), *byte)
        };
        borders.push(border);
    }
    let held = end.iter().fold(0, |held, byte| next(&borders, held, *byte));
    (held > HEAD_BYTES).then(|| text.len() - held..text.len())
}

#[cfg(test)]
#[path = "echo_tests.rs"]
mod tests;
