//! The routing document: read, replace, validate, list revisions, roll back. Documents are shown
//! with `${…}` unexpanded and without literal credentials.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::answer;
use super::call::{Call, event};
use super::gate::Gate;
use super::outline::outline;
use super::page::{self, Query};
use super::route::{ApiRequest, ApiResult, PathParams};
use crate::app::App;
use crate::config::{self, Problem};
use crate::reload::{self, ChangeAuthor, DocumentOrigin, NotApplied, Precondition};
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_document::DOCUMENT_PROBLEMS;
use rerouter_records::evaluation::Rollback;
use rerouter_routing::Routing;
use rerouter_store::{Action, DocumentRow, Event};

/// Tries of a gated change when others come between.
const GATE_TRIES: usize = 3;

/// `GET /v1/router/config`; as YAML text if `Accept` asks for it.
pub(super) async fn get(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let live = app.live();
    let (revision, text) = (live.routing.revision(), config::shown(live.routing.text()));
    let file = config::routing_path(&app.server);
    let source = match (&file, app.server.routing.store) {
        (_, true) => "store",
        (Some(_), _) => "file",
        (None, _) => "built_in",
    };
    let mut response = if wants_yaml(request.headers()) {
        let mut response = Response::new(Bytes::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        response
    } else {
        let file = file.map(|file| file.display().to_string());
        let shown = json!({
            "object": "config", "revision": revision, "live_since": rfc3339(live.since),
            "source": source, "file": file, "document": text,
            "outline": outline(&live.routing),
        });
        answer::json(StatusCode::OK, &shown)
    };
    tag(&mut response, revision);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub(super) async fn put(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), Gate::PARAMETERS)?;
    let gate = Gate::read(&query)?;
    let expected = expected(request.headers())?;
    let text = document(request)?;
    let put = event(app, who, request, Action::ConfigPut, "config", "");
    match gate {
        None => taken(
            reload::apply(
                app,
                text,
                DocumentOrigin::Request,
                expecting(expected.as_deref()),
                ChangeAuthor { principal: who, event: &put },
            )
            .await,
        ),
        Some(gate) => {
            let tried = |revision: &str| {
                event(app, who, request, Action::CaptureEvaluate, "config", revision)
            };
            gated(
                app,
                &text,
                expected.as_deref(),
                &gate,
                (ChangeAuthor { principal: who, event: &put }, &tried),
            )
            .await
        }
    }
}

/// A change that must pass the gate: it is evaluated on recent captures against the document that
/// it replaces, again if that one changes meanwhile. The evaluation reads captures of all owners,
/// which is audited; the answer names examples to an admin only.
async fn gated(
    app: &App,
    text: &str,
    expected: Option<&str>,
    gate: &Gate,
    (by, tried): (ChangeAuthor<'_>, &(dyn Fn(&str) -> Event + Sync)),
) -> ApiResult {
    for attempt in 0..GATE_TRIES {
        let live = app.live();
        let revision = live.routing.revision();
        if expected.is_some_and(|expected| expected != revision) {
            return taken(Err(NotApplied::stale(app, revision.to_owned())));
        }
        let candidate = match read(app, text.to_owned()).await? {
            Ok(candidate) => candidate,
            Err(problems) => return taken(Err(NotApplied::Problems(problems))),
        };
        if attempt == 0 {
            app.store.note(tried(candidate.revision())).await?;
        }
        if let Some(refusal) =
            gate.try_on(app, candidate, live.clone(), by.principal.is_admin()).await?
        {
            return Ok(refusal);
        }
        let expecting =
            expected.map_or(Precondition::Revision(revision), Precondition::RevisionAndFile);
        match reload::apply(app, text.to_owned(), DocumentOrigin::Request, expecting, by).await {
            Err(NotApplied::Stale { .. }) if expected.is_none() => {}
            outcome => return taken(outcome),
        }
    }
    Err(Error::new(
        Kind::Unavailable,
        "The routing document changed repeatedly during the evaluation; retry.",
    )
    .retry_after(bounds::LIMIT_RETRY))
}

/// Parses a given document without variables.
pub(super) async fn read(
    app: &App,
    text: String,
) -> Result<std::result::Result<Routing, Vec<Problem>>> {
    let (server, mock) = (app.server.clone(), app.mock);
    let reading = blocking(move || config::read_unexpanded(&text, &server, mock));
    Ok(reading.await?)
}

/// `POST /v1/router/config/validate`: every problem and warning. Keeps nothing and reads no
/// variable.
pub(super) async fn validate(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let text = document(request)?;
    let (server, mock) = (app.server.clone(), app.mock);
    let (problems, warnings) = blocking(move || config::validate(&text, &server, mock)).await?;
    let (valid, problems, warnings) = (problems.is_empty(), listed(&problems), listed(&warnings));
    Ok(answer::json(
        StatusCode::OK,
        &json!({ "valid": valid, "problems": problems, "warnings": warnings }),
    ))
}

/// `GET /v1/router/config/revisions`: earlier live documents, newest first.
pub(super) async fn revisions(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), &["limit", "after"])?;
    let limit = query.limit()?;
    let after = query.get("after").map(str::to_owned);
    if let Some(after) = &after
        && app.store.document(after).await.map_err(Error::store_unavailable)?.is_none()
    {
        return Err(Error::invalid("after", "after must be a revision of this list."));
    }
    let found = app.store.documents(limit + 1, after).await.map_err(Error::store_unavailable)?;
    let live = app.revision();
    let record = |row: &DocumentRow| {
        json!({
            "object": "revision", "id": row.revision, "revision": row.revision,
            "created_at": rfc3339(row.created_at),
            "live_at": rfc3339(row.live_at), "live": row.revision == live,
        })
    };
    Ok(answer::json(StatusCode::OK, &page::list(found.iter().map(record).collect(), limit)))
}

/// `GET /v1/router/config/revisions/{revision}`: the text of a document that was live.
pub(super) async fn revision(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let revision = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let kept = app.store.document(revision).await.map_err(Error::store_unavailable)?;
    let text = kept.ok_or_else(|| Error::not_found("revision"))?;
    let record = json!({
        "object": "revision", "id": revision, "revision": revision,
        "live": revision == app.revision(), "document": config::shown(&text),
    });
    Ok(answer::json(StatusCode::OK, &record))
}

/// `POST /v1/router/config/rollback`: makes an earlier document live again.
pub(super) async fn rollback(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let expected = expected(request.headers())?;
    let Rollback { revision } = Call { app, who, request }.body()?;
    let kept = app.store.document(&revision).await.map_err(Error::store_unavailable)?;
    let text = kept.ok_or_else(|| Error::not_found("revision"))?;
    let event = event(app, who, request, Action::ConfigRollback, "config", &revision);
    taken(
        reload::apply(
            app,
            text,
            DocumentOrigin::Store,
            expecting(expected.as_deref()),
            ChangeAuthor { principal: who, event: &event },
        )
        .await,
    )
}

/// The document in the body.
fn document(request: &ApiRequest) -> Result<String> {
    let text = std::str::from_utf8(request.body())
        .map_err(|_| Error::new(Kind::InvalidRequest, "The document is not UTF-8 text."))?;
    if text.trim().is_empty() {
        return Err(Error::new(Kind::InvalidRequest, "The body must be a routing document."));
    }
    Ok(text.to_owned())
}

/// The revision that the change expects to be live (RFC 9110 section 13.1.1); `None` for any.
fn expected(headers: &HeaderMap) -> Result<Option<String>> {
    let mut lines = headers.get_all(IF_MATCH).iter();
    let malformed = || Error::invalid("If-Match", "If-Match must be `*` or one entity tag.");
    let Some(line) = lines.next() else { return Ok(None) };
    let line = line.to_str().map_err(|_| malformed())?.trim();
    if lines.next().is_some() {
        return Err(malformed());
    }
    if line == "*" {
        return Ok(None);
    }
    let tag = line
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|tag| !tag.contains('"'));
    tag.map(|tag| Some(tag.to_owned())).ok_or_else(malformed)
}

fn expecting(expected: Option<&str>) -> Precondition<'_> {
    expected.map_or(Precondition::Any, Precondition::RevisionAndFile)
}

/// 400 with all problems of a document.
pub(super) fn problems(problems: &[Problem]) -> Response<Bytes> {
    let first = problems.first().map(Problem::to_string).unwrap_or_default();
    let detail = format!("The document has {} problem(s). {first}", problems.len());
    let body = json!({
        "error": Kind::InvalidRequest.row().word, "detail": detail, "problems": listed(problems)
    });
    answer::json(StatusCode::BAD_REQUEST, &body)
}

fn taken(outcome: std::result::Result<reload::Applied, NotApplied>) -> ApiResult {
    match outcome {
        Ok(taken) => {
            let body = json!({
                "revision": taken.revision, "previous": taken.previous, "warnings": taken.warnings
            });
            let mut response = answer::json(StatusCode::OK, &body);
            tag(&mut response, &taken.revision);
            Ok(response)
        }
        Err(NotApplied::Problems(found)) => Ok(problems(&found)),
        Err(NotApplied::Stale { live, refused: None }) => Err(Error::new(
            Kind::PreconditionFailed,
            format!("Revision {live} is live. Read it again, then retry."),
        )),
        Err(NotApplied::Stale { live, refused: Some(stored) }) => {
            let why = format!(
                "The store has revision {stored}, which this gateway refused: {live} is live \
                 here. Send the change to a gateway that has {stored}, or omit If-Match."
            );
            Err(Error::new(Kind::PreconditionFailed, why))
        }
        Err(NotApplied::Changed(file)) => {
            let why = format!(
                "{} has changed and is not live yet. Check it, then retry, or omit If-Match.",
                file.display()
            );
            Err(Error::new(Kind::PreconditionFailed, why))
        }
        Err(NotApplied::ReadOnly(why)) => Err(Error::new(
            Kind::ReadOnly,
            format!("The routing document is read-only here: {why}."),
        )),
        Err(NotApplied::Failed(error)) => Err(error),
    }
}

fn listed(problems: &[Problem]) -> Vec<Value> {
    let record = |problem: &Problem| {
        json!({
            "path": problem.path, "line": problem.line, "column": problem.column,
            "message": problem.message, "hint": problem.hint,
        })
    };
    problems.iter().take(DOCUMENT_PROBLEMS).map(record).collect()
}

fn tag(response: &mut Response<Bytes>, revision: &str) {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
}

fn wants_yaml(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let first =
        accept.split(',').next().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    matches!(
        first.to_ascii_lowercase().as_str(),
        "application/yaml" | "text/yaml" | "application/x-yaml"
    )
}
