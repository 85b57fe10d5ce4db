//! A text in whatever way JSON may write it: as it is, with escapes, in JSON that another quotes.

/// As many backslashes stand before one character where JSON was quoted within JSON four times.
const BACKSLASHES: usize = 15;

/// What follows in a text that begins with `what`, in letters of any case.
pub(super) fn after<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    let end = what.iter().try_fold(0, |at, byte| {
        let rest = text.get(at..)?;
        if rest.first()?.eq_ignore_ascii_case(byte) {
            return Some(at + 1);
        }
        let escapes = rest.iter().take(BACKSLASHES).take_while(|byte| **byte == b'\\').count();
        let escaped = rest.get(escapes..).filter(|_| escapes > 0)?;
        let code =
            escaped.strip_prefix(b"u").and_then(|rest| std::str::from_utf8(rest.get(..4)?).ok());
        if let Some(code) = code.and_then(|digits| u8::from_str_radix(digits, 16).ok())
            && code.eq_ignore_ascii_case(byte)
        {
            return Some(at + escapes + 5);
        }
        escaped
            .first()
            .filter(|escaped| escaped.eq_ignore_ascii_case(byte))
            .map(|_| at + escapes + 1)
    })?;
    text.get(end..)
}

#[cfg(test)]
#[path = "spelled_tests.rs"]
mod tests;
