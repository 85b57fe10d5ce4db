-- Step 2: what needs no table goes. Builds from before the steps see a number that they refuse.
PRAGMA user_version = 20; -- only: accounts
PRAGMA user_version = 4; -- only: captures
INSERT INTO schema_versions (number) VALUES (11); -- only: postgres

-- The last step of a database; `compatible` is the number of the oldest one that builds may know
-- which work beside it.
CREATE TABLE schema_steps (number INTEGER PRIMARY KEY, compatible INTEGER NOT NULL) STRICT;

-- only: accounts postgres
DROP TABLE creations;
DROP TABLE reroutes;
ALTER TABLE nodes DROP COLUMN nonces_forgotten;
DROP TABLE node_nonces; -- only: accounts

-- only: postgres
-- Schema 9 has all but this.
ALTER TABLE gateways ADD COLUMN IF NOT EXISTS clock_ahead INTEGER NOT NULL DEFAULT 0;
