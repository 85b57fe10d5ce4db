//! The form of our secrets: `<audience>_<30 random base62><6 base62 of their CRC-32>`. The checksum tells scanners and
//! typing errors apart from keys; it guards nothing. A secret is kept only as HMAC-SHA-256 under the pepper.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::Random;
use crate::secret::{Secret, SecretBytes};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM: usize = 30;
const CHECKSUM: usize = 6;
/// What our secrets begin with: keys of the three interfaces, session tokens, node secrets.
const AUDIENCES: [&str; 5] = ["pin", "agt", "rtr", "ses", "nod"];

/// A new secret for an audience. Bytes that would favour some digits are drawn again.
pub fn mint(audience: &str, random: &Random) -> Secret {
    let mut digits = String::with_capacity(RANDOM + CHECKSUM);
    while digits.len() < RANDOM {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let fair = bytes.iter().filter(|byte| **byte < 248).map(|byte| digit(usize::from(byte % 62)));
        digits.extend(fair.take(RANDOM - digits.len()));
    }
    let sum = checksum(&digits);
    Secret::new(format!("{audience}_{digits}{sum}"))
}

/// `false` only for a string that has our form and a wrong checksum: a mistyped key. Any other string may be a
/// key that an operator chose.
pub fn well_formed(token: &str) -> bool {
    match parts(token) {
        Some((digits, sum)) => checksum(digits) == sum,
        None => true,
    }
}

/// What may be shown of a secret: its beginning and its end.
pub fn redact(token: &str) -> String {
    match parts(token) {
        Some((digits, sum)) => {
            let audience = token.split('_').next().unwrap_or_default();
            format!("{audience}_{}…{}", digits.get(..4).unwrap_or_default(), sum.get(2..).unwrap_or_default())
        }
        None => "…".to_owned(),
    }
}

/// The key of all digests, taken in once: a digest then costs the hash of the secret alone.
#[derive(Clone)]
pub struct Pepper(Hmac<Sha256>);

impl Pepper {
    /// Takes the key in.
    pub fn new(key: &SecretBytes) -> Self {
        match Hmac::new_from_slice(key.expose()) {
            Ok(keyed) => Pepper(keyed),
            // HMAC takes a key of any length (RFC 2104 section 2); should it not, no digest may match another.
            Err(_) => std::process::abort(),
        }
    }

    /// What is stored of a secret, and what tables are keyed by.
    pub fn digest(&self, token: &str) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(token.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// The random digits and the checksum, when the string has our form.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (audience, rest) = token.split_once('_')?;
    let ours = AUDIENCES.contains(&audience) && rest.len() == RANDOM + CHECKSUM && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    if ours { rest.split_at_checked(RANDOM) } else { None }
}

/// CRC-32 (IEEE) of the digits as six base62 digits, zeros in front.
fn checksum(digits: &str) -> String {
    let mut rest = crc32fast::hash(digits.as_bytes()) as usize;
    let mut sum = ['0'; CHECKSUM];
    for place in sum.iter_mut().rev() {
        *place = digit(rest % 62);
        rest /= 62;
    }
    sum.iter().collect()
}

fn digit(value: usize) -> char {
    BASE62.get(value).copied().map_or('0', char::from)
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
            assert_eq!(checksum(digits), sum);
            assert!(well_formed(vector));
            let bent = format!("{}{}", &vector[..39], if vector.ends_with('0') { '1' } else { '0' });
            assert!(!well_formed(&bent), "{bent}");
        }
        assert_eq!(redact(VECTORS[2]), "rtr_AbCd…iBxe");
        assert_eq!(redact("an operator's own"), "…");
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
        let hex: String =
            Pepper::new(&SecretBytes::new(jefe)).digest("what do ya want for nothing?").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, expected);
    }
}
