//! A captured request decided again: under another document, with other states of its targets, or just as it was. Pure:
//! the same capture and the same documents give the same answer, on any machine.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::capture::record::Head;
use crate::redaction;
use crate::routing::decide::{Candidate, Decision, Refusal, decide};
use crate::routing::inputs::{Inputs, TargetHealth};
use crate::routing::recipe::Routing;

/// Which state of the targets counts.
#[derive(Clone, Debug)]
pub enum Standing {
    /// The one that the capture holds; a target that it does not know counts as healthy and idle.
    Recorded,
    /// This one, for every capture.
    Given(BTreeMap<String, TargetHealth>),
}

/// What captures are asked.
pub struct Question<'a> {
    /// The document that they are decided under.
    pub candidate: &'a Routing,
    /// The document that they are decided under for comparison; `None`: what was decided then is what counts.
    pub baseline: Option<&'a Routing>,
    /// The state of the targets.
    pub standing: &'a Standing,
}

/// Why a capture is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skipped {
    /// It is a replay.
    Replay,
    /// It is a copy for a shadow.
    Shadow,
    /// It was refused before a decision.
    Undecided,
    /// Its inputs were written by a build that estimated, hashed or ranked otherwise.
    Version,
    /// It was taken in from a file, and what this gateway did is asked for.
    Imported,
    /// A name that it was decided by was taken out of it.
    Redacted,
}

impl Skipped {
    /// All of them.
    pub const ALL: [Skipped; 6] = [
        Skipped::Replay,
        Skipped::Shadow,
        Skipped::Undecided,
        Skipped::Version,
        Skipped::Imported,
        Skipped::Redacted,
    ];

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Skipped::Replay => "replays",
            Skipped::Shadow => "shadows",
            Skipped::Undecided => "undecided",
            Skipped::Version => "version",
            Skipped::Imported => "imported",
            Skipped::Redacted => "redacted",
        }
    }

    /// Why a capture is left out, if it is.
    pub fn of(head: &Head) -> Option<Skipped> {
        if head.shadow_of.is_some() {
            return Some(Skipped::Shadow);
        }
        if head.replay_of.is_some() {
            return Some(Skipped::Replay);
        }
        match (&head.inputs, &head.decision) {
            (Some(inputs), Some(_)) if inputs.version == Inputs::VERSION => {
                redaction::lost_names(head).then_some(Skipped::Redacted)
            }
            (Some(_), Some(_)) => Some(Skipped::Version),
            _ => Some(Skipped::Undecided),
        }
    }
}

/// What became of one capture.
pub struct Judged<'h> {
    /// What was decided, or would have been under the baseline.
    pub before: Result<Cow<'h, Decision>, Refusal>,
    /// What the candidate decides.
    pub after: Result<Decision, Refusal>,
    /// Whether something that an expression looks at could not be known: the text was not kept.
    pub inexact: bool,
    /// Whether a target was taken to be healthy and idle because the capture does not know it.
    pub assumed: bool,
}

impl Question<'_> {
    /// Decides a capture again; `text` gives the last user message, where it was kept, and is only called where a signal has
    /// to be found out anew.
    ///
    /// `recorded` is the document that the capture was decided by, where it is still known.
    pub fn judge<'h>(
        &self,
        head: &'h Head,
        recorded: Option<&Routing>,
        text: &dyn Fn() -> Option<String>,
    ) -> Result<Judged<'h>, Skipped> {
        if let Some(skipped) = Skipped::of(head) {
            return Err(skipped);
        }
        let (Some(stored), Some(decision)) = (&head.inputs, &head.decision) else {
            return Err(Skipped::Undecided);
        };
        let mut inputs = stored.clone();
        if let Standing::Given(health) = self.standing {
            inputs.health.clone_from(health);
        }
        let mut inexact = !inputs.complete(self.candidate, text) || redaction::lost_signals(head);
        let after = decide(self.candidate, &inputs);
        // A snapshot tells of every target on nodes, and leaves out what else was healthy and idle: unknown is what the document of then did not have either.
        let looked_at = |target: &str| {
            decision.candidates.iter().any(|then| name(&then.provider, &then.model) == target)
        };
        let known = |target: &str| {
            inputs.health.contains_key(target)
                || looked_at(target)
                || recorded.is_some_and(|document| document.target(target).is_some())
        };
        let assumed = matches!(self.standing, Standing::Recorded)
            && considered(&after)
                .iter()
                .any(|candidate| !known(&name(&candidate.provider, &candidate.model)));
        let before = match self.baseline {
            None => Ok(Cow::Borrowed(&**decision)),
            Some(baseline) => {
                inputs.keywords.clone_from(&stored.keywords);
                inexact |= !inputs.complete(baseline, text);
                decide(baseline, &inputs).map(Cow::Owned)
            }
        };
        Ok(Judged { before, after, inexact, assumed })
    }
}

/// Every target that was looked at.
fn considered(decided: &Result<Decision, Refusal>) -> &[Candidate] {
    match decided {
        Ok(decision) => &decision.candidates,
        Err(Refusal::NoTarget { candidates, .. }) => candidates,
        Err(Refusal::ModelNotFound { .. }) => &[],
    }
}

impl Judged<'_> {
    /// The target that came first before, `provider/model`; `None`: nothing would have served it.
    pub fn from(&self) -> Option<String> {
        self.before.as_ref().ok().map(|decision| name(&decision.provider, &decision.model))
    }

    /// The target that comes first now.
    pub fn to(&self) -> Option<String> {
        self.after.as_ref().ok().map(|decision| name(&decision.provider, &decision.model))
    }

    /// Whether another target comes first.
    pub fn changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Ok(before), Ok(after)) => {
                (&before.provider, &before.model) != (&after.provider, &after.model)
            }
            (Err(_), Err(_)) => false,
            _ => true,
        }
    }

    /// Whether another rule, of whatever recipe, matched.
    pub fn rule_changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Ok(before), Ok(after)) => {
                (&before.recipe, &before.rule) != (&after.recipe, &after.rule)
            }
            (before, after) => before.is_ok() != after.is_ok(),
        }
    }

    /// Whether the targets to try, or their order, are others.
    pub fn plan_changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Ok(before), Ok(after)) => before.plan != after.plan,
            (before, after) => before.is_ok() != after.is_ok(),
        }
    }
}

/// `provider/model`.
pub(super) fn name(provider: &str, model: &str) -> String {
    [provider, "/", model].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::config;
    use crate::id::{Random, RequestId, UserId};
    use crate::replay::cost::PriceList;
    use crate::replay::explain;
    use crate::replay::report::Report;
    use crate::routing::inputs::tests::chat;

    const DOCUMENT: &str = "providers:\n  p: { protocol: mock }\nrecipes:\n  spread:\n    rules:\n      \
        - { name: long, when: 'prompt_tokens > 500', targets: [ { target: p/a }, { target: p/b }, { target: p/c } ] }\n      \
        - { name: rest, strategy: weighted, targets: [ { target: p/a, weight: 1 }, { target: p/b, weight: 2 }, { target: p/c, weight: 3 } ] }\n\
        aliases: { auto: spread }\n";

    fn document() -> Routing {
        let server = config::read_server("test", "", &|_| None).unwrap();
        config::read_routing("test", DOCUMENT, &server, &|_| None, None).unwrap()
    }

    /// What may have become of a stored decision.
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
        /// Makes the alteration; whether the first target, the plan and the rule are others then.
        fn make(self, decision: &mut Decision) -> (bool, bool, bool) {
            let told = match self {
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
            told
        }
    }

    proptest! {
        #[test]
        fn each_alteration_of_a_stored_plan_is_found_and_nothing_else(
            stored in prop::collection::vec((any::<u64>(), 0..1_000_u64, alterations()), 1..40),
        ) {
            let routing = document();
            let question = Question { candidate: &routing, baseline: None, standing: &Standing::Recorded };
            let prices = PriceList { candidate: &routing, baseline: None };
            let (mut report, random) = (Report::default(), Random::seeded(1));
            let (mut changed, mut plans, mut rules) = (0, 0, 0);
            for (seed, prompt_tokens, alteration) in stored {
                let mut inputs = chat("auto", seed);
                inputs.request.prompt_tokens = prompt_tokens;
                let mut decision = decide(&routing, &inputs).unwrap();
                let told = alteration.make(&mut decision);
                (changed, plans, rules) = (changed + u64::from(told.0), plans + u64::from(told.1), rules + u64::from(told.2));
                let at = Timestamp::from_second(1_764_000_000).unwrap();
                let mut head = Head::new(RequestId::new(at, &random), at, UserId::known("usr_1"), "chat.completions");
                (head.inputs, head.decision) = (Some(inputs), Some(Arc::new(decision)));
                let judged = question.judge(&head, Some(&routing), &|| None).unwrap();
                prop_assert_eq!((judged.changed(), judged.plan_changed(), judged.rule_changed()), told, "{:?}", alteration);
                report.add(&head, &judged, &prices, || explain::explain(&judged, Some(&routing), &routing));
            }
            prop_assert_eq!((report.changed, report.plan_changed, report.rule_changed), (changed, plans, rules));
            let json = report.json();
            let changes = json["by_change"].as_array().unwrap();
            prop_assert_eq!(changes.iter().map(|change| change["count"].as_u64().unwrap()).sum::<u64>(), changed);
            prop_assert!(changes.iter().all(|change| !change["reasons"].as_array().unwrap().is_empty()), "{}", json);
            prop_assert_eq!((report.unroutable, report.assumed, report.inexact), (0, 0, 0));
        }
    }
}
