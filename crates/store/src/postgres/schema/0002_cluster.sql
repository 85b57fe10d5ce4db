-- What keeps the tables in memory of several gateways alike (crates/store/src/cluster/).

-- One row for each object that a mutation changed. `rev` has no gaps and is in the order of
-- commits. `mark` tells two histories with the same numbers apart, after a fail-over that lost
-- commits.
CREATE TABLE changes (
    rev BIGINT NOT NULL, seq BIGINT NOT NULL, kind TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL, at BIGINT NOT NULL,
    mark TEXT COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::text,
    PRIMARY KEY (rev, seq));

-- One row for each registration of a gateway. An id is never used again.
CREATE TABLE gateways (
    id TEXT COLLATE "C" PRIMARY KEY, instance TEXT COLLATE "C" NOT NULL, name TEXT NOT NULL,
    version TEXT NOT NULL, address TEXT NOT NULL, document TEXT NOT NULL,
    serves_stale BIGINT NOT NULL, applied BIGINT NOT NULL, renewals BIGINT NOT NULL,
    fenced BIGINT NOT NULL, registered_at BIGINT NOT NULL, renewed_at BIGINT NOT NULL);
CREATE INDEX gateways_instance ON gateways (instance);

-- The last heartbeat of each node. `seq` is -1 for the registration itself.
CREATE TABLE node_reports (
    node TEXT COLLATE "C" PRIMARY KEY, epoch BIGINT NOT NULL, seq BIGINT NOT NULL,
    status TEXT NOT NULL, running BIGINT NOT NULL, queued BIGINT NOT NULL, at BIGINT NOT NULL);

-- Budgets of which a gateway lacks a part, while others hold what they do not use.
CREATE TABLE spend_recalls (
    subject TEXT COLLATE "C" NOT NULL, period BIGINT NOT NULL, at BIGINT NOT NULL,
    PRIMARY KEY (subject, period));

-- Attempts to log in and to register, by a digest of who and from where.
CREATE TABLE attempts (what TEXT COLLATE "C" NOT NULL, at BIGINT NOT NULL);
CREATE INDEX attempts_what ON attempts (what, at);

-- Uses of keys by other gateways are read every minute.
CREATE INDEX keys_used ON keys (last_used_at) WHERE last_used_at IS NOT NULL;
