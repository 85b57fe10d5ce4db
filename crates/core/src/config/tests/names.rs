//! Decisions for names under patterns.

use crate::config;
use rerouter_base::usage_kind::UsageKind;
use rerouter_routing::{Decision, Routing, RoutingRefusal, chat, decide, shadow};

fn routing(text: &str) -> Routing {
    let server = config::read_server("server.yaml", "", &|_| None).unwrap();
    config::read_routing("routing.yaml", text, &server, &|_| None, None)
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn faults(text: &str) -> Vec<String> {
    let server = config::read_server("server.yaml", "", &|_| None).unwrap();
    let read = config::read_routing("routing.yaml", text, &server, &|_| None, None);
    read.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

const DOCUMENT: &str = r#"
providers: { p: { protocol: mock }, q: { protocol: mock } }
models:
  p/priced: { input_per_mtok: 1, output_per_mtok: 2 }
  "p/*": { input_per_mtok: 3, output_per_mtok: 4, context: 100000 }
  "p/small-*": { context: 20 }
recipes:
  exact: { rules: [{ name: x, targets: [{ target: q/exact }] }] }
  any:
    rules:
      - name: x
        targets:
          - { target: q/fixed }
          - { target: "q/org/${model}" }
          - { target: "p/${match}:free" }
    shadow: { target: "q/copy-${match}", percent: 100 }
  long: { rules: [{ name: x, targets: [{ target: q/long }, { target: "q/${match}" }] }] }
aliases: { claude-3: exact, "claude-*": any, "claude-3-*": long }
"#;

fn plan(decision: &Decision) -> Vec<String> {
    decision.plan.iter().map(|entry| format!("{}/{}", entry.provider, entry.model)).collect()
}

#[test]
fn exact_names_come_before_patterns_and_longer_patterns_before_shorter() {
    let routing = routing(DOCUMENT);
    for (name, alias, targets) in [
        ("claude-3", Some("claude-3"), &["q/exact"][..]),
        ("claude-x", Some("claude-*"), &["q/fixed", "q/org/claude-x", "p/x:free"]),
        ("claude-", Some("claude-*"), &["q/fixed", "q/org/claude-", "p/:free"]),
        ("claude-3-a/b", Some("claude-3-*"), &["q/long", "q/a/b"]),
        // A target under two names is tried once.
        ("claude-3-long", Some("claude-3-*"), &["q/long"]),
        // `${match}` is empty here, and no target has an empty model.
        ("claude-3-", Some("claude-3-*"), &["q/long"]),
        ("p/priced", None, &["p/priced"]),
        ("p/other", None, &["p/other"]),
        ("p/small-1", None, &["p/small-1"]),
    ] {
        let decision = decide(&routing, &chat(name, 7)).unwrap();
        assert_eq!(decision.alias.as_deref(), alias, "{name}");
        assert_eq!(plan(&decision), targets, "{name}");
        let targets = routing.targets_of(&decision);
        assert_eq!(targets.len(), decision.plan.len(), "{name}");
    }
    // Clients may ask neither for names that only a template produces, nor for an empty model.
    for name in ["q/org/claude-x", "q/any", "p/", "claude", "p", "p/a\u{e9}"] {
        let refused = decide(&routing, &chat(name, 7)).unwrap_err();
        assert!(matches!(refused, RoutingRefusal::ModelNotFound { .. }), "{name}");
    }
    let long = format!("claude-3-{}", "x".repeat(300));
    assert_eq!(plan(&decide(&routing, &chat(&long, 7)).unwrap()), ["q/long"]);
}

#[test]
fn targets_under_a_pattern_share_its_state_and_its_settings() {
    let routing = routing(DOCUMENT);
    let [a, b] = ["p/a", "p/b"].map(|name| routing.target_for(name).unwrap());
    assert!(std::ptr::eq(a.state(), b.state()));
    assert_eq!((&*a.entry().name, &*a.model), ("p/*", "a"));
    assert_eq!(a.prices.as_ref().unwrap().base.get(UsageKind::Input), Some(3.0));
    let small = routing.target_for("p/small-1").unwrap();
    // The longer of two patterns counts; the shorter one fills in what the longer leaves out.
    assert_eq!(
        (small.context, small.prices.as_ref().unwrap().base.get(UsageKind::Output)),
        (Some(20), Some(4.0))
    );
    let priced = routing.target_for("p/priced").unwrap();
    assert_eq!(
        (priced.prices.as_ref().unwrap().base.get(UsageKind::Input), priced.context),
        (Some(1.0), Some(100_000))
    );
    for (name, entry) in [
        ("claude-x", Some("claude-*")),
        ("p/priced", Some("p/priced")),
        ("p/anything", Some("p/*")),
        ("other", None),
    ] {
        assert_eq!(routing.entry(name), entry);
    }
    for (model, counted) in [("priced", "priced"), ("x", "*"), ("small-x", "small-*")] {
        assert_eq!(routing.counted_as("p", model), counted);
    }
}

#[test]
fn what_a_document_says_of_a_model_wins_over_patterns_and_the_shipped_list() {
    let text = r#"
providers: { a: { preset: anthropic, api_key: a-long-enough-key } }
models:
  a/claude-haiku-4-5: { longest_answer: 16000 }
  "a/*": { longest_answer: 32000, reasoning: [], sampling: true }
  "a/claude-opus-*": { reasoning: [low, high] }
recipes: {}
aliases: {}
"#;
    let terms = |text: &str, name| {
        let terms = routing(text).target_for(name).unwrap().terms.clone();
        let words: Option<Vec<_>> =
            terms.reasoning.map(|all| all.iter().map(|effort| effort.as_str()).collect());
        (terms.longest_answer, words, terms.sampling)
    };
    let haiku = "a/claude-haiku-4-5";
    assert_eq!(terms(text, haiku), (Some(16_000), Some(vec![]), Some(true)));
    let opus = "a/claude-opus-4-8";
    assert_eq!(terms(text, opus), (Some(32_000), Some(vec!["low", "high"]), Some(true)));
    let bare = text.replace(", reasoning: [], sampling: true", "");
    assert_eq!(terms(&bare, haiku), (Some(16_000), Some(vec!["none", "budget"]), None));
    assert_eq!(terms(&bare, opus).2, Some(false));
    assert_eq!(terms(&bare, "a/claude-unheard-of"), (Some(32_000), None, None));
    let unlisted = format!("prices: none\n{bare}");
    assert_eq!(terms(&unlisted, haiku), (Some(16_000), None, None));
}

#[test]
fn without_the_environment_the_default_of_a_url_tells_the_host() {
    let document = |url: &str| {
        let server = "routing: { env_allow: ['*'] }";
        let server = config::read_server("server.yaml", server, &|_| None).unwrap();
        let text = format!(
            "providers: {{ a: {{ protocol: openai, base_url: '{url}', api_key: '${{KEY}}' }} }}\n\
             recipes: {{ main: {{ rules: [ {{ name: d, targets: [ {{ target: a/gpt-5 }} ] }} ] }} \
             }}\n\
             aliases: {{ auto: main }}"
        );
        config::read_unexpanded(&text, &server, None).unwrap()
    };
    let context = |url: &str| document(url).target_for("a/gpt-5").unwrap().context;
    let listed = context("https://api.openai.com/v1");
    assert!(listed.is_some());
    assert_eq!(context("${A_URL:-https://api.openai.com/v1}"), listed);
    assert_eq!(context("https://${A_HOST:-api.openai.com}/v1"), listed);
    assert_eq!(context("${A_URL}"), None);
}

#[test]
fn a_breaker_of_the_pattern_counts_for_its_targets() {
    let routing = routing(DOCUMENT);
    let mut inputs = chat("p/any", 7);
    let open = rerouter_routing::TargetHealth {
        breaker: rerouter_routing::BreakerState::Open,
        ..Default::default()
    };
    inputs.health.insert("p/*".into(), open);
    assert!(matches!(decide(&routing, &inputs), Err(RoutingRefusal::NoTarget { .. })));
    inputs.request.name = "p/small-x".into();
    assert!(decide(&routing, &inputs).is_ok());
}

#[test]
fn a_shadow_follows_the_name() {
    let (routing, inputs) = (routing(DOCUMENT), chat("claude-x", 7));
    let decision = decide(&routing, &inputs).unwrap();
    assert_eq!(&*shadow(&routing, &inputs, &decision).unwrap().unwrap().name, "q/copy-x");
}

#[test]
fn known_names_are_those_that_an_exact_target_serves() {
    let known: Vec<String> =
        routing(DOCUMENT).known_names().map(|(name, _)| name.to_owned()).collect();
    // `q/long` and others are known by `${match}`. `p/priced` does not match `p/…:free`, and no
    // name of q begins with `org/`.
    assert_eq!(known, ["claude-3-exact", "claude-3-fixed", "claude-3-long"]);
}

#[test]
fn what_can_never_be_reached_or_read_is_reported_where_it_stands() {
    let document = |models: &str, aliases: &str, target: &str| {
        format!(
            "providers: {{ p: {{ protocol: mock }} }}\nmodels: {{ {models} }}\n\
             recipes: {{ r: {{ rules: [\
             {{ name: x, targets: [{{ target: \"{target}\" }}] }}] }} }}\n\
             aliases: {{ {aliases} }}\n"
        )
    };
    for (models, aliases, target, message) in [
        ("\"p/*\": {}", "\"p/*\": r", "nodes/x", "2:11: models[\"p/*\"]: never reached"),
        ("\"p/*x\": {}", "a: r", "p/x", "a `*` stands at the end"),
        ("\"nodes/*\": {}", "a: r", "p/x", "names one model"),
        ("p/x: {}", "\"a*b\": r", "p/x", "a `*` stands at the end"),
        ("p/x: {}", "\"nodes/*\": r", "p/x", "reserved"),
        ("p/x: {}", "a: r", "p/*", "a target names one model"),
        ("p/x: {}", "a: r", "p/${MODEL}", "knows `${model}` and `${match}` only"),
        ("p/x: {}", "a: r", "nodes/${model}", "names one model"),
        ("p/x: {}", "a: r", "p/x*${model}", "a `*` stands at the end"),
    ] {
        let found = faults(&document(models, aliases, target));
        assert!(found.iter().any(|fault| fault.contains(message)), "{message}: {found:?}");
    }
    // The entry still sets the prices of the recipe's targets.
    assert!(faults(&document("\"p/*\": {}", "\"p/*\": r", "p/${match}")).is_empty());
}
