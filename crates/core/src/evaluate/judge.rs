//! Decides a captured request again, under another document or with other states of its targets. A
//! pure function: equal captures and documents lead to equal judgements on any machine.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rerouter_base::error::RefusalReason;
use rerouter_captures::capture::record::Head;
use rerouter_captures::redaction;
use rerouter_routing::{
    Candidate, Decision, Inputs, Routing, RoutingRefusal, TargetHealth, TextPart, Untranslatable,
    decide,
};

#[derive(Clone, Debug)]
pub enum HealthSource {
    /// The states in the capture. A target that the capture does not know counts as healthy and
    /// idle.
    Recorded,
    /// These states, for every capture.
    Given(BTreeMap<String, TargetHealth>),
}

/// The settings for deciding captures again.
pub(super) struct Question<'a> {
    pub(super) candidate: &'a Routing,
    /// The document to compare with; `None`: the recorded decisions.
    pub(super) baseline: Option<&'a Routing>,
    pub(super) health: &'a HealthSource,
}

rerouter_base::words! {
    /// The reason why a capture is skipped.
    pub(super) enum Skipped {
        /// The capture is a replay.
        Replay = "replays",
        /// The capture is of a shadow.
        Shadow = "shadows",
        /// The request was refused before a decision, and not because of the document.
        Undecided = "undecided",
        /// A limit refused the request: it would refuse it under any document.
        Limit = "limit",
        /// The inputs have another [`Inputs::VERSION`].
        Version = "version",
        /// The capture was imported, and only traffic of this gateway counts.
        Imported = "imported",
        /// Redaction removed a name that the decision depends on.
        Redacted = "redacted",
    }
}

impl Skipped {
    pub(super) fn of(head: &Head) -> Option<Skipped> {
        if head.shadow_of.is_some() {
            return Some(Skipped::Shadow);
        }
        if head.replay_of.is_some() {
            return Some(Skipped::Replay);
        }
        let by_document = match head.refused {
            None => head.decision.is_some(),
            Some(RefusalReason::Limit) => return Some(Skipped::Limit),
            Some(reason) => matches!(reason, RefusalReason::Target | RefusalReason::Model),
        };
        match head.inputs.as_ref().filter(|_| by_document) {
            Some(inputs) if inputs.version == Inputs::VERSION => {
                redaction::lost_names(head).then_some(Skipped::Redacted)
            }
            Some(_) => Some(Skipped::Version),
            None => Some(Skipped::Undecided),
        }
    }
}

pub(super) struct Judged<'h> {
    /// The recorded decision, or the baseline's.
    pub(super) before: Result<Cow<'h, Decision>, RoutingRefusal>,
    pub(super) after: Result<Decision, RoutingRefusal>,
    /// Whether a signal that an expression reads is unknown, because the text was not kept.
    pub(super) inexact: bool,
    /// Whether a target counts as healthy and idle because the capture does not know it.
    pub(super) assumed: bool,
    /// Keyword sets that the request hits only after, and those that it hits only before.
    pub(super) keywords: [Vec<String>; 2],
}

impl Question<'_> {
    /// `recorded` is the document of the recorded decision, if it is still known. `text` returns a
    /// text of the request, if it was kept. `refused` returns what other dialects cannot carry.
    /// Both are called only if a signal has to be computed again.
    pub(super) fn judge<'h>(
        &self,
        head: &'h Head,
        recorded: Option<&Routing>,
        text: &dyn Fn(TextPart) -> Option<String>,
        refused: &dyn Fn() -> Option<Untranslatable>,
    ) -> Result<Judged<'h>, Skipped> {
        if let Some(skipped) = Skipped::of(head) {
            return Err(skipped);
        }
        let Some(stored) = &head.inputs else { return Err(Skipped::Undecided) };
        let decision = head.decision.as_deref();
        let mut inputs = stored.clone();
        if let HealthSource::Given(health) = self.health {
            inputs.health.clone_from(health);
        }
        let headers = &head.request_headers;
        let mut inexact = !inputs.complete(self.candidate, headers, text);
        inexact |= redaction::lost_signals(head, &inputs);
        inexact |= !inputs.complete_translation(self.candidate, refused);
        let after = decide(self.candidate, &inputs);
        let hits_after = hits(&inputs);
        // A snapshot leaves out healthy and idle targets. So a target of the recorded document is
        // known even if the snapshot does not list it.
        let is_recorded = |target: &str| {
            decision
                .into_iter()
                .flat_map(|decision| &decision.candidates)
                .any(|then| target_name(&then.provider, &then.model) == target)
        };
        let is_known = |target: &str| {
            inputs.health.contains_key(target)
                || is_recorded(target)
                || recorded.is_some_and(|document| document.target_for(target).is_some())
        };
        let assumed = matches!(self.health, HealthSource::Recorded)
            && considered(&after)
                .iter()
                .any(|candidate| !is_known(&target_name(&candidate.provider, &candidate.model)));
        let before = match self.baseline {
            None => decision.map(Cow::Borrowed).ok_or_else(|| RoutingRefusal::ModelNotFound {
                model: stored.request.model.to_string(),
            }),
            Some(baseline) => {
                inputs.keywords.clone_from(&stored.keywords);
                inexact |= !inputs.complete(baseline, headers, text);
                inexact |= !inputs.complete_translation(baseline, refused);
                decide(baseline, &inputs).map(Cow::Owned)
            }
        };
        let hits_before = hits(if self.baseline.is_some() { &inputs } else { stored });
        let differ = |these: &BTreeSet<String>, others| these.difference(others).cloned().collect();
        let keywords = match inexact {
            // What is not known is no difference.
            true => Default::default(),
            false => [differ(&hits_after, &hits_before), differ(&hits_before, &hits_after)],
        };
        Ok(Judged { before, after, inexact, assumed, keywords })
    }
}

/// Names of the keyword sets that a request hits.
fn hits(inputs: &Inputs) -> BTreeSet<String> {
    let hits = inputs.keywords.iter().filter(|(_, found)| found.hit);
    hits.map(|(name, _)| name.clone()).collect()
}

/// All targets of the matching rule.
fn considered(decided: &Result<Decision, RoutingRefusal>) -> &[Candidate] {
    match decided {
        Ok(decision) => &decision.candidates,
        Err(RoutingRefusal::NoTarget { candidates, .. }) => candidates,
        Err(RoutingRefusal::ModelNotFound { .. }) => &[],
    }
}

impl Judged<'_> {
    /// First target before, as `provider/model`; `None` if there was none.
    pub(super) fn from(&self) -> Option<String> {
        self.before.as_ref().ok().map(|decision| target_name(&decision.provider, &decision.model))
    }

    pub(super) fn to(&self) -> Option<String> {
        self.after.as_ref().ok().map(|decision| target_name(&decision.provider, &decision.model))
    }

    /// Whether there is a target only after.
    pub(super) fn is_newly_routed(&self) -> bool {
        self.before.is_err() && self.after.is_ok()
    }

    /// Whether there was a target before, and this differs after.
    fn differs<T: PartialEq>(&self, of: impl Fn(&Decision) -> T) -> bool {
        let after = self.after.as_ref().ok().map(&of);
        self.before.as_ref().is_ok_and(|before| Some(of(before)) != after)
    }

    /// Whether the first target differs.
    pub(super) fn changed(&self) -> bool {
        self.differs(|of| (of.provider.clone(), of.model.clone()))
    }

    /// Whether the matching rule differs, in any recipe.
    pub(super) fn rule_changed(&self) -> bool {
        self.differs(|of| (of.recipe.clone(), of.rule.clone()))
    }

    pub(super) fn plan_changed(&self) -> bool {
        self.differs(|of| of.plan.clone())
    }
}

pub(super) fn target_name(provider: &str, model: &str) -> String {
    [provider, "/", model].concat()
}
