//! What was answered to calls that carry an `Idempotency-Key`, for as long as a client may ask again: the repetition of a
//! call that came to its end is answered with that end, and nothing is paid or made twice. In memory: a restart forgets.
//! Whoever pays for calls has a share of the room, so that nobody fills it for the others.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind, Result};

/// The header.
const HEADER: &str = "idempotency-key";

/// The calls of one kind that may be repeated, with answers of type `T`. Cloning is cheap.
pub struct Repeats<T>(Arc<Inner<T>>);

impl<T> Clone for Repeats<T> {
    fn clone(&self) -> Self {
        Repeats(Arc::clone(&self.0))
    }
}

struct Inner<T> {
    /// What a call is about, in messages.
    about: &'static str,
    table: Mutex<Table<T>>,
}

struct Table<T> {
    calls: HashMap<Name, Call<T>>,
    /// Those that came to an end, the earliest first.
    ended: VecDeque<(Timestamp, Name)>,
    shares: HashMap<String, Share>,
}

/// Who called, and what it named the call.
type Name = (String, String);

struct Call<T> {
    about: String,
    payer: String,
    state: State<T>,
}

enum State<T> {
    UnderWay,
    Answered {
        answer: T,
        bytes: usize,
    },
    /// Its answer would have gone beyond the payer's share.
    Untold,
}

/// What somebody has of the room.
#[derive(Clone, Copy, Default)]
struct Share {
    calls: usize,
    bytes: usize,
}

impl Share {
    fn is_full(self) -> bool {
        self.calls >= bounds::REPEATS_SHARE || self.bytes >= bounds::REPEATS_SHARE_BYTES
    }
}

/// A call as it comes.
pub struct Asked {
    /// Who calls: nobody else is told the answer.
    pub caller: String,
    /// In whose share of the room it is remembered.
    pub payer: String,
    /// What it is named; see [`key`].
    pub key: String,
    /// What it is about: under the same name only that may be asked again.
    pub about: String,
}

/// What is known of a call that is made.
pub enum Found<T> {
    /// It is the first of its name.
    First(Claim<T>),
    /// It was answered before.
    Repeated(T),
}

/// A call under way. Dropped without an answer it was as good as never made, and may be made again.
pub struct Claim<T> {
    repeats: Repeats<T>,
    name: Option<Name>,
}

/// The one `Idempotency-Key` of a request, if it has one; 400 when it is not one name of visible characters.
pub fn key(headers: &HeaderMap) -> Result<Option<String>> {
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

impl<T: Clone> Repeats<T> {
    /// No calls yet. `about` is what a call is about, as messages say it: "capture".
    pub fn new(about: &'static str) -> Self {
        let table = Table { calls: HashMap::new(), ended: VecDeque::new(), shares: HashMap::new() };
        Repeats(Arc::new(Inner { about, table: Mutex::new(table) }))
    }

    /// Begins a call. 409 while the same is under way, and where its name was used for something else; 429 while there is no
    /// room to remember one more, or none in the payer's share.
    pub fn begin(&self, asked: Asked, now: Timestamp) -> Result<Found<T>> {
        let mut table = self.table();
        table.forget(now);
        let full = table.is_full_for(&asked.payer);
        let name = (asked.caller, asked.key);
        let conflict = |why: String| Error::new(Kind::Conflict, why);
        match table.calls.entry(name.clone()) {
            Entry::Occupied(call) if call.get().about != asked.about => Err(conflict(format!(
                "This Idempotency-Key was used for another {}.",
                self.0.about
            ))
            .at("Idempotency-Key")),
            Entry::Occupied(call) => match &call.get().state {
                State::Answered { answer, .. } => Ok(Found::Repeated(answer.clone())),
                State::UnderWay => {
                    Err(conflict("The call with this Idempotency-Key is under way.".into())
                        .retry_after(Duration::from_secs(1)))
                }
                State::Untold => Err(conflict(
                    "The call with this Idempotency-Key was answered; the answer is not kept."
                        .into(),
                )),
            },
            Entry::Vacant(_) if full => {
                let why = "Too many calls with an Idempotency-Key of late.";
                Err(Error::new(Kind::RateLimited, why).retry_after(Duration::from_secs(60)))
            }
            Entry::Vacant(place) => {
                place.insert(Call {
                    about: asked.about,
                    payer: asked.payer.clone(),
                    state: State::UnderWay,
                });
                table.shares.entry(asked.payer).or_default().calls += 1;
                drop(table);
                Ok(Found::First(Claim { repeats: self.clone(), name: Some(name) }))
            }
        }
    }
}

impl<T> Repeats<T> {
    /// Forgets what is too old to be told again: answers hold secrets, and do not wait in memory for the next call.
    pub fn sweep(&self, now: Timestamp) {
        self.table().forget(now);
    }

    fn table(&self) -> MutexGuard<'_, Table<T>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Table<T> {
    /// What somebody has beyond a share is not held against the others.
    fn is_full_for(&self, payer: &str) -> bool {
        let bytes: usize =
            self.shares.values().map(|share| share.bytes.min(bounds::REPEATS_SHARE_BYTES)).sum();
        let share = self.shares.get(payer).copied().unwrap_or_default();
        share.is_full() || self.calls.len() >= bounds::REPEATS || bytes >= bounds::REPEATS_BYTES
    }

    fn forget(&mut self, now: Timestamp) {
        let old = |at: &Timestamp| now.duration_since(*at).unsigned_abs() >= bounds::REPEATS_AGE;
        while let Some((_, name)) = self.ended.pop_front_if(|(at, _)| old(at)) {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &Name) {
        let Some(call) = self.calls.remove(name) else { return };
        let Entry::Occupied(mut share) = self.shares.entry(call.payer) else { return };
        let held = if let State::Answered { bytes, .. } = call.state { bytes } else { 0 };
        share.get_mut().calls = share.get().calls.saturating_sub(1);
        share.get_mut().bytes = share.get().bytes.saturating_sub(held);
        if share.get().calls == 0 {
            share.remove();
        }
    }
}

impl<T> Claim<T> {
    /// Remembers the answer, which takes up so many `bytes`, from now on. Where the payer's share is used up meanwhile, by calls
    /// that began before it was, only that there was one.
    pub fn answered(mut self, answer: T, bytes: usize, now: Timestamp) {
        let Some(name) = self.name.take() else { return };
        let mut table = self.repeats.table();
        let Table { calls, ended, shares } = &mut *table;
        let Some(call) = calls.get_mut(&name) else { return };
        let share = shares.entry(call.payer.clone()).or_default();
        call.state = if share.bytes >= bounds::REPEATS_SHARE_BYTES {
            State::Untold
        } else {
            share.bytes += bytes;
            State::Answered { answer, bytes }
        };
        ended.push_back((now, name));
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.repeats.table().remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + second).unwrap()
    }

    fn by(caller: &str, key: &str, about: &str) -> Asked {
        Asked {
            caller: caller.into(),
            payer: format!("payer of {caller}"),
            key: key.into(),
            about: about.into(),
        }
    }

    fn begin(
        repeats: &Repeats<&'static str>,
        key: &str,
        about: &str,
        second: i64,
    ) -> Result<Found<&'static str>> {
        repeats.begin(by("key_1", key, about), at(second))
    }

    fn claim_by(
        repeats: &Repeats<&'static str>,
        caller: &str,
        key: &str,
        second: i64,
    ) -> Claim<&'static str> {
        match repeats.begin(by(caller, key, "a"), at(second)) {
            Ok(Found::First(claim)) => claim,
            _ => panic!("not the first"),
        }
    }

    fn claim(repeats: &Repeats<&'static str>, key: &str, second: i64) -> Claim<&'static str> {
        claim_by(repeats, "key_1", key, second)
    }

    fn refused(found: Result<Found<&'static str>>) -> Kind {
        found.err().expect("a refusal").kind()
    }

    fn is_empty(repeats: &Repeats<&'static str>) -> bool {
        let table = repeats.table();
        table.calls.is_empty() && table.ended.is_empty() && table.shares.is_empty()
    }

    #[test]
    fn a_call_is_made_once_and_its_answer_is_told_for_ten_minutes() {
        let repeats = Repeats::new("capture");
        let first = claim(&repeats, "a", 0);
        assert_eq!(refused(begin(&repeats, "a", "a", 0)), Kind::Conflict, "under way");
        first.answered("told", 3, at(5));
        assert!(matches!(begin(&repeats, "a", "a", 604), Ok(Found::Repeated("told"))));
        assert_eq!(refused(begin(&repeats, "a", "b", 604)), Kind::Conflict, "another capture");
        let other = repeats.begin(by("key_2", "a", "b"), at(604));
        assert!(matches!(other, Ok(Found::First(_))), "somebody else's is another call");
        drop(other);
        drop(claim(&repeats, "a", 605));
        assert!(is_empty(&repeats), "nothing is left behind");
    }

    #[test]
    fn what_is_old_is_gone_without_another_call() {
        let repeats = Repeats::new("capture");
        claim(&repeats, "a", 0).answered("told", 4, at(5));
        repeats.sweep(at(604));
        assert!(!is_empty(&repeats));
        repeats.sweep(at(605));
        assert!(is_empty(&repeats));
    }

    #[test]
    fn what_came_to_no_end_may_be_made_again() {
        let repeats = Repeats::new("capture");
        drop(claim(&repeats, "a", 0));
        drop(claim(&repeats, "a", 0));
        assert!(is_empty(&repeats));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_never_forgotten_early() {
        let repeats = Repeats::new("capture");
        let (large, late) = (claim(&repeats, "large", 0), claim(&repeats, "late", 0));
        large.answered("large", 10 * bounds::REPEATS_BYTES, at(0));
        late.answered("late", 1, at(0));
        assert_eq!(refused(begin(&repeats, "more", "a", 1)), Kind::RateLimited);
        assert!(matches!(begin(&repeats, "large", "a", 1), Ok(Found::Repeated("large"))));
        assert_eq!(
            refused(begin(&repeats, "late", "a", 1)),
            Kind::Conflict,
            "it is not made again, nor told"
        );
        drop(claim_by(&repeats, "key_2", "more", 1));
        drop(claim(&repeats, "more", 600));
        assert!(is_empty(&repeats));
    }

    #[test]
    fn nobody_fills_the_room_for_the_others() {
        let repeats = Repeats::new("capture");
        let many = |caller: &str, second: i64| -> Vec<Claim<_>> {
            (0..bounds::REPEATS_SHARE)
                .map(|n| claim_by(&repeats, caller, &n.to_string(), second))
                .collect()
        };
        let claims = many("key_1", 0);
        assert_eq!(refused(begin(&repeats, "more", "a", 0)), Kind::RateLimited);
        drop(claim_by(&repeats, "key_2", "more", 0));
        let others: Vec<_> = (2..=bounds::REPEATS / bounds::REPEATS_SHARE)
            .map(|n| many(&format!("key_{n}"), 0))
            .collect();
        let whole = repeats.begin(by("key_0", "more", "a"), at(0));
        assert_eq!(refused(whole), Kind::RateLimited, "all of them together are bounded as well");
        drop((claims, others));
        drop(claim(&repeats, "more", 0));
        assert!(is_empty(&repeats));
    }

    #[test]
    fn a_key_is_there_once_and_visible() {
        let headers = |values: &[&str]| {
            values
                .iter()
                .map(|value| (HEADER.parse().unwrap(), value.parse().unwrap()))
                .collect::<HeaderMap>()
        };
        assert_eq!(key(&headers(&[])).unwrap(), None);
        assert_eq!(key(&headers(&["8f1c-2"])).unwrap().as_deref(), Some("8f1c-2"));
        let long = "k".repeat(bounds::IDEMPOTENCY_KEY + 1);
        for bad in [&[""][..], &["a b"], &["a", "a"], &[long.as_str()]] {
            assert_eq!(key(&headers(bad)).unwrap_err().field(), Some("Idempotency-Key"), "{bad:?}");
        }
    }
}
