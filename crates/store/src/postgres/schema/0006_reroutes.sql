-- Reroutes with an `Idempotency-Key`: under way while `claim` is there, then answered. An answer is
-- sealed under a key that derives from the `Idempotency-Key`; one that is too large is not kept.
CREATE TABLE reroutes (
    id BYTEA PRIMARY KEY, original TEXT COLLATE "C" NOT NULL, payer TEXT COLLATE "C" NOT NULL,
    claim BYTEA, at BIGINT NOT NULL, replay TEXT COLLATE "C", sealed BYTEA);
CREATE INDEX reroutes_payer ON reroutes (payer);
