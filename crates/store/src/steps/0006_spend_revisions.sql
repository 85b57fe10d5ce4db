-- Step 6: builds from before step 5, which may have been away during it, cannot write holds.
-- only: postgres
ALTER TABLE state DROP COLUMN spend_rev;
