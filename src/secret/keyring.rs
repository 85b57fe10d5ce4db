//! The keys that come of the master key, and what is left of the keys of master keys before it: whoever keeps something under one
//! of them is handed this keyring, and none the master key itself.

use super::{SecretBytes, derive, open, seal};
use crate::id::Random;

// What each key is derived for. Another word would make all that is kept under it unknown.
const FINGERPRINT: &str = "rerouter master key fingerprint v1";
const PEPPER: &str = "rerouter key pepper v1";
const NODES: &str = "rerouter node secrets v1";
const CAPTURES: &str = "rerouter capture key v1";
const DOCUMENTS: &str = "rerouter documents v1";
const RETIRED: &str = "rerouter retired keys v1";

/// The keys of a store.
#[derive(Clone, Debug)]
pub struct Keyring {
    number: u32,
    pepper: SecretBytes,
    nodes: SecretBytes,
    captures: SecretBytes,
    documents: SecretBytes,
    before: Vec<Retired>,
}

/// What is left of a master key that was given up for another.
#[derive(Clone, Debug)]
pub struct Retired {
    /// The how manieth it was.
    pub number: u32,
    /// The pepper of its time, while secrets are known by it.
    pub pepper: Option<SecretBytes>,
    /// What the keys of its time's captures are sealed under.
    pub captures: Option<SecretBytes>,
}

/// Which of them a sealed key is.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// [`Retired::pepper`]
    Pepper,
    /// [`Retired::captures`]
    Captures,
}

impl Keyring {
    /// The keys of the `number`th master key, and of those before it what is left, the last of them first.
    pub fn new(master: &SecretBytes, number: u32, before: Vec<Retired>) -> Self {
        let [pepper, nodes, captures, documents] =
            [PEPPER, NODES, CAPTURES, DOCUMENTS].map(|purpose| derive(master, purpose));
        Keyring { number, pepper, nodes, captures, documents, before }
    }

    /// The how manieth master key it is, which is the number of its pepper in stored rows.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What secrets are digested with.
    pub fn pepper(&self) -> &SecretBytes {
        &self.pepper
    }

    /// The peppers before that one, with their numbers, the last of them first.
    pub fn older_peppers(&self) -> impl Iterator<Item = (u32, &SecretBytes)> {
        self.before.iter().filter_map(|retired| Some((retired.number, retired.pepper.as_ref()?)))
    }

    /// What secrets of nodes are sealed under.
    pub fn nodes(&self) -> &SecretBytes {
        &self.nodes
    }

    /// What the keys of captures are sealed under, each with the number of its master key: that of now first.
    pub fn captures(&self) -> Vec<(u32, SecretBytes)> {
        let before = self
            .before
            .iter()
            .filter_map(|retired| Some((retired.number, retired.captures.clone()?)));
        std::iter::once((self.number, self.captures.clone())).chain(before).collect()
    }

    /// What texts of routing documents are sealed under.
    pub fn documents(&self) -> &SecretBytes {
        &self.documents
    }

    /// What would be left of all of them under the next master key, the last first.
    pub fn retired(&self) -> Vec<Retired> {
        let own = Retired {
            number: self.number,
            pepper: Some(self.pepper.clone()),
            captures: Some(self.captures.clone()),
        };
        std::iter::once(own).chain(self.before.iter().cloned()).collect()
    }
}

impl From<&SecretBytes> for Keyring {
    /// The keys of the only master key that a store has had.
    fn from(master: &SecretBytes) -> Self {
        Keyring::new(master, 1, Vec::new())
    }
}

impl From<&Keyring> for Keyring {
    fn from(keyring: &Keyring) -> Self {
        keyring.clone()
    }
}

/// What a store knows its master key by.
pub fn fingerprint(master: &SecretBytes) -> SecretBytes {
    derive(master, FINGERPRINT)
}

/// Seals a key of the `number`th master key under the one of now; `None` only if the cipher refuses.
pub fn seal_retired(
    master: &SecretBytes,
    number: u32,
    part: Part,
    key: &SecretBytes,
    random: &Random,
) -> Option<Vec<u8>> {
    seal(&derive(master, RETIRED), &context(number, part), key.expose(), random)
}

/// Opens what [`seal_retired`] made.
pub fn open_retired(
    master: &SecretBytes,
    number: u32,
    part: Part,
    sealed: &[u8],
) -> Option<SecretBytes> {
    Some(SecretBytes::new(
        open(&derive(master, RETIRED), &context(number, part), sealed)?.try_into().ok()?,
    ))
}

/// A sealed key opens in its place only.
fn context(number: u32, part: Part) -> Vec<u8> {
    let word = match part {
        Part::Pepper => "pepper",
        Part::Captures => "captures",
    };
    format!("{word} {number}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_down_the_keyring_and_none_is_shown() {
        let [one, two] = [[1; 32], [2; 32]].map(SecretBytes::new);
        let first = Keyring::from(&one);
        let second = Keyring::new(&two, 2, first.retired());
        assert_ne!(first.pepper().expose(), second.pepper().expose());
        let older: Vec<_> =
            second.older_peppers().map(|(number, key)| (number, *key.expose())).collect();
        assert_eq!(older, [(1, *first.pepper().expose())]);
        let [new, old] = [second.captures(), first.captures()].map(|keys| {
            keys.iter().map(|(number, key)| (*number, *key.expose())).collect::<Vec<_>>()
        });
        assert_eq!(new[1..], old[..]);
        assert!(first.older_peppers().next().is_none() && old.len() == 1);
        let shown = format!("{second:?}");
        assert!(
            shown.contains("[secret]") && !shown.contains(&format!("{:?}", one.expose())),
            "{shown}"
        );
    }

    #[test]
    fn a_retired_key_opens_in_its_place_under_the_master_key_of_now() {
        let [master, other, key] = [[1; 32], [2; 32], [3; 32]].map(SecretBytes::new);
        let sealed = seal_retired(&master, 1, Part::Pepper, &key, &Random::System).unwrap();
        let opened = |master, number, part| {
            open_retired(master, number, part, &sealed).map(|key| *key.expose())
        };
        assert_eq!(opened(&master, 1, Part::Pepper), Some([3; 32]));
        for wrong in [
            opened(&other, 1, Part::Pepper),
            opened(&master, 2, Part::Pepper),
            opened(&master, 1, Part::Captures),
        ] {
            assert_eq!(wrong, None);
        }
    }
}
