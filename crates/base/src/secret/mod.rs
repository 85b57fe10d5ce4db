//! Secret values that are never printed, the keys of a store, sealing, and masking of secrets in
//! texts.

mod credential_names;
mod key_redactor;
mod keyring;
mod mask;
pub mod token;

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Deserializer};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

pub use credential_names::is_credential;
pub use key_redactor::KeyRedactor;
pub use keyring::DerivedKeys;
pub use keyring::{Keyring, Purpose};
pub use mask::{Mask, StreamMask};

/// A secret string: it has no `Display`, `Debug` shows nothing of it, and its memory is cleared on
/// drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the value. The caller must not keep a copy.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value itself. Reviews have to check every caller.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the value is empty: an empty environment variable counts as unset.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Secret)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Thirty-two secret bytes: a master key, the root key, or a key derived from it. Cleared on drop.
#[derive(Clone)]
pub struct SecretBytes([u8; 32]);

impl SecretBytes {
    /// Wraps the bytes. The caller must not keep a copy.
    pub fn new(bytes: [u8; 32]) -> Self {
        SecretBytes(bytes)
    }

    /// The bytes themselves. Reviews have to check every caller.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// HKDF-SHA-256 (RFC 5869) without salt, since `key` is uniform. The parts of `info` are
/// concatenated.
fn expand(key: &SecretBytes, info: &[&[u8]]) -> SecretBytes {
    let mut out = [0; 32];
    let expanded = hkdf::Hkdf::<Sha256>::new(None, key.expose()).expand_multi_info(info, &mut out);
    // HKDF fails only for outputs beyond 255 blocks, and this is one block. A key of zeros must
    // never be used.
    if expanded.is_err() {
        std::process::abort();
    }
    SecretBytes::new(out)
}

/// Seals `plain` with AES-256-GCM. Returns nonce (12 bytes), ciphertext and tag (16), or `None` if
/// the cipher fails. `context` is the associated data, and must be the same to open. The nonce is
/// random, so a key must seal fewer than 2^32 messages (NIST SP 800-38D section 8.3).
pub fn seal(
    key: &SecretBytes,
    context: &[u8],
    plain: &[u8],
    random: &crate::id::Random,
) -> Option<Vec<u8>> {
    let mut nonce = [0; 12];
    random.fill(&mut nonce);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).ok()?);
    // Bodies may be megabytes, so they are copied once and sealed in place.
    let mut out = Vec::with_capacity(plain.len() + 28);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(plain);
    let body = out.get_mut(nonce.len()..)?;
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), body)
        .ok()?;
    out.extend_from_slice(tag.as_ref());
    Some(out)
}

/// Opens the result of [`seal`]; `None` if any bit, the key or the context differs.
pub fn open(key: &SecretBytes, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, body) = sealed.split_at_checked(12)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).ok()?);
    let mut body = body.to_vec();
    let plain = key
        .open_in_place(Nonce::try_assume_unique_for_key(nonce).ok()?, Aad::from(context), &mut body)
        .ok()?
        .len();
    body.truncate(plain);
    Some(body)
}

/// An AES-256-GCM key whose messages are numbered; the number is the nonce.
pub struct BlockKey(LessSafeKey);

impl BlockKey {
    /// A key with these bytes, which must be used for nothing else.
    pub fn new(bytes: &SecretBytes) -> Option<Self> {
        Some(BlockKey(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes.expose()).ok()?)))
    }

    /// Seals the message from `begin` to the end of the buffer, in place. No number may be used
    /// twice under one key, even if the first message was never written.
    pub fn seal(
        &self,
        number: u64,
        context: &[u8],
        buffer: &mut Vec<u8>,
        begin: usize,
    ) -> Option<()> {
        let (nonce, message) = (BlockKey::nonce(number), buffer.get_mut(begin..)?);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(context), message).ok()?;
        buffer.extend_from_slice(tag.as_ref());
        Some(())
    }

    /// Opens the result of [`BlockKey::seal`]; `None` if any bit, the number or the context
    /// differs.
    pub fn open(&self, number: u64, context: &[u8], mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let plain = self
            .0
            .open_in_place(BlockKey::nonce(number), Aad::from(context), &mut sealed)
            .ok()?
            .len();
        sealed.truncate(plain);
        Some(sealed)
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        for (to, from) in nonce.iter_mut().skip(4).zip(number.to_be_bytes()) {
            *to = from;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// A key of HMAC-SHA-256, with its schedule computed once.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// Computes the schedule for a key of any length.
    pub fn new(bytes: &[u8]) -> Self {
        match Hmac::new_from_slice(bytes) {
            Ok(mac) => MacKey(mac),
            // Unreachable: HMAC takes a key of any length (RFC 2104 section 2).
            Err(_) => std::process::abort(),
        }
    }

    /// The HMAC of a message (RFC 2104).
    pub fn code(&self, message: &[u8]) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(message);
        mac.finalize().into_bytes().into()
    }
}

/// Compares two values in constant time.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let shown = format!("{:?} {:?}", Secret::new("sk-canary"), SecretBytes::new([7; 32]));
        assert_eq!(shown, "[secret] [secret]");
    }

    #[test]
    fn a_sealed_value_opens_whole_and_with_its_context_only() {
        let key = SecretBytes::new([7; 32]);
        let sealed = seal(&key, b"req_1", b"prompt", &crate::id::Random::System).unwrap();
        assert_eq!(sealed.len(), 12 + b"prompt".len() + 16);
        assert_eq!(open(&key, b"req_1", &sealed).as_deref(), Some(&b"prompt"[..]));
        assert_eq!(open(&key, b"req_2", &sealed), None);
        assert_eq!(open(&SecretBytes::new([8; 32]), b"req_1", &sealed), None);
        for at in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(open(&key, b"req_1", &bent), None);
        }
    }

    #[test]
    fn a_block_opens_under_its_number_and_context_only() {
        let key = BlockKey::new(&SecretBytes::new([3; 32])).unwrap();
        let mut sealed = b"prompt".to_vec();
        key.seal(7, b"place", &mut sealed, 0).unwrap();
        assert_eq!(sealed.len(), b"prompt".len() + AES_256_GCM.tag_len());
        assert_eq!(key.open(7, b"place", sealed.clone()).as_deref(), Some(&b"prompt"[..]));
        assert_eq!(
            (key.open(8, b"place", sealed.clone()), key.open(7, b"other", sealed.clone())),
            (None, None)
        );
        assert_eq!(
            BlockKey::new(&SecretBytes::new([4; 32])).unwrap().open(7, b"place", sealed),
            None
        );
        assert_eq!(format!("{key:?}"), "[secret]");
    }

    #[test]
    fn comparison_is_by_value() {
        assert!(constant_time_eq(b"abc", b"abc"));
        assert!(!constant_time_eq(b"abc", b"abd"));
        assert!(!constant_time_eq(b"abc", b"abcd"));
    }
}
