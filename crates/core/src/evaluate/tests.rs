//! Judgements on random documents and decisions: what changed, why, and the sums in the report.

use std::sync::Arc;

use proptest::prelude::*;

use super::explain;
use super::judge::{HealthSource, Question};
use super::report::EvaluationReport;
use crate::config;
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{Random, RequestId, UserId};
use rerouter_captures::capture::record::Head;
use rerouter_routing::{Decision, Routing, chat, decide};

const DOCUMENT: &str = "providers:\n  p: { protocol: mock }\nrecipes:\n  spread:\n    \
    rules:\n      - { name: long, when: 'prompt_tokens > 500', targets: [ { target: p/a }, \
    { target: p/b }, { target: p/c } ] }\n      \
    - { name: rest, strategy: weighted, targets: [ { target: p/a, weight: 1 }, \
    { target: p/b, weight: 2 }, { target: p/c, weight: 3 } ] }\naliases: { auto: spread }\n";

fn document() -> Routing {
    let server = config::read_server("test", "", &|_| None).unwrap();
    config::read_routing("test", DOCUMENT, &server, &|_| None, None).unwrap()
}

/// A change to a stored decision.
#[derive(Clone, Copy, Debug)]
enum Alteration {
    None,
    Swap(usize, usize),
    Drop(usize),
    Target,
    Rule,
    Recipe,
}

fn alterations() -> impl Strategy<Value = Alteration> {
    prop_oneof![
        Just(Alteration::None),
        (0..3_usize, 1..3_usize).prop_map(|(at, by)| Alteration::Swap(at, (at + by) % 3)),
        (0..3_usize).prop_map(Alteration::Drop),
        Just(Alteration::Target),
        Just(Alteration::Rule),
        Just(Alteration::Recipe),
    ]
}

impl Alteration {
    /// Makes the change. Returns whether it changes the first target, the plan and the rule.
    fn make(self, decision: &mut Decision) -> (bool, bool, bool) {
        let changes = match self {
            Alteration::None => (false, false, false),
            Alteration::Swap(a, b) => {
                decision.plan.swap(a, b);
                (a == 0 || b == 0, true, false)
            }
            Alteration::Drop(at) => {
                decision.plan.remove(at);
                (at == 0, true, false)
            }
            Alteration::Target => {
                decision.plan[0].model = "d".into();
                (true, true, false)
            }
            Alteration::Rule => {
                decision.rule = Some("other".into());
                (false, false, true)
            }
            Alteration::Recipe => {
                decision.recipe = "other".into();
                (false, false, true)
            }
        };
        decision.model.clone_from(&decision.plan[0].model);
        changes
    }
}

proptest! {
    #[test]
    fn each_alteration_of_a_stored_plan_is_found_and_nothing_else(
        stored in prop::collection::vec((any::<u64>(), 0..1_000_u64, alterations()), 1..40),
    ) {
        let routing = document();
        let question = Question {
            candidate: &routing, baseline: None, health: &HealthSource::Recorded
        };
        let (mut report, random) = (EvaluationReport::default(), Random::seeded(1));
        let (mut changed, mut plans, mut rules) = (0, 0, 0);
        for (seed, prompt_tokens, alteration) in stored {
            let mut inputs = chat("auto", seed);
            inputs.request.prompt_tokens = prompt_tokens;
            let mut decision = decide(&routing, &inputs).unwrap();
            let changes = alteration.make(&mut decision);
            (changed, plans, rules) = (
                changed + u64::from(changes.0), plans + u64::from(changes.1),
                rules + u64::from(changes.2)
            );
            let mut head = Head::new(
                RequestId::new(at(0), &random), at(0), UserId::known("usr_1"), "chat.completions"
            );
            (head.inputs, head.decision) = (Some(inputs), Some(Arc::new(decision)));
            let judged = question.judge(&head, Some(&routing), &|_| None, &|| None).unwrap();
            prop_assert_eq!(
                (judged.changed(), judged.plan_changed(), judged.rule_changed()), changes, "{:?}",
                alteration
            );
            report.add(
                &head, &judged, &question, || explain::explain(&judged, Some(&routing), &routing)
            );
        }
        let counts = &report.counts;
        prop_assert_eq!(
            (counts.changed, counts.plan_changed, counts.rule_changed), (changed, plans, rules)
        );
        let changes = report.record().by_change;
        prop_assert_eq!(changes.iter().map(|change| change.count).sum::<u64>(), changed);
        prop_assert!(changes.iter().all(|change| !change.reasons.is_empty()), "{:?}", changes);
        prop_assert_eq!((counts.unroutable, counts.assumed, counts.inexact), (0, 0, 0));
    }
}

/// A document with these keyword sets, whose first rule counts how many a request hits.
fn with_keywords(sets: &str) -> Routing {
    let rules = "- { name: one, when: 'size(keywords) == 1', targets: [ { target: p/a } ] }\n      \
        - { name: rest, targets: [ { target: p/b } ] }";
    let document = format!(
        "providers:\n  p: {{ protocol: mock }}\nkeywords: {{ {sets} }}\nrecipes:\n  main:\n    \
         rules:\n      {rules}\naliases: {{ auto: main }}\n"
    );
    let server = config::read_server("test", "", &|_| None).unwrap();
    config::read_routing("test", &document, &server, &|_| None, None).unwrap()
}

#[test]
fn a_reason_names_the_keyword_sets_that_differ() {
    let text = |_| Some("please refactor this".to_owned());
    let detail = |before: &str, after: &str| {
        let (before, after) = (with_keywords(before), with_keywords(after));
        let mut inputs = chat("auto", 1);
        inputs.complete(&before, &[], text);
        let id = RequestId::new(at(0), &Random::seeded(1));
        let mut head = Head::new(id, at(0), UserId::known("usr_1"), "chat.completions");
        head.decision = Some(Arc::new(decide(&before, &inputs).unwrap()));
        head.inputs = Some(inputs);
        let question =
            Question { candidate: &after, baseline: None, health: &HealthSource::Recorded };
        let recorded = question.judge(&head, Some(&before), &text, &|| None).unwrap();
        let baseline = Some(&before);
        let compared = Question { baseline, ..question };
        let compared = compared.judge(&head, Some(&before), &text, &|| None).unwrap();
        let [recorded, compared] =
            [recorded, compared].map(|judged| explain::explain(&judged, baseline, &after));
        assert_eq!(recorded, compared);
        recorded.into_iter().map(|reason| reason.detail).collect::<Vec<_>>().join("|")
    };
    let (plain, code) = ("prose: [poem], code: [stack]", "prose: [poem], code: [refactor]");
    let gained = "rule main.one instead of main.rest: main.one matches; \
                  the request now hits keyword set code";
    assert_eq!(detail(plain, code), gained);
    let lost = "rule main.rest instead of main.one: main.one does not match; \
                the request no longer hits keyword set code";
    assert_eq!(detail(code, plain), lost);
    let both = "rule main.rest instead of main.one: main.one does not match; \
                the request now hits keyword sets a, b; \
                the request no longer hits keyword set code";
    assert_eq!(detail(code, "a: [this], b: [please]"), both);
}
