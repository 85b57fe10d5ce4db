//! The gate of `PUT /v1/router/config`: refuses a document that would change the target of too many
//! recent requests, or leave some without a target.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::call::Answer;
use super::replays::CAPTURE_SETTLE;
use crate::app::{App, Live};
use crate::evaluate::{
    self, CaptureLimits, Document, Evaluation, EvaluationReport, HealthSource, share,
};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_records::error::ManagementError;
use rerouter_records::evaluation::EvaluationRecord;
use rerouter_records::routing::GateQuery;
use rerouter_routing::Routing;
use rerouter_store::CaptureFilter;

/// Greatest age of the captures on which a gated change is tried.
const GATE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Most captures with a decision on which a gated change is tried, newest first.
const GATE_DECIDED: u64 = 100_000;
/// Most captures that are read to find [`GATE_DECIDED`] decisions. Refusals, replays and imports do
/// not count towards the decisions.
const GATE_VISITED: u64 = 10 * GATE_DECIDED;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Gate {
    /// Share of requests that may get another target, 0 to 1.
    max_changed: Option<f64>,
    /// Whether no request may lose its last target.
    forbid_unroutable: bool,
    /// Share of requests that may lose their last target, 0 to 1.
    max_unroutable: Option<f64>,
    /// Whether a change passes without captures to evaluate it on.
    allow_empty: bool,
}

impl Gate {
    /// `None` if the query has no condition.
    pub(super) fn read(query: &GateQuery) -> Result<Option<Gate>> {
        let share = |name: &'static str, text: &Option<String>| {
            let refused = || Error::invalid(name, format!("{name} must be {}.", share::SPELLINGS));
            text.as_deref().map(|text| share::read(text).ok_or_else(refused)).transpose()
        };
        let gate = Gate {
            max_changed: share("max_changed", &query.max_changed)?,
            forbid_unroutable: query.forbid_unroutable,
            max_unroutable: share("max_unroutable", &query.max_unroutable)?,
            allow_empty: query.allow_empty,
        };
        if gate == (Gate { allow_empty: true, ..Gate::default() }) {
            return Err(Error::invalid(
                "allow_empty",
                "allow_empty needs max_changed, max_unroutable or forbid_unroutable.",
            ));
        }
        Ok((gate != Gate::default()).then_some(gate))
    }

    /// Evaluates the candidate on the captures of the last day. Returns the answer that refuses the
    /// change, if any. `examples`: whether that answer may name captures.
    pub(super) async fn try_on(
        &self,
        app: &App,
        candidate: Routing,
        live: Arc<Live>,
        examples: bool,
    ) -> Result<Option<Response<Bytes>>> {
        let turn = evaluate::turn(&app.gates, "").await?;
        app.captures.settle(None, CAPTURE_SETTLE).await;
        let since = app.clock.now() - GATE_AGE;
        let asked = Evaluation {
            candidate: Document::Given(Arc::new(candidate)),
            // Decided again, because the recorded decisions may be those of an older document.
            baseline: Some(Document::Live(live)),
            health: HealthSource::Recorded,
            filter: CaptureFilter {
                since_us: Some(since.as_microsecond()),
                ..CaptureFilter::default()
            },
            limits: CaptureLimits { read: GATE_VISITED, decided: GATE_DECIDED },
            // Imported captures are not traffic of this gateway.
            without_imported: true,
            // The caller may read the document.
            conditions: true,
        };
        let mut report = evaluate::finish(evaluate::begin(app, turn, asked)?).await?;
        if !report.counts.is_evidence() && !self.allow_empty {
            let unread = Some(report.unreadable)
                .filter(|unread| *unread > 0)
                .map(|unread| format!(" ({unread} captures cannot be read)"));
            let unread = unread.unwrap_or_default();
            let why = format!(
                "There are no captures of the last 24 hours that find a target and have all that \
                 the document reads, to evaluate it on{unread}. `allow_empty` skips the evaluation."
            );
            return Err(Error::new(Kind::NoCaptures, why));
        }
        if !examples {
            report.forget_examples();
        }
        let refusal = self.against(&report).map(|why| ManagementError {
            error: Kind::GateRefused.row().word.to_owned(),
            detail: why,
            report: Some(Box::new(report.record())),
            ..ManagementError::default()
        });
        refusal.map(|refusal| Answer::from(&refusal).respond(409)).transpose()
    }

    /// The reason why the report refuses the change, if it does.
    fn against(&self, report: &EvaluationReport) -> Option<String> {
        let counts = &report.counts;
        let EvaluationRecord { changed, evaluated, unroutable, .. } = counts;
        let routed = counts.routed();
        if self.forbid_unroutable && *unroutable > 0 {
            return Some(format!("{unroutable} of {evaluated} requests would have no target."));
        }
        let share = counts.unroutable_share();
        if let Some(most) = self.max_unroutable.filter(|most| share > *most) {
            return Some(format!(
                "{unroutable} of {routed} requests ({:.2} %) would have no target; the maximum is \
                 {:.2} %.",
                share * 100.0,
                most * 100.0
            ));
        }
        let most = self.max_changed.filter(|most| counts.changed_share() > *most)?;
        let share = counts.changed_share() * 100.0;
        Some(format!(
            "{changed} of {routed} requests ({share:.2} %) would change their target; the \
             maximum is {:.2} %.",
            most * 100.0
        ))
    }
}
