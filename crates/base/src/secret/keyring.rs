//! The root key of a store, and the keys that derive from it. The master key only wraps the root
//! key, so a change of the master key rewrites a single stored row.

use ring::hmac;

use super::{SecretBytes, expand, open, seal};
use crate::id::Random;

/// The label under which the wrapping key derives from a master key.
const WRAP: &[u8] = b"rerouter root key wrap v1";
/// The context of the wrapped root key. No other sealed value opens in its place.
const WRAPPED: &[u8] = b"rerouter root key v1";

/// The purpose of a derived key. Different purposes have different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The pepper of stored digests: API keys and session secrets.
    Digests,
    /// Seals secrets of nodes, and the API keys that the gateway uses to call nodes.
    Nodes,
    /// Seals captures. A separate key is derived for each file or capture by its context.
    Captures,
    /// Seals texts of routing documents.
    Documents,
}

impl Purpose {
    /// The label in the derivation. Changing a label makes everything sealed under it unreadable.
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Digests => b"rerouter digests v1",
            Purpose::Nodes => b"rerouter nodes v1",
            Purpose::Captures => b"rerouter captures v1",
            Purpose::Documents => b"rerouter documents v1",
        }
    }
}

/// Derives the keys of a store from its root key.
#[derive(Clone, Debug)]
pub struct Keyring {
    root: SecretBytes,
}

impl Keyring {
    /// The keys under this root key: 32 uniformly random bytes.
    pub fn new(root: SecretBytes) -> Self {
        Keyring { root }
    }

    /// The keys of a new store.
    pub fn generate(random: &Random) -> Self {
        let mut root = [0; 32];
        random.fill(&mut root);
        Keyring::new(SecretBytes::new(root))
    }

    /// Derives the key for a purpose and context: HKDF-SHA-256 (RFC 5869) without salt, since the
    /// root key is uniform, with `info = label(purpose) || 0x00 || context`. Equal arguments result
    /// in the same key. A context is, for example, a capture's id or the random salt in a file's
    /// head. The derivation takes two HMACs.
    pub fn derive(&self, purpose: Purpose, context: &[u8]) -> SecretBytes {
        expand(&self.root, &[purpose.label(), &[0], context])
    }

    /// The root key, wrapped by a master key with AES-256-GCM, as the store keeps it; `None` only
    /// if the cipher fails.
    pub fn wrap(&self, master: &SecretBytes, random: &Random) -> Option<Vec<u8>> {
        seal(&expand(master, &[WRAP]), WRAPPED, self.root.expose(), random)
    }

    /// Unwraps the result of [`Keyring::wrap`]; `None` under any other master key.
    pub fn from_wrapped(master: &SecretBytes, wrapped: &[u8]) -> Option<Self> {
        let root = open(&expand(master, &[WRAP]), WRAPPED, wrapped)?;
        Some(Keyring::new(SecretBytes::new(root.try_into().ok()?)))
    }
}

/// Derives many keys of one purpose. The key schedule of their parent is computed once, so each key
/// takes one HMAC.
#[derive(Clone, Debug)]
pub struct DerivedKeys(hmac::Key);

impl DerivedKeys {
    /// The keys of this purpose under a keyring.
    pub fn new(keyring: &Keyring, purpose: Purpose) -> Self {
        let key = keyring.derive(purpose, b"keys");
        DerivedKeys(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// The key for a context, such as a random salt. It is the HMAC-SHA-256 of the context.
    pub fn derive(&self, context: &[u8]) -> Option<SecretBytes> {
        hmac::sign(&self.0, context).as_ref().try_into().ok().map(SecretBytes::new)
    }
}

impl From<&SecretBytes> for Keyring {
    /// The keys under this root key.
    fn from(root: &SecretBytes) -> Self {
        Keyring::new(root.clone())
    }
}

impl From<&Keyring> for Keyring {
    fn from(keyring: &Keyring) -> Self {
        keyring.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_purpose_and_context_and_are_never_printed() {
        let keys = Keyring::new(SecretBytes::new([1; 32]));
        let all = [
            keys.derive(Purpose::Digests, b""),
            keys.derive(Purpose::Nodes, b""),
            keys.derive(Purpose::Captures, b""),
            keys.derive(Purpose::Captures, b"req_1"),
            keys.derive(Purpose::Documents, b""),
            Keyring::new(SecretBytes::new([2; 32])).derive(Purpose::Digests, b""),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other.expose() != key.expose()), "{at}");
        }
        assert_eq!(
            keys.derive(Purpose::Captures, b"req_1").expose(),
            all[3].expose(),
            "derivation is deterministic"
        );
        assert_eq!(format!("{keys:?}"), "Keyring { root: [secret] }");
    }

    #[test]
    fn derived_keys_differ_by_context_and_are_never_printed() {
        let of = |root: u8| {
            DerivedKeys::new(&Keyring::new(SecretBytes::new([root; 32])), Purpose::Captures)
        };
        let key = |root: u8, context: &[u8]| *of(root).derive(context).unwrap().expose();
        assert_eq!(key(1, b"a"), key(1, b"a"));
        assert!(key(1, b"a") != key(1, b"b") && key(1, b"a") != key(2, b"a"));
        assert_eq!(format!("{:?}", of(1)), format!("{:?}", of(2)));
    }

    #[test]
    fn the_root_key_opens_under_its_master_key_only() {
        let [master, other] = [[1; 32], [2; 32]].map(SecretBytes::new);
        let keys = Keyring::generate(&Random::System);
        let wrapped = keys.wrap(&master, &Random::System).unwrap();
        assert_eq!(wrapped.len(), 12 + 32 + 16);
        let opened = Keyring::from_wrapped(&master, &wrapped).unwrap();
        assert_eq!(opened.root.expose(), keys.root.expose());
        assert!(Keyring::from_wrapped(&other, &wrapped).is_none());
        assert!(Keyring::from_wrapped(&master, &wrapped[1..]).is_none());
        assert_ne!(wrapped, keys.wrap(&master, &Random::System).unwrap(), "nonces are random");
        assert_ne!(
            Keyring::generate(&Random::System).root.expose(),
            keys.root.expose(),
            "each store has its own root key"
        );
    }
}
