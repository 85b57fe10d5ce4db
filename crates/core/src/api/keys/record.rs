//! A key as answers show it.

use jiff::Timestamp;
use serde_json::{Value, json};

use rerouter_access::auth::{Key, KeyState};
use rerouter_base::clock::rfc3339;
use rerouter_base::secret::Secret;
use rerouter_store::KeyRow;

/// Adds the secret to a record: only the answers to a creation and a rotation show it.
pub(super) fn with_secret(mut record: Value, secret: &Secret) -> Value {
    if let Value::Object(record) = &mut record {
        record.insert("key".to_owned(), Value::from(secret.expose()));
    }
    record
}

/// The record of a key in memory.
pub(super) fn shown(key: &Key, now: Timestamp) -> Value {
    record(key.row(), key.state(now), key.last_used(), now)
}

/// The record of a key, without its secret and digest.
pub(super) fn record(
    key: &KeyRow,
    standing: KeyState,
    used: Option<Timestamp>,
    now: Timestamp,
) -> Value {
    let previous =
        key.previous.as_ref().map(|previous| previous.expires_at).filter(|end| now < *end);
    json!({
        "object": "api_key", "id": key.id, "interface": key.interface, "name": key.name,
        "redacted": key.redacted,
        "owner": key.owner, "created_by": key.created_by, "scopes": key.scopes,
        "labels": key.labels, "limits": key.limits,
        "status": standing.as_str(), "created_at": rfc3339(key.created_at),
        "expires_at": key.expires_at.map(rfc3339),
        "last_used_at": used.map(rfc3339), "revoked_at": key.revoked_at.map(rfc3339),
        "rotated_at": key.rotated_at.map(rfc3339),
        "previous_secret_expires_at": previous.map(rfc3339), "metadata": key.metadata,
    })
}
