//! The tables of both databases. `user_version` is the number of the schema. A file of another
//! number is refused: this build would misread it.

use rusqlite::{Connection, TransactionBehavior};

use super::super::StoreError;

/// The tables of a database.
pub(super) struct Schema {
    /// Another number whenever the tables change, or what is in them.
    number: u32,
    tables: &'static str,
}

/// Of `accounts.db`. `state` has one row: the revision. Each table is read in the order of its
/// columns.
/// Owners of keys may be the built-in `usr_admin`, which has no row: that column is no reference.
/// Audit rows are deleted only while `audit_leaving` holds a row, within one transaction of the
/// retention.
pub(super) const ACCOUNTS: Schema = Schema {
    number: 19,
    tables: "
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), rev INTEGER NOT NULL) STRICT;
INSERT INTO state (one, rev) VALUES (1, 0);
CREATE TABLE root_key (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, wrapped BLOB NOT NULL)
    STRICT;

CREATE TABLE users (
    id TEXT PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT, role TEXT NOT NULL,
    password TEXT NOT NULL, disabled INTEGER NOT NULL, labels TEXT NOT NULL, limits TEXT NOT NULL,
    created_at INTEGER NOT NULL) STRICT;

CREATE TABLE keys (
    id TEXT PRIMARY KEY, interface TEXT NOT NULL, name TEXT NOT NULL, redacted TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE, owner TEXT NOT NULL, created_by TEXT NOT NULL,
    parent TEXT REFERENCES keys (id), scopes TEXT NOT NULL, labels TEXT NOT NULL,
    limits TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
    revoked_at INTEGER, rotated_at INTEGER, generation INTEGER NOT NULL, previous_digest BLOB,
    previous_expires_at INTEGER, made_open INTEGER NOT NULL, maker TEXT, last_used_at INTEGER,
    metadata TEXT NOT NULL) STRICT;
CREATE INDEX keys_owner ON keys (owner);
CREATE INDEX keys_live ON keys (owner, expires_at) WHERE revoked_at IS NULL;
CREATE INDEX keys_parent ON keys (parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX keys_previous ON keys (previous_digest) WHERE previous_digest IS NOT NULL;

-- Answers to creations with an `Idempotency-Key`, each sealed under a key that derives from it.
CREATE TABLE creations (
    id BLOB PRIMARY KEY, about BLOB NOT NULL, payer TEXT NOT NULL, key TEXT NOT NULL,
    sealed BLOB NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX creations_payer ON creations (payer);
-- Reroutes with an `Idempotency-Key`: under way while `claim` is there, then answered.
CREATE TABLE reroutes (
    id BLOB PRIMARY KEY, original TEXT NOT NULL, payer TEXT NOT NULL, claim BLOB,
    at INTEGER NOT NULL, replay TEXT, sealed BLOB) STRICT;
CREATE INDEX reroutes_payer ON reroutes (payer);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    cookie_digest BLOB NOT NULL UNIQUE, token_digest BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, last_seen INTEGER NOT NULL) STRICT;
CREATE INDEX sessions_user ON sessions (user);

CREATE TABLE agents (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT, model TEXT NOT NULL,
    instructions TEXT, defaults TEXT NOT NULL, tools TEXT NOT NULL, trusted INTEGER NOT NULL,
    metadata TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT;

CREATE TABLE nodes (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, models TEXT NOT NULL, endpoint TEXT,
    generation INTEGER NOT NULL, secret BLOB NOT NULL, previous BLOB, previous_expires_at INTEGER,
    created_at INTEGER NOT NULL, rotated_at INTEGER, registration TEXT,
    nonces_forgotten INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE node_nonces (
    node TEXT NOT NULL, nonce TEXT NOT NULL, created INTEGER NOT NULL,
    PRIMARY KEY (node, nonce)) STRICT, WITHOUT ROWID;
CREATE INDEX node_nonces_created ON node_nonces (node, created);
CREATE TABLE node_events (
    seq INTEGER PRIMARY KEY, node TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (node, id)) STRICT;
CREATE INDEX node_events_node ON node_events (node, seq);

CREATE TABLE documents (
    revision TEXT PRIMARY KEY, sealed BLOB NOT NULL, created_at INTEGER NOT NULL,
    live_at INTEGER NOT NULL) STRICT;
CREATE INDEX documents_live_at ON documents (live_at, revision);

CREATE TABLE spend (
    subject TEXT NOT NULL, period INTEGER NOT NULL, counted INTEGER NOT NULL,
    PRIMARY KEY (subject, period)) STRICT, WITHOUT ROWID;
CREATE TABLE usage (
    day INTEGER NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
    alias TEXT NOT NULL, recipe TEXT NOT NULL, rule TEXT NOT NULL, replay INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, nano INTEGER NOT NULL, priced INTEGER NOT NULL,
    unpriced INTEGER NOT NULL, errors INTEGER NOT NULL,
    took_0 INTEGER NOT NULL, took_1 INTEGER NOT NULL, took_2 INTEGER NOT NULL,
    took_3 INTEGER NOT NULL, took_4 INTEGER NOT NULL, took_5 INTEGER NOT NULL,
    took_6 INTEGER NOT NULL, took_7 INTEGER NOT NULL, took_8 INTEGER NOT NULL,
    took_9 INTEGER NOT NULL, took_10 INTEGER NOT NULL, took_11 INTEGER NOT NULL,
    took_12 INTEGER NOT NULL, took_13 INTEGER NOT NULL, first_0 INTEGER NOT NULL,
    first_1 INTEGER NOT NULL, first_2 INTEGER NOT NULL, first_3 INTEGER NOT NULL,
    first_4 INTEGER NOT NULL, first_5 INTEGER NOT NULL, first_6 INTEGER NOT NULL,
    first_7 INTEGER NOT NULL, first_8 INTEGER NOT NULL, first_9 INTEGER NOT NULL,
    first_10 INTEGER NOT NULL, first_11 INTEGER NOT NULL, first_12 INTEGER NOT NULL,
    first_13 INTEGER NOT NULL,
    PRIMARY KEY (day, user, key, model, alias, recipe, rule, replay)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_user ON usage (user, day);
CREATE TABLE usage_recent (
    span INTEGER NOT NULL, at INTEGER NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL,
    model TEXT NOT NULL, alias TEXT NOT NULL, recipe TEXT NOT NULL, rule TEXT NOT NULL,
    replay INTEGER NOT NULL, requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, nano INTEGER NOT NULL, priced INTEGER NOT NULL,
    unpriced INTEGER NOT NULL, errors INTEGER NOT NULL,
    took_0 INTEGER NOT NULL, took_1 INTEGER NOT NULL, took_2 INTEGER NOT NULL,
    took_3 INTEGER NOT NULL, took_4 INTEGER NOT NULL, took_5 INTEGER NOT NULL,
    took_6 INTEGER NOT NULL, took_7 INTEGER NOT NULL, took_8 INTEGER NOT NULL,
    took_9 INTEGER NOT NULL, took_10 INTEGER NOT NULL, took_11 INTEGER NOT NULL,
    took_12 INTEGER NOT NULL, took_13 INTEGER NOT NULL, first_0 INTEGER NOT NULL,
    first_1 INTEGER NOT NULL, first_2 INTEGER NOT NULL, first_3 INTEGER NOT NULL,
    first_4 INTEGER NOT NULL, first_5 INTEGER NOT NULL, first_6 INTEGER NOT NULL,
    first_7 INTEGER NOT NULL, first_8 INTEGER NOT NULL, first_9 INTEGER NOT NULL,
    first_10 INTEGER NOT NULL, first_11 INTEGER NOT NULL, first_12 INTEGER NOT NULL,
    first_13 INTEGER NOT NULL,
    PRIMARY KEY (span, at, user, key, model, alias, recipe, rule, replay)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_recent_user ON usage_recent (user, span, at);

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL,
    actor_type TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target_type TEXT NOT NULL,
    target TEXT NOT NULL, request TEXT, address TEXT) STRICT;
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_target ON audit (target, seq);
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_at ON audit (at);
CREATE TABLE audit_leaving (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
    WHEN NOT EXISTS (SELECT 1 FROM audit_leaving)
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
CREATE TRIGGER audit_replace BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id OR seq = new.seq)
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
",
};

/// The tables of `captures.db`, the index of captures. Captures of a segment have ids from `first`
/// to `last`, so no index of their segments is needed, which would cost each capture more than any
/// other column.
pub(super) const CAPTURES: Schema = Schema {
    number: 3,
    tables: "
CREATE TABLE segments (
    number INTEGER PRIMARY KEY, newest INTEGER NOT NULL, bytes INTEGER NOT NULL,
    first TEXT NOT NULL, last TEXT NOT NULL) STRICT;
CREATE TABLE captures (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, owner TEXT NOT NULL, key TEXT, alias TEXT,
    recipe TEXT, provider TEXT, model TEXT, decided_provider TEXT, decided_model TEXT,
    status INTEGER NOT NULL, state TEXT NOT NULL, replay_of TEXT, shadow_of TEXT,
    segment INTEGER NOT NULL, head_at INTEGER NOT NULL, head_len INTEGER NOT NULL,
    bodies_at INTEGER, bodies_len INTEGER, salt BLOB)
    STRICT, WITHOUT ROWID;
CREATE INDEX captures_owner ON captures (owner, id);
CREATE INDEX captures_replay_of ON captures (replay_of, id) WHERE replay_of IS NOT NULL;
CREATE INDEX captures_shadow_of ON captures (shadow_of, id) WHERE shadow_of IS NOT NULL;
-- Failures are few, and looked for most.
CREATE INDEX captures_failed ON captures (id) WHERE status >= 400;
CREATE INDEX captures_owner_failed ON captures (owner, id) WHERE status >= 400;
",
};

/// Makes the tables in a new file; [`StoreError::OtherSchema`] for a file of another schema.
pub(super) fn prepare(connection: &mut Connection, schema: &Schema) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // An existing file is not written to: a start needs no room on the disk.
    if !is_there(&transaction, schema)? {
        transaction.execute_batch(schema.tables)?;
        transaction.pragma_update(None, "user_version", schema.number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Whether a file has its tables; `false` for a new one, [`StoreError::OtherSchema`] for those of
/// another build.
pub(super) fn is_there(connection: &Connection, schema: &Schema) -> Result<bool, StoreError> {
    match connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))? {
        0 => Ok(false),
        found if found == schema.number => Ok(true),
        found => Err(StoreError::OtherSchema { found, known: schema.number }),
    }
}
