//! Surrogates without their other half (RFC 8259 section 8.2), as servers write them that cut
//! UTF-16 between two events.

/// The length of an escape `\uXXXX`.
const ESCAPE: usize = 6;

/// The text with each lone surrogate replaced; `None` if it has none.
pub(crate) fn mend_surrogates(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = text.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut at, mut mended) = (String::with_capacity(text.len()), 0, false);
    while let Some(found) = text.get(at..)?.find('\\') {
        out.push_str(text.get(at..at + found)?);
        at += found;
        let is_low = |unit: Option<u16>| unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        let length = match unit(at) {
            Some(0xd800..0xdc00) if is_low(unit(at + ESCAPE)) => 2 * ESCAPE,
            Some(0xd800..0xe000) => {
                mended = true;
                out.push_str("\\ufffd");
                at += ESCAPE;
                continue;
            }
            Some(_) => ESCAPE,
            None => 2,
        };
        out.push_str(text.get(at..at + length)?);
        at += length;
    }
    out.push_str(text.get(at..)?);
    mended.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::mend_surrogates;

    #[test]
    fn only_halves_are_replaced() {
        let halves = r#"{"a": "\ud83d \ude00 \\ud83d \ud83d\ude00 \u00e9"}"#;
        let mended = r#"{"a": "\ufffd \ufffd \\ud83d \ud83d\ude00 \u00e9"}"#;
        assert_eq!(mend_surrogates(halves).as_deref(), Some(mended));
        assert_eq!(mend_surrogates(mended), None);
        assert_eq!(mend_surrogates("\\"), None);
    }
}
