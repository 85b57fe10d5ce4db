//! The tables, as numbered migrations: `user_version` says how many of them a file has seen. A file
//! that has seen more than this build knows is refused, because an older build would misread it.

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// Of `accounts.db`. `state` has one row: the revision.
/// Owners of keys may be the built-in `usr_admin`, which is no row; so that column is no reference.
pub(super) const ACCOUNTS: &[&str] = &[
    "
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), rev INTEGER NOT NULL) STRICT;
CREATE TABLE users (
    id TEXT PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT, role TEXT NOT NULL, password TEXT NOT NULL,
    disabled INTEGER NOT NULL, labels TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
CREATE TABLE keys (
    id TEXT PRIMARY KEY, interface TEXT NOT NULL, name TEXT NOT NULL, redacted TEXT NOT NULL, digest BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL, created_by TEXT NOT NULL, parent TEXT REFERENCES keys (id),
    scopes TEXT NOT NULL, labels TEXT NOT NULL, limits TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, revoked_at INTEGER, rotated_at INTEGER, metadata TEXT NOT NULL) STRICT;
CREATE INDEX keys_owner ON keys (owner);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE, cookie_digest BLOB NOT NULL UNIQUE,
    token_digest BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, last_seen INTEGER NOT NULL) STRICT;
CREATE INDEX sessions_user ON sessions (user);
CREATE TABLE documents (revision TEXT PRIMARY KEY, text TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
",
    "
ALTER TABLE keys ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
ALTER TABLE keys ADD COLUMN previous_digest BLOB;
ALTER TABLE keys ADD COLUMN previous_expires_at INTEGER;
ALTER TABLE keys ADD COLUMN made_open INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX keys_previous ON keys (previous_digest) WHERE previous_digest IS NOT NULL;
CREATE TABLE agents (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT, model TEXT NOT NULL, instructions TEXT, defaults TEXT NOT NULL,
    tools TEXT NOT NULL, trusted INTEGER NOT NULL, metadata TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT;
",
    "
CREATE INDEX keys_parent ON keys (parent) WHERE parent IS NOT NULL;
",
    // When a document was last made live; the newest of them is the one that is.
    "
ALTER TABLE documents ADD COLUMN live_at INTEGER NOT NULL DEFAULT 0;
UPDATE documents SET live_at = created_at;
CREATE INDEX documents_live_at ON documents (live_at, revision);
",
    // Limits of users, what was spent of budgets, and the sums of usage.
    "
ALTER TABLE users ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
CREATE TABLE spend (subject TEXT NOT NULL, period INTEGER NOT NULL, counted INTEGER NOT NULL, PRIMARY KEY (subject, period)) STRICT, WITHOUT ROWID;
CREATE TABLE usage (
    day INTEGER NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, recipe TEXT NOT NULL, replay INTEGER NOT NULL,
    requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    nano INTEGER NOT NULL, priced INTEGER NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (day, user, key, model, recipe, replay)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_user ON usage (user, day);
",
    // Nodes: enrolments with sealed secrets, what they registered as, and the nonces of their
    // signatures.
    "
CREATE TABLE nodes (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, models TEXT NOT NULL, endpoint TEXT, generation INTEGER NOT NULL,
    secret BLOB NOT NULL, previous BLOB, previous_expires_at INTEGER, created_at INTEGER NOT NULL, rotated_at INTEGER,
    registration TEXT) STRICT;
CREATE TABLE node_nonces (
    node TEXT NOT NULL, nonce TEXT NOT NULL, created INTEGER NOT NULL, PRIMARY KEY (node, nonce)) STRICT, WITHOUT ROWID;
CREATE INDEX node_nonces_created ON node_nonces (node, created);
",
    // For whom a key was made, and when it was last used; and an owner's live keys, which are
    // counted when one more is made.
    "
ALTER TABLE keys ADD COLUMN maker TEXT;
ALTER TABLE keys ADD COLUMN last_used_at INTEGER;
CREATE INDEX keys_live ON keys (owner, expires_at) WHERE revoked_at IS NULL;
",
    // The audit, to which rows are only added. `seq` is the order of commits.
    "
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, actor_type TEXT NOT NULL, actor TEXT NOT NULL,
    action TEXT NOT NULL, target_type TEXT NOT NULL, target TEXT NOT NULL, request TEXT, address TEXT) STRICT;
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_target ON audit (target, seq);
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id OR seq = new.seq)
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
",
    // The newest signature of a node whose nonce was forgotten, in seconds since the epoch.
    "
ALTER TABLE nodes ADD COLUMN nonces_forgotten INTEGER NOT NULL DEFAULT 0;
",
    // Whose doing a row of the audit is, by how much that is worth: what is there already counts as
    // an admin's. Rows leave by retention only: for as long as `audit_leaving` holds a row, which
    // is within one transaction.
    "
ALTER TABLE audit ADD COLUMN rank INTEGER NOT NULL DEFAULT 2;
CREATE INDEX audit_rank ON audit (rank, seq);
CREATE TABLE audit_leaving (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT;
DROP TRIGGER audit_delete;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit WHEN NOT EXISTS (SELECT 1 FROM audit_leaving)
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
",
    // The root key, wrapped by the master key.
    "
CREATE TABLE root_key (one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, wrapped BLOB NOT NULL) STRICT;
INSERT OR IGNORE INTO state (one, rev) VALUES (1, 0);
",
    // The ids of nodes' events, the newest of each node.
    "
CREATE TABLE node_events (seq INTEGER PRIMARY KEY, node TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (node, id)) STRICT;
CREATE INDEX node_events_node ON node_events (node, seq);
",
    // Texts of documents are sealed; `text` is empty then. Those of before are sealed at the next
    // start.
    "
ALTER TABLE documents ADD COLUMN sealed BLOB;
",
];

pub(super) const CAPTURES: &[&str] = &[
    "
CREATE TABLE segments (number INTEGER PRIMARY KEY, newest INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
CREATE TABLE captures (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, owner TEXT NOT NULL, key TEXT, alias TEXT, recipe TEXT, provider TEXT,
    model TEXT, decided_provider TEXT, decided_model TEXT, status INTEGER NOT NULL, state TEXT NOT NULL, replay_of TEXT, shadow_of TEXT,
    segment INTEGER NOT NULL, head_at INTEGER NOT NULL, head_len INTEGER NOT NULL, bodies_at INTEGER, bodies_len INTEGER, salt BLOB)
    STRICT, WITHOUT ROWID;
CREATE INDEX captures_owner ON captures (owner, id);
CREATE INDEX captures_replay_of ON captures (replay_of, id) WHERE replay_of IS NOT NULL;
CREATE INDEX captures_shadow_of ON captures (shadow_of, id) WHERE shadow_of IS NOT NULL;
CREATE INDEX captures_segment ON captures (segment);
-- Failures are few, and looked for most.
CREATE INDEX captures_failed ON captures (id) WHERE status >= 400;
CREATE INDEX captures_owner_failed ON captures (owner, id) WHERE status >= 400;
",
    // Heads have another form. The segments of before are set aside.
    "
DELETE FROM captures;
DELETE FROM segments;
",
];

/// Brings a file up to date; all steps or none.
pub(super) fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seen = seen(&transaction, steps)?;
    if seen == steps.len() {
        // Nothing is written: a start needs no room on the disk.
        return Ok(());
    }
    for step in steps.iter().skip(seen) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(
        None,
        "user_version",
        u32::try_from(steps.len()).unwrap_or(u32::MAX),
    )?;
    transaction.commit()?;
    Ok(())
}

/// Whether a file has seen all the steps, and no more.
pub(super) fn is_of_this_build(
    connection: &Connection,
    steps: &[&str],
) -> Result<bool, StoreError> {
    Ok(seen(connection, steps)? == steps.len())
}

/// How many of the steps a file has seen.
fn seen(connection: &Connection, steps: &[&str]) -> Result<usize, StoreError> {
    let found =
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))? as usize;
    if found > steps.len() {
        return Err(StoreError::NewerSchema { found, known: steps.len() });
    }
    Ok(found)
}
