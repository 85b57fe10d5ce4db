//! Signed callbacks of nodes: register, heartbeat, events, deregister. A node reports about itself
//! only, and only within its enrolment.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{BodyFields, METADATA_NAME_CHARS, check_pairs};
use super::node_endpoint::may_serve_at;
use super::nodes::NODE_TEXT_BYTES;
use super::page::Query;
use super::route::{ApiRequest, ApiResult, ClientOrigin};
use super::{answer, nodes};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::nodes::{Heartbeat, HeartbeatError, NodeLoad, NodeStatus};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::NodeId;
use rerouter_base::secret::Secret;
use rerouter_routing::MODEL_NAME_BYTES;
use rerouter_store::{Change, NodeModel, NodeReport, NodeRow, Registration, StoreError, covers};

/// Models that a node serves at once.
pub const NODE_MODELS: usize = 64;
/// Events of a node in one body.
const NODE_EVENTS: usize = 1_000;

pub(super) async fn register(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let ((id, signed_s), now) = (node(who)?, app.clock.now());
    let asked = RegistrationRequest::read(request)?;
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    within_enrolment(&row, &asked.models)?;
    let client = request.extensions().get::<ClientOrigin>().cloned().unwrap_or_default();
    may_serve_at(app, &row, &nodes::place(&asked.endpoint)?, &client).await?;
    let seal = |key: Secret| {
        let sealed = app.nodes.seal_key(id, &key, &app.random);
        sealed.ok_or_else(|| Error::internal("cannot seal a node's key"))
    };
    let registration = Registration {
        epoch: 0,
        at_us: now.as_microsecond(),
        signed_s,
        ended: false,
        version: asked.version,
        endpoint: asked.endpoint,
        api_key: asked.api_key.map(seal).transpose()?,
        models: asked.models,
        max_concurrency: asked.max_concurrency,
        labels: asked.labels,
    };
    let committed = app.store.register_node(id, registration).await.map_err(gone)?;
    let epoch = committed
        .changes
        .iter()
        .find_map(epoch_of)
        .ok_or_else(|| Error::internal("a registration without an epoch"))?;
    app.nodes.begin(id, epoch, now);
    // A node that is new to a gateway which answers without a lease harms nobody.
    app.store.acknowledge(committed.rev).await?;
    let begun = NodeReport {
        node: id.clone(),
        epoch,
        seq: None,
        status: NodeStatus::Ready.as_str().to_owned(),
        running: 0,
        queued: 0,
    };
    tell_others(app, begun).await;
    let shown = app.nodes.show(id, now).ok_or_else(|| Error::not_found("node"))?;
    if shown.row.registration.as_ref().is_none_or(|registration| registration.epoch != epoch) {
        // Another process of this node has registered since.
        return Err(gone(StoreError::Conflict));
    }
    let (heartbeat, lease) = (bounds::NODE_HEARTBEAT.as_secs(), bounds::NODE_LEASE.as_secs());
    Ok(answer::json(
        StatusCode::OK,
        &json!({
            "node": nodes::record(&shown), "heartbeat_interval_s": heartbeat, "lease_s": lease
        }),
    ))
}

struct RegistrationRequest {
    version: String,
    endpoint: String,
    api_key: Option<Secret>,
    models: Vec<NodeModel>,
    max_concurrency: Option<u32>,
    labels: BTreeMap<String, String>,
}

impl RegistrationRequest {
    fn read(request: &ApiRequest) -> Result<Self> {
        let mut fields = BodyFields::read(request)?;
        let version = fields.text("version")?;
        bounded("version", &version)?;
        let endpoint = fields.text("endpoint")?;
        nodes::place(&endpoint)?;
        let api_key = fields.take::<String>("api_key", "a string")?.map(Secret::new);
        if !api_key.as_ref().is_none_or(is_api_key) {
            let most = NODE_TEXT_BYTES;
            let detail = format!("api_key must be 1 to {most} visible ASCII characters.");
            return Err(Error::invalid("api_key", detail));
        }
        let models = read_models(&mut fields)?;
        let models = models.ok_or_else(|| Error::invalid("models", "models is required."))?;
        let max_concurrency = fields.take("max_concurrency", "a whole number from 1")?;
        if max_concurrency == Some(0) {
            let detail = "max_concurrency must be a whole number from 1.";
            return Err(Error::invalid("max_concurrency", detail));
        }
        let labels = fields.take("labels", "an object of strings")?.unwrap_or_default();
        check_pairs("labels", &labels)?;
        fields.finish()?;
        Ok(RegistrationRequest { version, endpoint, api_key, models, max_concurrency, labels })
    }
}

fn is_api_key(key: &Secret) -> bool {
    let key = key.expose();
    (1..=NODE_TEXT_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
}

pub(super) async fn heartbeat(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let (id, signed_s) = node(who)?;
    let mut fields = BodyFields::read(request)?;
    let epoch: Option<u64> = fields.take("epoch", "a whole number")?;
    let required = |name: &str| Error::invalid(name, format!("{name} is required."));
    let seq: u64 = fields.take("seq", "a whole number")?.ok_or_else(|| required("seq"))?;
    let status = fields.text("status")?;
    let status = NodeStatus::parse(&status)
        .ok_or_else(|| Error::invalid("status", "status must be ready, draining or error."))?;
    let running: u32 =
        fields.take("running", "a whole number")?.ok_or_else(|| required("running"))?;
    let queued: u32 = fields.take("queued", "a whole number")?.ok_or_else(|| required("queued"))?;
    let models = read_models(&mut fields)?;
    fields.finish()?;
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    if let Some(models) = &models {
        within_enrolment(&row, models)?;
    }
    let report = Heartbeat { epoch, signed_s, seq, status, load: NodeLoad { running, queued } };
    app.nodes.report(id, report, app.clock.now()).map_err(|untaken| match untaken {
        HeartbeatError::Seq => Error::new(Kind::Conflict, SEQ),
        HeartbeatError::Epoch => gone(StoreError::Conflict),
        HeartbeatError::Unregistered => {
            Error::new(Kind::Conflict, "The node is not registered. Register first.")
        }
    })?;
    let before = row.registration.as_ref();
    let report = NodeReport {
        node: id.clone(),
        epoch: epoch.or(before.map(|before| before.epoch)).unwrap_or(0),
        seq: Some(seq),
        status: status.as_str().to_owned(),
        running,
        queued,
    };
    if !tell_others(app, report).await {
        return Err(Error::new(Kind::Conflict, SEQ));
    }
    if let (Some(models), Some(before)) = (models, before)
        && models != before.models
    {
        let committed = app.store.amend_node(id, before.epoch, Some(models)).await.map_err(gone)?;
        app.store.acknowledge(committed.rev).await?;
    }
    Ok(answer::json(
        StatusCode::OK,
        &json!({ "lease_s": bounds::NODE_LEASE.as_secs(), "actions": [] }),
    ))
}

const SEQ: &str = "seq must increase with each heartbeat.";

/// Tells the gateways that share the store; `false` if they know a later report. Where the store
/// fails, this gateway alone knows, and the node reports again soon.
async fn tell_others(app: &App, report: NodeReport) -> bool {
    let told = app.store.report_node(report).await;
    told.unwrap_or_else(|error| {
        log::debug!("a heartbeat is known to this gateway only: {error}");
        true
    })
}

/// An event of a node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEvent {
    id: String,
    at: String,
    level: String,
    message: String,
    #[serde(default)]
    data: Value,
}

/// `POST /v1/agent/events`: writes events to the log, each id once, also across restarts.
pub(super) async fn events(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let (id, _) = node(who)?;
    let mut fields = BodyFields::read(request)?;
    let what = "a list of {\"id\", \"at\", \"level\", \"message\", \"data\"?}";
    let events: Vec<NodeEvent> = fields
        .take("events", what)?
        .ok_or_else(|| Error::invalid("events", format!("events must be {what}.")))?;
    fields.finish()?;
    if events.len() > NODE_EVENTS {
        return Err(Error::invalid(
            "events",
            format!("events may have up to {} entries.", NODE_EVENTS),
        ));
    }
    for event in &events {
        if event.id.is_empty() || event.id.len() > METADATA_NAME_CHARS {
            return Err(Error::invalid(
                "events",
                format!("The id of an event must have 1 to {} bytes.", METADATA_NAME_CHARS),
            ));
        }
        if event.at.parse::<jiff::Timestamp>().is_err() {
            return Err(Error::invalid("events", "The at of an event must be an RFC 3339 time."));
        }
        level(&event.level)?;
    }
    let ids = events.iter().map(|event| event.id.clone()).collect();
    // Stored before they are logged: repetitions during a store failure do not flood the log.
    let new = app.store.note_events(id, ids).await.map_err(gone)?;
    for (event, _) in events.iter().zip(&new).filter(|(_, new)| **new) {
        // Debug-quoted, so that a message cannot forge log lines.
        let message: String = event.message.chars().take(NODE_TEXT_BYTES).collect();
        let data = if event.data.is_null() {
            String::new()
        } else {
            event.data.to_string().chars().take(NODE_TEXT_BYTES).collect()
        };
        log::log!(level(&event.level)?, "{id} at {}: {message:?} {data:?}", event.at);
    }
    let accepted = new.iter().filter(|new| **new).count();
    Ok(answer::json(
        StatusCode::ACCEPTED,
        &json!({ "accepted": accepted, "duplicates": new.len() - accepted }),
    ))
}

pub(super) async fn deregister(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let mut fields = BodyFields::read_if_any(request)?;
    let epoch: Option<u64> = fields.take("epoch", "a whole number")?;
    fields.finish()?;
    let (id, signed_s) = node(who)?;
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    if let Some(registration) = &row.registration {
        if registration.is_after(epoch, signed_s) {
            // An old process must not deregister its successor.
            return Err(gone(StoreError::Conflict));
        }
        let committed = app.store.amend_node(id, registration.epoch, None).await.map_err(gone)?;
        app.store.acknowledge(committed.rev).await?;
    }
    Ok(answer::no_content())
}

/// The calling node, and its signature's time in seconds since the epoch.
fn node(who: &Principal) -> Result<(&NodeId, i64)> {
    match who {
        Principal::Node { id, signed } => Ok((id, signed.created)),
        _ => Err(Error::internal("a node route was called by another principal")),
    }
}

fn epoch_of(change: &Change) -> Option<u64> {
    if let Change::Node(row) = change {
        row.registration.as_ref().map(|registration| registration.epoch)
    } else {
        None
    }
}

/// The error of a change to a node that changed meanwhile.
fn gone(error: StoreError) -> Error {
    match error {
        StoreError::NotFound => Error::not_found("node"),
        StoreError::Conflict => {
            Error::new(Kind::Conflict, "The node has registered again during this request.")
        }
        other => other.into(),
    }
}

fn level(word: &str) -> Result<log::Level> {
    match word {
        "debug" => Ok(log::Level::Debug),
        "info" => Ok(log::Level::Info),
        "warn" | "warning" => Ok(log::Level::Warn),
        "error" => Ok(log::Level::Error),
        _ => Err(Error::invalid(
            "events",
            "The level of an event must be debug, info, warn or error.",
        )),
    }
}

fn bounded(name: &str, text: &str) -> Result<()> {
    if (1..=NODE_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(
        name,
        format!("{name} must have 1 to {} bytes and no control characters.", NODE_TEXT_BYTES),
    ))
}

fn read_models(fields: &mut BodyFields) -> Result<Option<Vec<NodeModel>>> {
    let Some(models) = fields
        .take::<Vec<NodeModel>>("models", "a list of {\"id\", \"context\"?, \"capabilities\"?}")?
    else {
        return Ok(None);
    };
    let well = |id: &str| {
        (1..=MODEL_NAME_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let most = NODE_MODELS;
    if models.len() > most || !models.iter().all(|model| well(&model.id)) {
        return Err(Error::invalid(
            "models",
            format!("models may have up to {most} entries, with ids of visible ASCII characters."),
        ));
    }
    if models.iter().any(|model| model.context == Some(0)) {
        return Err(Error::invalid(
            "models",
            "context must be a whole number from 1; omit it if unknown.",
        ));
    }
    let words = |model: &NodeModel| {
        model
            .capabilities
            .as_ref()
            .is_none_or(|words| words.len() <= 16 && words.iter().all(|word| word.len() <= 64))
    };
    if !models.iter().all(words) {
        return Err(Error::invalid(
            "models",
            "capabilities may have up to 16 entries of up to 64 bytes.",
        ));
    }
    let twice = models
        .iter()
        .enumerate()
        .any(|(at, model)| models.iter().take(at).any(|other| other.id == model.id));
    if twice {
        Err(Error::invalid("models", "Two models have the same id."))
    } else {
        Ok(Some(models))
    }
}

fn within_enrolment(row: &NodeRow, models: &[NodeModel]) -> Result<()> {
    let outside =
        models.iter().find(|model| !row.models.iter().any(|pattern| covers(pattern, &model.id)));
    outside.map_or(Ok(()), |model| {
        Err(Error::new(
            Kind::Forbidden,
            format!("The node is not enrolled for the model `{}`.", model.id),
        ))
    })
}
