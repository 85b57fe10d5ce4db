-- Step 5: writers of holds lock the budget in `spend`, and no longer the revision of all. They
-- number their writes by their transactions, so the numbers of before mean nothing.
-- only: postgres
UPDATE spend SET rev = 0;
UPDATE holds SET rev = 0;
