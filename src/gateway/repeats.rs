//! What was answered to reroutes that carry an `Idempotency-Key`, for as long as a client may ask again: the repetition of a
//! call that came to its end is answered with that end, and no provider is paid twice. In memory: a restart forgets.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::id::RequestId;

/// The header.
pub(super) const HEADER: &str = "idempotency-key";

/// The calls that may be repeated. Cloning is cheap.
#[derive(Clone, Default)]
pub(super) struct Repeats(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    calls: HashMap<Name, Call>,
    /// Those that were answered, the earliest first.
    answered: VecDeque<(Timestamp, Name)>,
    bytes: usize,
}

/// Who called, and what it named the call.
type Name = (String, String);

struct Call {
    capture: RequestId,
    /// `None` while it is under way.
    answer: Option<Answer>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// The replay that was made.
    pub(super) replay: RequestId,
    /// The body of the 200.
    pub(super) body: Bytes,
}

/// What is known of a call that is made.
pub(super) enum Found {
    /// It is the first of its name.
    First(Claim),
    /// It was answered before.
    Repeated(Answer),
}

/// A call under way. Dropped without an answer it was as good as never made, and may be made again.
pub(super) struct Claim {
    repeats: Repeats,
    name: Option<Name>,
}

/// The one key of a request, if it has one.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(HEADER).iter();
    let (Some(value), more) = (values.next(), values.next().is_some()) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let fits = (1..=bounds::IDEMPOTENCY_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if more || !fits {
        let most = bounds::IDEMPOTENCY_KEY;
        return Err(Error::invalid("Idempotency-Key", format!("Idempotency-Key has to be there once, 1 to {most} visible characters.")));
    }
    Ok(Some(text.to_owned()))
}

impl Repeats {
    /// Begins the call `key` of `caller`, about `capture`. 409 while the same is under way, and where the key was used for
    /// another capture; 429 while there is no room to remember one more.
    pub(super) fn begin(&self, caller: String, key: String, capture: &RequestId, now: Timestamp) -> Result<Found> {
        let mut table = self.table();
        table.forget(now);
        let full = table.calls.len() >= bounds::REPEATS || table.bytes >= bounds::REPEATS_BYTES;
        let name = (caller, key);
        match table.calls.entry(name.clone()) {
            Entry::Occupied(call) if call.get().capture != *capture => {
                Err(Error::new(Kind::Conflict, "This Idempotency-Key was used for another capture.").at("Idempotency-Key"))
            }
            Entry::Occupied(call) => match &call.get().answer {
                Some(answer) => Ok(Found::Repeated(answer.clone())),
                None => {
                    Err(Error::new(Kind::Conflict, "The call with this Idempotency-Key is under way.").retry_after(Duration::from_secs(1)))
                }
            },
            Entry::Vacant(_) if full => {
                let why = "Too many reroutes with an Idempotency-Key of late.";
                Err(Error::new(Kind::RateLimited, why).retry_after(Duration::from_secs(60)))
            }
            Entry::Vacant(place) => {
                place.insert(Call { capture: capture.clone(), answer: None });
                drop(table);
                Ok(Found::First(Claim { repeats: self.clone(), name: Some(name) }))
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn forget(&mut self, now: Timestamp) {
        let old = |at: &Timestamp| now.duration_since(*at).unsigned_abs() >= bounds::REPEATS_AGE;
        while let Some((_, name)) = self.answered.pop_front_if(|(at, _)| old(at)) {
            let call = self.calls.remove(&name);
            self.bytes -= call.and_then(|call| call.answer).map_or(0, |answer| answer.body.len());
        }
    }
}

impl Claim {
    /// Remembers the answer from now on.
    pub(super) fn answered(mut self, answer: Answer, now: Timestamp) {
        let Some(name) = self.name.take() else { return };
        let mut table = self.repeats.table();
        table.bytes += answer.body.len();
        if let Some(call) = table.calls.get_mut(&name) {
            call.answer = Some(answer);
        }
        table.answered.push_back((now, name));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.repeats.table().calls.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + second).unwrap()
    }

    fn begin(repeats: &Repeats, key: &str, capture: &str, second: i64) -> Result<Found> {
        repeats.begin("key_1".into(), key.into(), &RequestId::known(capture), at(second))
    }

    fn claim(repeats: &Repeats, key: &str, second: i64) -> Claim {
        match begin(repeats, key, "req_a", second) {
            Ok(Found::First(claim)) => claim,
            _ => panic!("not the first"),
        }
    }

    fn answer(bytes: usize) -> Answer {
        Answer { replay: RequestId::known("req_new"), body: vec![b'x'; bytes].into() }
    }

    fn refused(found: Result<Found>) -> Kind {
        found.err().expect("a refusal").kind()
    }

    #[test]
    fn a_call_is_made_once_and_its_answer_is_told_for_ten_minutes() {
        let repeats = Repeats::default();
        let first = claim(&repeats, "a", 0);
        assert_eq!(refused(begin(&repeats, "a", "req_a", 0)), Kind::Conflict, "under way");
        first.answered(answer(3), at(5));
        assert!(matches!(begin(&repeats, "a", "req_a", 604), Ok(Found::Repeated(told)) if told == answer(3)));
        assert_eq!(refused(begin(&repeats, "a", "req_b", 604)), Kind::Conflict, "another capture");
        let other = repeats.begin("key_2".into(), "a".into(), &RequestId::known("req_b"), at(604));
        assert!(matches!(other, Ok(Found::First(_))), "somebody else's is another call");
        drop(other);
        drop(claim(&repeats, "a", 605));
        let table = repeats.table();
        assert_eq!((table.calls.len(), table.answered.len(), table.bytes), (0, 0, 0), "nothing is left behind");
    }

    #[test]
    fn what_came_to_no_end_may_be_made_again() {
        let repeats = Repeats::default();
        drop(claim(&repeats, "a", 0));
        drop(claim(&repeats, "a", 0));
        assert!(repeats.table().calls.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_never_forgotten_early() {
        let repeats = Repeats::default();
        claim(&repeats, "large", 0).answered(answer(bounds::REPEATS_BYTES), at(0));
        assert_eq!(refused(begin(&repeats, "more", "req_a", 1)), Kind::RateLimited);
        assert!(matches!(begin(&repeats, "large", "req_a", 1), Ok(Found::Repeated(_))));
        drop(claim(&repeats, "more", 600));
        let claims: Vec<Claim> = (0..bounds::REPEATS).map(|n| claim(&repeats, &n.to_string(), 600)).collect();
        assert_eq!(refused(begin(&repeats, "more", "req_a", 600)), Kind::RateLimited);
        drop(claims);
        drop(claim(&repeats, "more", 600));
    }

    #[test]
    fn a_key_is_there_once_and_visible() {
        let headers = |values: &[&str]| values.iter().map(|value| (HEADER.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>();
        assert_eq!(key(&headers(&[])).unwrap(), None);
        assert_eq!(key(&headers(&["8f1c-2"])).unwrap().as_deref(), Some("8f1c-2"));
        let long = "k".repeat(bounds::IDEMPOTENCY_KEY + 1);
        for bad in [&[""][..], &["a b"], &["a", "a"], &[long.as_str()]] {
            assert_eq!(key(&headers(bad)).unwrap_err().field(), Some("Idempotency-Key"), "{bad:?}");
        }
    }
}
