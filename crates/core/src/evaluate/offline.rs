//! Evaluates captures in memory, without a gateway.

use bytes::Bytes;
use http::HeaderMap;

use super::cost::PriceList;
use super::explain;
use super::judge::{HealthSource, Question};
use super::report::EvaluationReport;
use crate::prompt::Prompt;
use rerouter_captures::capture::record::{Capture, Head};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::{Routing, TextPart, Untranslatable};

/// Decides captures again without a gateway.
pub struct OfflineEvaluation {
    candidate: Routing,
    baseline: Option<Routing>,
    health: HealthSource,
    report: EvaluationReport,
}

impl OfflineEvaluation {
    /// Begins an evaluation. `baseline` is the document to compare with; `None`: the recorded
    /// decisions.
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
        let text = |part| text_of(head, capture.bodies.request.clone(), part);
        let refused = || refused_of(head, capture.bodies.request.clone());
        match question.judge(head, recorded, &text, &refused) {
            Err(skipped) => report.skip(skipped, head),
            Ok(judged) => {
                let prices = PriceList { candidate, baseline: baseline.as_ref() };
                report.add(head, &judged, &prices, || {
                    explain::explain(&judged, baseline.as_ref().or(recorded), candidate)
                });
            }
        }
    }

    /// The report so far.
    pub fn report(&self) -> &EvaluationReport {
        &self.report
    }
}

/// A text of a captured request, if its body was kept unchanged. `None` for the system prompt of a
/// request through an agent, because the capture does not have the agent's instructions.
pub(super) fn text_of(head: &Head, body: Bytes, part: TextPart) -> Option<String> {
    if part == TextPart::System && has_agent(head) {
        return None;
    }
    Some(prompt_of(head, body)?.text(part))
}

/// The parts of a captured request that other dialects cannot carry. `None` for a request through
/// an agent.
pub(super) fn refused_of(head: &Head, body: Bytes) -> Option<Untranslatable> {
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

fn prompt_of(head: &Head, body: Bytes) -> Option<Prompt> {
    if head.not_replayable().is_some() {
        return None;
    }
    Prompt::read(Endpoint::named(&head.endpoint)?, body, HeaderMap::new()).ok()
}
