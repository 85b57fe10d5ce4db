//! Evaluates captures in memory, without a gateway.

use bytes::Bytes;
use http::HeaderMap;

use super::explain;
use super::judge::{HealthSource, Question};
use super::report::EvaluationReport;
use crate::prompt::Prompt;
use rerouter_captures::capture::record::{Capture, Head};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::{Routing, TextPart, Untranslatable};

pub struct OfflineEvaluation {
    candidate: Routing,
    baseline: Option<Routing>,
    health: HealthSource,
    report: EvaluationReport,
}

impl OfflineEvaluation {
    /// `baseline` is the document to compare with; `None`: the recorded decisions.
    pub fn new(
        candidate: Routing,
        baseline: Option<Routing>,
        health: HealthSource,
    ) -> OfflineEvaluation {
        OfflineEvaluation { candidate, baseline, health, report: EvaluationReport::default() }
    }

    pub fn add(&mut self, capture: &Capture) {
        let OfflineEvaluation { candidate, baseline, health, report } = self;
        let head = &capture.head;
        let question = Question { candidate, baseline: baseline.as_ref(), health };
        // The recorded document is known only if it is one of these two.
        let revision = head.decision.as_ref().map(|decision| &*decision.revision);
        let recorded = [Some(&*candidate), baseline.as_ref()]
            .into_iter()
            .flatten()
            .find(|known| Some(known.revision()) == revision);
        let body = || Some(capture.bodies.request.clone());
        add(report, &question, head, recorded, &body, true);
    }

    pub fn report(&self) -> &EvaluationReport {
        &self.report
    }
}

/// Reads the body of a captured request, if it was kept.
type ReadBody<'a> = &'a dyn Fn() -> Option<Bytes>;

/// `recorded` is the document of its decision, if that is known. `conditions`: whether reasons may
/// quote the conditions of rules.
pub(super) fn add(
    report: &mut EvaluationReport,
    question: &Question<'_>,
    head: &Head,
    recorded: Option<&Routing>,
    body: ReadBody<'_>,
    conditions: bool,
) {
    let text = |part| text_of(head, body, part);
    let refused = || refused_of(head, body);
    match question.judge(head, recorded, &text, &refused) {
        Err(skipped) => report.skip(skipped, head),
        Ok(judged) => report.add(head, &judged, question, || {
            let before = question.baseline.or(recorded);
            let mut reasons = explain::explain(&judged, before, question.candidate);
            reasons.iter_mut().filter(|_| !conditions).for_each(|reason| reason.when = None);
            reasons
        }),
    }
}

/// A text of a captured request, if its body was kept unchanged. `None` for the system prompt of a
/// request through an agent, because the capture does not have the agent's instructions.
fn text_of(head: &Head, body: ReadBody<'_>, part: TextPart) -> Option<String> {
    if part == TextPart::System && has_agent(head) {
        return None;
    }
    Some(prompt_of(head, body)?.text(part))
}

/// The parts of a captured request that other dialects cannot carry. `None` for a request through
/// an agent.
fn refused_of(head: &Head, body: ReadBody<'_>) -> Option<Untranslatable> {
    if has_agent(head) {
        return None;
    }
    let mut prompt = prompt_of(head, body)?;
    prompt.read_neutral_here();
    prompt.untranslatable()
}

fn has_agent(head: &Head) -> bool {
    head.inputs.as_ref().is_some_and(|inputs| inputs.request.agent.is_some())
}

fn prompt_of(head: &Head, body: ReadBody<'_>) -> Option<Prompt> {
    if head.not_replayable().is_some() {
        return None;
    }
    Prompt::read(Endpoint::named(&head.endpoint)?, body()?, HeaderMap::new()).ok()
}
