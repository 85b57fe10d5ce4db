//! Opens the store by its master key at the start. The master key wraps the root key of the store,
//! from which all other keys derive. A start that is given a new and the previous master key wraps
//! the root key again: one row in one transaction, durable before anything is served. If that start
//! is killed, either the previous or the new master key opens the store, and both together always
//! do.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use log::{info, warn};

use super::{BootError, master_file};
use rerouter_base::atomic_file;
use rerouter_base::id::Random;
use rerouter_base::secret::{Keyring, Secret, SecretBytes, constant_time_eq};
use rerouter_store::{Action, Actor, Event, Opening, WrappedRootKey};

/// The environment variable of the master key.
pub const MASTER_KEY: &str = "REROUTER_MASTER_KEY";
/// The environment variable of the previous master key, for the start that replaces it.
pub const MASTER_KEY_OLD: &str = "REROUTER_MASTER_KEY_OLD";
/// The file of the master key in the data directory, for starts without the variable.
const FILE: &str = "master.key";
/// The file of the previous master key, for starts without the variable.
const FILE_OLD: &str = "master.key.old";

pub(super) struct MasterKeys {
    pub(super) dir: PathBuf,
    /// From the environment; empty counts as unset.
    pub(super) key: Option<Secret>,
    /// The previous key, from the environment; empty counts as unset.
    pub(super) old: Option<Secret>,
    pub(super) random: Random,
    pub(super) now: Timestamp,
}

#[derive(Debug)]
pub(super) struct Unlocked {
    pub(super) keys: Keyring,
    /// Whether this start wrapped the root key under another master key.
    pub(super) rewrapped: bool,
}

/// What a start does with the root key.
enum Plan {
    /// The store is new: a root key is made and wrapped by this master key, or by a new one.
    Create(Option<SecretBytes>),
    /// The given master key opens the store.
    Use(Keyring, SecretBytes),
    /// The previous master key opens the store. From now on this one, or a new one, wraps the root
    /// key.
    Rewrap(Keyring, Option<SecretBytes>),
}

impl MasterKeys {
    /// Opens the root key of a store, or makes one. All checks come before anything is written.
    pub(super) fn unlock(&self, store: &Opening<'_>) -> Result<Unlocked, BootError> {
        let row = store.root_key()?;
        match self.plan(row.as_ref())? {
            Plan::Create(master) => {
                let master = master.map_or_else(|| self.make(), Ok)?;
                let keys = Keyring::generate(&self.random);
                store.put_root_key(&self.wrap(&keys, &master, 1)?)?;
                Ok(Unlocked { keys, rewrapped: false })
            }
            Plan::Use(keys, master) => {
                self.log_unneeded(&master);
                Ok(Unlocked { keys, rewrapped: false })
            }
            Plan::Rewrap(keys, master) => {
                let master = master.map_or_else(|| self.make(), Ok)?;
                let generation = row.map_or(1, |row| row.generation).saturating_add(1);
                store.put_root_key(&self.wrap(&keys, &master, generation)?)?;
                store.note(&self.changed(generation))?;
                Ok(Unlocked { keys, rewrapped: true })
            }
        }
    }

    /// Opens the root key in this row and writes nothing. `None` if the store is new and the given
    /// master key, if any, is well-formed.
    pub(super) fn try_unlock(
        &self,
        row: Option<&WrappedRootKey>,
    ) -> Result<Option<Keyring>, BootError> {
        Ok(match self.plan(row)? {
            Plan::Create(_) => None,
            Plan::Use(keys, _) | Plan::Rewrap(keys, _) => Some(keys),
        })
    }

    fn plan(&self, row: Option<&WrappedRootKey>) -> Result<Plan, BootError> {
        let master = read(self.key.as_ref(), MASTER_KEY, &self.dir.join(FILE))?;
        let Some(row) = row else { return Ok(Plan::Create(master)) };
        let opened = |master: &SecretBytes| Keyring::from_wrapped(master, &row.wrapped);
        let master = match master.map(|master| (opened(&master), master)) {
            Some((Some(keys), master)) => return Ok(Plan::Use(keys, master)),
            other => other.map(|(_, master)| master),
        };
        let old = read(self.old.as_ref(), MASTER_KEY_OLD, &self.dir.join(FILE_OLD))?;
        let Some(old) = old else { return Err(self.no_key_opens(master.is_some(), row)) };
        match opened(&old) {
            // An operator who keeps keys in the environment may have forgotten the new key. A key
            // file made now would be its only copy, and nobody would know of it.
            Some(_) if master.is_none() && self.old_is_set() => Err(BootError(format!(
                "{MASTER_KEY_OLD} opens this store, but there is no new master key, \
                 and nothing was changed: set {MASTER_KEY} to a new one (`openssl rand -base64 \
                 32`) or put it into {}; to keep the present one, give it as {MASTER_KEY}",
                self.dir.join(FILE).display()
            ))),
            Some(keys) => Ok(Plan::Rewrap(keys, master)),
            None => Err(BootError(format!(
                "the previous master key that is given ({MASTER_KEY_OLD} or {FILE_OLD}) does not \
                 open this store either, which has another master key, \
                 and nothing was changed: give the one that it was last started with"
            ))),
        }
    }

    fn no_key_opens(&self, given: bool, row: &WrappedRootKey) -> BootError {
        let file = self.dir.join(FILE);
        let name = file.display();
        if !given {
            return BootError(format!(
                "{name} is missing, and the store was made with a master key: restore the file, \
                 or set {MASTER_KEY}"
            ));
        }
        let in_file = || master_file::read(&file).ok().flatten();
        let opens = |master: SecretBytes| Keyring::from_wrapped(&master, &row.wrapped).is_some();
        if self.key_is_set() && in_file().is_some_and(opens) {
            return BootError(format!(
                "the store has the master key in {name}, \
                 and {MASTER_KEY} is another master key: unset the variable, or, to change to it, \
                 rename the file to {FILE_OLD}"
            ));
        }
        BootError(format!(
            "the store has another master key: restore {MASTER_KEY} or the data directory's \
             {FILE}; to change to the given one, give the previous one beside it as \
             {MASTER_KEY_OLD} or {FILE_OLD}"
        ))
    }

    fn wrap(
        &self,
        keys: &Keyring,
        master: &SecretBytes,
        generation: u32,
    ) -> Result<WrappedRootKey, BootError> {
        let wrapped = keys.wrap(master, &self.random);
        let wrapped =
            wrapped.ok_or_else(|| BootError("the root key could not be wrapped".into()))?;
        Ok(WrappedRootKey { generation, wrapped })
    }

    fn changed(&self, generation: u32) -> Event {
        let operator = Actor { kind: "operator".into(), id: "operator".into() };
        Event::new(
            self.now,
            operator,
            Action::MasterKeyChange,
            "master_key",
            &generation.to_string(),
        )
    }

    /// Makes a master key in its file, durable before the store uses it.
    fn make(&self) -> Result<SecretBytes, BootError> {
        let path = self.dir.join(FILE);
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes);
        atomic_file::write(&path, STANDARD.encode(bytes).as_bytes())
            .map_err(|error| BootError(format!("cannot write {}: {error}", path.display())))?;
        info!(
            "made a master key: {}; keep a copy, without it the store cannot be read",
            path.display()
        );
        Ok(SecretBytes::new(bytes))
    }

    fn key_is_set(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !key.is_empty())
    }

    fn old_is_set(&self) -> bool {
        self.old.as_ref().is_some_and(|old| !old.is_empty())
    }

    fn log_unneeded(&self, master: &SecretBytes) {
        let (file, old) = (self.dir.join(FILE), self.dir.join(FILE_OLD));
        let same = |other: &SecretBytes| constant_time_eq(other.expose(), master.expose());
        if self.key_is_set() && file.exists() {
            let name = file.display();
            match master_file::read(&file) {
                Ok(other) if other.as_ref().is_none_or(same) => {}
                Ok(_) => warn!(
                    "{name} holds another key than {MASTER_KEY} and is ignored while the variable \
                     is set: remove it"
                ),
                Err(why) => warn!(
                    "{name} is ignored while {MASTER_KEY} is set, and would be refused: {why}"
                ),
            }
        }
        if self.old_is_set() {
            info!("{MASTER_KEY_OLD} is no longer needed: remove it from the environment");
        } else if old.exists() {
            info!("{} is no longer needed, except for older backups: remove it", old.display());
        }
    }
}

/// Reads a key from the environment, else from a file if it exists.
fn read(
    given: Option<&Secret>,
    variable: &str,
    path: &Path,
) -> Result<Option<SecretBytes>, BootError> {
    let Some(given) = given.filter(|given| !given.is_empty()) else {
        return master_file::read(path).map_err(BootError);
    };
    let malformed = || {
        BootError(format!(
            "{variable} is not 32 bytes in base64: set it to what the store was last started with"
        ))
    };
    master_file::decode(given.expose()).map(Some).ok_or_else(malformed)
}

#[cfg(test)]
#[path = "master_tests.rs"]
mod tests;
