//! The key of one capture. The only place of this room that uses the keyring.

use crate::secret::{BlockKey, Keyring, SecretBytes, derive};

/// Bytes of a salt: as many as nobody guesses.
pub(super) const SALT: usize = 16;

/// Derives the keys of captures.
#[derive(Clone, Debug)]
pub(super) struct CaptureKeys(SecretBytes);

impl CaptureKeys {
    /// The keys of captures under this keyring.
    pub(super) fn new(keyring: &Keyring) -> Self {
        let current = keyring.captures().into_iter().next();
        CaptureKeys(current.map_or_else(|| SecretBytes::new([0; 32]), |(_, key)| key))
    }

    /// The key of the capture with this salt; `None` only if the cipher refuses it.
    pub(super) fn derive(&self, salt: &[u8; SALT]) -> Option<BlockKey> {
        let purpose = format!("rerouter capture {:032x}", u128::from_be_bytes(*salt));
        BlockKey::new(&derive(&self.0, &purpose))
    }
}
