//! The master key at a start: read, or made where there is none, and held against the store. Where the store has another one and
//! that is given too, the store goes over to this one: in one transaction, so that a process that is killed leaves a store which
//! opens with the one before or with this one, and with both beside each other in any case.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use log::{info, warn};

use super::{BootError, master_file};
use crate::atomic_file;
use crate::bounds;
use crate::id::Random;
use crate::nodes;
use crate::secret::{
    Keyring, Part, Retired, Secret, SecretBytes, constant_time_eq, fingerprint, open_retired,
    seal_retired,
};
use crate::store::{Action, Actor, Event, Left, MasterRow, Masters, Rank, StoreError};

/// The variable of the master key.
pub const MASTER_KEY: &str = "REROUTER_MASTER_KEY";
/// The variable of the one before, at the start that gives it up.
pub const MASTER_KEY_OLD: &str = "REROUTER_MASTER_KEY_OLD";
/// The file of the master key in the data directory, where the variable is not set.
const FILE: &str = "master.key";
/// The file of the one before, where its variable is not set.
const FILE_OLD: &str = "master.key.old";

/// What a start is given.
pub(super) struct Given {
    /// The data directory.
    pub(super) dir: PathBuf,
    /// Of the environment; empty counts as unset.
    pub(super) key: Option<Secret>,
    /// Of the environment as well.
    pub(super) old: Option<Secret>,
    /// Where new keys come from.
    pub(super) random: Random,
    /// Now.
    pub(super) now: Timestamp,
}

/// What becomes of it.
#[derive(Debug)]
pub(super) struct Claimed {
    /// The keys of the store.
    pub(super) keys: Keyring,
    /// Whether the store has gone over to another master key.
    pub(super) changed: bool,
}

/// What a start does with the master keys of a store.
enum Verdict {
    /// The store is new and begins with this one, or with one that is made.
    Begin(Option<SecretBytes>),
    /// The store has this one.
    Same(SecretBytes),
    /// The store goes over from the first to the second, or to one that is made.
    Change(SecretBytes, Option<SecretBytes>),
}

impl Given {
    /// Opens the keys of a store. Everything that speaks against it is found before anything is written.
    pub(super) fn claim(&self, masters: &Masters<'_>) -> Result<Claimed, BootError> {
        let rows = masters.rows()?;
        match self.judge(&rows)? {
            Verdict::Begin(key) => {
                let key = key.map_or_else(|| self.make(), Ok)?;
                masters.begin(1, fingerprint(&key).expose(), self.now)?;
                Ok(Claimed { keys: Keyring::from(&key), changed: false })
            }
            Verdict::Same(key) => {
                self.say_what_is_not_needed(&key);
                Ok(Claimed { keys: keyring(&key, &rows)?, changed: false })
            }
            Verdict::Change(old, key) => self.change(masters, &rows, &old, key),
        }
    }

    /// Whether [`Given::claim`] would go well with a store that has had these master keys; nothing
    /// is written.
    pub(super) fn try_out(&self, rows: &[MasterRow]) -> Result<(), BootError> {
        self.judge(rows).map(|_| ())
    }

    /// What the texts of documents are sealed under in a store that has had these master keys.
    pub(super) fn documents_key(&self, rows: &[MasterRow]) -> Result<SecretBytes, BootError> {
        match self.judge(rows)? {
            Verdict::Same(key) | Verdict::Change(key, _) => {
                Ok(keyring(&key, rows)?.documents().clone())
            }
            Verdict::Begin(_) => Err(BootError("the store is new".to_owned())),
        }
    }

    fn judge(&self, rows: &[MasterRow]) -> Result<Verdict, BootError> {
        let key = read(self.key.as_ref(), MASTER_KEY, &self.dir.join(FILE))?;
        let Some(last) = rows.first() else { return Ok(Verdict::Begin(key)) };
        let at = key.as_ref().and_then(|key| rows.iter().position(|row| is(key, row)));
        let key = match (key, at) {
            (Some(key), Some(0)) => return Ok(Verdict::Same(key)),
            (_, Some(at)) => {
                return Err(given_up(rows.get(at.saturating_sub(1)).map(|next| next.since)));
            }
            (key, None) => key,
        };
        let old = read(self.old.as_ref(), MASTER_KEY_OLD, &self.dir.join(FILE_OLD))?;
        match old {
            Some(old) if is(&old, last) && key.is_none() && !self.of_file() => {
                Err(alone(&self.dir.join(FILE)))
            }
            Some(old) if is(&old, last) => Ok(Verdict::Change(old, key)),
            Some(_) => Err(BootError(format!(
                "the store has another master key than the one given as the one before ({MASTER_KEY_OLD} or {FILE_OLD}), and nothing is \
                 changed: give the one that it was last started with"
            ))),
            None if key.is_none() => Err(BootError(format!(
                "{} is not there, and the store was made with a master key: restore the file, or set {MASTER_KEY}",
                self.dir.join(FILE).display()
            ))),
            None if self.of_variable() && self.file_is(last) => Err(BootError(format!(
                "the store has the master key of {}, and {MASTER_KEY} is another one: take the variable out of the environment, or, to go \
                 over to it, rename the file to {FILE_OLD}",
                self.dir.join(FILE).display()
            ))),
            None => Err(BootError(format!(
                "{}; to go over to another one, give the one before beside it as {MASTER_KEY_OLD} or {FILE_OLD}",
                StoreError::OtherMasterKey
            ))),
        }
    }

    /// Has the store go over from `old` to `key`, or to one that is made.
    fn change(
        &self,
        masters: &Masters<'_>,
        rows: &[MasterRow],
        old: &SecretBytes,
        key: Option<SecretBytes>,
    ) -> Result<Claimed, BootError> {
        let from = keyring(old, rows)?;
        let mut before = from.retired();
        let mut left = Vec::new();
        for retired in before.iter_mut().filter(|retired| retired.pepper.is_some()) {
            let known = masters.left(retired.number, self.now)?;
            if known.is_nothing() {
                retired.pepper = None;
            } else {
                left.push(known);
            }
        }
        if left.len() >= bounds::PEPPERS {
            return Err(too_many(&left));
        }
        let key = key.map_or_else(|| self.make(), Ok)?;
        let number = from.number().saturating_add(1);
        for Retired { number, pepper, captures } in &before {
            let sealed = |part, secret: &Option<SecretBytes>| match secret {
                None => Ok(None),
                Some(secret) => seal_retired(&key, *number, part, secret, &self.random)
                    .map(Some)
                    .ok_or_else(unsealed),
            };
            let (pepper, captures) =
                (sealed(Part::Pepper, pepper)?, sealed(Part::Captures, captures)?);
            masters.retire(*number, pepper.as_deref(), captures.as_deref())?;
        }
        masters.begin(number, fingerprint(&key).expose(), self.now)?;
        let keys = Keyring::new(&key, number, before);
        for node in masters.nodes()? {
            masters.put_node(nodes::resealed(&node, &from, &keys, &self.random))?;
        }
        masters.reseal_documents(from.documents(), keys.documents())?;
        let operator = Actor { kind: "operator".into(), id: "operator".into() };
        masters.note(&Event::new(
            self.now,
            (operator, Rank::Admin),
            Action::MasterKeyChange,
            "master_key",
            &number.to_string(),
        ))?;
        Ok(Claimed { keys, changed: true })
    }

    /// A new master key, durable before it is used.
    fn make(&self) -> Result<SecretBytes, BootError> {
        let path = self.dir.join(FILE);
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes);
        atomic_file::write(&path, STANDARD.encode(bytes).as_bytes())
            .map_err(|error| BootError(format!("cannot write {}: {error}", path.display())))?;
        info!("made a master key: {}; keep a copy, nothing can be read without it", path.display());
        Ok(SecretBytes::new(bytes))
    }

    /// Whether the one before is to be looked for in its file.
    fn of_file(&self) -> bool {
        self.old.as_ref().is_none_or(Secret::is_empty)
    }

    /// Whether the file holds the master key of the store, where the variable holds another.
    fn file_is(&self, last: &MasterRow) -> bool {
        master_file::read(&self.dir.join(FILE))
            .is_ok_and(|key| key.is_some_and(|key| is(&key, last)))
    }

    fn say_what_is_not_needed(&self, key: &SecretBytes) {
        let (file, old) = (self.dir.join(FILE), self.dir.join(FILE_OLD));
        let same = |other: &SecretBytes| constant_time_eq(other.expose(), key.expose());
        if self.of_variable() && file.exists() {
            let name = file.display();
            match master_file::read(&file) {
                Ok(other) if other.as_ref().is_none_or(same) => {}
                Ok(_) => warn!(
                    "{name} holds something else than {MASTER_KEY}, and is not looked at while that is set: take it away"
                ),
                Err(why) => warn!(
                    "{name} is not looked at while {MASTER_KEY} is set, and would be refused: {why}"
                ),
            }
        }
        if !self.of_file() {
            info!("{MASTER_KEY_OLD} is not needed any more: take it out of the environment");
        } else if old.exists() {
            info!(
                "{} is not needed any more but for backups from before: take it away",
                old.display()
            );
        }
    }

    /// Whether the master key is given by its variable.
    fn of_variable(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !key.is_empty())
    }
}

/// A key of the environment or, where that has none, of a file, if it is there.
fn read(
    given: Option<&Secret>,
    variable: &str,
    path: &Path,
) -> Result<Option<SecretBytes>, BootError> {
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        let told = || {
            format!(
                "{variable} is not 32 bytes in base64: set it to what the store was last started with"
            )
        };
        return master_file::decode(given.expose()).map(Some).ok_or_else(|| BootError(told()));
    }
    master_file::read(path).map_err(BootError)
}

fn is(key: &SecretBytes, row: &MasterRow) -> bool {
    constant_time_eq(fingerprint(key).expose(), &row.fingerprint)
}

/// The keys of a store that has had these, with the last of them.
fn keyring(master: &SecretBytes, rows: &[MasterRow]) -> Result<Keyring, BootError> {
    let opened = |number, part, sealed: &Option<Vec<u8>>| match sealed {
        None => Ok(None),
        Some(sealed) => {
            let damaged = || {
                StoreError::Damaged(format!("what is left of master key {number} does not open"))
            };
            open_retired(master, number, part, sealed).map(Some).ok_or_else(damaged)
        }
    };
    let mut before = Vec::new();
    for row in rows.iter().skip(1) {
        let (pepper, captures) = (
            opened(row.number, Part::Pepper, &row.pepper)?,
            opened(row.number, Part::Captures, &row.captures)?,
        );
        before.push(Retired { number: row.number, pepper, captures });
    }
    Ok(Keyring::new(master, rows.first().map_or(1, |row| row.number), before))
}

/// Who keeps keys in the environment may have forgotten the new one there: a file that nobody knows of would be the only one.
fn alone(path: &Path) -> BootError {
    BootError(format!(
        "{MASTER_KEY_OLD} is the master key that the store has, but there is none to go over to, and nothing is changed: set {MASTER_KEY} to \
         a new one (`openssl rand -base64 32`) or put that into {}; to stay with the one that there is, give it as {MASTER_KEY}",
        path.display()
    ))
}

fn given_up(at: Option<Timestamp>) -> BootError {
    let at = at.map_or_else(String::new, |at| format!(" at {at}"));
    BootError(format!(
        "the store gave this master key up for another{at}, and takes none twice: give the one that came after it"
    ))
}

fn too_many(left: &[Left]) -> BootError {
    let (keys, sessions) = left
        .iter()
        .fold((0, 0), |(keys, sessions), left| (keys + left.keys, sessions + left.sessions));
    let (last, most) = (left.last().copied().unwrap_or_default(), bounds::PEPPERS);
    BootError(format!(
        "the store cannot go over to another master key yet, and nothing is changed: {keys} keys and {sessions} sessions are known by \
         the peppers of {most} master keys, as many as may be, {} keys and {} sessions of them by the first; they move when they are \
         used, or end: start with the one before alone (as {MASTER_KEY} or {FILE}), and revoke or rotate the keys that are not used",
        last.keys, last.sessions
    ))
}

fn unsealed() -> BootError {
    BootError("the keys of the store could not be sealed under the new master key".into())
}

#[cfg(test)]
#[path = "master_tests.rs"]
mod tests;
