//! Nodes, which admins enrol: name, permitted models and endpoint, and the secret that they sign
//! with.

use std::time::Duration;

use jiff::Timestamp;

use super::body::check_name;
use super::call::{Answer, Call};
use super::page;
use crate::app::App;
use rerouter_access::nodes::NodeSnapshot;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::NodeId;
use rerouter_base::secret::{Secret, token};
use rerouter_records::ShownSecret;
use rerouter_records::node::{NewNode, NoBody, NodeObject, NodeRecord, NodeWithSecret};
use rerouter_records::page::{Page, PageQuery};
use rerouter_routing::{BaseUrl, MODEL_NAME_BYTES};
use rerouter_store::{Action, NodeRow, PreviousNodeSecret, StoreError};

/// Most model patterns in a node's enrolment.
const NODE_PATTERNS: usize = 32;
/// Longest endpoint, key, version or model name of a node, in bytes.
pub(super) const NODE_TEXT_BYTES: usize = 512;
/// Time for which a node's previous secret still works, unless the new one is used earlier.
const NODE_ROTATION: Duration = Duration::from_secs(600);

/// Prefix of node secrets.
const AUDIENCE: &str = "nod";

pub(super) async fn create(call: Call<'_>, new: NewNode) -> Result<Answer<NodeWithSecret>> {
    let (app, now) = (call.app, call.now());
    check_name(&new.name)?;
    let models = new.models.unwrap_or_else(|| vec!["*".to_owned()]);
    check_patterns(&models)?;
    if let Some(endpoint) = &new.endpoint {
        place(endpoint)?;
    }
    let id = NodeId::new(now, &app.random);
    let secret = token::mint(AUDIENCE, &app.random);
    let node = NodeRow {
        name: new.name,
        models,
        endpoint: new.endpoint,
        generation: 1,
        secret: sealed(app, &id, 1, &secret)?,
        previous: None,
        created_at: now,
        rotated_at: None,
        registration: None,
        id: id.clone(),
    };
    let store = call.noting(Action::NodeCreate, "node", id.as_str());
    let committed = store.create_node(node).await.map_err(|error| match error {
        StoreError::Conflict => Error::conflict("A node with this name already exists."),
        StoreError::LimitReached => Error::conflict("The maximum number of nodes is reached."),
        other => other.into(),
    })?;
    let made = with_secret(app, &id, &secret)?;
    call.commit(&committed, made).await?.secret().at(&format!("/v1/nodes/{id}"))
}

pub(super) async fn list(call: Call<'_>, query: PageQuery) -> Result<Answer<Page<NodeRecord>>> {
    let after = page::after(query.after.as_deref(), "a node", NodeId::parse)?;
    let found = call.app.nodes.page(after.as_ref(), query.limit + 1, call.now());
    let found = found.iter().map(|shown| record(shown, call.now())).collect();
    Ok(Page::of(found, query.limit, |node: &NodeRecord| node.id.to_string()).into())
}

pub(super) async fn get(call: Call<'_>) -> Result<Answer<NodeRecord>> {
    Ok(record(&find(call)?, call.now()).into())
}

pub(super) async fn delete(call: Call<'_>) -> Result<Answer<()>> {
    let node = find(call)?;
    let store = call.noting(Action::NodeDelete, "node", node.row.id.as_str());
    let committed = store.delete_node(&node.row.id).await?;
    call.commit(&committed, ()).await
}

/// `POST /v1/nodes/{id}/rotate`. The old secret stays valid until the new one is used, at most
/// [`NODE_ROTATION`].
pub(super) async fn rotate(call: Call<'_>, _: NoBody) -> Result<Answer<NodeWithSecret>> {
    let (app, old, now) = (call.app, find(call)?.row, call.now());
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
    let store = call.noting(Action::NodeRotate, "node", old.id.as_str());
    let committed = store.rotate_node(next).await.map_err(|error| match error {
        StoreError::Conflict => Error::conflict("Another rotation came first."),
        StoreError::NotFound => Error::not_found("node"),
        other => other.into(),
    })?;
    let made = with_secret(app, &old.id, &secret)?;
    Ok(call.commit(&committed, made).await?.secret())
}

fn sealed(app: &App, id: &NodeId, generation: u32, secret: &Secret) -> Result<Vec<u8>> {
    app.nodes
        .seal_secret(id, generation, secret, &app.random)
        .ok_or_else(|| Error::internal("cannot seal a node's secret"))
}

fn with_secret(app: &App, id: &NodeId, secret: &Secret) -> Result<NodeWithSecret> {
    let now = app.clock.now();
    let shown = app.nodes.show(id, now).ok_or_else(|| Error::not_found("node"))?;
    Ok(NodeWithSecret { record: record(&shown, now), secret: ShownSecret(secret.clone()) })
}

fn find(call: Call<'_>) -> Result<NodeSnapshot> {
    NodeId::parse(call.id())
        .and_then(|id| call.app.nodes.show(&id, call.now()))
        .ok_or_else(|| Error::not_found("node"))
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

pub(super) fn record(shown: &NodeSnapshot, now: Timestamp) -> NodeRecord {
    let row = &shown.row;
    let previous = row.previous.as_ref().map(|old| old.expires_at).filter(|end| now < *end);
    NodeRecord {
        object: NodeObject::It,
        id: row.id.clone(),
        name: row.name.clone(),
        models: row.models.clone(),
        endpoint: row.endpoint.clone(),
        state: shown.standing,
        running: shown.load.running,
        queued: shown.load.queued,
        inflight: shown.inflight,
        breaker: shown.breaker,
        lease_expires_at: shown.lease_until.map(Into::into),
        registered: row.registration.as_ref().map(Into::into),
        generation: row.generation,
        previous_secret_expires_at: previous.map(Into::into),
        created_at: row.created_at.into(),
        rotated_at: row.rotated_at.map(Into::into),
    }
}
