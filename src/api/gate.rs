//! The gate of `PUT /v1/router/config`: a document that would change too much of what the gateway served of late, or leave some
//! of it without a target, does not go live.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::answer;
use super::page::Query;
use crate::app::{App, Live};
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::evaluate::{
    self, CaptureLimits, Document, Evaluation, EvaluationReport, HealthSource, share,
};
use crate::routing::Routing;
use crate::store::CaptureFilter;

/// What a change has to keep to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Gate {
    /// Which part of the traffic may go elsewhere, 0 to 1.
    max_changed: Option<f64>,
    /// Whether every request that finds a target now has to find one after.
    forbid_unroutable: bool,
    /// Whether a gateway without traffic lets every change pass.
    allow_empty: bool,
}

impl Gate {
    /// The parameters of a gated change.
    pub(super) const PARAMETERS: &[&str] = &["max_changed", "forbid_unroutable", "allow_empty"];

    /// Reads the gate; `None` where nothing is asked for.
    pub(super) fn read(query: &Query) -> Result<Option<Gate>> {
        let truth = |name: &str| match query.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(name, format!("{name} has to be true or false."))),
        };
        let refused = || {
            Error::invalid("max_changed", format!("max_changed has to be {}.", share::SPELLINGS))
        };
        let max_changed = query
            .get("max_changed")
            .map(|text| share::read(text).ok_or_else(refused))
            .transpose()?;
        let gate = Gate {
            max_changed,
            forbid_unroutable: truth("forbid_unroutable")?,
            allow_empty: truth("allow_empty")?,
        };
        if gate.allow_empty && gate.max_changed.is_none() && !gate.forbid_unroutable {
            return Err(Error::invalid(
                "allow_empty",
                "allow_empty goes with max_changed or forbid_unroutable.",
            ));
        }
        Ok((gate != Gate::default()).then_some(gate))
    }

    /// Tries the candidate on the captures of the last day; the answer is that of a refusal. `examples`: whether that may name
    /// captures of anybody.
    pub(super) async fn try_on(
        &self,
        app: &App,
        candidate: Routing,
        live: Arc<Live>,
        examples: bool,
    ) -> Result<Option<Response<Bytes>>> {
        let turn = evaluate::turn(&app.gates, "").await?;
        app.captures.settle(None, bounds::CAPTURE_SETTLE).await;
        let since = app.clock.now() - bounds::GATE_AGE;
        let asked = Evaluation {
            candidate: Document::Given(Arc::new(candidate)),
            // What was decided then says nothing about this change where another one came between.
            baseline: Some(Document::Live(live)),
            health: HealthSource::Recorded,
            filter: CaptureFilter {
                since_us: Some(since.as_microsecond()),
                ..CaptureFilter::default()
            },
            limits: CaptureLimits { read: bounds::GATE_LOOKED_AT, decided: bounds::GATE_DECIDED },
            // What somebody took in from a file says nothing of this gateway's traffic.
            without_imported: true,
            // Who may change the document may read it.
            conditions: true,
        };
        let mut report = evaluate::finish(evaluate::begin(app, turn, asked)?).await?;
        if report.evaluated == 0 && !self.allow_empty {
            let unread = Some(report.unreadable)
                .filter(|unread| *unread > 0)
                .map(|unread| format!(" ({unread} captures cannot be read)"));
            let unread = unread.unwrap_or_default();
            let why = format!(
                "There is no captured traffic of the last 24 hours to try the document on{unread}; allow_empty=true lets it pass."
            );
            return Err(Error::new(Kind::NoCaptures, why));
        }
        if !examples {
            report.forget_examples();
        }
        Ok(self.against(&report).map(|why| {
            let body = json!({ "error": Kind::GateRefused.row().word, "detail": why, "report": report.json() });
            answer::json(StatusCode::CONFLICT, &body)
        }))
    }

    /// What the report has against the change.
    fn against(&self, report: &EvaluationReport) -> Option<String> {
        let EvaluationReport { changed, evaluated, routed_before, unroutable, .. } = report;
        if self.forbid_unroutable && *unroutable > 0 {
            return Some(format!(
                "{unroutable} of {evaluated} requests would find no target any more."
            ));
        }
        let most = self.max_changed.filter(|most| report.changed_share() > *most)?;
        let share = report.changed_share() * 100.0;
        Some(format!(
            "{changed} of {routed_before} requests ({share:.2} %) would go elsewhere; at most {:.2} % may.",
            most * 100.0
        ))
    }
}
