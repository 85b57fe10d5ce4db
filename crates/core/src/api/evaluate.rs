//! `POST /v1/router/replay/evaluate`: decides captured requests again under a document, without
//! calling providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::call::{Answer, Call};
use super::progress::{ProgressStep, ProgressStream};
use super::replays::CAPTURE_SETTLE;
use super::route::ApiRequest;
use super::{replays, routing};
use crate::app::App;
use crate::evaluate::{
    self, CaptureLimits, Document, Evaluation, EvaluationEvent, EvaluationProgress, HealthSource,
};
use rerouter_access::auth::Principal;
use rerouter_base::bounds;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Result};
use rerouter_records::evaluation::{
    AssumedHealth, Baseline, EVALUATE_DEFAULT, EvaluationRecord, NewEvaluation,
};
use rerouter_records::read::read_query;
use rerouter_records::replay::ReplayQuery;
use rerouter_routing::Routing;
use rerouter_store::{Action, CaptureFilter, Reach, Shadows};

/// Parameters of lists that do not select captures by the index.
const OF_LISTS: [&str; 5] = ["limit", "after", "stream", "replay", "refused"];

/// The captures to evaluate, selected by the other parameters of lists.
fn filter(asked: Map<String, Value>, reach: Reach) -> Result<CaptureFilter> {
    if let Some(name) = asked.keys().find(|name| OF_LISTS.contains(&name.as_str())) {
        return Err(Error::invalid(name.clone(), format!("Unknown parameter {name}.")));
    }
    let asked = asked.into_iter().map(|(name, value)| text(name, value));
    let query: ReplayQuery = read_query(asked.collect::<Result<_>>()?)?;
    let mut filter = replays::filter(&query, reach)?;
    if query.shadow.is_none() && query.shadow_of.is_none() {
        // Shadows are included, so that the evaluation counts them as skipped.
        filter.shadows = Shadows::With;
    }
    Ok(filter)
}

pub(super) async fn post(
    app: &App,
    who: &Principal,
    request: &ApiRequest,
) -> Result<ProgressStream> {
    let call = Call { app, who, request };
    call.no_query()?;
    let lines = ProgressStream::is_wanted(request.headers());
    let asked: NewEvaluation = call.optional()?;
    let limit = asked.limit.unwrap_or(EVALUATE_DEFAULT);
    let document = document(&asked.document)?;
    let filter = filter(asked.filter.unwrap_or_default(), app.auth.reach(who))?;
    let (health_of, baseline_of) =
        (asked.health.unwrap_or_default(), asked.baseline.unwrap_or_default());
    if document.is_some() {
        who.require("evaluate")?;
    }
    let permit = super::limits::draw(app, who)?;
    let turn = evaluate::turn(&app.evaluations, &app.auth.tenant(who)).await?;
    let conditions = document.is_some() || who.has_scope("config");
    let live = app.live();
    let candidate = match document {
        None => Document::Live(live.clone()),
        Some(text) => match routing::read(app, text).await? {
            Ok(candidate) => Document::Given(Arc::new(candidate)),
            Err(problems) => {
                return Ok(ProgressStream::at_once(lines, routing::problems(&problems)));
            }
        },
    };
    let health = health_source(app, health_of, &candidate, &live.routing);
    let baseline = (baseline_of == Baseline::Current).then(|| Document::Live(live));
    // Waits until captures of answers that the caller has seen are written.
    app.captures.settle(filter.reach.owner(), CAPTURE_SETTLE).await;
    let heading = EvaluationRecord {
        revision: Some(candidate.routing().revision().to_owned()),
        baseline: Some(baseline_of.as_str().to_owned()),
        health: Some(health_of.as_str().to_owned()),
        limit: Some(limit),
        ..EvaluationRecord::default()
    };
    // The report on a submitted document reveals captured text, because its expressions can test
    // anything.
    let others = filter.reach.owner() != who.user_id().as_ref();
    if let (Document::Given(given), true) = (&candidate, others) {
        let (action, revision) = (Action::CaptureEvaluate, given.revision());
        app.store.note(call.event(action, "config", revision)).await?;
    }
    let asked = Evaluation {
        candidate,
        baseline,
        health,
        filter,
        limits: CaptureLimits::new(limit),
        without_imported: false,
        conditions,
    };
    let told = evaluate::begin(app, turn, asked)?;
    Ok(ProgressStream::of(lines, told, move |event| {
        // The evaluation counts as a request of the caller until it ends.
        let _permit = &permit;
        step(event, &heading)
    }))
}

fn step(event: Result<EvaluationEvent>, heading: &EvaluationRecord) -> ProgressStep {
    match event {
        Ok(EvaluationEvent::Progress(progress)) => ProgressStep::Line(line(progress)),
        Ok(EvaluationEvent::Done(report)) => ProgressStep::Answer(report.and_then(|report| {
            let EvaluationRecord { revision, baseline, health, limit, .. } = heading.clone();
            let asked = EvaluationRecord { revision, baseline, health, limit, ..report.record() };
            Answer::from(&asked).respond(200)
        })),
        Err(error) => ProgressStep::Answer(Err(error)),
    }
}

fn health_source(
    app: &App,
    word: AssumedHealth,
    candidate: &Document,
    live: &Routing,
) -> HealthSource {
    match word {
        AssumedHealth::Recorded => HealthSource::Recorded,
        AssumedHealth::Current => HealthSource::Given(current(app, candidate, live)),
        AssumedHealth::Healthy => HealthSource::Given(BTreeMap::new()),
    }
}

/// The current health of the live document's targets and of all nodes. Other targets of the
/// candidate count as idle.
fn current(
    app: &App,
    candidate: &Document,
    live: &Routing,
) -> BTreeMap<String, rerouter_routing::TargetHealth> {
    let now = app.clock.now();
    let mut snapshot = app.standing(live, None, now);
    snapshot.retain(|name, told| told.node.is_some() || candidate.routing().has_target(name));
    app.nodes.look(candidate.routing(), None, now, &mut snapshot);
    snapshot
}

fn line(progress: EvaluationProgress) -> Value {
    let EvaluationProgress { done, limit, changed, reached } = progress;
    json!({
        "object": "evaluation.progress", "done": done, "limit": limit, "changed": changed,
        "reached": rfc3339(reached)
    })
}

fn document(asked: &Value) -> Result<Option<String>> {
    let text = match asked {
        Value::Null => return Ok(None),
        Value::String(text) if !text.trim().is_empty() => text.clone(),
        document @ Value::Object(_) => document.to_string(),
        _ => {
            let why = "document must be a routing document, as text or object.";
            return Err(Error::invalid("document", why));
        }
    };
    match text.len() <= bounds::DOCUMENT_BYTES {
        true => Ok(Some(text)),
        false => {
            let why = format!("document must have at most {} bytes.", bounds::DOCUMENT_BYTES);
            Err(Error::invalid("document", why))
        }
    }
}

/// The text of a filter's value, as a query would have it.
fn text(name: String, value: Value) -> Result<(String, String)> {
    match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => Err(Error::invalid(
            format!("filter.{name}"),
            format!("filter.{name} must be a string, a number, true or false."),
        )),
    }
}
