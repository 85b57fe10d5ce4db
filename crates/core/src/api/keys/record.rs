//! The records of keys in answers.

use jiff::Timestamp;

use rerouter_access::auth::Key;
use rerouter_base::secret::Secret;
use rerouter_records::ShownSecret;
use rerouter_records::key::{KeyObject, KeyRecord, KeyWithSecret};
use rerouter_store::{KeyRow, KeyState};

/// The record with the secret, which only the answers to a creation and a rotation show.
pub(super) fn with_secret(record: KeyRecord, secret: &Secret) -> KeyWithSecret {
    KeyWithSecret { record, key: ShownSecret(secret.clone()) }
}

pub(super) fn shown(key: &Key, now: Timestamp) -> KeyRecord {
    record(key.row(), key.state(now), key.last_used(), now)
}

/// The record of a key, without its secret and digest.
pub(super) fn record(
    key: &KeyRow,
    status: KeyState,
    used: Option<Timestamp>,
    now: Timestamp,
) -> KeyRecord {
    let previous =
        key.previous.as_ref().map(|previous| previous.expires_at).filter(|end| now < *end);
    KeyRecord {
        object: KeyObject::It,
        id: key.id.clone(),
        interface: key.interface,
        name: key.name.to_string(),
        redacted: key.redacted.to_string(),
        owner: key.owner.clone(),
        created_by: (*key.created_by).clone(),
        scopes: key.scopes.to_vec(),
        labels: (*key.labels).clone(),
        limits: (*key.limits).clone(),
        status,
        created_at: key.created_at.into(),
        expires_at: key.expires_at.map(Into::into),
        last_used_at: used.map(Into::into),
        revoked_at: key.revoked_at.map(Into::into),
        rotated_at: key.rotated_at.map(Into::into),
        previous_secret_expires_at: previous.map(Into::into),
        metadata: key.metadata.clone(),
        usage: None,
    }
}
