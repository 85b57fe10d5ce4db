//! Permits and snapshots of documents as operators write them, on a clock that only moves when told to.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{bounds, config};

const DOCUMENT: &str = "
providers:
  p: { protocol: openai, base_url: 'http://127.0.0.1:9', max_concurrency: 3, breaker: { consecutive: 2, open: 1s } }
  q: { protocol: openai, base_url: 'http://127.0.0.1:9' }
models: { p/a: {}, p/b: {}, q/a: {} }
";

fn document(text: &str) -> Routing {
    let server = config::read_server("s", "", &|_| None).unwrap();
    config::read_routing("r", text, &server, &|_| None, None).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn live(health: &Health, text: &str) -> Routing {
    let routing = document(text);
    health.attach(&routing);
    routing
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_764_000_000_000 + ms).unwrap()
}

fn take(routing: &Routing, target: &str, ms: i64) -> Result<Permit, Barred> {
    Permit::take(routing.target(target).unwrap(), at(ms), true)
}

/// An attempt that takes no time.
fn attempt(routing: &Routing, target: &str, ending: Ending, ms: i64) {
    take(routing, target, ms).unwrap().end(ending, Duration::ZERO, at(ms));
}

const SECONDS_7: Ending = Ending::Limited(Some(Duration::from_secs(7)));

#[test]
fn a_429_benches_the_target_for_as_long_as_it_says_and_no_longer_than_the_maximum() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    attempt(&routing, "p/a", SECONDS_7, 0);
    for (ms, cools) in [(0, true), (6_999, true), (7_000, false)] {
        let told = health.snapshot(&routing, at(ms)).remove("p/a");
        assert_eq!(told.and_then(|told| told.cooldown_until), cools.then(|| at(7_000)), "{ms}");
        assert_eq!(take(&routing, "p/a", ms).err(), cools.then_some(Barred::CoolDown), "{ms}");
    }
    assert!(take(&routing, "p/b", 0).is_ok(), "limits are by model");
    attempt(&routing, "q/a", Ending::Unavailable(Some(Duration::from_secs(86_400))), 0);
    let until = health.snapshot(&routing, at(0)).remove("q/a").unwrap().cooldown_until.unwrap();
    assert_eq!(until.duration_since(at(0)).unsigned_abs(), bounds::COOL_DOWN_MAX);
    assert!(health.snapshot(&routing, at(-50))["q/a"].cooldown_until.is_some(), "a request that came just before");
    // A shorter wait does not end a longer one, and a limit that says when it ends opens no breaker.
    let routing = live(&Health::default(), DOCUMENT);
    let early = [(); 3].map(|()| take(&routing, "p/a", 0).unwrap());
    for (permit, seconds) in early.into_iter().zip([1, 7, 2]) {
        permit.end(Ending::Limited(Some(Duration::from_secs(seconds))), Duration::ZERO, at(0));
    }
    assert_eq!(take(&routing, "p/a", 6_999).err(), Some(Barred::CoolDown));
    assert!(take(&routing, "p/a", 7_000).is_ok());
}

#[test]
fn a_wait_from_before_the_clock_was_set_back_hides_no_other() {
    let routing = live(&Health::default(), DOCUMENT);
    let hour = 3_600_000;
    attempt(&routing, "p/a", SECONDS_7, hour);
    assert_eq!(take(&routing, "p/a", hour).err(), Some(Barred::CoolDown));
    attempt(&routing, "p/a", SECONDS_7, 0);
    assert_eq!(take(&routing, "p/a", 6_999).err(), Some(Barred::CoolDown));
    assert!(take(&routing, "p/a", 7_000).is_ok());
}

#[test]
fn the_breaker_opens_lets_one_through_and_survives_a_reload() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    for ending in [Ending::Failed, Ending::Answered, Ending::TimedOut, Ending::Nothing, Ending::Refused] {
        attempt(&routing, "p/a", ending, 0);
    }
    assert_eq!(take(&routing, "p/a", 999).err(), Some(Barred::BreakerOpen));
    let breaker = |routing: &Routing, ms| health.snapshot(routing, at(ms)).remove("p/a").map(|told| (told.breaker, told.probe_free));
    assert_eq!(breaker(&routing, 999), Some((Breaker::Open, false)));
    let next = live(&health, &DOCUMENT.replace("p/b: {}, ", ""));
    drop(routing);
    assert_eq!(breaker(&next, 999), Some((Breaker::Open, false)), "the same target in another document");
    assert_eq!(breaker(&next, 1_000), Some((Breaker::HalfOpen, true)));
    let mut probe = take(&next, "p/a", 1_000).unwrap();
    assert_eq!(breaker(&next, 1_000), Some((Breaker::HalfOpen, false)));
    assert_eq!(take(&next, "p/a", 1_000).err(), Some(Barred::BreakerOpen));
    probe.content(Duration::from_millis(40), at(1_040));
    assert_eq!(breaker(&next, 1_040), Some((Breaker::Closed, false)), "content is proof, the end may be far");
    probe.end(Ending::Answered, Duration::from_secs(9), at(10_000));
    assert!(take(&next, "p/a", 10_000).is_ok());
}

#[test]
fn states_go_with_the_last_document_or_attempt_that_uses_them() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    let known = || {
        let known = health.known.lock().unwrap();
        let (targets, providers) = (known.targets.keys().cloned().collect::<Vec<_>>(), known.providers.len());
        (targets.len(), providers)
    };
    assert_eq!(known(), (3, 2));
    let attempt = take(&routing, "q/a", 0).unwrap();
    let without = DOCUMENT.lines().filter(|line| !line.contains("  q:")).collect::<Vec<_>>().join("\n").replace(", q/a: {}", "");
    let next = live(&health, &without);
    drop(routing);
    let again = live(&health, DOCUMENT);
    assert_eq!(health.snapshot(&again, at(0))["q/a"].inflight, 1, "still under way, so still known");
    drop(attempt);
    drop(again);
    let last = live(&health, &without);
    assert_eq!(known(), (2, 1));
    drop((next, last));
}

#[test]
fn a_place_of_the_provider_is_taken_by_any_of_its_models() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    let under_way = [take(&routing, "p/a", 0).unwrap(), take(&routing, "p/a", 0).unwrap()];
    let told = health.snapshot(&routing, at(0));
    assert_eq!((told.len(), told["p/a"].inflight, told["p/a"].max), (1, 2, Some(3)));
    let last = take(&routing, "p/b", 0).unwrap();
    let told = health.snapshot(&routing, at(0));
    let seen = ["p/a", "p/b"].map(|name| (told[name].inflight, told[name].max));
    assert_eq!(seen, [(2, Some(2)), (1, Some(1))], "both are full");
    assert_eq!(take(&routing, "p/b", 0).err(), Some(Barred::Concurrency));
    assert!(take(&routing, "q/a", 0).is_ok());
    drop(under_way);
    assert!(take(&routing, "p/b", 0).is_ok());
    drop(last);
    assert_eq!(health.snapshot(&routing, at(0)), BTreeMap::new());
}

#[test]
fn replays_are_let_in_like_others_and_measure_nothing() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    let target = routing.target("p/a").unwrap();
    for _ in 0..5 {
        let mut replay = Permit::take(target, at(0), false).unwrap();
        replay.content(Duration::from_secs(3), at(0));
        replay.end(Ending::Failed, Duration::from_secs(3), at(0));
    }
    let shown = target.state().show(&target.provider, at(0));
    assert_eq!((shown.breaker, shown.ewma_us, shown.requests_1m), (Breaker::Closed, None, 0));
    attempt(&routing, "p/a", Ending::Failed, 0);
    attempt(&routing, "p/a", Ending::Failed, 0);
    let replay = Permit::take(target, at(1_000), false).unwrap();
    assert_eq!(take(&routing, "p/a", 1_000).err(), Some(Barred::BreakerOpen), "one at a time, whoever it is");
    replay.end(Ending::Answered, Duration::ZERO, at(1_000));
    assert_eq!(target.state().show(&target.provider, at(1_000)).breaker, Breaker::HalfOpen, "it proves nothing");
}

#[test]
fn latency_is_that_of_good_content_and_of_silence() {
    let health = Health::default();
    let routing = live(&health, DOCUMENT);
    let ewma = |ms| health.snapshot(&routing, at(ms)).remove("p/a").and_then(|told| told.ewma_us);
    attempt(&routing, "p/a", Ending::Answered, 0);
    assert_eq!(ewma(0), None, "a refusal is quick and says nothing");
    let mut permit = take(&routing, "p/a", 0).unwrap();
    permit.content(Duration::from_millis(200), at(200));
    permit.content(Duration::from_millis(900), at(900));
    assert_eq!(ewma(200), Some(200_000));
    permit.end(Ending::Failed, Duration::from_secs(1), at(1_000));
    take(&routing, "p/a", 1_000).unwrap().end(Ending::TimedOut, Duration::from_secs(2), at(3_000));
    assert_eq!(ewma(3_000), Some(2_000_000));
    let shown = routing.target("p/a").unwrap().state().show(&routing.target("p/a").unwrap().provider, at(3_000));
    assert_eq!((shown.requests_1m, shown.errors_1m, shown.retry_at), (3, 2, Some(at(4_000))));
}

#[test]
fn keys_take_turns_and_rest_when_limited_or_refused() {
    let text = DOCUMENT.replace("base_url: 'http://127.0.0.1:9' }", "base_url: 'http://127.0.0.1:9', api_keys: [sk-a, sk-b] }");
    let health = Health::default();
    let routing = live(&health, &text);
    let key = |ms| take(&routing, "q/a", ms).unwrap().key().unwrap().expose().to_owned();
    assert_eq!([key(0), key(0), key(0)], ["sk-a", "sk-b", "sk-a"]);
    let limited = take(&routing, "q/a", 0).unwrap();
    assert_eq!(limited.key().unwrap().expose(), "sk-b");
    assert!(limited.end(SECONDS_7, Duration::ZERO, at(0)), "the other may do better");
    assert_eq!([key(0), key(6_999)], ["sk-a"; 2]);
    let refused = take(&routing, "q/a", 1_000).unwrap();
    assert!(!refused.end(Ending::Refused, Duration::ZERO, at(1_000)), "none is left");
    assert_eq!(take(&routing, "q/a", 1_000).err(), Some(Barred::CoolDown));
    assert_eq!(health.snapshot(&routing, at(1_000))["q/a"].cooldown_until, Some(at(7_000)));
    assert_eq!([key(7_000), key(8_000)], ["sk-b"; 2]);
    let elsewhere = live(&Health::default(), &text.replace("q/a: {}", "q/a: {}, q/b: {}"));
    attempt(&elsewhere, "q/a", Ending::Forbidden, 0);
    attempt(&elsewhere, "q/a", Ending::Forbidden, 0);
    assert_eq!(take(&elsewhere, "q/a", 0).err(), Some(Barred::CoolDown));
    assert!(take(&elsewhere, "q/b", 0).is_ok(), "what is forbidden is a model");
    let reloaded = live(&health, &text.replace("[sk-a, sk-b]", "[sk-b, sk-c, sk-a]"));
    let picked = [(); 4].map(|()| take(&reloaded, "q/a", 8_000).unwrap().key().unwrap().expose().to_owned());
    assert!(!picked.contains(&"sk-a".to_owned()) && picked.contains(&"sk-c".to_owned()), "{picked:?}");
}

proptest! {
    /// Whatever attempts do, and whenever documents change: what is counted as under way is what is under way.
    #[test]
    fn nothing_leaks(events in prop::collection::vec((0u8..8, any::<prop::sample::Index>(), 0i64..400), 1..120)) {
        let health = Health::default();
        let mut routing = live(&health, DOCUMENT);
        let (mut now, mut permits) = (0, Vec::new());
        for (event, which, passed) in events {
            now += passed;
            let name = ["p/a", "p/b", "q/a"][which.index(3)];
            match event {
                0..=3 => permits.extend(take(&routing, name, now).ok().map(|permit| (name, permit))),
                4 => routing = live(&health, DOCUMENT),
                _ if permits.is_empty() => {}
                _ => {
                    let (_, permit) = permits.swap_remove(which.index(permits.len()));
                    match event {
                        5 => drop(permit),
                        6 => { permit.end(Ending::Failed, Duration::ZERO, at(now)); }
                        _ => { permit.end(Ending::Answered, Duration::ZERO, at(now)); }
                    }
                }
            }
            let of_p = permits.iter().filter(|(name, _)| name.starts_with("p/")).count();
            prop_assert!(of_p <= 3);
            for name in ["p/a", "p/b", "q/a"] {
                let target = routing.target(name).unwrap();
                let under_way = permits.iter().filter(|(other, _)| *other == name).count();
                prop_assert_eq!(target.state().show(&target.provider, at(now)).inflight as usize, under_way);
            }
        }
        permits.clear();
        let later = at(now + 700_000);
        for target in routing.targets() {
            prop_assert!(Permit::take(target, later, true).is_ok());
        }
    }
}
