-- Answers to creations of keys with an `Idempotency-Key`, each sealed under a key that derives from
-- it.
CREATE TABLE creations (
    id BYTEA PRIMARY KEY, about BYTEA NOT NULL, payer TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL, sealed BYTEA NOT NULL, at BIGINT NOT NULL);
CREATE INDEX creations_payer ON creations (payer);
