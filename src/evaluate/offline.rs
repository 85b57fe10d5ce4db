//! An evaluation of captures at hand, without a gateway.

use bytes::Bytes;
use http::HeaderMap;

use super::cost::PriceList;
use super::explain;
use super::judge::{HealthSource, Question};
use super::report::EvaluationReport;
use crate::capture::record::{Capture, Head};
use crate::dialect::endpoint::Endpoint;
use crate::prompt::Prompt;
use crate::routing::{Routing, Untranslatable};

/// Decides captures again without a gateway.
pub(crate) struct OfflineEvaluation {
    candidate: Routing,
    baseline: Option<Routing>,
    health: HealthSource,
    report: EvaluationReport,
}

impl OfflineEvaluation {
    /// An empty evaluation. `baseline` is the document to compare with; `None`: the recorded
    /// decisions.
    pub(crate) fn new(
        candidate: Routing,
        baseline: Option<Routing>,
        health: HealthSource,
    ) -> OfflineEvaluation {
        OfflineEvaluation { candidate, baseline, health, report: EvaluationReport::default() }
    }

    pub(crate) fn add(&mut self, capture: &Capture) {
        let OfflineEvaluation { candidate, baseline, health, report } = self;
        let head = &capture.head;
        let question = Question { candidate, baseline: baseline.as_ref(), health };
        // The recorded document is known if it is one of the two.
        let revision = head.decision.as_ref().map(|decision| &*decision.revision);
        let recorded = [Some(&*candidate), baseline.as_ref()]
            .into_iter()
            .flatten()
            .find(|known| Some(known.revision()) == revision);
        let text = || user_text(head, capture.bodies.request.clone());
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
    pub(crate) fn report(&self) -> &EvaluationReport {
        &self.report
    }
}

/// The last user message of a capture, if its body was kept unchanged.
pub(super) fn user_text(head: &Head, body: Bytes) -> Option<String> {
    Some(prompt_of(head, body)?.last_user_text())
}

/// What other dialects cannot carry of a captured request, if its body was kept unchanged. What an
/// agent adds is no part of the capture, so of a request through one it is not known.
pub(super) fn refused_of(head: &Head, body: Bytes) -> Option<Untranslatable> {
    let has_agent = head.inputs.as_ref().is_some_and(|inputs| inputs.request.agent.is_some());
    prompt_of(head, body).filter(|_| !has_agent).map(|prompt| prompt.untranslatable())
}

fn prompt_of(head: &Head, body: Bytes) -> Option<Prompt> {
    if head.not_replayable().is_some() {
        return None;
    }
    Prompt::read(Endpoint::named(&head.endpoint)?, body, HeaderMap::new()).ok()
}
