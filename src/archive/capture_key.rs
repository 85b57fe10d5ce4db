//! The key of one capture. The only place of this room that uses the keyring.

use ring::hmac;

use crate::secret::{BlockKey, Keyring, Purpose, SecretBytes};

/// Bytes of a salt: as many as nobody guesses.
pub(super) const SALT: usize = 16;

/// Derives the keys of captures: each is HMAC-SHA-256 of a salt, under a key that the root key gives
/// for this. The schedule of that key is made once.
#[derive(Clone, Debug)]
pub(super) struct CaptureKeys(hmac::Key);

impl CaptureKeys {
    /// The keys of captures under this keyring.
    pub(super) fn new(keyring: &Keyring) -> Self {
        let key = keyring.derive(Purpose::Captures, b"keys");
        CaptureKeys(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// The key of the capture with this salt; `None` only if the cipher refuses it.
    pub(super) fn derive(&self, salt: &[u8; SALT]) -> Option<BlockKey> {
        let key = hmac::sign(&self.0, salt);
        BlockKey::new(&SecretBytes::new(key.as_ref().try_into().ok()?))
    }
}
