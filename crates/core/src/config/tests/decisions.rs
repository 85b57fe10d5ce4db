//! Properties of decisions under whole documents: every strategy, and every reason for having no
//! target.

mod property;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config;
use rerouter_base::error::{Error, Kind};
use rerouter_routing::{
    BreakerState, Decision, Inputs, Routing, RoutingRefusal, TargetHealth, chat, decide, shadow,
};

/// A document with the provider `p`, an alias `auto` for a recipe with these rules, and these
/// models.
fn document(rules: &str, models: &str) -> Routing {
    let text = format!(
        "providers: {{ p: {{ protocol: mock }} }}\nmodels: {{ {models} }}\n\
         recipes:\n  r:\n    rules: [ {rules} ]\naliases: {{ auto: r }}\n"
    );
    let server = config::read_server("server.yaml", "", &|_| None).unwrap();
    config::read_routing("routing.yaml", &text, &server, &|_| None, None).unwrap_or_else(
        |problems| {
            let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
            panic!("{}", shown.join("\n"))
        },
    )
}

/// A document with one rule of this strategy over `p/a`, `p/b`, …
fn over(names: &[&str], strategy: &str) -> Routing {
    let targets: Vec<String> = names.iter().map(|name| format!("{{ target: p/{name} }}")).collect();
    document(
        &format!("{{ name: only, strategy: {strategy}, targets: [ {} ] }}", targets.join(", ")),
        "",
    )
}

const STICKY: &str = "sticky, key: user.id";

fn order(decision: &Decision) -> String {
    decision.plan.iter().map(|choice| &*choice.model).collect::<Vec<_>>().join(" ")
}

fn planned(routing: &Routing, inputs: &Inputs) -> String {
    order(&decide(routing, inputs).unwrap())
}

fn state(inputs: &mut Inputs, target: &str, ewma_us: Option<u64>, inflight: u32) {
    inputs.health.insert(
        format!("p/{target}"),
        TargetHealth { ewma_us, inflight, ..TargetHealth::default() },
    );
}

/// Well distributed seeds, like those of real traffic.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
}

/// A recipe over `p/a` and `p/b` with this shadow.
fn shadowed(shadow: &str) -> Routing {
    document(
        &format!(
            "{{ name: only, targets: [ {{ target: p/a }}, {{ target: p/b }} ] }} ]\n    \
             shadow: {shadow}\n  other:\n    rules: [ {{ name: x, targets: [ {{ target: p/x }} ] }}"
        ),
        "p/s: { context: 100 }",
    )
}

#[test]
fn a_shadow_is_drawn_apart_from_the_plan() {
    let inputs = |seed| chat("auto", seed);
    let drawn = |routing: &Routing, inputs: &Inputs| {
        let decision = decide(routing, inputs).unwrap();
        shadow(routing, inputs, &decision)
            .map(|target| target.map(|target| target.name.to_string()))
    };
    for (percent, least, most) in
        [("0", 0, 0), ("0.5", 1, 20), ("50", 925, 1075), ("100", 2000, 2000)]
    {
        let routing = shadowed(&format!("{{ target: p/s, percent: {percent} }}"));
        let count = seeds(2000).filter(|seed| drawn(&routing, &inputs(*seed)).is_some()).count();
        assert!((least..=most).contains(&count), "{percent}: {count}");
    }
    let (half, more) =
        (shadowed("{ target: p/s, percent: 50 }"), shadowed("{ target: p/s, percent: 60 }"));
    let plain = over(&["a", "b"], "priority");
    for seed in seeds(500) {
        let inputs = inputs(seed);
        assert_eq!(drawn(&half, &inputs), drawn(&half, &inputs));
        assert!(
            drawn(&half, &inputs).is_none() || drawn(&more, &inputs).is_some(),
            "a greater share holds the smaller one"
        );
        let of_plain = decide(&plain, &inputs).unwrap();
        assert_eq!(
            decide(&half, &inputs).unwrap(),
            Decision { revision: half.revision().into(), ..of_plain.clone() }
        );
        assert!(shadow(&plain, &inputs, &of_plain).is_none());
    }
}

#[test]
fn a_shadow_that_cannot_serve_the_request_says_why() {
    let routing = shadowed("{ target: p/s, percent: 100 }");
    let against = |inputs: &Inputs| {
        shadow(&routing, inputs, &decide(&routing, inputs).unwrap()).unwrap().err()
    };
    let mut inputs = chat("auto", 1);
    assert_eq!(against(&inputs), None);
    // A half-open breaker's probe is not for the shadow either.
    for breaker in [BreakerState::Open, BreakerState::HalfOpen] {
        inputs.health.insert(
            "p/s".into(),
            TargetHealth { breaker, probe_free: true, ..TargetHealth::default() },
        );
        assert_eq!(against(&inputs), Some("breaker_open"));
    }
    inputs.health.clear();
    inputs.request.prompt_tokens = 101;
    assert_eq!(against(&inputs), Some("context"));
    let direct = chat("p/a", 1);
    assert!(
        shadow(&routing, &direct, &decide(&routing, &direct).unwrap()).is_none(),
        "a direct name has no recipe"
    );
}

#[test]
fn the_least_busy_is_first_and_ties_go_by_the_document() {
    let routing = over(&["a", "b", "c", "d"], "least_busy");
    let mut inputs = chat("auto", 1);
    assert_eq!(planned(&routing, &inputs), "a b c d");
    state(&mut inputs, "a", None, 2);
    state(&mut inputs, "c", Some(1), 1);
    let decision = decide(&routing, &inputs).unwrap();
    assert_eq!(
        (order(&decision).as_str(), decision.propensity, &*decision.strategy),
        ("b d c a", 1.0, "least_busy")
    );
}

#[test]
fn the_cheapest_is_first_and_what_has_no_price_last() {
    let models = "p/half: { input_per_mtok: 0.001 }, \
        p/in: { input_per_mtok: 1, output_per_mtok: 10 }, \
        p/out: { input_per_mtok: 10, output_per_mtok: 1 }, \
        p/free: { input_per_mtok: 0, output_per_mtok: 0 }, \
        p/same: { input_per_mtok: 1, output_per_mtok: 10 }";
    let targets = "{ target: p/none }, { target: p/half }, { target: p/out }, { target: p/in }, \
        { target: p/same }, { target: p/free }";
    let routing =
        document(&format!("{{ name: only, strategy: cheapest, targets: [ {targets} ] }}"), models);
    let mut inputs = chat("auto", 1);
    inputs.request.prompt_tokens = 1000;
    // The default answer has 1,024 tokens, so `out` costs 11,024 and `in` 11,240.
    assert_eq!(planned(&routing, &inputs), "free out in same none half");
    inputs.request.max_tokens = Some(500);
    assert_eq!(planned(&routing, &inputs), "free in same out none half");
    // A limit above the default does not count.
    inputs.request.max_tokens = Some(1_000_000);
    inputs.request.prompt_tokens = 1100;
    assert_eq!(planned(&routing, &inputs), "free in same out none half");
}

#[test]
fn the_quicker_of_two_is_first() {
    let routing = over(&["a", "b", "c"], "least_latency");
    let mut inputs = chat("auto", 1);
    // The scores are 300 ms for `a`, which has a request in flight, 200 ms for `b` and 150 ms for
    // `c`.
    state(&mut inputs, "a", Some(150_000), 1);
    state(&mut inputs, "b", Some(200_000), 0);
    state(&mut inputs, "c", Some(150_000), 0);
    let mut firsts = BTreeMap::new();
    for seed in seeds(3000) {
        inputs.seed = seed;
        let decision = decide(&routing, &inputs).unwrap();
        let (wanted, propensity) =
            if &*decision.model == "c" { ("c b a", 2.0 / 3.0) } else { ("b c a", 1.0 / 3.0) };
        assert_eq!(order(&decision), wanted);
        assert!((decision.propensity - propensity).abs() < 1e-12, "{decision:?}");
        *firsts.entry(decision.model).or_insert(0) += 1;
    }
    // The slowest target is in no pair the fastest. The tolerance is five standard deviations of
    // 3,000 draws with probability 2/3.
    assert!((firsts["c"] - 2000i32).abs() < 130 && !firsts.contains_key("a"), "{firsts:?}");
    // A target without any measurement is tried, by a single request.
    inputs.health.remove("p/a");
    let tried = |inputs: &Inputs| {
        seeds(50).any(|seed| {
            decide(&routing, &Inputs { seed, ..inputs.clone() }).unwrap().model.as_ref() == "a"
        })
    };
    assert!(tried(&inputs));
    state(&mut inputs, "a", None, 1);
    assert!(!tried(&inputs));
    let alone = decide(&over(&["a"], "least_latency"), &inputs).unwrap();
    assert_eq!((order(&alone).as_str(), alone.propensity), ("a", 1.0));
}

#[test]
fn a_key_sticks_and_without_one_the_seed_draws() {
    let routing = over(&["a", "b", "c"], STICKY);
    let mut inputs = chat("auto", 1);
    let first = decide(&routing, &inputs).unwrap();
    for seed in seeds(50) {
        let again = decide(&routing, &Inputs { seed, ..inputs.clone() }).unwrap();
        assert_eq!((order(&again), again.propensity), (order(&first), 1.0));
    }
    let mut firsts = BTreeMap::new();
    for user in 0..3000 {
        inputs.principal.user = Some(format!("usr_{user}").into());
        *firsts.entry(decide(&routing, &inputs).unwrap().model).or_insert(0i32) += 1;
    }
    assert!(
        firsts.len() == 3 && firsts.values().all(|count| (count - 1000).abs() < 130),
        "{firsts:?}"
    );
    // With an empty key the seed decides.
    inputs.principal.user = None;
    let mut firsts = BTreeMap::new();
    for seed in seeds(3000) {
        inputs.seed = seed;
        let decision = decide(&routing, &inputs).unwrap();
        assert!(decision.trace.is_empty() && (decision.propensity - 1.0 / 3.0).abs() < 1e-12);
        *firsts.entry(decision.model).or_insert(0i32) += 1;
    }
    assert!(
        firsts.len() == 3 && firsts.values().all(|count| (count - 1000).abs() < 130),
        "{firsts:?}"
    );
    // If the key expression fails, the seed is used instead and the trace has the error.
    let failing = over(&["a", "b", "c"], "sticky, key: key.labels.team");
    let decision = decide(&failing, &inputs).unwrap();
    assert_eq!((decision.trace.len(), decision.trace[0].rule.as_str()), (1, "only"));
    assert!(
        decision.trace[0].error.starts_with("key: ") && decision.propensity < 0.5,
        "{decision:?}"
    );
    inputs.principal.labels.insert("team".into(), "core".into());
    assert_eq!(decide(&failing, &inputs).unwrap().propensity, 1.0);
}

#[test]
fn a_refusal_says_why_and_when_to_come_back() {
    let models = "p/small: { context: 100 }, p/plain: { capabilities: [json] }";
    let rule = |targets: &[&str]| {
        let targets: Vec<String> =
            targets.iter().map(|name| format!("{{ target: p/{name} }}")).collect();
        document(&format!("{{ name: only, targets: [ {} ] }}", targets.join(", ")), models)
    };
    let mut inputs = chat("auto", 1);
    inputs.request.prompt_tokens = 101;
    inputs.request.needs = vec!["tools".into()];
    let wait = |seconds: i64| TargetHealth {
        cooldown_until: Some(inputs.at + jiff::SignedDuration::from_millis(seconds * 1000 + 500)),
        ..TargetHealth::default()
    };
    let (soon, late) = (wait(3), wait(30));
    let full = TargetHealth { inflight: 2, max: Some(2), ..TargetHealth::default() };
    let open = TargetHealth { breaker: BreakerState::Open, ..TargetHealth::default() };
    inputs.health = [("soon", soon), ("late", late), ("full", full), ("open", open)]
        .map(|(name, health)| (format!("p/{name}"), health))
        .into();
    for (targets, kind, retry_after_s, said) in [
        (
            &["small"][..],
            Kind::ContextLengthExceeded,
            None,
            "prompt is too long: 101 tokens > 100 maximum, as estimated (p/small: context)",
        ),
        (&["plain"], Kind::UnsupportedFeature, None, "p/plain: capability"),
        (
            &["small", "plain"],
            Kind::UnsupportedFeature,
            None,
            "p/small: context, p/plain: capability",
        ),
        (&["late", "soon"], Kind::RateLimited, Some(4), "p/late: cooldown, p/soon: cooldown"),
        (&["full", "soon"], Kind::RateLimited, Some(1), "p/full: concurrency, p/soon: cooldown"),
        (&["small", "late"], Kind::RateLimited, Some(31), "p/small: context, p/late: cooldown"),
        (&["open"], Kind::NoTarget, None, "p/open: breaker_open"),
        (&["open", "soon"], Kind::NoTarget, None, "p/open: breaker_open, p/soon: cooldown"),
        (&["open", "plain"], Kind::NoTarget, None, "p/open: breaker_open, p/plain: capability"),
    ] {
        let error = Error::from(decide(&rule(targets), &inputs).unwrap_err());
        assert_eq!((error.kind(), error.retry_after_s()), (kind, retry_after_s), "{targets:?}");
        assert!(error.detail().contains(said), "{targets:?}: {}", error.detail());
    }
    // An endpoint that no protocol has.
    inputs.request.endpoint = "audio".into();
    let error = Error::from(decide(&rule(&["soon"]), &inputs).unwrap_err());
    assert_eq!(error.kind(), Kind::UnsupportedFeature);
    assert!(error.detail().contains("p/soon: endpoint"));
}
