//! Budgets while two processes draw on them: one that has handed over and ends its requests, and
//! its successor. For so long each changes only its own grant in the store, as gateways do that
//! share one.

use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::Limiter;
use super::bounds::USAGE_WRITE_ROWS;
use super::budget::{Account, GrantWish, period};
use super::draw::Subject;
use rerouter_store::{Per, Store, StoreError};

impl Limiter {
    /// To be called before a successor loads what counts as spent, once the store is frozen.
    pub async fn share(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        if self.is_shared() {
            return Ok(());
        }
        // The rows of those without an account may still hold an old grant.
        let carried: Vec<(Subject, GrantWish)> =
            self.carried_wishes().into_iter().map(|((subject, _), wish)| (subject, wish)).collect();
        for some in carried.chunks(USAGE_WRITE_ROWS) {
            self.keep(store, some, None).await?;
        }
        self.set_shared(true);
        Ok(())
    }

    /// To be called when another process draws on the budgets no more. What it held and did not
    /// give back counts as spent.
    pub async fn stop_sharing(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        if store.is_shared() {
            return Ok(());
        }
        let _turn = self.writing.lock().await;
        let held = self.counted.iter().filter_map(|entry| {
            let wish = entry.value().counts().account.as_ref().map(Account::holds)?;
            Some((entry.key().clone(), wish))
        });
        let held: Vec<(Subject, GrantWish)> = held.collect();
        for some in held.chunks(USAGE_WRITE_ROWS) {
            self.keep_grants(store, some.to_vec(), None).await?;
        }
        for row in store.spend(period(Per::Month, now)).await? {
            self.carried.counted.insert((Subject::known(&row.subject), row.period), row.counted);
        }
        self.set_shared(false);
        Ok(())
    }

    fn set_shared(&self, shared: bool) {
        self.carried.shared.store(shared, Ordering::Relaxed);
        for entry in &self.counted {
            if let Some(account) = &mut entry.value().counts().account {
                account.set_shared(shared);
            }
        }
    }
}
