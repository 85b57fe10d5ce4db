//! Nodes, enrolled by admins: name, permitted models and endpoint, and the secret that they sign
//! with.

use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::body::{BodyFields, check_name};
use super::page::{self, Query};
use super::route::{ApiRequest, ApiResult, PathParams};
use super::{answer, audit};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::nodes::NodeSnapshot;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::NodeId;
use rerouter_base::secret::{Secret, token};
use rerouter_routing::{BaseUrl, MODEL_NAME_BYTES};
use rerouter_store::{Action, NodeRow, PreviousNodeSecret, StoreError};

/// Model patterns in a node's enrolment.
const NODE_PATTERNS: usize = 32;
/// Bytes of a node's endpoint, key, version and model names, each.
pub(super) const NODE_TEXT_BYTES: usize = 512;
/// Grace of a node's previous secret, unless the new one is used earlier.
const NODE_ROTATION: Duration = Duration::from_secs(600);

/// Prefix of node secrets.
const AUDIENCE: &str = "nod";

pub(super) async fn create(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let now = app.clock.now();
    let mut fields = BodyFields::read(request)?;
    let name = fields.text("name")?;
    check_name(&name)?;
    let models: Vec<String> =
        fields.take("models", "a list of patterns")?.unwrap_or_else(|| vec!["*".to_owned()]);
    check_patterns(&models)?;
    let endpoint: Option<String> = fields.take("endpoint", "a URL")?;
    if let Some(endpoint) = &endpoint {
        place(endpoint)?;
    }
    fields.finish()?;
    let id = NodeId::new(now, &app.random);
    let secret = token::mint(AUDIENCE, &app.random);
    let node = NodeRow {
        name,
        models,
        endpoint,
        generation: 1,
        secret: sealed(app, &id, 1, &secret)?,
        previous: None,
        created_at: now,
        rotated_at: None,
        registration: None,
        id: id.clone(),
    };
    let event = audit::event(app, who, request, Action::NodeCreate, "node", id.as_str());
    let committed =
        app.store.noting(event).create_node(node).await.map_err(|error| match error {
            StoreError::Conflict => {
                Error::new(Kind::Conflict, "A node with this name already exists.")
            }
            StoreError::LimitReached => {
                Error::new(Kind::Conflict, "The maximum number of nodes is reached.")
            }
            other => other.into(),
        })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    let mut response = answer::secret_json(StatusCode::CREATED, &with_secret(app, &id, &secret)?);
    response.headers_mut().insert(
        LOCATION,
        HeaderValue::from_str(&format!("/v1/nodes/{id}")).map_err(Error::internal)?,
    );
    Ok(answer::confirmed(response, unconfirmed))
}

pub(super) async fn list(app: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    let (after, limit) = page::after_id(request.uri().query(), "a node", NodeId::parse)?;
    let found = app.nodes.page(after.as_ref(), limit + 1, app.clock.now());
    Ok(answer::json(StatusCode::OK, &page::list(found.iter().map(record).collect(), limit)))
}

pub(super) async fn get(app: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    Ok(answer::json(StatusCode::OK, &record(&find(app, request)?)))
}

pub(super) async fn delete(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let node = find(app, request)?;
    let event = audit::event(app, who, request, Action::NodeDelete, "node", node.row.id.as_str());
    let committed = app.store.noting(event).delete_node(&node.row.id).await?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::no_content(), unconfirmed))
}

/// `POST /v1/nodes/{id}/rotate`. The old secret stays valid until the new one is used, at most
/// [`NODE_ROTATION`].
pub(super) async fn rotate(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    BodyFields::read_if_any(request)?.finish()?;
    let (old, now) = (find(app, request)?.row, app.clock.now());
    let generation = old.generation + 1;
    let secret = token::mint(AUDIENCE, &app.random);
    let expires_at = now.checked_add(NODE_ROTATION).map_err(Error::internal)?;
    let next = NodeRow {
        generation,
        secret: sealed(app, &old.id, generation, &secret)?,
        previous: Some(PreviousNodeSecret { secret: old.secret.clone(), expires_at }),
        rotated_at: Some(now),
        ..NodeRow::clone(&old)
    };
    let event = audit::event(app, who, request, Action::NodeRotate, "node", old.id.as_str());
    let committed =
        app.store.noting(event).rotate_node(next).await.map_err(|error| match error {
            StoreError::Conflict => Error::new(Kind::Conflict, "Another rotation came first."),
            StoreError::NotFound => Error::not_found("node"),
            other => other.into(),
        })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    let response = answer::secret_json(StatusCode::OK, &with_secret(app, &old.id, &secret)?);
    Ok(answer::confirmed(response, unconfirmed))
}

fn sealed(app: &App, id: &NodeId, generation: u32, secret: &Secret) -> Result<Vec<u8>> {
    app.nodes
        .seal_secret(id, generation, secret, &app.random)
        .ok_or_else(|| Error::internal("cannot seal a node's secret"))
}

/// The record with the secret, which only this answer shows.
fn with_secret(app: &App, id: &NodeId, secret: &Secret) -> Result<Value> {
    let shown = app.nodes.show(id, app.clock.now()).ok_or_else(|| Error::not_found("node"))?;
    let mut record = record(&shown);
    if let Value::Object(fields) = &mut record {
        fields.insert("secret".into(), secret.expose().into());
    }
    Ok(record)
}

fn find(app: &App, request: &ApiRequest) -> Result<NodeSnapshot> {
    let id =
        request.extensions().get::<PathParams>().and_then(|params| NodeId::parse(params.first()));
    id.and_then(|id| app.nodes.show(&id, app.clock.now())).ok_or_else(|| Error::not_found("node"))
}

fn check_patterns(patterns: &[String]) -> Result<()> {
    let well = |pattern: &String| {
        let star = pattern.find('*').is_none_or(|at| at + 1 == pattern.len());
        star && !pattern.is_empty()
            && pattern.len() <= MODEL_NAME_BYTES
            && pattern.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let most = NODE_PATTERNS;
    if (1..=most).contains(&patterns.len()) && patterns.iter().all(well) {
        return Ok(());
    }
    Err(Error::invalid(
        "models",
        format!("models must be 1 to {most} model names; each may end with a *."),
    ))
}

/// Parses an endpoint: the base URL of an OpenAI-compatible API, with or without `/v1`.
pub(super) fn place(endpoint: &str) -> Result<BaseUrl> {
    let base = if endpoint.len() <= NODE_TEXT_BYTES {
        BaseUrl::parse(endpoint)
    } else {
        Err("is too long")
    };
    base.map(BaseUrl::versioned)
        .map_err(|wrong| Error::invalid("endpoint", format!("endpoint {wrong}.")))
}

pub(super) fn record(shown: &NodeSnapshot) -> Value {
    let row = &shown.row;
    let registered = row.registration.as_ref().map(|registration| {
        let at = jiff::Timestamp::from_microsecond(registration.at_us).ok().map(rfc3339);
        json!({
            "at": at, "epoch": registration.epoch, "version": registration.version,
            "endpoint": registration.endpoint, "models": registration.models,
            "max_concurrency": registration.max_concurrency, "labels": registration.labels,
        })
    });
    json!({
        "object": "node", "id": row.id, "name": row.name, "models": row.models,
        "endpoint": row.endpoint,
        "state": shown.standing.as_str(), "running": shown.load.running,
        "queued": shown.load.queued, "inflight": shown.inflight,
        "breaker": shown.breaker,
        "lease_expires_at": shown.lease_until.map(rfc3339), "registered": registered,
        "generation": row.generation,
        "previous_secret_expires_at": row.previous.as_ref().map(
            |previous| rfc3339(previous.expires_at)
        ),
        "created_at": rfc3339(row.created_at), "rotated_at": row.rotated_at.map(rfc3339),
    })
}
