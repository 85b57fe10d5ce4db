use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generator;

use super::*;
use crate::compile::BuildContext;
use crate::document::MultiplierSpec;
use crate::document::{
    ModelSpec, RecipeSpec, RetryPolicy, RoutingSpec, RuleSpec, Strategy, TargetSpec,
};
use crate::fixtures::chat;
use crate::inputs::TargetHealth;
use crate::prices::KindPrices;
use crate::provider_spec::ProviderSpec;
use rerouter_base::error::{Error, Kind};
use rerouter_document::{Diagnostics, Field, Located, Position, parse, whole};

fn at<T>(value: T) -> Located<T> {
    Located { value, path: String::new(), at: Position::default() }
}

fn rule(name: &str, when: Option<&str>, strategy: Strategy, targets: &[(&str, f64)]) -> RuleSpec {
    let weighted = strategy == Strategy::Weighted;
    let target = |(name, weight): &(&str, f64)| TargetSpec {
        target: at(format!("p/{name}")),
        weight: weighted.then(|| at(*weight)),
    };
    RuleSpec {
        name: at(name.into()),
        when: when.map(|when| at(when.into())),
        strategy,
        key: None,
        targets: targets.iter().map(target).collect(),
    }
}

/// A document with one provider `p`, one alias `auto` and the given rules. The target `p/lone` is
/// in `models` only.
fn routing(rules: Vec<RuleSpec>) -> Routing {
    let written = parse("p: { protocol: mock }").ok().unwrap().root;
    let mut faults = Diagnostics::default();
    let top = Field::root(&written).section(&mut faults).unwrap();
    let provider = top.values().next().unwrap().section(&mut faults).unwrap();
    let provider: ProviderSpec = whole(provider, &mut faults).unwrap();
    let model = |name: &str, context, capabilities: Option<&[&'static str]>| ModelSpec {
        name: at(name.into()),
        prices: KindPrices::default(),
        tiers: Vec::new(),
        multipliers: MultiplierSpec::default(),
        context,
        tokens_per_second: None,
        capabilities: capabilities.map(<[_]>::to_vec),
        longest_answer: None,
        reasoning: None,
        sampling: None,
    };
    let spec = RoutingSpec {
        providers: vec![provider],
        models: vec![model("p/lone", None, None), model("p/short", Some(100), Some(&["tools"]))],
        keywords: Vec::new(),
        recipes: vec![RecipeSpec {
            name: at("r".into()),
            rules,
            retry: RetryPolicy::default(),
            shadow: None,
        }],
        aliases: vec![(at("auto".into()), at("r".into()))],
        timezone: None,
        prices: true,
    };
    let origin =
        BuildContext { revision: "0123456789ab", text: "", mock: None, signal_headers: &[] };
    Routing::build(spec, Vec::new(), &origin).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn three(weights: [f64; 3]) -> Routing {
    let [a, b, c] = weights;
    routing(vec![rule("default", None, Strategy::Weighted, &[("a", a), ("b", b), ("c", c)])])
}

fn models(decision: &Decision) -> Vec<&str> {
    decision.plan.iter().map(|choice| &*choice.model).collect()
}

#[test]
fn names_resolve_by_alias_then_target() {
    let routing = routing(vec![
        rule("broken", Some("1 / max_tokens > 0"), Strategy::Priority, &[("x", 1.0)]),
        rule("streams", Some("stream"), Strategy::Priority, &[("s", 1.0)]),
        rule("default", None, Strategy::Priority, &[("a/b", 1.0), ("c", 1.0)]),
    ]);
    let decision = decide(&routing, &chat("auto", 7)).unwrap();
    assert_eq!(
        (&*decision.recipe, decision.rule.as_deref(), decision.alias.as_deref()),
        ("r", Some("default"), Some("auto"))
    );
    assert_eq!(
        (&*decision.strategy, decision.propensity, models(&decision)),
        ("priority", 1.0, vec!["a/b", "c"])
    );
    assert_eq!(decision.trace.len(), 1);
    assert_eq!(decision.trace[0].rule, "broken");
    assert_eq!(
        routing.targets_of(&decision).iter().map(|target| &*target.name).collect::<Vec<_>>(),
        ["p/a/b", "p/c"]
    );
    for (name, model) in [("p/a/b", "a/b"), ("p/lone", "lone")] {
        let direct = decide(&routing, &chat(name, 7)).unwrap();
        assert_eq!(
            (&*direct.recipe, &direct.rule, &direct.alias, &*direct.model),
            ("direct", &None, &None, model)
        );
    }
    for unknown in ["r", "p", "p/", "p/nope", "/a", "", "AUTO"] {
        let error = Error::from(decide(&routing, &chat(unknown, 7)).unwrap_err());
        assert_eq!(
            (error.kind(), error.field()),
            (Kind::ModelNotFound, Some("model")),
            "{unknown}"
        );
    }
}

#[test]
fn what_is_ineligible_is_left_out_with_its_reason() {
    let targets = [
        ("open", 1.0),
        ("half", 1.0),
        ("probe", 1.0),
        ("cool", 1.0),
        ("warm", 1.0),
        ("full", 1.0),
        ("short", 1.0),
        ("new", 1.0),
    ];
    let routing = routing(vec![rule("default", None, Strategy::Priority, &targets)]);
    let mut inputs = chat("auto", 1);
    let second = jiff::SignedDuration::from_secs(1);
    let health = TargetHealth::default;
    inputs.health = BTreeMap::from([
        ("p/open".to_owned(), TargetHealth { breaker: BreakerState::Open, ..health() }),
        ("p/half".to_owned(), TargetHealth { breaker: BreakerState::HalfOpen, ..health() }),
        (
            "p/probe".to_owned(),
            TargetHealth { breaker: BreakerState::HalfOpen, probe_free: true, ..health() },
        ),
        (
            "p/cool".to_owned(),
            TargetHealth { cooldown_until: Some(inputs.at + second), ..health() },
        ),
        (
            "p/warm".to_owned(),
            TargetHealth { cooldown_until: Some(inputs.at), inflight: 1, max: Some(2), ..health() },
        ),
        ("p/full".to_owned(), TargetHealth { inflight: 2, max: Some(2), ..health() }),
    ]);
    let limited = |name: &str| {
        let mut asked = inputs.clone();
        asked.request.name = name.into();
        let error = Error::from(decide(&routing, &asked).unwrap_err());
        (error.kind(), error.retry_after_s())
    };
    assert_eq!(limited("p/cool"), (Kind::RateLimited, Some(1)));
    assert_eq!(limited("p/full"), (Kind::RateLimited, Some(1)));
    assert_eq!(limited("p/open"), (Kind::NoTarget, None));
    inputs.request.needs = vec!["vision".into()];
    let decision = decide(&routing, &inputs).unwrap();
    let reasons: Vec<_> =
        decision.candidates.iter().map(|candidate| candidate.reason.as_deref()).collect();
    let (breaker, none) = (Some("breaker_open"), None);
    assert_eq!(
        reasons,
        [
            breaker,
            breaker,
            none,
            Some("cooldown"),
            none,
            Some("concurrency"),
            Some("capability"),
            none
        ]
    );
    assert_eq!(models(&decision), ["probe", "warm", "new"]);
    inputs.request.name = "p/short".into();
    assert_eq!(
        Error::from(decide(&routing, &inputs).unwrap_err()).kind(),
        Kind::UnsupportedFeature
    );
    inputs.request.needs.clear();
    inputs.request.max_tokens = Some(89);
    assert_eq!(
        Error::from(decide(&routing, &inputs).unwrap_err()).kind(),
        Kind::ContextLengthExceeded
    );
    inputs.request.name = "p/open".into();
    assert_eq!(Error::from(decide(&routing, &inputs).unwrap_err()).kind(), Kind::NoTarget);
}

#[test]
fn picks_follow_the_weights() {
    let routing = three([7.0, 2.0, 1.0]);
    let mut picks = BTreeMap::new();
    for seed in 0..10_000u64 {
        let decision =
            decide(&routing, &chat("auto", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))).unwrap();
        let share = match &*decision.model {
            "a" => 0.7,
            "b" => 0.2,
            _ => 0.1,
        };
        assert_eq!(decision.propensity, share);
        *picks.entry(decision.model).or_insert(0i32) += 1;
    }
    // Five standard deviations of a binomial with n = 10,000.
    for (model, wanted, off) in [("a", 7000, 230), ("b", 2000, 200), ("c", 1000, 150)] {
        assert!((picks[model] - wanted).abs() < off, "{picks:?}");
    }
    let zero = three([0.0, 0.0, 1.0]);
    assert_eq!(models(&decide(&zero, &chat("auto", 3)).unwrap()), ["c", "a", "b"]);
}

fn health() -> impl Generator<Value = TargetHealth> {
    let breaker = prop::sample::select(vec![
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
    ]);
    (breaker, any::<bool>(), prop::option::of(-5i64..5), 0u32..3, prop::option::of(0u32..3))
        .prop_map(|(breaker, probe_free, wait, inflight, max)| {
            let cooldown_until =
                wait.map(|wait| jiff::Timestamp::from_second(1_764_000_000 + wait).unwrap());
            TargetHealth {
                breaker,
                probe_free,
                cooldown_until,
                ewma_us: None,
                inflight,
                max,
                ..TargetHealth::default()
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_decision_repeats_plans_only_the_eligible_and_reads_back(
        seed: u64,
        states in prop::collection::vec(health(), 3),
        weights in prop::array::uniform3(0.0f64..100.0),
    ) {
        let routing = three([weights[0] + 0.1, weights[1], weights[2]]);
        let mut inputs = chat("auto", seed);
        inputs.health = ["p/a", "p/b", "p/c"].into_iter().map(str::to_owned).zip(states).collect();
        let first = decide(&routing, &inputs);
        let copy: Inputs = serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
        prop_assert_eq!(&first, &decide(&routing, &copy));
        match first {
            Ok(decision) => {
                let eligible: Vec<&str> =
                    decision.candidates.iter().filter(|c| c.eligible).map(|c| &*c.model).collect();
                let mut planned = models(&decision);
                planned.sort_unstable();
                prop_assert_eq!(planned, eligible);
                prop_assert!(
                    decision.propensity > 0.0
                        || decision
                            .candidates
                            .iter()
                            .all(|c| c.model != decision.model || c.eligible)
                );
                prop_assert!(decision.propensity <= 1.0);
                let read: Decision =
                    serde_json::from_str(&serde_json::to_string(&decision).unwrap()).unwrap();
                prop_assert_eq!(read, decision);
            }
            Err(RoutingRefusal::NoTarget { candidates, .. }) => {
                prop_assert!(candidates.iter().all(|c| !c.eligible && c.reason.is_some()))
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn one_weight_moves_only_its_own_target(
        seed: u64,
        a in 0.1f64..50.0,
        b in 0.1f64..50.0,
        more in 0.1f64..50.0,
    ) {
        let before = decide(&three([a, b, 10.0]), &chat("auto", seed)).unwrap();
        let after = decide(&three([a, b, 10.0 + more]), &chat("auto", seed)).unwrap();
        prop_assert!(
            after.model == before.model || &*after.model == "c",
            "{} became {}",
            before.model,
            after.model
        );
        let others = |decision: &Decision| {
            models(decision)
                .into_iter()
                .filter(|model| *model != "c")
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(others(&before), others(&after));
    }
}
