//! A text in whatever way JSON may write it: as it is, with escapes, in JSON that another quotes, in pieces one after another.

use std::ops::Range;

use memchr::{memchr_iter, memchr2, memchr2_iter, memmem};

/// As many backslashes stand before one character where JSON was quoted within JSON four times.
const BACKSLASHES: usize = 15;

/// Where a text says `what`, in order. Beginnings are looked at once each, and left at the first character that is another.
pub fn find(text: &[u8], what: &[u8]) -> Vec<Range<usize>> {
    let Some(first) = what.first() else { return Vec::new() };
    if !is_spelled_out(text) && memchr2(b'\\', b'"', what).is_none() {
        return memmem::find_iter(text, what).map(|at| at..at + what.len()).collect();
    }
    let (mut found, mut from) = (Vec::new(), 0);
    for at in memchr2_iter(*first, b'\\', text) {
        if at >= from
            && let Some(end) = end(text, at, what, |a, b| a == b)
        {
            found.push(at..end);
            from = end;
        }
    }
    found
}

/// What follows in a text that begins with `what`, in letters of any case.
pub(super) fn after<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    text.get(end(text, 0, what, |a, b| a.eq_ignore_ascii_case(&b))?..)
}

/// Where `what` ends that begins there, if it does.
fn end(text: &[u8], from: usize, what: &[u8], same: impl Fn(u8, u8) -> bool) -> Option<usize> {
    what.iter().try_fold(from, |at, byte| {
        let rest = text.get(at..)?;
        if same(*rest.first()?, *byte) {
            return Some(at + 1);
        }
        let escapes = rest.iter().take(BACKSLASHES).take_while(|byte| **byte == b'\\').count();
        let escaped = rest.get(escapes..).filter(|_| escapes > 0)?;
        let code = escaped.strip_prefix(b"u").and_then(|rest| std::str::from_utf8(rest.get(..4)?).ok());
        if let Some(code) = code.and_then(|digits| u8::from_str_radix(digits, 16).ok())
            && same(code, *byte)
        {
            return Some(at + escapes + 5);
        }
        escaped.first().filter(|escaped| same(**escaped, *byte)).map(|_| at + escapes + 1)
    })
}

/// Whether a text has escapes of what could stand as it is: a credential's characters are such.
pub(super) fn is_spelled_out(text: &[u8]) -> bool {
    memchr_iter(b'\\', text).any(|at| match text.get(at + 1) {
        None | Some(b'/') => true,
        // One that is cut off could be any.
        Some(b'u') => text.get(at + 2..at + 6).is_none_or(|digits| digits.starts_with(b"00") && matches!(digits.get(2), Some(b'2'..=b'7'))),
        Some(_) => false,
    })
}

/// Whether what stands between quotes in a text may say `what` in pieces, in whatever order and whatever stands between these; where
/// the text ends early, whether it may have begun to, with more than `head` bytes. That it does is for others to say: this one is quick.
pub(super) fn may_be_in_pieces(text: &[u8], what: &[u8], head: Option<usize>) -> bool {
    let Some(first) = what.first() else { return false };
    if memchr2(b'\\', b'"', what).is_some() {
        return true;
    }
    let rest = |at: usize| text.get(at..).unwrap_or_default();
    // How much of it may have been said so far.
    let mut said: Vec<usize> = Vec::new();
    for at in memchr_iter(*first, text) {
        let more = common(rest(at), what);
        if text.get(at + more) == Some(&b'"') && !said.contains(&more) {
            said.push(more);
        }
    }
    let mut looked = 0;
    while let Some(so_far) = said.get(looked).copied() {
        looked += 1;
        let left = what.get(so_far..).unwrap_or_default();
        let Some(next) = left.first() else { return true };
        for at in memmem::find_iter(text, &[b'"', *next]).map(|at| at + 1) {
            let piece = common(rest(at), left);
            let ends = text.get(at + piece).is_none_or(|byte| *byte == b'"');
            if piece == left.len() {
                return true;
            }
            if ends && !said.contains(&(so_far + piece)) {
                said.push(so_far + piece);
            }
        }
    }
    head.is_some_and(|head| said.iter().any(|so_far| *so_far > head))
}

/// How many bytes two texts begin with alike.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
#[path = "spelled_tests.rs"]
mod tests;
