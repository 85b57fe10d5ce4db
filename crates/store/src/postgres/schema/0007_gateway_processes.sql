-- Of each gateway the process, which is another one after a start, its data directory, and how long
-- its lease is, in microseconds; 0 where a build does not say.
-- Renewals of leases wait behind this, which must not wait for long.
SET LOCAL lock_timeout = '500ms';
ALTER TABLE gateways ADD COLUMN process TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE gateways ADD COLUMN directory TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE gateways ADD COLUMN lease BIGINT NOT NULL DEFAULT 0;
