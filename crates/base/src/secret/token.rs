//! The form of issued secrets: `<audience>_<30 random base62><6 base62 of their CRC-32>`. The
//! checksum lets secret scanners recognize keys and finds typing errors; it is no protection. The
//! store has only the HMAC-SHA-256 of a secret under the pepper.

use std::borrow::Cow;

use crate::id::Random;
use crate::secret::{MacKey, Secret, SecretBytes};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Number of random digits in a secret. They are 178 bits, which nobody can guess.
const RANDOM: usize = 30;
/// Number of digits in the checksum. Six digits hold 32 bits.
const CHECKSUM: usize = 6;
/// Length of the prefixes in [`AUDIENCES`].
const AUDIENCE: usize = 3;
/// Length of a secret.
const CHARS: usize = AUDIENCE + 1 + RANDOM + CHECKSUM;
/// Prefixes of issued secrets: keys of the three interfaces, session tokens, node secrets.
const AUDIENCES: [&str; 5] = ["pin", "agt", "rtr", "ses", "nod"];

/// Makes a new secret for an audience. Random bytes that would bias the digits are drawn again.
pub fn mint(audience: &str, random: &Random) -> Secret {
    let mut digits = String::with_capacity(RANDOM + CHECKSUM);
    while digits.len() < RANDOM {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let fair =
            bytes.iter().filter(|byte| **byte < 248).map(|byte| digit(usize::from(byte % 62)));
        digits.extend(fair.take(RANDOM - digits.len()).map(char::from));
    }
    digits.extend(checksum(&digits).map(char::from));
    Secret::new(format!("{audience}_{digits}"))
}

/// Returns `false` only for a string of the form above with a wrong checksum, which is a mistyped
/// key. Any other string may be a key that an operator chose.
pub fn well_formed(token: &str) -> bool {
    match parts(token) {
        Some((digits, sum)) => checksum(digits) == sum.as_bytes(),
        None => true,
    }
}

/// A secret in a form that may be shown: its beginning and its end.
pub fn redact(token: &str) -> String {
    match parts(token) {
        Some((digits, sum)) => {
            let audience = token.split('_').next().unwrap_or_default();
            format!(
                "{audience}_{}…{}",
                digits.get(..4).unwrap_or_default(),
                sum.get(2..).unwrap_or_default()
            )
        }
        None => "…".to_owned(),
    }
}

/// Replaces every secret of this form in a text by its [redacted](redact) form. It takes one pass,
/// as anybody may have chosen the text.
pub(crate) fn redact_within(text: &str) -> Cow<'_, str> {
    let (mut clean, mut rest) = (String::new(), text);
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|after| after.find('_')).map(|at| from + at) {
        // Other letters may stand directly before and after a secret.
        let begin = at.checked_sub(AUDIENCE);
        let token = begin
            .and_then(|begin| rest.get(begin..begin + CHARS))
            .filter(|token| parts(token).is_some());
        match (begin, token) {
            (Some(begin), Some(token)) => {
                clean.push_str(rest.get(..begin).unwrap_or_default());
                clean.push_str(&redact(token));
                rest = rest.get(begin + CHARS..).unwrap_or_default();
                from = 0;
            }
            _ => from = at + 1,
        }
    }
    if clean.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(clean + rest) }
}

/// Whether the text contains a secret of this form.
pub fn is_in(text: &[u8]) -> bool {
    memchr::memchr_iter(b'_', text).any(|at| {
        let token = at.checked_sub(AUDIENCE).and_then(|begin| text.get(begin..begin + CHARS));
        token.is_some_and(|token| {
            AUDIENCES.iter().any(|audience| token.starts_with(audience.as_bytes()))
                && str::from_utf8(token).is_ok_and(|token| parts(token).is_some())
        })
    })
}

/// The key under which secrets are digested, with its key schedule computed once.
#[derive(Clone)]
pub struct Pepper(MacKey);

impl Pepper {
    /// The pepper with this key.
    pub fn new(key: &SecretBytes) -> Self {
        Pepper(MacKey::new(key.expose()))
    }

    /// HMAC-SHA-256 of a secret, by which it is stored and looked up.
    pub fn digest(&self, token: &str) -> [u8; 32] {
        self.0.code(token.as_bytes())
    }
}

/// The random digits and the checksum of a string of this form.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (audience, rest) = token.split_once('_')?;
    let ours = AUDIENCES.contains(&audience)
        && rest.len() == RANDOM + CHECKSUM
        && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    if ours { rest.split_at_checked(RANDOM) } else { None }
}

/// CRC-32 (IEEE) of the digits as six base62 digits with leading zeros.
fn checksum(digits: &str) -> [u8; CHECKSUM] {
    let mut rest = crc32fast::hash(digits.as_bytes()) as usize;
    let mut sum = [0; CHECKSUM];
    for place in sum.iter_mut().rev() {
        *place = digit(rest % 62);
        rest /= 62;
    }
    sum
}

fn digit(value: usize) -> u8 {
    BASE62.get(value).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: [&str; 3] = [
        "pin_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp",
        "agt_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz4IlJEz",
        "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe",
    ];

    #[test]
    fn the_vectors_of_the_contract_hold() {
        for vector in VECTORS {
            let (digits, sum) = parts(vector).unwrap();
            assert_eq!(checksum(digits), sum.as_bytes());
            assert!(well_formed(vector));
            let bent =
                format!("{}{}", &vector[..39], if vector.ends_with('0') { '1' } else { '0' });
            assert!(!well_formed(&bent), "{bent}");
        }
        assert_eq!(redact(VECTORS[2]), "rtr_AbCd…iBxe");
        assert_eq!(redact("an operator's own"), "…");
        let [pin, _, rtr] = VECTORS;
        for (text, clean) in [
            (format!("/v1/router/keys/{rtr}"), "/v1/router/keys/rtr_AbCd…iBxe"),
            (
                format!("/{pin}:x/a{rtr}b%20{pin}{pin}"),
                "/pin_0123…Mbyp:x/artr_AbCd…iBxeb%20pin_0123…Mbyppin_0123…Mbyp",
            ),
            (
                "/v1/apikeys/key_01KB0123456789ABCDEFGHJKMN".to_owned(),
                "/v1/apikeys/key_01KB0123456789ABCDEFGHJKMN",
            ),
            (rtr[..39].to_owned(), &rtr[..39]),
            ("é_".repeat(30), &"é_".repeat(30)),
        ] {
            assert_eq!(redact_within(&text), clean);
            assert_eq!(is_in(text.as_bytes()), text != clean);
        }
        assert!(well_formed("an operator's own"));
        assert!(well_formed("abc_0123456789ABCDEFGHIJKLMNOPQRST4PMbyq"));
    }

    #[test]
    fn minted_secrets_have_the_form_and_differ() {
        let random = Random::seeded(9);
        let (one, two) = (mint("rtr", &random), mint("rtr", &random));
        assert_ne!(one, two);
        for secret in [one, two] {
            assert_eq!(secret.expose().len(), 40);
            assert!(parts(secret.expose()).is_some() && well_formed(secret.expose()));
        }
    }

    #[test]
    fn a_digest_depends_on_pepper_and_token() {
        let [one, two] = [[1; 32], [2; 32]].map(|key| Pepper::new(&SecretBytes::new(key)));
        assert_eq!(one.digest("a"), one.digest("a"));
        assert_ne!(one.digest("a"), two.digest("a"));
        assert_ne!(one.digest("a"), one.digest("b"));
        // RFC 4231 test case 2, with the key padded by zeros as HMAC itself pads it.
        let mut jefe = [0; 32];
        jefe[..4].copy_from_slice(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let hex: String = Pepper::new(&SecretBytes::new(jefe))
            .digest("what do ya want for nothing?")
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, expected);
    }
}
