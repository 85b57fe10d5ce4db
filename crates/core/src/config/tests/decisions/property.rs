//! Properties of every decision, for any requests, weights and health.

use proptest::prelude::*;

use super::*;

const STRATEGIES: [&str; 6] =
    ["priority", "weighted", "least_latency", "least_busy", "cheapest", STICKY];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn health() -> impl Strategy<Value = TargetHealth> {
    let breaker = prop::sample::select(vec![
        BreakerState::Closed,
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
    ]);
    (
        breaker,
        any::<bool>(),
        prop::option::of(-5i64..5),
        prop::option::of(0u64..3),
        0u32..3,
        prop::option::of(0u32..3),
    )
        .prop_map(|(breaker, probe_free, wait, ewma_us, inflight, max)| {
            let cooldown_until =
                wait.map(|wait| jiff::Timestamp::from_second(1_764_000_000 + wait).unwrap());
            TargetHealth {
                breaker,
                probe_free,
                cooldown_until,
                ewma_us,
                inflight,
                max,
                ..TargetHealth::default()
            }
        })
}

/// A document with this strategy over four targets. Some have prices and contexts, within a range
/// where all outcomes occur.
fn priced(strategy: &str) -> Routing {
    let targets = NAMES.map(|name| format!("{{ target: p/{name} }}")).join(", ");
    let models = "p/a: { input_per_mtok: 3, output_per_mtok: 1, context: 2000 }, \
        p/b: { input_per_mtok: 1, output_per_mtok: 3, context: 1000 }, \
        p/c: { capabilities: [tools] }";
    document(&format!("{{ name: only, strategy: {strategy}, targets: [ {targets} ] }}"), models)
}

/// Whether a target is eligible by the contract's rules, written independently of the code.
fn eligible(name: &str, inputs: &Inputs) -> bool {
    let context = match name {
        "a" => 2000,
        "b" => 1000,
        _ => u64::MAX,
    };
    let state = inputs.health.get(&format!("p/{name}")).cloned().unwrap_or_default();
    let probe = state.breaker == BreakerState::HalfOpen && state.probe_free;
    (name != "c" || inputs.request.needs.iter().all(|need| need == "tools"))
        && inputs.request.prompt_tokens + inputs.request.max_tokens.unwrap_or(0) <= context
        && (state.breaker == BreakerState::Closed || probe)
        && state.cooldown_until.is_none_or(|until| until <= inputs.at)
        && state.max.is_none_or(|max| state.inflight < max)
}

prop_compose! {
    fn requests()(
        seed: u64,
        prompt_tokens in 0u64..2500,
        max_tokens in prop::option::of(0u64..1500),
        vision: bool,
        states in prop::collection::vec(prop::option::of(health()), NAMES.len()),
        user in prop::option::of(0u8..20),
    ) -> Inputs {
        let mut inputs = chat("auto", seed);
        inputs.request.prompt_tokens = prompt_tokens;
        inputs.request.max_tokens = max_tokens;
        inputs.request.needs = if vision { vec!["vision".into()] } else { vec!["tools".into()] };
        inputs.principal.user = user.map(|user| format!("usr_{user}").into());
        inputs.health = NAMES
            .iter()
            .zip(states)
            .filter_map(|(name, state)| Some((format!("p/{name}"), state?)))
            .collect();
        inputs
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_decision_repeats_and_plans_all_that_is_eligible_and_nothing_else(
        inputs in requests(),
        strategy in prop::sample::select(&STRATEGIES[..]),
    ) {
        let routing = priced(strategy);
        let first = decide(&routing, &inputs);
        let copy: Inputs = serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
        prop_assert_eq!(&first, &decide(&routing, &copy));
        let wanted: Vec<&str> = NAMES.into_iter().filter(|name| eligible(name, &inputs)).collect();
        match first {
            Ok(decision) => {
                let mut found: Vec<&str> =
                    decision.plan.iter().map(|choice| &*choice.model).collect();
                prop_assert_eq!(&*decision.model, found[0]);
                found.sort_unstable();
                prop_assert_eq!(found, wanted);
                prop_assert!(decision.propensity > 0.0 && decision.propensity <= 1.0);
                for candidate in &decision.candidates {
                    prop_assert_eq!(candidate.eligible, candidate.reason.is_none());
                }
            }
            Err(refusal) => {
                prop_assert!(wanted.is_empty());
                let RoutingRefusal::NoTarget { candidates, .. } = &refusal else {
                    panic!("{refusal:?}")
                };
                let reasons: Vec<&str> = candidates
                    .iter()
                    .map(|candidate| candidate.reason.as_deref().unwrap())
                    .collect();
                let possible: Vec<&&str> = reasons
                    .iter()
                    .filter(|reason| !matches!(**reason, "context" | "capability"))
                    .collect();
                let limited =
                    possible.iter().all(|reason| matches!(**reason, "cooldown" | "concurrency"));
                let status = if possible.is_empty() {
                    400
                } else if limited {
                    429
                } else {
                    503
                };
                let error = Error::from(refusal.clone());
                prop_assert_eq!(error.status().as_u16(), status, "{:?}", reasons);
                prop_assert_eq!(error.retry_after_s().is_some(), status == 429);
                prop_assert!(error.retry_after_s().unwrap_or(1) <= 5);
            }
        }
    }

    #[test]
    fn a_target_that_leaves_moves_only_its_own_keys(
        user in 0u32..1_000_000,
        gone in 0usize..4,
        seed: u64,
        keyed: bool,
    ) {
        let mut inputs = chat("auto", seed);
        inputs.principal.user = keyed.then(|| format!("usr_{user}").into());
        let before = planned(&over(&NAMES, STICKY), &inputs);
        let left: Vec<&str> = NAMES
            .into_iter()
            .enumerate()
            .filter(|(at, _)| *at != gone)
            .map(|(_, name)| name)
            .collect();
        // If a target is gone from the document, or not eligible, the others keep their order.
        let wanted =
            before.split(' ').filter(|name| *name != NAMES[gone]).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(&planned(&over(&left, STICKY), &inputs), &wanted);
        inputs.health.insert(
            format!("p/{}", NAMES[gone]),
            TargetHealth { breaker: BreakerState::Open, ..TargetHealth::default() },
        );
        prop_assert_eq!(&planned(&over(&NAMES, STICKY), &inputs), &wanted);
    }

    #[test]
    fn the_order_of_the_document_moves_no_draw(
        seed: u64,
        user in prop::option::of(0u32..100),
        strategy in prop::sample::select(vec!["weighted", STICKY]),
    ) {
        let mut inputs = chat("auto", seed);
        inputs.principal.user = user.map(|user| format!("usr_{user}").into());
        prop_assert_eq!(
            planned(&over(&["a", "b", "c"], strategy), &inputs),
            planned(&over(&["c", "a", "b"], strategy), &inputs)
        );
    }

    #[test]
    fn the_propensity_of_two_choices_is_how_often_they_fall(
        latencies in prop::collection::vec(1u64..50, 4),
    ) {
        let routing = over(&NAMES, "least_latency");
        let mut inputs = chat("auto", 0);
        for (name, latency) in NAMES.into_iter().zip(&latencies) {
            state(&mut inputs, name, Some(latency * 1000), 0);
        }
        let mut falls: BTreeMap<Arc<str>, (f64, f64)> = BTreeMap::new();
        for seed in seeds(600) {
            inputs.seed = seed;
            let decision = decide(&routing, &inputs).unwrap();
            let entry = falls.entry(decision.model).or_insert((decision.propensity, 0.0));
            prop_assert_eq!(entry.0, decision.propensity);
            entry.1 += 1.0;
        }
        for (model, (propensity, count)) in &falls {
            let off = 5.0 * (600.0 * propensity * (1.0 - propensity)).sqrt();
            prop_assert!(
                (count - 600.0 * propensity).abs() < off,
                "{}: {} of 600, not {}",
                model,
                count,
                propensity
            );
        }
        prop_assert!(
            (falls.values().map(|(propensity, _)| propensity).sum::<f64>() - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn any_weights_are_matched_by_the_picks(weights in prop::collection::vec(0u32..50, 4)) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let targets: Vec<String> = NAMES
            .iter()
            .zip(&weights)
            .map(|(name, weight)| format!("{{ target: p/{name}, weight: {weight} }}"))
            .collect();
        let routing = document(
            &format!("{{ name: only, strategy: weighted, targets: [ {} ] }}", targets.join(", ")),
            "",
        );
        let sum = f64::from(weights.iter().sum::<u32>());
        let mut picks = [0.0; 4];
        for seed in seeds(600) {
            let decision = decide(&routing, &chat("auto", seed)).unwrap();
            let at = NAMES.iter().position(|name| *name == &*decision.model).unwrap();
            prop_assert!((decision.propensity - f64::from(weights[at]) / sum).abs() < 1e-12);
            picks[at] += 1.0;
        }
        for (count, weight) in picks.into_iter().zip(&weights) {
            let share = f64::from(*weight) / sum;
            prop_assert!(
                (count - 600.0 * share).abs()
                    <= 5.0 * (600.0 * share * (1.0 - share)).sqrt() + 1e-9,
                "{:?} for {:?}",
                picks,
                weights
            );
        }
    }
}

/// The waits in a refusal come from the inputs, not from a clock.
#[test]
fn a_refusal_is_as_pure_as_a_decision() {
    let mut inputs = chat("auto", 1);
    let cooldown_until = Some(inputs.at + jiff::SignedDuration::from_millis(2100));
    inputs.health.insert("p/a".into(), TargetHealth { cooldown_until, ..TargetHealth::default() });
    let Err(RoutingRefusal::NoTarget { retry_after, .. }) =
        decide(&over(&["a"], "priority"), &inputs)
    else {
        panic!()
    };
    assert_eq!(retry_after, Some(Duration::from_millis(2100)));
}
