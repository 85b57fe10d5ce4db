//! Answers to calls with an `Idempotency-Key`, for as long as a client may repeat them. The
//! repetition of a finished call gets the same answer, so nothing is charged or created twice. In
//! memory only: a restart forgets. Each payer has a share of the memory, so that nobody fills it
//! for the others.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind, Result};

const HEADER: &str = "idempotency-key";

/// Recent calls of one kind, with answers of type `T`. Clones share the table.
pub(crate) struct IdempotencyCache<T>(Arc<SharedCalls<T>>);

impl<T> Clone for IdempotencyCache<T> {
    fn clone(&self) -> Self {
        IdempotencyCache(Arc::clone(&self.0))
    }
}

struct SharedCalls<T> {
    /// The subject of a call in messages, such as "capture".
    subject: &'static str,
    table: Mutex<CallTable<T>>,
}

struct CallTable<T> {
    calls: HashMap<CallKey, KnownCall<T>>,
    /// Finished calls, oldest first.
    ended: VecDeque<(Timestamp, CallKey)>,
    shares: HashMap<String, PayerShare>,
}

/// Caller, and its `Idempotency-Key`.
type CallKey = (String, String);

struct KnownCall<T> {
    about: String,
    payer: String,
    state: CallState<T>,
}

enum CallState<T> {
    UnderWay,
    Answered {
        answer: T,
        bytes: usize,
    },
    /// Answered, but the answer does not fit the payer's share.
    Dropped,
}

/// Memory in use by one payer.
#[derive(Clone, Copy, Default)]
struct PayerShare {
    calls: usize,
    bytes: usize,
}

impl PayerShare {
    fn is_full(self) -> bool {
        self.calls >= bounds::REPEATS_SHARE || self.bytes >= bounds::REPEATS_SHARE_BYTES
    }
}

pub(crate) struct IdempotentCall {
    /// The caller. Nobody else gets the answer.
    pub caller: String,
    /// The payer, whose share of the memory holds the answer.
    pub payer: String,
    /// The `Idempotency-Key`, see [`key`].
    pub key: String,
    /// Digest or id of its content. The same key with other content is a conflict.
    pub about: String,
}

/// Result of a look-up.
pub(crate) enum CallLookup<T> {
    /// The first call with its key.
    First(Claim<T>),
    /// A repetition, with the answer.
    Repeated(T),
}

/// A call in progress. If it is dropped without an answer, the call may be repeated.
pub(crate) struct Claim<T> {
    repeats: IdempotencyCache<T>,
    key: Option<CallKey>,
}

/// The `Idempotency-Key` of a request, if it has one. 400 if it is repeated or invalid.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(HEADER).iter();
    let (Some(value), more) = (values.next(), values.next().is_some()) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let fits = (1..=bounds::IDEMPOTENCY_KEY).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if more || !fits {
        let most = bounds::IDEMPOTENCY_KEY;
        return Err(Error::invalid(
            "Idempotency-Key",
            format!("Idempotency-Key has to be there once, 1 to {most} visible characters."),
        ));
    }
    Ok(Some(text.to_owned()))
}

impl<T: Clone> IdempotencyCache<T> {
    /// An empty table. `subject` names the subject of a call in messages, such as "capture".
    pub(crate) fn new(subject: &'static str) -> Self {
        let table =
            CallTable { calls: HashMap::new(), ended: VecDeque::new(), shares: HashMap::new() };
        IdempotencyCache(Arc::new(SharedCalls { subject, table: Mutex::new(table) }))
    }

    /// Looks a call up, and begins it if it is the first. 409 while the same call is in progress,
    /// or if the key was used for another content. 429 if the memory or the payer's share is full.
    pub(crate) fn begin(&self, asked: IdempotentCall, now: Timestamp) -> Result<CallLookup<T>> {
        let mut table = self.table();
        table.forget(now);
        let full = table.is_full_for(&asked.payer);
        let key = (asked.caller, asked.key);
        let conflict = |why: String| Error::new(Kind::Conflict, why);
        match table.calls.entry(key.clone()) {
            Entry::Occupied(call) if call.get().about != asked.about => Err(conflict(format!(
                "This Idempotency-Key was used for another {}.",
                self.0.subject
            ))
            .at("Idempotency-Key")),
            Entry::Occupied(call) => match &call.get().state {
                CallState::Answered { answer, .. } => Ok(CallLookup::Repeated(answer.clone())),
                CallState::UnderWay => {
                    Err(conflict("The call with this Idempotency-Key is under way.".into())
                        .retry_after(Duration::from_secs(1)))
                }
                CallState::Dropped => Err(conflict(
                    "The call with this Idempotency-Key was answered; the answer is not kept."
                        .into(),
                )),
            },
            Entry::Vacant(_) if full => {
                let why = "Too many calls with an Idempotency-Key of late.";
                Err(Error::new(Kind::RateLimited, why).retry_after(bounds::REPEATS_RETRY))
            }
            Entry::Vacant(place) => {
                place.insert(KnownCall {
                    about: asked.about,
                    payer: asked.payer.clone(),
                    state: CallState::UnderWay,
                });
                table.shares.entry(asked.payer).or_default().calls += 1;
                drop(table);
                Ok(CallLookup::First(Claim { repeats: self.clone(), key: Some(key) }))
            }
        }
    }
}

impl<T> IdempotencyCache<T> {
    /// Removes expired answers. They hold secrets, so they do not stay until the next call.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.table().forget(now);
    }

    fn table(&self) -> MutexGuard<'_, CallTable<T>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> CallTable<T> {
    /// Memory beyond a payer's share does not count against the others.
    fn is_full_for(&self, payer: &str) -> bool {
        let bytes: usize =
            self.shares.values().map(|share| share.bytes.min(bounds::REPEATS_SHARE_BYTES)).sum();
        let share = self.shares.get(payer).copied().unwrap_or_default();
        share.is_full() || self.calls.len() >= bounds::REPEATS || bytes >= bounds::REPEATS_BYTES
    }

    fn forget(&mut self, now: Timestamp) {
        let old = |at: &Timestamp| now.duration_since(*at).unsigned_abs() >= bounds::REPEATS_AGE;
        while let Some((_, key)) = self.ended.pop_front_if(|(at, _)| old(at)) {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &CallKey) {
        let Some(call) = self.calls.remove(key) else { return };
        let Entry::Occupied(mut share) = self.shares.entry(call.payer) else { return };
        let held = if let CallState::Answered { bytes, .. } = call.state { bytes } else { 0 };
        share.get_mut().calls = share.get().calls.saturating_sub(1);
        share.get_mut().bytes = share.get().bytes.saturating_sub(held);
        if share.get().calls == 0 {
            share.remove();
        }
    }
}

impl<T> Claim<T> {
    /// Keeps the answer of this size. If concurrent calls have filled the payer's share, only the
    /// fact that the call was answered is kept.
    pub(crate) fn answered(mut self, answer: T, bytes: usize, now: Timestamp) {
        let Some(key) = self.key.take() else { return };
        let mut table = self.repeats.table();
        let CallTable { calls, ended, shares } = &mut *table;
        let Some(call) = calls.get_mut(&key) else { return };
        let share = shares.entry(call.payer.clone()).or_default();
        call.state = if share.bytes >= bounds::REPEATS_SHARE_BYTES {
            CallState::Dropped
        } else {
            share.bytes += bytes;
            CallState::Answered { answer, bytes }
        };
        ended.push_back((now, key));
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.repeats.table().remove(&key);
        }
    }
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
