//! Signed callbacks of nodes: register, heartbeat, events, deregister. A node reports only about
//! itself, within its enrolment.

use super::body::{METADATA_NAME_CHARS, check_pairs};
use super::call::{Answer, Call};
use super::node_endpoint::may_serve_at;
use super::nodes;
use super::nodes::NODE_TEXT_BYTES;
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::nodes::{Heartbeat, HeartbeatRefusal, NodeLoad};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::NodeId;
use rerouter_records::ShownSecret;
pub use rerouter_records::node::NODE_MODELS;
use rerouter_records::node::{
    EventLevel, NewRegistration, NodeEvents, NodeEventsTaken, NodeHeartbeat, NodeLease,
    NodeLeaving, NodeRegistered,
};
use rerouter_routing::MODEL_NAME_BYTES;
use rerouter_store::{
    Change, NodeModel, NodeReport, NodeRow, NodeStatus, Registration, StoreError, covers,
};

pub(super) async fn register(
    call: Call<'_>,
    asked: NewRegistration,
) -> Result<Answer<NodeRegistered>> {
    let (app, (id, signed_s), now) = (call.app, node(call.who)?, call.now());
    check(&asked)?;
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    within_enrolment(&row, &asked.models)?;
    may_serve_at(app, &row, &nodes::place(&asked.endpoint)?, &call.client()).await?;
    let seal = |ShownSecret(key)| {
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
        labels: asked.labels.unwrap_or_default(),
    };
    let committed = app.store.register_node(id, registration).await.map_err(gone)?;
    let epoch = committed
        .changes
        .iter()
        .find_map(epoch_of)
        .ok_or_else(|| Error::internal("a registration without an epoch"))?;
    app.nodes.begin(id, epoch, now);
    // It does no harm if a gateway that answers without a lease does not know the node yet.
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
        // Another process of this node has registered meanwhile.
        return Err(gone(StoreError::Conflict));
    }
    Ok(NodeRegistered {
        node: nodes::record(&shown, now),
        heartbeat_interval_s: bounds::NODE_HEARTBEAT.as_secs(),
        lease_s: bounds::NODE_LEASE.as_secs(),
    }
    .into())
}

fn check(asked: &NewRegistration) -> Result<()> {
    bounded("version", &asked.version)?;
    nodes::place(&asked.endpoint)?;
    if !asked.api_key.as_ref().is_none_or(is_api_key) {
        let most = NODE_TEXT_BYTES;
        let detail = format!("api_key must be 1 to {most} visible ASCII characters.");
        return Err(Error::invalid("api_key", detail));
    }
    check_models(&asked.models)?;
    asked.labels.as_ref().map_or(Ok(()), |labels| check_pairs("labels", labels))
}

fn is_api_key(ShownSecret(key): &ShownSecret) -> bool {
    let key = key.expose();
    (1..=NODE_TEXT_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
}

pub(super) async fn heartbeat(call: Call<'_>, told: NodeHeartbeat) -> Result<Answer<NodeLease>> {
    let (app, (id, signed_s)) = (call.app, node(call.who)?);
    let NodeHeartbeat { epoch, seq, status, running, queued, models } = told;
    models.as_ref().map_or(Ok(()), |models| check_models(models))?;
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    if let Some(models) = &models {
        within_enrolment(&row, models)?;
    }
    let report = Heartbeat { epoch, signed_s, seq, status, load: NodeLoad { running, queued } };
    app.nodes.report(id, report, call.now()).map_err(|untaken| match untaken {
        HeartbeatRefusal::Seq => Error::conflict(SEQ),
        HeartbeatRefusal::Epoch => gone(StoreError::Conflict),
        HeartbeatRefusal::Unregistered => {
            Error::conflict("The node is not registered. Register first.")
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
        return Err(Error::conflict(SEQ));
    }
    if let (Some(models), Some(before)) = (models, before)
        && models != before.models
    {
        let committed = app.store.amend_node(id, before.epoch, Some(models)).await.map_err(gone)?;
        app.store.acknowledge(committed.rev).await?;
    }
    Ok(NodeLease { lease_s: bounds::NODE_LEASE.as_secs(), actions: Vec::new() }.into())
}

const SEQ: &str = "seq must increase with each heartbeat.";

/// Passes a report on to the gateways that share the store; `false` if they know a later report. If
/// the store fails, only this gateway knows the report, and the node reports again soon.
async fn tell_others(app: &App, report: NodeReport) -> bool {
    let told = app.store.report_node(report).await;
    told.unwrap_or_else(|error| {
        log::debug!("a heartbeat is known to this gateway only: {error}");
        true
    })
}

/// `POST /v1/agent/events`: writes events to the log, each id once, also across restarts.
pub(super) async fn events(call: Call<'_>, told: NodeEvents) -> Result<Answer<NodeEventsTaken>> {
    let (app, (id, _), events) = (call.app, node(call.who)?, told.events);
    if events.iter().any(|event| !(1..=METADATA_NAME_CHARS).contains(&event.id.len())) {
        let why = format!("The id of an event must have 1 to {METADATA_NAME_CHARS} bytes.");
        return Err(Error::invalid("events", why));
    }
    let ids = events.iter().map(|event| event.id.clone()).collect();
    // The ids are stored before the events are logged: repeats during a store failure do not flood
    // the log.
    let new = app.store.note_events(id, ids).await.map_err(gone)?;
    for (event, _) in events.iter().zip(&new).filter(|(_, new)| **new) {
        // Debug-quoted, so that a message cannot forge log lines.
        let message: String = event.message.chars().take(NODE_TEXT_BYTES).collect();
        let data = if event.data.is_null() {
            String::new()
        } else {
            event.data.to_string().chars().take(NODE_TEXT_BYTES).collect()
        };
        log::log!(level(event.level), "{id} at {}: {message:?} {data:?}", event.at);
    }
    let accepted = new.iter().filter(|new| **new).count();
    Ok(NodeEventsTaken { accepted, duplicates: new.len() - accepted }.into())
}

pub(super) async fn deregister(call: Call<'_>, told: NodeLeaving) -> Result<Answer<()>> {
    let (app, (id, signed_s)) = (call.app, node(call.who)?);
    let row = app.nodes.row(id).ok_or_else(|| Error::not_found("node"))?;
    if let Some(registration) = &row.registration {
        if registration.is_after(told.epoch, signed_s) {
            // An old process must not deregister the process that replaced it.
            return Err(gone(StoreError::Conflict));
        }
        let committed = app.store.amend_node(id, registration.epoch, None).await.map_err(gone)?;
        app.store.acknowledge(committed.rev).await?;
    }
    Ok(().into())
}

/// The calling node, and the time of its signature in seconds since the epoch.
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

/// The error of a change to a node that has changed meanwhile.
fn gone(error: StoreError) -> Error {
    match error {
        StoreError::NotFound => Error::not_found("node"),
        StoreError::Conflict => {
            Error::conflict("The node has registered again during this request.")
        }
        other => other.into(),
    }
}

fn level(level: EventLevel) -> log::Level {
    match level {
        EventLevel::Debug => log::Level::Debug,
        EventLevel::Info => log::Level::Info,
        EventLevel::Warn | EventLevel::Warning => log::Level::Warn,
        EventLevel::Error => log::Level::Error,
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

fn check_models(models: &[NodeModel]) -> Result<()> {
    let well = |id: &str| {
        (1..=MODEL_NAME_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !models.iter().all(|model| well(&model.id)) {
        let why = "The id of a model must be visible ASCII characters.";
        return Err(Error::invalid("models", why));
    }
    let twice = models
        .iter()
        .enumerate()
        .any(|(at, model)| models.iter().take(at).any(|other| other.id == model.id));
    match twice {
        true => Err(Error::invalid("models", "Two models have the same id.")),
        false => Ok(()),
    }
}

fn within_enrolment(row: &NodeRow, models: &[NodeModel]) -> Result<()> {
    let outside =
        models.iter().find(|model| !row.models.iter().any(|pattern| covers(pattern, &model.id)));
    outside.map_or(Ok(()), |model| {
        Err(Error::forbidden(format!("The node is not enrolled for the model `{}`.", model.id)))
    })
}
