//! `POST /v1/router/replay/evaluate`: what a document would have done to the traffic that was captured. No provider is called.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::body::Fields;
use super::page::Query;
use super::{Slow, Step, answer, audit, replays, routing};
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::{Error, Kind, Result};
use crate::evaluate::{
    self, CaptureLimits, Document, Evaluation, EvaluationEvent, EvaluationProgress,
    EvaluationReport, HealthSource,
};
use crate::routing::Routing;
use crate::store::{Action, Shadows};

/// What a filter may hold: all that lists are asked for but the page.
fn filters() -> Vec<&'static str> {
    replays::PARAMETERS.iter().copied().filter(|name| !matches!(*name, "limit" | "after")).collect()
}

/// `POST /v1/router/replay/evaluate`
pub async fn post(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Slow> {
    Query::read(request.uri().query(), &[])?;
    let lines = wants_lines(request.headers());
    let asked = Asked::read(request)?;
    if asked.document.is_some() && !who.has_scope("evaluate") {
        return Err(Error::new(
            Kind::InsufficientScope,
            "To evaluate a document of your own the key needs the scope `evaluate`.",
        ));
    }
    let permit = super::limits::draw(app, who)?;
    let turn = evaluate::turn(&app.evaluations, &app.auth.tenant(who)).await?;
    let conditions = asked.document.is_some() || who.has_scope("config");
    let live = app.live();
    let candidate = match asked.document {
        None => Document::Live(live.clone()),
        Some(text) => match routing::read(app, text).await? {
            Ok(candidate) => Document::Given(Arc::new(candidate)),
            Err(problems) => return Ok(at_once(lines, routing::problems(&problems))),
        },
    };
    let health = match asked.health.as_str() {
        "recorded" => HealthSource::Recorded,
        "current" => HealthSource::Given(current(app, &candidate, &live.routing)),
        _ => HealthSource::Given(BTreeMap::new()),
    };
    let baseline = (asked.baseline == "current").then(|| Document::Live(live));
    let query = Query::of(asked.filter, &filters())?;
    let mut filter = replays::filter(&query, who)?;
    if ["shadow", "shadow_of"].iter().all(|name| query.get(name).is_none()) {
        // Left out by the evaluation, which counts what it leaves out.
        filter.shadows = Shadows::With;
    }
    // Whoever has seen an answer finds it in the report.
    app.captures
        .settle(who.user_id().filter(|_| !who.is_admin()).as_ref(), bounds::CAPTURE_SETTLE)
        .await;
    let heading = json!({
        "revision": candidate.routing().revision(), "baseline": asked.baseline, "health": asked.health, "limit": asked.limit,
    });
    // What a document of one's own does to captures tells of what is in them: one may ask whatever expressions can.
    let others = filter.owner.is_none() || filter.owner != who.user_id();
    if let (Document::Given(given), true) = (&candidate, others) {
        app.store
            .note(audit::event(
                app,
                who,
                request,
                Action::CaptureEvaluate,
                "config",
                given.revision(),
            ))
            .await?;
    }
    let asked = Evaluation {
        candidate,
        baseline,
        health,
        filter,
        limits: CaptureLimits::of(asked.limit),
        without_imported: false,
        conditions,
    };
    let told = evaluate::begin(app, turn, asked)?;
    let (step, steps) = mpsc::channel(1);
    tokio::spawn(async move {
        pass_on(told, step, heading).await;
        // It counts as a request of the caller's until it ends.
        drop(permit);
    });
    Ok(Slow { lines, steps })
}

/// What the targets are doing now: those of the live document, and nodes whichever document names them; whatever else the
/// candidate names counts as idle.
fn current(
    app: &App,
    candidate: &Document,
    live: &Routing,
) -> BTreeMap<String, crate::routing::TargetHealth> {
    let now = app.clock.now();
    let mut snapshot = app.standing(live, None, now);
    snapshot.retain(|name, told| told.node.is_some() || candidate.routing().target(name).is_some());
    app.nodes.look(candidate.routing(), None, now, &mut snapshot);
    snapshot
}

/// From what the work tells to what the client reads. Ends, and ends the work, when the client has left.
async fn pass_on(
    mut told: mpsc::Receiver<EvaluationEvent>,
    step: mpsc::Sender<Step>,
    heading: Value,
) {
    loop {
        let event = tokio::select! {
            event = told.recv() => event,
            () = step.closed() => return,
        };
        let next = match event {
            Some(EvaluationEvent::Progress(progress)) => Step::Line(line(progress)),
            Some(EvaluationEvent::Done(report)) => Step::Answer(
                report.map(|report| answer::json(StatusCode::OK, &whole(heading.clone(), &report))),
            ),
            None => Step::Answer(Err(Error::panicked("an evaluation ended without a word"))),
        };
        let last = matches!(next, Step::Answer(_));
        if step.send(next).await.is_err() || last {
            return;
        }
    }
}

fn line(progress: EvaluationProgress) -> Value {
    let EvaluationProgress { done, limit, changed, reached } = progress;
    json!({ "object": "evaluation.progress", "done": done, "limit": limit, "changed": changed, "reached": rfc3339(reached) })
}

/// The report under what was asked.
fn whole(heading: Value, report: &EvaluationReport) -> Value {
    let mut whole = report.json();
    if let (Some(fields), Value::Object(heading)) = (whole.as_object_mut(), heading) {
        fields.extend(heading);
    }
    whole
}

fn at_once(lines: bool, response: http::Response<Bytes>) -> Slow {
    let (step, steps) = mpsc::channel(1);
    // There is room for one.
    let _sent = step.try_send(Step::Answer(Ok(response)));
    Slow { lines, steps }
}

struct Asked {
    document: Option<String>,
    filter: Vec<(String, String)>,
    limit: u64,
    health: String,
    baseline: String,
}

impl Asked {
    fn read(request: &Request<Bytes>) -> Result<Asked> {
        let mut fields = Fields::read_if_any(request)?;
        let document = match fields.take::<Value>("document", "a routing document")? {
            None => None,
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
            Some(document @ Value::Object(_)) => Some(document.to_string()),
            Some(_) => {
                return Err(Error::invalid(
                    "document",
                    "document must be a routing document, as text or as an object.",
                ));
            }
        };
        if document.as_ref().is_some_and(|text| text.len() > bounds::DOCUMENT_BYTES) {
            return Err(Error::invalid(
                "document",
                format!("document must have at most {} bytes.", bounds::DOCUMENT_BYTES),
            ));
        }
        let filter = match fields.take::<Map<String, Value>>("filter", "an object")? {
            None => Vec::new(),
            Some(filter) => {
                filter.into_iter().map(|(name, value)| text(name, value)).collect::<Result<_>>()?
            }
        };
        let limit =
            fields.take::<u64>("limit", "a whole number")?.unwrap_or(bounds::EVALUATE_DEFAULT);
        if !(1..=bounds::EVALUATE_MOST).contains(&limit) {
            return Err(Error::invalid(
                "limit",
                format!("limit must be 1 to {}.", bounds::EVALUATE_MOST),
            ));
        }
        let health = word(&mut fields, "health", &["recorded", "current", "healthy"])?;
        let baseline = word(&mut fields, "baseline", &["recorded", "current"])?;
        fields.finish()?;
        Ok(Asked { document, filter, limit, health, baseline })
    }
}

/// A value of the filter as a query would have it.
fn text(name: String, value: Value) -> Result<(String, String)> {
    match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => Err(Error::invalid(
            format!("filter.{name}"),
            format!("filter.{name} must be a text, a number, true or false."),
        )),
    }
}

/// One of some words; the first where nothing is said.
fn word(fields: &mut Fields, name: &str, words: &[&str]) -> Result<String> {
    let written: Option<String> = fields.take(name, "a string")?;
    let written = written.unwrap_or_else(|| words.first().copied().unwrap_or_default().to_owned());
    match words.contains(&written.as_str()) {
        true => Ok(written),
        false => Err(Error::invalid(name, format!("{name} must be {}.", words.join(" or ")))),
    }
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|part| {
        part.split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-ndjson"))
    })
}
