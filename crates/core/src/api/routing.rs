//! The routing document: read, replace, validate, list revisions, roll back. Documents are shown
//! with `${…}` unexpanded and without literal credentials.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Response};

use super::call::{Answer, Call, event};
use super::conditional::IfMatch;
use super::gate::Gate;
use super::outline::outline;
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use crate::config::{self, Problem};
use crate::reload::{self, ChangeAuthor, DocumentOrigin, Precondition, ReloadRefusal};
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_document::DOCUMENT_PROBLEMS;
use rerouter_records::error::ManagementError;
use rerouter_records::evaluation::Rollback;
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::routing::{
    Config, ConfigObject, ConfigSource, ConfigTaken, ListedRevision, ProblemRecord, RevisionObject,
    RevisionRecord, Validation,
};
use rerouter_routing::Routing;
use rerouter_store::{Action, DocumentRow, Event};

/// How often a gated change is tried if concurrent changes interfere.
const GATE_TRIES: usize = 3;

/// `GET /v1/router/config`; as YAML text if `Accept` asks for it.
pub(super) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Call { app, who, request }.no_query()?;
    let live = app.live();
    let (revision, text) = (live.routing.revision(), config::shown(live.routing.text()));
    let file = &app.server.routing.file;
    let source = match (file, app.server.routing.store) {
        (_, true) => ConfigSource::Store,
        (Some(_), _) => ConfigSource::File,
        (None, _) => ConfigSource::BuiltIn,
    };
    let mut response = if wants_yaml(request.headers()) {
        let mut response = Response::new(Bytes::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        response
    } else {
        let shown = Config {
            object: ConfigObject::It,
            revision: revision.to_owned(),
            live_since: live.since.into(),
            source,
            file: file.as_ref().map(|file| file.display().to_string()),
            document: text,
            outline: outline(&live.routing),
        };
        Answer::from(&shown).respond(200)?
    };
    tag(&mut response, revision);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub(super) async fn put(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let gate = Gate::read(&Call { app, who, request }.query()?)?;
    let expected = expected(app, request.headers())?;
    let text = document(request)?;
    let put = event(app, who, request, Action::ConfigPut, "config", "");
    let by = ChangeAuthor { principal: who, event: &put };
    let Some(gate) = gate else {
        let expecting = expecting(expected.as_deref());
        return taken(reload::apply(app, text, DocumentOrigin::Request, expecting, by).await);
    };
    let tried =
        |revision: &str| event(app, who, request, Action::CaptureEvaluate, "config", revision);
    gated(app, &text, expected.as_deref(), &gate, (by, &tried)).await
}

/// Makes a change that must pass the gate. The change is evaluated on recent captures against the
/// document that it replaces, and again if that document changes meanwhile. The evaluation reads
/// captures of all owners, which is audited. Only an admin gets examples in the answer.
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
            return taken(Err(ReloadRefusal::stale(app, revision.to_owned())));
        }
        let candidate = match read(app, text.to_owned()).await? {
            Ok(candidate) => candidate,
            Err(problems) => return taken(Err(ReloadRefusal::Problems(problems))),
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
            Err(ReloadRefusal::Stale { .. }) if expected.is_none() => {}
            outcome => return taken(outcome),
        }
    }
    Err(Error::new(
        Kind::Unavailable,
        "The routing document changed repeatedly during the evaluation; retry.",
    )
    .retry_after(bounds::LIMIT_RETRY))
}

/// Parses a submitted document without reading variables.
pub(super) async fn read(
    app: &App,
    text: String,
) -> Result<std::result::Result<Routing, Vec<Problem>>> {
    let (server, mock) = (app.server.clone(), app.mock);
    let reading = blocking(move || config::read_unexpanded(&text, &server, mock));
    Ok(reading.await?)
}

/// `POST /v1/router/config/validate`: returns every problem and warning. Stores nothing and reads
/// no variable.
pub(super) async fn validate(call: Call<'_>) -> Result<Answer<Validation>> {
    let text = document(call.request)?;
    let (server, mock) = (call.app.server.clone(), call.app.mock);
    let (problems, warnings) = blocking(move || config::validate(&text, &server, mock)).await?;
    let valid = problems.is_empty();
    Ok(Validation { valid, problems: listed(&problems), warnings: listed(&warnings) }.into())
}

/// `GET /v1/router/config/revisions`: earlier live documents, newest first.
pub(super) async fn revisions(
    call: Call<'_>,
    query: PageQuery,
) -> Result<Answer<Page<ListedRevision>>> {
    let (store, PageQuery { limit, after }) = (&call.app.store, query);
    if let Some(after) = &after
        && store.document(after).await.map_err(Error::store_unavailable)?.is_none()
    {
        return Err(Error::invalid("after", "after must be a revision of this list."));
    }
    let found = store.documents(limit + 1, after).await.map_err(Error::store_unavailable)?;
    let live = call.app.revision();
    let record = |row: DocumentRow| ListedRevision {
        object: RevisionObject::It,
        id: row.revision.clone(),
        live: row.revision == live,
        revision: row.revision,
        created_at: row.created_at.into(),
        live_at: row.live_at.into(),
    };
    let found = found.into_iter().map(record).collect();
    Ok(Page::of(found, limit, |row: &ListedRevision| row.id.clone()).into())
}

/// `GET /v1/router/config/revisions/{revision}`: the text of a document that was live.
pub(super) async fn revision(call: Call<'_>) -> Result<Answer<RevisionRecord>> {
    let (app, revision) = (call.app, call.id());
    let kept = app.store.document(revision).await.map_err(Error::store_unavailable)?;
    let text = kept.ok_or_else(|| Error::not_found("revision"))?;
    let record = RevisionRecord {
        object: RevisionObject::It,
        id: revision.to_owned(),
        revision: revision.to_owned(),
        live: revision == app.revision(),
        document: config::shown(&text),
    };
    Ok(record.into())
}

/// `POST /v1/router/config/rollback`: makes an earlier document live again.
pub(super) async fn rollback(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let call = Call { app, who, request };
    call.no_query()?;
    let expected = expected(app, request.headers())?;
    let Rollback { revision } = call.body()?;
    let kept = app.store.document(&revision).await.map_err(Error::store_unavailable)?;
    let text = kept.ok_or_else(|| Error::not_found("revision"))?;
    let event = call.event(Action::ConfigRollback, "config", &revision);
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

fn document(request: &ApiRequest) -> Result<String> {
    let text = std::str::from_utf8(request.body())
        .map_err(|_| Error::new(Kind::InvalidRequest, "The document is not UTF-8 text."))?;
    if text.trim().is_empty() {
        return Err(Error::new(Kind::InvalidRequest, "The body must be a routing document."));
    }
    Ok(text.to_owned())
}

/// The revision that the change expects to be live (RFC 9110 section 13.1.1); `None` for any.
fn expected(app: &App, headers: &HeaderMap) -> Result<Option<String>> {
    Ok(IfMatch::read(headers)?.expected(&app.revision()))
}

fn expecting(expected: Option<&str>) -> Precondition<'_> {
    expected.map_or(Precondition::Any, Precondition::RevisionAndFile)
}

/// 400 with all problems of a document.
pub(super) fn problems(problems: &[Problem]) -> ApiResult {
    let first = problems.first().map(Problem::to_string).unwrap_or_default();
    let refusal = ManagementError {
        error: Kind::InvalidRequest.row().word.to_owned(),
        detail: format!("The document has {} problem(s). {first}", problems.len()),
        problems: Some(listed(problems)),
        ..ManagementError::default()
    };
    Answer::from(&refusal).respond(400)
}

fn taken(outcome: std::result::Result<reload::Applied, ReloadRefusal>) -> ApiResult {
    match outcome {
        Ok(taken) => {
            let reload::Applied { revision, previous, warnings } = taken;
            let body = ConfigTaken { revision, previous, warnings };
            let mut response = Answer::from(&body).respond(200)?;
            tag(&mut response, &body.revision);
            Ok(response)
        }
        Err(ReloadRefusal::Problems(found)) => problems(&found),
        Err(ReloadRefusal::Stale { live, refused: None }) => Err(Error::new(
            Kind::PreconditionFailed,
            format!("Revision {live} is live. Read it again, then retry."),
        )),
        Err(ReloadRefusal::Stale { live, refused: Some(stored) }) => {
            let why = format!(
                "The store has revision {stored}, which this gateway refused: {live} is live \
                 here. Send the change to a gateway that has {stored}, or omit If-Match."
            );
            Err(Error::new(Kind::PreconditionFailed, why))
        }
        Err(ReloadRefusal::Changed(file)) => {
            let why = format!(
                "{} has changed and is not live yet. Check it, then retry, or omit If-Match.",
                file.display()
            );
            Err(Error::new(Kind::PreconditionFailed, why))
        }
        Err(ReloadRefusal::ReadOnly(why)) => Err(Error::new(
            Kind::ReadOnly,
            format!("The routing document is read-only here: {why}."),
        )),
        Err(ReloadRefusal::Failed(error)) => Err(error),
    }
}

fn listed(problems: &[Problem]) -> Vec<ProblemRecord> {
    let record = |problem: &Problem| ProblemRecord {
        path: problem.path.clone(),
        line: problem.line,
        column: problem.column,
        message: problem.message.clone(),
        hint: problem.hint.clone(),
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
