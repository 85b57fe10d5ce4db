//! Calls with an `Idempotency-Key`. For ten minutes a repeated call gets the same answer, and a
//! call that is under way does not start again. Only this process knows of these calls: other
//! gateways do not, nor does this one after a restart.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::error::{Error, Kind, Result};

/// Time for which an answer is kept.
const KEPT: Duration = Duration::from_secs(600);
/// Limit on remembered calls of one kind by one payer. Beyond it, a new key is refused.
const REPEATS_SHARE: usize = 1_000;
/// Limit on the bytes of one payer's kept answers. Once they reach it, the payer's calls with a new
/// key are refused. A single answer above the limit is not kept.
const REPEATS_SHARE_BYTES: usize = 8 << 20;
/// Limit on the bytes of all kept answers of one kind. Beyond it, no answer is kept.
const REPEATS_BYTES: usize = 64 << 20;
/// `Retry-After` of a payer that has reached its limit on `Idempotency-Key`s.
const REPEATS_RETRY: Duration = Duration::from_secs(60);

/// The calls of one kind. `A` is the type of their answers.
pub struct Repeats<A>(Mutex<Calls<A>>);

struct Calls<A> {
    known: HashMap<Arc<str>, KnownCall<A>>,
    /// Answered calls, oldest first.
    answered: VecDeque<(Timestamp, Arc<str>)>,
    /// The number of calls and the bytes of kept answers of each payer.
    shares: HashMap<Arc<str>, (usize, usize)>,
    bytes: usize,
}

/// A caller's name with its `Idempotency-Key`, and the payer whose share of kept answers is used.
pub struct CallName {
    name: Arc<str>,
    payer: Arc<str>,
}

impl CallName {
    pub fn new((kind, caller): (&str, &str), payer: &str, key: &str) -> Self {
        CallName { name: format!("{kind} {caller} {key}").into(), payer: payer.into() }
    }
}

struct KnownCall<A> {
    payer: Arc<str>,
    /// SHA-256 of the request.
    about: [u8; 32],
    answer: CallAnswer<A>,
    bytes: usize,
}

enum CallAnswer<A> {
    UnderWay(CallEnd),
    Kept(A),
    TooLarge,
}

pub enum Repeat<A> {
    /// The call is unknown. The caller runs it under this claim.
    New(Claim<A>),
    UnderWay(CallEnd),
    Answered(A),
}

#[derive(Clone)]
pub struct CallEnd(watch::Receiver<()>);

impl CallEnd {
    pub async fn ended(mut self) {
        // Nothing is ever sent. The channel closes when the claim is dropped.
        while self.0.changed().await.is_ok() {}
    }
}

/// The claim of a running call. If it is dropped without an answer, the call may be repeated.
pub struct Claim<A> {
    of: Arc<Repeats<A>>,
    name: Option<Arc<str>>,
    /// Dropping it wakes the waiting callers.
    _end: watch::Sender<()>,
}

impl<A> Default for Repeats<A> {
    fn default() -> Self {
        Repeats(Mutex::new(Calls {
            known: HashMap::new(),
            answered: VecDeque::new(),
            shares: HashMap::new(),
            bytes: 0,
        }))
    }
}

impl<A: Clone> Repeats<A> {
    /// Looks up a call by its `name`, and claims it if it is new. Fails with 409 if the key was
    /// used for another request, and with 429 if its payer has too many calls or bytes. `what`
    /// names the request in errors, and `about` is its content.
    pub fn claim(
        self: &Arc<Self>,
        name: &CallName,
        (what, about): (&str, &[u8]),
        now: Timestamp,
    ) -> Result<Repeat<A>> {
        let (payer, about) = (Arc::clone(&name.payer), Sha256::digest(about).into());
        let name = Arc::clone(&name.name);
        let mut calls = self.lock();
        calls.forget(now);
        let refused = |why: String| Err(Error::new(Kind::Conflict, why).at("Idempotency-Key"));
        if let Some(known) = calls.known.get(&name) {
            return match &known.answer {
                _ if known.about != about => {
                    refused(format!("This Idempotency-Key was used for another {what}."))
                }
                CallAnswer::Kept(answer) => Ok(Repeat::Answered(answer.clone())),
                CallAnswer::TooLarge => refused(
                    "The call with this Idempotency-Key was answered; the answer is not kept."
                        .to_owned(),
                ),
                CallAnswer::UnderWay(end) => Ok(Repeat::UnderWay(end.clone())),
            };
        }
        let share = calls.shares.entry(Arc::clone(&payer)).or_default();
        if share.0 >= REPEATS_SHARE || share.1 >= REPEATS_SHARE_BYTES {
            let why = "Too many calls with an Idempotency-Key of late.";
            return Err(Error::new(Kind::RateLimited, why).retry_after(REPEATS_RETRY));
        }
        share.0 += 1;
        let (_end, under_way) = watch::channel(());
        let answer = CallAnswer::UnderWay(CallEnd(under_way));
        let call = KnownCall { payer, about, answer, bytes: 0 };
        calls.known.insert(Arc::clone(&name), call);
        Ok(Repeat::New(Claim { of: Arc::clone(self), name: Some(name), _end }))
    }
}

impl<A> Repeats<A> {
    /// Forgets the calls whose time has passed.
    pub fn sweep(&self, now: Timestamp) {
        self.lock().forget(now);
    }

    fn lock(&self) -> MutexGuard<'_, Calls<A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A> Calls<A> {
    fn forget(&mut self, now: Timestamp) {
        let is_old = |at: Timestamp| now.duration_since(at).unsigned_abs() >= KEPT;
        while self.answered.front().is_some_and(|(at, _)| is_old(*at)) {
            if let Some((_, name)) = self.answered.pop_front() {
                self.remove(&name);
            }
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(KnownCall { payer, bytes, .. }) = self.known.remove(name) else { return };
        self.bytes -= bytes;
        if let Some(share) = self.shares.get_mut(&payer) {
            *share = (share.0 - 1, share.1 - bytes);
            if share.0 == 0 {
                self.shares.remove(&payer);
            }
        }
    }
}

impl<A> Claim<A> {
    /// Keeps the answer, whose size is `bytes`.
    pub fn answer(mut self, answer: A, bytes: usize, now: Timestamp) {
        let Some(name) = self.name.take() else { return };
        let mut calls = self.of.lock();
        let fits = bytes <= REPEATS_SHARE_BYTES && calls.bytes + bytes <= REPEATS_BYTES;
        let bytes = if fits { bytes } else { 0 };
        let Some(call) = calls.known.get_mut(&name) else { return };
        call.answer = if fits { CallAnswer::Kept(answer) } else { CallAnswer::TooLarge };
        call.bytes = bytes;
        let payer = Arc::clone(&call.payer);
        calls.bytes += bytes;
        if let Some(share) = calls.shares.get_mut(&payer) {
            share.1 += bytes;
        }
        calls.answered.push_back((now, name));
    }
}

impl<A> Drop for Claim<A> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.of.lock().remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fixtures::at;

    fn name(key: &str) -> CallName {
        CallName::new(("api_key", "key_1"), "usr_ann", key)
    }

    fn kind<A>(told: Result<Repeat<A>>) -> Kind {
        told.err().unwrap().kind()
    }

    #[test]
    fn a_call_runs_once_and_its_answer_is_told_for_ten_minutes() {
        let calls: Arc<Repeats<u8>> = Arc::default();
        let ask =
            |key: &str, about: &[u8], second| calls.claim(&name(key), ("body", about), at(second));
        let Ok(Repeat::New(claim)) = ask("a", b"x", 0) else { panic!("not new") };
        assert!(matches!(ask("a", b"x", 0), Ok(Repeat::UnderWay(_))));
        // A call whose claim was dropped without an answer may be repeated.
        drop(claim);
        let Ok(Repeat::New(claim)) = ask("a", b"x", 1) else { panic!("not new") };
        claim.answer(7, 1, at(2));
        assert!(matches!(ask("a", b"x", 601), Ok(Repeat::Answered(7))));
        assert_eq!(kind(ask("a", b"y", 601)), Kind::Conflict, "of another body");
        assert!(matches!(ask("b", b"x", 601), Ok(Repeat::New(_))));
        calls.sweep(at(601));
        assert_eq!(calls.lock().known.len(), 1);
        calls.sweep(at(602));
        assert!(calls.lock().known.is_empty(), "nobody asks any more");
        assert!(matches!(ask("a", b"y", 602), Ok(Repeat::New(_))));
        assert!(calls.lock().shares.is_empty() && calls.lock().bytes == 0);
    }

    #[test]
    fn a_payer_has_its_share_of_calls_and_of_bytes() {
        let calls: Arc<Repeats<usize>> = Arc::default();
        let ask =
            |key: usize, second| calls.claim(&name(&key.to_string()), ("body", b"x"), at(second));
        for key in 0..REPEATS_SHARE {
            let Ok(Repeat::New(claim)) = ask(key, 0) else { panic!("not new") };
            claim.answer(key, 1, at(0));
        }
        assert_eq!(kind(ask(REPEATS_SHARE, 1)), Kind::RateLimited);
        let other = CallName::new(("api_key", "key_2"), "usr_bob", "1");
        assert!(matches!(calls.claim(&other, ("body", b"x"), at(1)), Ok(Repeat::New(_))));
        // An answer that is too large is not kept, and a repeated call learns so.
        let Ok(Repeat::New(claim)) = ask(0, 600) else { panic!("not new") };
        claim.answer(0, REPEATS_SHARE_BYTES + 1, at(600));
        assert_eq!(kind(ask(0, 600)), Kind::Conflict);
        let Ok(Repeat::New(claim)) = ask(1, 600) else { panic!("not new") };
        claim.answer(1, REPEATS_SHARE_BYTES, at(600));
        assert_eq!(kind(ask(2, 600)), Kind::RateLimited);
        assert!(matches!(ask(2, 1_200), Ok(Repeat::New(_))));
    }
}
