-- By how many microseconds the clock of each gateway's machine is ahead of the database's.
-- Renewals of leases wait behind this, which must not wait for long.
SET LOCAL lock_timeout = '500ms';
ALTER TABLE gateways ADD COLUMN clock_ahead BIGINT NOT NULL DEFAULT 0;
