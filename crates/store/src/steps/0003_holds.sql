-- Step 3: each process has a row for what it spends and holds of a budget. `spend` has what
-- processes spent that have ended in order, and what was settled for others.
-- only: accounts postgres
ALTER TABLE spend RENAME COLUMN counted TO spent;
ALTER TABLE spend ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
-- When a process found no room last, while others held a part.
ALTER TABLE spend ADD COLUMN wanted_at INTEGER NOT NULL DEFAULT 0;
-- The number of the last write to `spend` or `holds` that changed the row.
ALTER TABLE spend ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN spend_rev INTEGER NOT NULL DEFAULT 0;
-- Processes that may spend. What others hold is lost, until it is settled.
CREATE TABLE holders (
    holder INTEGER PRIMARY KEY, process TEXT NOT NULL, name TEXT NOT NULL) STRICT;
CREATE TABLE holds (
    subject TEXT NOT NULL, period INTEGER NOT NULL, holder INTEGER NOT NULL,
    spent INTEGER NOT NULL, estimated INTEGER NOT NULL, held INTEGER NOT NULL,
    rev INTEGER NOT NULL, at INTEGER NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (subject, period, holder)) STRICT, WITHOUT ROWID;
CREATE INDEX holds_rev ON holds (rev);
CREATE INDEX holds_holder ON holds (holder);
CREATE INDEX holds_period ON holds (period);
CREATE INDEX spend_rev ON spend (rev);
CREATE INDEX spend_wanted ON spend (wanted_at);
-- only: postgres
DROP TABLE spend_recalls;
DROP TABLE spend_reserves;
DROP TABLE spend_shares;
