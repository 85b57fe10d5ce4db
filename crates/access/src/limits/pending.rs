//! Usage that waits to be written, in batches. A batch that the store did not acknowledge may be
//! stored nevertheless. It is written again unchanged, under its number, and counts once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use log::warn;

use super::bounds::{USAGE_PENDING, USAGE_WRITE_ROWS};
use rerouter_base::id::{Random, UserId};
use rerouter_store::{BatchNumber, UsageBatch, UsageInterval, UsageKey, UsageSums};

/// A random number by which the store knows this process, or one of its writers.
pub(super) struct WriterNumber(pub(super) i64);

impl Default for WriterNumber {
    fn default() -> Self {
        WriterNumber(Random::System.next_u64().cast_signed())
    }
}

#[derive(Default)]
pub(super) struct Pending {
    sums: HashMap<UsageKey, UsageSums, RandomState>,
    /// Requests that count as of the first minutes of their day, as too many sums wait.
    coarse: u64,
    /// The batch that was not acknowledged. It is written before all others.
    returned: Option<UsageBatch>,
    writer: WriterNumber,
    /// The number of the last batch.
    last: i64,
}

impl Pending {
    pub(super) fn add(&mut self, key: UsageKey, sums: &UsageSums) {
        if self.sums.len() < USAGE_PENDING || self.sums.contains_key(&key) {
            return self.sums.entry(key).or_default().add(sums);
        }
        self.coarse += sums.requests;
        let at = UsageInterval::Day.begin(key.at);
        self.sums.entry(UsageKey { at, ..key }).or_default().add(sums);
    }

    pub(super) fn len(&self) -> usize {
        self.sums.len() + self.returned.as_ref().map_or(0, |batch| batch.sums.len())
    }

    /// How many batches wait, besides one that is smaller.
    pub(super) fn batches(&self) -> usize {
        self.sums.len() / USAGE_WRITE_ROWS + usize::from(self.returned.is_some())
    }

    /// Takes the next batch: the one that was not acknowledged, or sums of one user or of all
    /// users. The caller holds `keeping`.
    pub(super) fn take(&mut self, user: Option<&UserId>) -> Option<UsageBatch> {
        let coarse = std::mem::take(&mut self.coarse);
        if coarse > 0 {
            warn!(
                "{coarse} request(s) are in the sums of usage of their day, but not of their hour: \
                 the store was too slow for so many different ones"
            );
        }
        if let Some(returned) = self.returned.take() {
            return Some(returned);
        }
        let sums: Vec<(UsageKey, UsageSums)> = self
            .sums
            .extract_if(|key, _| user.is_none_or(|user| key.user == *user))
            .take(USAGE_WRITE_ROWS)
            .collect();
        if sums.is_empty() {
            return None;
        }
        self.last += 1;
        let number = Some(BatchNumber { writer: self.writer.0, number: self.last });
        Some(UsageBatch { sums, number })
    }

    pub(super) fn take_back(&mut self, batch: UsageBatch) {
        self.returned = Some(batch);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
