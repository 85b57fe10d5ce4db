//! Permits and health snapshots under whole documents, with a clock that moves only when the test
//! says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use rerouter_routing::health::COOLDOWN_MAX;
use rerouter_routing::health::*;
use rerouter_routing::{BreakerState, Routing};

use crate::config;

const DOCUMENT: &str = "
providers:
  p: { protocol: openai, base_url: 'http://127.0.0.1:9', max_concurrency: 3, \
       breaker: { consecutive: 2, open: 1s } }
  q: { protocol: openai, base_url: 'http://127.0.0.1:9' }
models: { p/a: {}, p/b: {}, q/a: {} }
recipes: {}
aliases: {}
";

fn document(text: &str) -> Routing {
    let server = config::read_server("s", "", &|_| None).unwrap();
    config::read_routing("r", text, &server, &|_| None, None)
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn live(health: &HealthRegistry, text: &str) -> Routing {
    let routing = document(text);
    health.attach(&routing);
    routing
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_764_000_000_000 + ms).unwrap()
}

fn take(routing: &Routing, target: &str, ms: i64) -> Result<AttemptPermit, PermitRefusal> {
    AttemptPermit::take(routing.target(target).unwrap(), at(ms), None)
}

/// Makes an attempt at the time `ms` that takes no time and ends like this.
fn attempt(routing: &Routing, target: &str, ending: AttemptOutcome, ms: i64) {
    take(routing, target, ms).unwrap().end(ending, Duration::ZERO, at(ms));
}

const SECONDS_7: AttemptOutcome = AttemptOutcome::Limited(Some(Duration::from_secs(7)));

#[test]
fn a_429_benches_the_target_for_as_long_as_it_says_and_no_longer_than_the_maximum() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    attempt(&routing, "p/a", SECONDS_7, 0);
    for (ms, cools) in [(0, true), (6_999, true), (7_000, false)] {
        let told = health.snapshot(&routing, at(ms)).remove("p/a");
        assert_eq!(told.and_then(|told| told.cooldown_until), cools.then(|| at(7_000)), "{ms}");
        assert_eq!(
            take(&routing, "p/a", ms).err(),
            cools.then_some(PermitRefusal::CoolDown),
            "{ms}"
        );
    }
    assert!(take(&routing, "p/b", 0).is_ok(), "limits are by model");
    attempt(&routing, "q/a", AttemptOutcome::Unavailable(Some(Duration::from_secs(86_400))), 0);
    let until = health.snapshot(&routing, at(0)).remove("q/a").unwrap().cooldown_until.unwrap();
    assert_eq!(until.duration_since(at(0)).unsigned_abs(), COOLDOWN_MAX);
    assert!(
        health.snapshot(&routing, at(-50))["q/a"].cooldown_until.is_some(),
        "a request that came just before"
    );
    // A shorter wait does not end a longer one. A rate limit with a known end opens no breaker.
    let routing = live(&HealthRegistry::default(), DOCUMENT);
    let early = [(); 3].map(|()| take(&routing, "p/a", 0).unwrap());
    for (permit, seconds) in early.into_iter().zip([1, 7, 2]) {
        permit.end(
            AttemptOutcome::Limited(Some(Duration::from_secs(seconds))),
            Duration::ZERO,
            at(0),
        );
    }
    assert_eq!(take(&routing, "p/a", 6_999).err(), Some(PermitRefusal::CoolDown));
    assert!(take(&routing, "p/a", 7_000).is_ok());
}

#[test]
fn a_wait_from_before_the_clock_was_set_back_hides_no_other() {
    let routing = live(&HealthRegistry::default(), DOCUMENT);
    let hour = 3_600_000;
    attempt(&routing, "p/a", SECONDS_7, hour);
    assert_eq!(take(&routing, "p/a", hour).err(), Some(PermitRefusal::CoolDown));
    attempt(&routing, "p/a", SECONDS_7, 0);
    assert_eq!(take(&routing, "p/a", 6_999).err(), Some(PermitRefusal::CoolDown));
    assert!(take(&routing, "p/a", 7_000).is_ok());
}

#[test]
fn the_breaker_opens_lets_one_through_and_survives_a_reload() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    for ending in [
        AttemptOutcome::Failed,
        AttemptOutcome::Answered,
        AttemptOutcome::TimedOut,
        AttemptOutcome::Nothing,
        AttemptOutcome::Refused,
    ] {
        attempt(&routing, "p/a", ending, 0);
    }
    assert_eq!(take(&routing, "p/a", 999).err(), Some(PermitRefusal::BreakerOpen));
    let breaker = |routing: &Routing, ms| {
        health.snapshot(routing, at(ms)).remove("p/a").map(|told| (told.breaker, told.probe_free))
    };
    assert_eq!(breaker(&routing, 999), Some((BreakerState::Open, false)));
    let next = live(&health, &DOCUMENT.replace("p/b: {}, ", ""));
    drop(routing);
    assert_eq!(
        breaker(&next, 999),
        Some((BreakerState::Open, false)),
        "the same target in another document"
    );
    assert_eq!(breaker(&next, 1_000), Some((BreakerState::HalfOpen, true)));
    let mut probe = take(&next, "p/a", 1_000).unwrap();
    assert_eq!(breaker(&next, 1_000), Some((BreakerState::HalfOpen, false)));
    assert_eq!(take(&next, "p/a", 1_000).err(), Some(PermitRefusal::BreakerOpen));
    probe.content(Duration::from_millis(40), at(1_040));
    assert_eq!(
        breaker(&next, 1_040),
        Some((BreakerState::Closed, false)),
        "content is proof, the end may be far"
    );
    probe.end(AttemptOutcome::Answered, Duration::from_secs(9), at(10_000));
    assert!(take(&next, "p/a", 10_000).is_ok());
}

#[test]
fn states_go_with_the_last_document_or_attempt_that_uses_them() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    let known = || health.known();
    assert_eq!(known(), (3, 2));
    let attempt = take(&routing, "q/a", 0).unwrap();
    let without = DOCUMENT
        .lines()
        .filter(|line| !line.contains("  q:"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace(", q/a: {}", "");
    let next = live(&health, &without);
    drop(routing);
    let again = live(&health, DOCUMENT);
    assert_eq!(
        health.snapshot(&again, at(0))["q/a"].inflight,
        1,
        "still under way, so still known"
    );
    drop(attempt);
    drop(again);
    let last = live(&health, &without);
    assert_eq!(known(), (2, 1));
    drop((next, last));
}

#[test]
fn a_place_of_the_provider_is_taken_by_any_of_its_models() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    let under_way = [take(&routing, "p/a", 0).unwrap(), take(&routing, "p/a", 0).unwrap()];
    let told = health.snapshot(&routing, at(0));
    assert_eq!((told.len(), told["p/a"].inflight, told["p/a"].max), (1, 2, Some(3)));
    let last = take(&routing, "p/b", 0).unwrap();
    let told = health.snapshot(&routing, at(0));
    let seen = ["p/a", "p/b"].map(|name| (told[name].inflight, told[name].max));
    assert_eq!(seen, [(2, Some(2)), (1, Some(1))], "both are full");
    assert_eq!(take(&routing, "p/b", 0).err(), Some(PermitRefusal::Concurrency));
    assert!(take(&routing, "q/a", 0).is_ok());
    drop(under_way);
    assert!(take(&routing, "p/b", 0).is_ok());
    drop(last);
    assert_eq!(health.snapshot(&routing, at(0)), BTreeMap::new());
}

const ENDINGS: [AttemptOutcome; 8] = [
    SECONDS_7,
    AttemptOutcome::Limited(None),
    AttemptOutcome::Unavailable(Some(Duration::from_secs(9))),
    AttemptOutcome::Failed,
    AttemptOutcome::TimedOut,
    AttemptOutcome::Refused,
    AttemptOutcome::Forbidden,
    AttemptOutcome::Answered,
];

#[test]
fn what_replays_and_shadows_meet_moves_nothing() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    let target = routing.target("p/a").unwrap();
    let apart = Arc::default();
    for ending in ENDINGS {
        let mut replay = AttemptPermit::take(target, at(0), Some(&apart)).unwrap();
        assert_eq!(health.snapshot(&routing, at(0))["p/a"].inflight, 1, "it takes a place");
        replay.content(Duration::from_secs(3), at(0));
        replay.end(ending, Duration::from_secs(3), at(0));
        assert_eq!(health.snapshot(&routing, at(0)), BTreeMap::new(), "{ending:?}");
    }
    let shown = target.state().show(&target.provider, at(0));
    assert_eq!(
        (shown.breaker, shown.ewma_us, shown.requests_1m, shown.retry_at),
        (BreakerState::Closed, None, 0, None)
    );
}

#[test]
fn a_replay_does_not_take_the_request_that_tries_a_half_open_breaker() {
    let routing = live(&HealthRegistry::default(), DOCUMENT);
    let (target, apart) = (routing.target("p/a").unwrap(), Arc::default());
    let replay = |ms| AttemptPermit::take(target, at(ms), Some(&apart));
    attempt(&routing, "p/a", AttemptOutcome::Failed, 0);
    attempt(&routing, "p/a", AttemptOutcome::Failed, 0);
    assert_eq!(replay(999).err(), Some(PermitRefusal::BreakerOpen));
    let beside = replay(1_000).unwrap();
    let probe = take(&routing, "p/a", 1_000).unwrap();
    assert_eq!(probe.change(), Some(BreakerChange::HalfOpen));
    assert_eq!(
        replay(1_000).err(),
        Some(PermitRefusal::BreakerOpen),
        "while one tries it nobody else does"
    );
    let effect = beside.end(AttemptOutcome::Answered, Duration::ZERO, at(1_000));
    assert_eq!((effect.another_key, effect.change), (false, None));
    assert_eq!(
        target.state().show(&target.provider, at(1_000)).breaker,
        BreakerState::HalfOpen,
        "it proves nothing"
    );
    assert_eq!(
        probe.end(AttemptOutcome::Answered, Duration::ZERO, at(1_000)).change,
        Some(BreakerChange::Closed)
    );
}

#[test]
fn a_replay_goes_through_the_keys_and_leaves_them_as_they_were() {
    let text = DOCUMENT.replace(
        "base_url: 'http://127.0.0.1:9' }",
        "base_url: 'http://127.0.0.1:9', api_keys: [sk-a, sk-b, sk-c] }",
    );
    for ending in [SECONDS_7, AttemptOutcome::Refused, AttemptOutcome::Forbidden] {
        let routing = live(&HealthRegistry::default(), &text);
        let (target, apart) = (routing.target("q/a").unwrap(), Arc::default());
        let tried = [true, true, false].map(|more| {
            let replay = AttemptPermit::take(target, at(0), Some(&apart)).unwrap();
            let key = replay.key().unwrap().expose().to_owned();
            assert_eq!(replay.end(ending, Duration::ZERO, at(0)).another_key, more, "{ending:?}");
            key
        });
        assert_eq!(tried, ["sk-a", "sk-b", "sk-c"]);
        let live =
            [(); 3].map(|()| take(&routing, "q/a", 0).unwrap().key().unwrap().expose().to_owned());
        assert_eq!(
            live,
            ["sk-a", "sk-b", "sk-c"],
            "live traffic begins where it was, and none of them rests"
        );
    }
}

/// A document with one provider, changed by `options` (`OLD => NEW`), with this API key in the
/// environment.
fn endpoint(options: &str, key: &str) -> Routing {
    let text = "providers:\n  p: { protocol: openai, base_url: 'http://127.0.0.1:9', \
                api_key: '${P_API_KEY}' }\n\
                models: { p/a: {}, p/b: {} }\nrecipes: {}\naliases: {}\n";
    let text =
        options.split_once(" => ").map_or(text.to_owned(), |(from, to)| text.replacen(from, to, 1));
    let server = config::read_server("s", "", &|_| None).unwrap();
    let variable = |name: &str| (name == "P_API_KEY").then(|| key.to_owned());
    config::read_routing("r", &text, &server, &variable, None)
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn health_belongs_to_the_endpoint_and_its_credential() {
    for (options, key, kept) in [
        ("", "sk-1", true),
        (
            "protocol: openai => breaker: { consecutive: 9 }, timeouts: { idle: 7s }, \
             protocol: openai",
            "sk-1",
            true,
        ),
        ("http://127.0.0.1:9' => http://127.0.0.1:9/'", "sk-1", true),
        ("api_key: '${P_API_KEY}' => api_keys: ['${P_API_KEY}']", "sk-1", true),
        ("p/b: {} => p/b: {}, p/c: {}", "sk-1", true),
        ("", "sk-2", false),
        ("api_key: '${P_API_KEY}' => api_keys: ['${P_API_KEY}', sk-2]", "sk-1", false),
        ("api_key => headers: { x-team: core }, api_key", "sk-1", false),
        ("127.0.0.1:9 => 127.0.0.1:10", "sk-1", false),
        ("http: => https:", "sk-1", false),
        ("127.0.0.1:9' => 127.0.0.1:9/v1'", "sk-1", false),
        ("protocol: openai => protocol: anthropic", "sk-1", false),
    ] {
        let health = HealthRegistry::default();
        let before = endpoint("", "sk-1");
        health.attach(&before);
        let under_way = take(&before, "p/a", 0).unwrap();
        take(&before, "p/a", 0).unwrap().content(Duration::from_millis(700), at(0));
        attempt(&before, "p/a", SECONDS_7, 0);
        (0..5).for_each(|_| attempt(&before, "p/b", AttemptOutcome::Failed, 0));
        let known = health.snapshot(&before, at(0));
        assert!(
            known["p/a"].ewma_us.is_some()
                && known["p/a"].cooldown_until.is_some()
                && known["p/b"].breaker == BreakerState::Open
        );
        let after = endpoint(options, key);
        health.attach(&after);
        assert_eq!(
            health.snapshot(&after, at(0)),
            if kept { known } else { BTreeMap::new() },
            "{options}, {key}"
        );
        under_way.end(SECONDS_7, Duration::ZERO, at(1_000));
        assert_eq!(
            health.snapshot(&after, at(1_000)).contains_key("p/a"),
            kept,
            "what began before says nothing of what is there now"
        );
    }
}

#[test]
fn an_identity_holds_no_credential() {
    let routing = endpoint("", "sk-canary-0123456789");
    let provider = routing.provider("p").unwrap();
    assert_ne!(provider.identity, endpoint("", "sk-other").provider("p").unwrap().identity);
    assert!(
        !format!("{provider:?}").contains("canary")
            && format!("{:?}", provider.identity) == "ProviderIdentity"
    );
}

#[test]
fn latency_is_that_of_good_content_and_of_silence() {
    let health = HealthRegistry::default();
    let routing = live(&health, DOCUMENT);
    let ewma = |ms| health.snapshot(&routing, at(ms)).remove("p/a").and_then(|told| told.ewma_us);
    attempt(&routing, "p/a", AttemptOutcome::Answered, 0);
    assert_eq!(ewma(0), None, "a refusal is quick and says nothing");
    let mut permit = take(&routing, "p/a", 0).unwrap();
    permit.content(Duration::from_millis(200), at(200));
    permit.content(Duration::from_millis(900), at(900));
    assert_eq!(ewma(200), Some(200_000));
    permit.end(AttemptOutcome::Failed, Duration::from_secs(1), at(1_000));
    take(&routing, "p/a", 1_000).unwrap().end(
        AttemptOutcome::TimedOut,
        Duration::from_secs(2),
        at(3_000),
    );
    assert_eq!(ewma(3_000), Some(2_000_000));
    let shown = routing
        .target("p/a")
        .unwrap()
        .state()
        .show(&routing.target("p/a").unwrap().provider, at(3_000));
    assert_eq!((shown.requests_1m, shown.errors_1m, shown.retry_at), (3, 2, Some(at(4_000))));
}

#[test]
fn keys_rotate_without_cooling_ones() {
    let text = DOCUMENT.replace(
        "base_url: 'http://127.0.0.1:9' }",
        "base_url: 'http://127.0.0.1:9', api_keys: [sk-a, sk-b] }",
    );
    let health = HealthRegistry::default();
    let routing = live(&health, &text);
    let key = |ms| take(&routing, "q/a", ms).unwrap().key().unwrap().expose().to_owned();
    assert_eq!([key(0), key(0), key(0)], ["sk-a", "sk-b", "sk-a"]);
    let limited = take(&routing, "q/a", 0).unwrap();
    assert_eq!(limited.key().unwrap().expose(), "sk-b");
    assert!(limited.end(SECONDS_7, Duration::ZERO, at(0)).another_key, "the other may do better");
    assert_eq!([key(0), key(6_999)], ["sk-a"; 2]);
    let refused = take(&routing, "q/a", 1_000).unwrap();
    assert!(
        !refused.end(AttemptOutcome::Refused, Duration::ZERO, at(1_000)).another_key,
        "none is left"
    );
    assert_eq!(take(&routing, "q/a", 1_000).err(), Some(PermitRefusal::CoolDown));
    assert_eq!(health.snapshot(&routing, at(1_000))["q/a"].cooldown_until, Some(at(7_000)));
    assert_eq!([key(7_000), key(8_000)], ["sk-b"; 2]);
    let elsewhere = live(&HealthRegistry::default(), &text.replace("q/a: {}", "q/a: {}, q/b: {}"));
    attempt(&elsewhere, "q/a", AttemptOutcome::Forbidden, 0);
    attempt(&elsewhere, "q/a", AttemptOutcome::Forbidden, 0);
    let last = take(&elsewhere, "q/a", 0).unwrap();
    assert_eq!(last.key().unwrap().expose(), "sk-b", "the last that is refused does not rest");
    let [first, second] = [(); 2].map(|()| take(&elsewhere, "q/b", 0).unwrap());
    let keys = [first.key().unwrap().expose(), second.key().unwrap().expose()];
    assert!(keys.contains(&"sk-a"), "what is forbidden is a model");
    let reordered = live(&health, &text.replace("[sk-a, sk-b]", "[sk-b, sk-a]"));
    let picked = [(); 4]
        .map(|()| take(&reordered, "q/a", 8_000).unwrap().key().unwrap().expose().to_owned());
    assert_eq!(picked, ["sk-b"; 4], "sk-a rests still");
}

proptest! {
    /// For any attempts and any changes of documents: the number of attempts counted as in flight
    /// is right.
    #[test]
    fn nothing_leaks(
        events in prop::collection::vec((0u8..8, any::<prop::sample::Index>(), 0i64..400), 1..120),
    ) {
        let health = HealthRegistry::default();
        let mut routing = live(&health, DOCUMENT);
        let (mut now, mut permits) = (0, Vec::new());
        for (event, which, passed) in events {
            now += passed;
            let name = ["p/a", "p/b", "q/a"][which.index(3)];
            match event {
                0..=3 => {
                    permits.extend(take(&routing, name, now).ok().map(|permit| (name, permit)))
                }
                4 => routing = live(&health, DOCUMENT),
                _ if permits.is_empty() => {}
                _ => {
                    let (_, permit) = permits.swap_remove(which.index(permits.len()));
                    match event {
                        5 => drop(permit),
                        6 => {
                            permit.end(AttemptOutcome::Failed, Duration::ZERO, at(now));
                        }
                        _ => {
                            permit.end(AttemptOutcome::Answered, Duration::ZERO, at(now));
                        }
                    }
                }
            }
            let of_p = permits.iter().filter(|(name, _)| name.starts_with("p/")).count();
            prop_assert!(of_p <= 3);
            for name in ["p/a", "p/b", "q/a"] {
                let target = routing.target(name).unwrap();
                let under_way = permits.iter().filter(|(other, _)| *other == name).count();
                prop_assert_eq!(
                    target.state().show(&target.provider, at(now)).inflight as usize,
                    under_way
                );
            }
        }
        permits.clear();
        let later = at(now + 700_000);
        for target in routing.targets() {
            prop_assert!(AttemptPermit::take(target, later, None).is_ok());
        }
    }
}
