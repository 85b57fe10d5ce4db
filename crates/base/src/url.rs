//! Names and values of a query string (`application/x-www-form-urlencoded`).

/// Decodes a name or value: `+` is a space, `%` and two hex digits are a byte. `None` if it is
/// malformed.
pub fn decode(text: &str) -> Option<String> {
    let (bytes, well) = bytes(text);
    String::from_utf8(bytes).ok().filter(|_| well)
}

/// Decodes percent-encoding, and leaves malformed parts as they are.
pub fn decode_leniently(text: &str) -> String {
    String::from_utf8_lossy(&bytes(text).0).into_owned()
}

/// Encodes a name or value, or a segment of a path.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The decoded bytes, and whether every `%` was followed by two digits.
fn bytes(text: &str) -> (Vec<u8>, bool) {
    let (mut bytes, mut well) = (Vec::with_capacity(text.len()), true);
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match encoded(after) {
                Some((byte, after)) => {
                    rest = after;
                    byte
                }
                None => {
                    well = false;
                    b'%'
                }
            },
            other => *other,
        });
    }
    (bytes, well)
}

/// The byte that two hex digits denote, and the rest.
fn encoded(digits: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], after) = digits.split_first_chunk::<2>()?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    Some((u8::try_from(digit(high)? * 16 + digit(low)?).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_well_encoded_is_decoded_and_the_rest_left() {
        for (text, strict, lenient) in [
            ("a%2Bb+c", Some("a+b c"), "a+b c"),
            ("%zz%41", None, "%zzA"),
            ("%", None, "%"),
            ("%4", None, "%4"),
            ("%%41", None, "%A"),
            ("%ff", None, "\u{fffd}"),
            ("%C3%A9", Some("é"), "é"),
        ] {
            assert_eq!(decode(text).as_deref(), strict, "{text}");
            assert_eq!(decode_leniently(text), lenient);
        }
    }
}
