//! Secrets of nodes go over to another master key.

use super::{key_context, secret_context};
use crate::id::Random;
use crate::secret::{Keyring, open, seal};
use crate::store::{NodeRow, PreviousNodeSecret, Registration};

/// A node with its secrets sealed under another master key. What does not open under the one before
/// stays as it is: the table of nodes tells of it, at this start and at every one before.
pub fn resealed(row: &NodeRow, from: &Keyring, to: &Keyring, random: &Random) -> NodeRow {
    let anew = |context: &[u8], sealed: &[u8]| {
        seal(to.nodes(), context, &open(from.nodes(), context, sealed)?, random)
    };
    let secret_of = |generation: u32, sealed: Vec<u8>| {
        anew(&secret_context(&row.id, generation), &sealed).unwrap_or(sealed)
    };
    let key_of = |sealed: Vec<u8>| anew(&key_context(&row.id), &sealed).unwrap_or(sealed);
    let before = row.generation.saturating_sub(1);
    let previous = row
        .previous
        .clone()
        .map(|old| PreviousNodeSecret { secret: secret_of(before, old.secret), ..old });
    let registration = row
        .registration
        .clone()
        .map(|old| Registration { api_key: old.api_key.clone().map(key_of), ..old });
    NodeRow {
        secret: secret_of(row.generation, row.secret.clone()),
        previous,
        registration,
        ..row.clone()
    }
}
