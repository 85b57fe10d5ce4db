-- Step 1: the tables as they were when steps began. Each is read in the order of its columns.
-- only: accounts postgres
-- One row: the revision. In PostgreSQL its lock puts all writes in one order.
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), rev INTEGER NOT NULL) STRICT;
INSERT INTO state (one, rev) VALUES (1, 0);
CREATE TABLE root_key (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, wrapped BLOB NOT NULL)
    STRICT;

CREATE TABLE users (
    id TEXT PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT, role TEXT NOT NULL,
    password TEXT NOT NULL, disabled INTEGER NOT NULL, labels TEXT NOT NULL, limits TEXT NOT NULL,
    created_at INTEGER NOT NULL) STRICT;

-- Owners may be the built-in `usr_admin`, which has no row: that column is no reference.
CREATE TABLE keys (
    id TEXT PRIMARY KEY, interface TEXT NOT NULL, name TEXT NOT NULL, redacted TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE, owner TEXT NOT NULL, created_by TEXT NOT NULL,
    parent TEXT REFERENCES keys (id) DEFERRABLE, scopes TEXT NOT NULL, labels TEXT NOT NULL,
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
    id TEXT PRIMARY KEY, "user" TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    cookie_digest BLOB NOT NULL UNIQUE, token_digest BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, last_seen INTEGER NOT NULL) STRICT;
CREATE INDEX sessions_user ON sessions ("user");

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
    seq INTEGER PRIMARY KEY, -- only: accounts
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- only: postgres
    node TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (node, id)) STRICT;
CREATE INDEX node_events_node ON node_events (node, seq);

CREATE TABLE documents (
    revision TEXT PRIMARY KEY, sealed BLOB NOT NULL, created_at INTEGER NOT NULL,
    live_at INTEGER NOT NULL) STRICT;
CREATE INDEX documents_live_at ON documents (live_at, revision);

CREATE TABLE spend (
    subject TEXT NOT NULL, period INTEGER NOT NULL, counted INTEGER NOT NULL,
    PRIMARY KEY (subject, period)) STRICT, WITHOUT ROWID;
CREATE TABLE usage (
    day INTEGER NOT NULL, "user" TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
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
    PRIMARY KEY (day, "user", key, model, alias, recipe, rule, replay)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_user ON usage ("user", day);
-- Usage by hour and by five minutes: `span` and `at` in seconds. Under the negative span of its
-- interval that of all users and keys together; `at` of a day is the day.
CREATE TABLE usage_recent (
    span INTEGER NOT NULL, at INTEGER NOT NULL, "user" TEXT NOT NULL, key TEXT NOT NULL,
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
    PRIMARY KEY (span, at, "user", key, model, alias, recipe, rule, replay)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_recent_user ON usage_recent ("user", span, at);

-- The numbers of rows are in the order of commits: one transaction writes at a time. Rows are only
-- added. The retention deletes them while `audit_leaving` holds a row, within one transaction.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL,
    actor_type TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target_type TEXT NOT NULL,
    target TEXT NOT NULL, request TEXT, address TEXT) STRICT;
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_target ON audit (target, seq);
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_at ON audit (at);
CREATE TABLE audit_leaving (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT;
-- only: accounts
CREATE TRIGGER audit_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
    WHEN NOT EXISTS (SELECT 1 FROM audit_leaving)
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
CREATE TRIGGER audit_replace BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id OR seq = new.seq)
    BEGIN SELECT RAISE(ABORT, 'audit rows are only added'); END;
-- only: postgres
CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF tg_op = 'DELETE' AND EXISTS (SELECT 1 FROM audit_leaving) THEN
        RETURN old;
    END IF;
    RAISE EXCEPTION 'audit rows are only added';
END $$;
CREATE TRIGGER audit_change BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();

-- only: captures postgres
-- The index of captures. Captures of a segment have ids from `first` to `last`, so no index of
-- their segments is needed, which would cost each capture more than any other column. `uploaded` is
-- 1 once the object store has the whole segment; `head` is the record of the head in the segment,
-- encrypted and compressed as it is there.
CREATE TABLE segments (
    number INTEGER PRIMARY KEY, newest INTEGER NOT NULL, bytes INTEGER NOT NULL,
    first TEXT NOT NULL,
    last TEXT NOT NULL) STRICT; -- only: captures
    last TEXT NOT NULL, uploaded INTEGER NOT NULL DEFAULT 0); -- only: postgres
CREATE TABLE captures (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, owner TEXT NOT NULL, key TEXT, alias TEXT,
    recipe TEXT, provider TEXT, model TEXT, decided_provider TEXT, decided_model TEXT,
    status INTEGER NOT NULL, state TEXT NOT NULL, replay_of TEXT, shadow_of TEXT,
    segment INTEGER NOT NULL, head_at INTEGER NOT NULL, head_len INTEGER NOT NULL,
    bodies_at INTEGER, bodies_len INTEGER,
    salt BLOB) STRICT, WITHOUT ROWID; -- only: captures
    salt BLOB, head BLOB); -- only: postgres
CREATE INDEX captures_owner ON captures (owner, id);
CREATE INDEX captures_replay_of ON captures (replay_of, id) WHERE replay_of IS NOT NULL;
CREATE INDEX captures_shadow_of ON captures (shadow_of, id) WHERE shadow_of IS NOT NULL;
-- Failures are few, and looked for most.
CREATE INDEX captures_failed ON captures (id) WHERE status >= 400;
CREATE INDEX captures_owner_failed ON captures (owner, id) WHERE status >= 400;

-- only: postgres
ALTER TABLE captures ALTER COLUMN head SET STORAGE EXTERNAL;
CREATE INDEX segments_newest ON segments (newest);
CREATE INDEX segments_waiting ON segments (number) WHERE uploaded = 0;
-- The range of segment numbers of each data directory, and the gateway that uses it.
CREATE TABLE capture_slots (
    slot INTEGER PRIMARY KEY AUTOINCREMENT, directory TEXT NOT NULL UNIQUE,
    instance TEXT NOT NULL);
-- Captures that were deleted: what still comes of them is not stored. With `copies` their replays
-- and shadows too, those of `owner` where it is one.
CREATE TABLE deleted_captures (
    id TEXT PRIMARY KEY, at INTEGER NOT NULL, copies INTEGER NOT NULL, owner TEXT);
CREATE INDEX deleted_captures_at ON deleted_captures (at);

-- What keeps the tables in memory of several gateways alike (crates/store/src/cluster/). One row
-- for each object that a mutation changed. `rev` has no gaps and is in the order of commits. `mark`
-- tells two histories with the same numbers apart, after a fail-over that lost commits.
CREATE TABLE changes (
    rev INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
    at INTEGER NOT NULL, mark TEXT NOT NULL DEFAULT gen_random_uuid()::text,
    PRIMARY KEY (rev, seq));
-- One row for each registration of a gateway. An id is never used again. `process` is another one
-- after a start; `lease` and `clock_ahead`, by which its machine is ahead of the database, are in
-- microseconds.
CREATE TABLE gateways (
    id TEXT PRIMARY KEY, instance TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL,
    address TEXT NOT NULL, document TEXT NOT NULL, serves_stale INTEGER NOT NULL,
    applied INTEGER NOT NULL, renewals INTEGER NOT NULL, fenced INTEGER NOT NULL,
    registered_at INTEGER NOT NULL, renewed_at INTEGER NOT NULL,
    process TEXT NOT NULL DEFAULT '', directory TEXT NOT NULL DEFAULT '',
    lease INTEGER NOT NULL DEFAULT 0, clock_ahead INTEGER NOT NULL DEFAULT 0);
CREATE INDEX gateways_instance ON gateways (instance);
-- The last heartbeat of each node. `seq` is -1 for the registration itself.
CREATE TABLE node_reports (
    node TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, status TEXT NOT NULL,
    running INTEGER NOT NULL, queued INTEGER NOT NULL, at INTEGER NOT NULL);
-- Attempts to log in and to register, by a digest of who and from where.
CREATE TABLE attempts (what TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX attempts_what ON attempts (what, at);
-- Uses of keys by other gateways are read every minute.
CREATE INDEX keys_used ON keys (last_used_at) WHERE last_used_at IS NOT NULL;
-- Budgets of which a gateway lacks a part, while others hold what they do not use.
CREATE TABLE spend_recalls (
    subject TEXT NOT NULL, period INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (subject, period));
-- What requests under way have reserved of budgets, by gateway, while another one lacks a part.
CREATE TABLE spend_reserves (
    subject TEXT NOT NULL, period INTEGER NOT NULL, holder TEXT NOT NULL, reserved INTEGER NOT NULL,
    at INTEGER NOT NULL, PRIMARY KEY (subject, period, holder));
-- The last batch of usage of each process that is in the sums: a COMMIT may have happened though
-- its answer was lost, and the batch is written again then.
CREATE TABLE usage_batches (
    writer INTEGER PRIMARY KEY, number INTEGER NOT NULL, at INTEGER NOT NULL);
-- What each process holds of a budget, of what counts as spent of it.
CREATE TABLE spend_shares (
    subject TEXT NOT NULL, period INTEGER NOT NULL, holder INTEGER NOT NULL, held INTEGER NOT NULL,
    PRIMARY KEY (subject, period, holder));
CREATE INDEX spend_shares_period ON spend_shares (period);

-- Where builds from before the steps look for the number of their schema.
CREATE TABLE schema_versions (
    number INTEGER PRIMARY KEY, migrated_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());
INSERT INTO schema_versions (number) VALUES (10);
-- only: accounts
PRAGMA user_version = 19;
-- only: captures
PRAGMA user_version = 3;
