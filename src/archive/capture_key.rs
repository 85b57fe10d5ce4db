//! The key of one capture. The only place of this room that uses the keyring.

use crate::secret::{BlockKey, DerivedKeys, Keyring, Purpose};

/// Bytes of a salt: as many as nobody guesses.
pub(super) const SALT: usize = 16;

/// Derives the keys of captures.
#[derive(Clone, Debug)]
pub(super) struct CaptureKeys(DerivedKeys);

impl CaptureKeys {
    /// The keys of captures under this keyring.
    pub(super) fn new(keyring: &Keyring) -> Self {
        CaptureKeys(DerivedKeys::new(keyring, Purpose::Captures))
    }

    /// The key of the capture with this salt; `None` only if the cipher refuses it.
    pub(super) fn derive(&self, salt: &[u8; SALT]) -> Option<BlockKey> {
        BlockKey::new(&self.0.derive(salt)?)
    }
}
