//! The key of one capture. The only place of this room that uses the keyring.

use rerouter_base::secret::{BlockKey, DerivedKeys, Keyring, Purpose};

/// The context of the mark of a store, which no salt is as long as.
const MARK: &[u8] = b"the owner of a folder of segments";

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

    /// The key of the capture with this salt and id: two machines that go on from one snapshot may
    /// draw the same salt. `None` only if the cipher refuses it.
    pub(super) fn derive(&self, salt: &[u8; SALT], id: &str) -> Option<BlockKey> {
        BlockKey::new(&self.0.derive(&[salt, id.as_bytes()].concat())?)
    }

    /// What tells this store from others, in hexadecimal digits. It is no secret: nothing is sealed
    /// under it.
    pub(super) fn mark(&self) -> Option<String> {
        let mark = self.0.derive(MARK)?;
        Some(mark.expose().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
