-- The last batch of usage of each process that is in the sums: a COMMIT may have happened though
-- its answer was lost, and the batch is written again then.
CREATE TABLE usage_batches (
    writer BIGINT PRIMARY KEY, number BIGINT NOT NULL, at BIGINT NOT NULL);
-- What each process holds of a budget, of what counts as spent of it.
CREATE TABLE spend_shares (
    subject TEXT COLLATE "C" NOT NULL, period BIGINT NOT NULL, holder BIGINT NOT NULL,
    held BIGINT NOT NULL, PRIMARY KEY (subject, period, holder));
CREATE INDEX spend_shares_period ON spend_shares (period);
