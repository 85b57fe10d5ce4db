//! The key of one capture. No other file of this room uses the keyring.

use rerouter_base::secret::{BlockKey, DerivedKeys, Keyring, Purpose};

/// The context from which the mark of a store is derived. No salt has its length.
const MARK: &[u8] = b"the owner of a folder of segments";

/// Bytes of a salt: too many to guess.
pub(super) const SALT: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct CaptureKeys(DerivedKeys);

impl CaptureKeys {
    pub(super) fn new(keyring: &Keyring) -> Self {
        CaptureKeys(DerivedKeys::new(keyring, Purpose::Captures))
    }

    /// The key of the capture with this salt and id. The id is included because two machines that
    /// continue from one snapshot may draw the same salt. `None` only if the cipher refuses the
    /// key.
    pub(super) fn derive(&self, salt: &[u8; SALT], id: &str) -> Option<BlockKey> {
        BlockKey::new(&self.0.derive(&[salt, id.as_bytes()].concat())?)
    }

    /// Distinguishes this store from others, in hexadecimal digits. Not a secret: nothing is
    /// encrypted under it.
    pub(super) fn mark(&self) -> Option<String> {
        let mark = self.0.derive(MARK)?;
        Some(mark.expose().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
