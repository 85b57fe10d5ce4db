//! Agents: named presets that clients use as a model. AGENT is one tenant: every caller sees all
//! agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::body::{BodyFields, check_pairs, merge};
use super::conditional::{self, IfMatch};
use super::page::{self, Query};
use super::route::{ApiRequest, ApiResult, PathParams};
use super::{answer, audit};
use crate::app::App;
use rerouter_access::auth::{Agent, AgentCredential, Principal};
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::AgentId;
use rerouter_dialect::wire::json::read_object;
use rerouter_store::{Action, AgentRow, StoreError};

/// Characters of an agent's name: those of a DNS label.
const AGENT_NAME_CHARS: usize = 63;
/// Characters of an agent's description.
const AGENT_DESCRIPTION_CHARS: usize = 1_024;
/// Bytes of an agent's instructions: they go with each of its requests.
const AGENT_INSTRUCTIONS: usize = 32 << 10;
/// Tools of an agent: as many as OpenAI takes in a request.
const AGENT_TOOLS: usize = 128;
/// Bytes of an agent's tools as JSON.
const AGENT_TOOLS_BYTES: usize = 64 << 10;
/// Tries of a change of an agent when others come between.
const AGENT_TRIES: usize = 4;
/// Sequences of an agent's default `stop`: OpenAI takes four.
const AGENT_STOPS: usize = 4;
/// Bytes of such a sequence.
const AGENT_STOP_BYTES: usize = 256;

pub(super) async fn create(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let now = app.clock.now();
    let preset = AgentFields::read(BodyFields::read(request)?)?;
    check_model(app, &preset.model)?;
    let agent = preset.row(AgentId::new(now, &app.random), who, (now, now));
    let location =
        HeaderValue::from_str(&format!("/v1/agents/{}", agent.id)).map_err(Error::internal)?;
    let mut response = shown(StatusCode::CREATED, &agent, &agent.etag());
    let event = audit::event(app, who, request, Action::AgentCreate, "agent", agent.id.as_str());
    let committed =
        app.store.noting(event).create_agent(agent).await.map_err(|error| match error {
            StoreError::Conflict => name_taken(),
            StoreError::LimitReached => {
                Error::new(Kind::Conflict, "The maximum number of agents is reached.")
            }
            other => other.into(),
        })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    response.headers_mut().insert(LOCATION, location);
    Ok(answer::confirmed(response, unconfirmed))
}

pub(super) async fn list(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    let (after, limit) = page::after_id(request.uri().query(), "an agent", AgentId::parse)?;
    let found = app.auth.agents().page(after.as_ref(), limit + 1);
    let found = found.iter().map(|agent| record(agent)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(found, limit)))
}

/// `GET /v1/agents/{id or name}`
pub(super) async fn get(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let agent = find(app, request)?;
    let mut response = shown(StatusCode::OK, &agent, agent.etag());
    if conditional::has(request.headers(), agent.etag()) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.headers_mut().remove(CONTENT_TYPE);
        *response.body_mut() = Bytes::new();
    }
    Ok(response)
}

/// `PATCH /v1/agents/{id or name}`: a merge patch (RFC 7396). It keeps concurrent changes of other
/// fields; with `If-Match` they are 412.
pub(super) async fn patch(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let condition = IfMatch::read(request.headers())?;
    let patch = BodyFields::read(request)?.into_object();
    if let Some(name) = patch.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(Error::invalid(name.clone(), format!("Unknown field {name}.")));
    }
    for _ in 0..AGENT_TRIES {
        let agent = find(app, request)?;
        condition.check(agent.etag())?;
        let preset = AgentFields::read(BodyFields::from(merged(&agent, &patch)))?;
        if preset.model != agent.model {
            check_model(app, &preset.model)?;
        }
        let changed = preset.row(agent.id.clone(), who, (agent.created_at, agent.updated_at));
        if changed == **agent {
            return Ok(shown(StatusCode::OK, &agent, agent.etag()));
        }
        let changed = AgentRow { updated_at: app.clock.now(), ..changed };
        let response = shown(StatusCode::OK, &changed, &changed.etag());
        let event =
            audit::event(app, who, request, Action::AgentUpdate, "agent", agent.id.as_str());
        match app.store.noting(event).update_agent(changed, agent.etag().to_owned()).await {
            Ok(committed) => {
                let unconfirmed = app.store.acknowledge(committed.rev).await?;
                return Ok(answer::confirmed(response, unconfirmed));
            }
            // The concurrent change is in memory already: try again.
            Err(StoreError::Stale | StoreError::NotFound) => {}
            Err(StoreError::Conflict) => return Err(name_taken()),
            Err(other) => return Err(other.into()),
        }
    }
    Err(Error::new(Kind::Conflict, "The agent changed repeatedly during this request; retry."))
}

/// `DELETE /v1/agents/{id or name}`
pub(super) async fn delete(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let condition = IfMatch::read(request.headers())?;
    let agent = find(app, request)?;
    condition.check(agent.etag())?;
    let seen = condition.names_one().then(|| agent.etag().to_owned());
    let event = audit::event(app, who, request, Action::AgentDelete, "agent", agent.id.as_str());
    let committed = app.store.noting(event).delete_agent(&agent.id, seen).await.map_err(
        |error| match error {
            StoreError::Stale => Error::new(
                Kind::PreconditionFailed,
                "The agent has changed. Read it again, then retry.",
            ),
            other => other.into(),
        },
    )?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::no_content(), unconfirmed))
}

fn find(app: &App, request: &ApiRequest) -> Result<Arc<Agent>> {
    let params = request.extensions().get::<PathParams>();
    params
        .and_then(|params| app.auth.agents().find(params.first()))
        .ok_or_else(|| Error::not_found("agent"))
}

fn name_taken() -> Error {
    Error::new(Kind::Conflict, "An agent with this name already exists.")
}

/// Checks that an agent's model is an alias. If the document loses the alias later, requests to the
/// agent are refused.
fn check_model(app: &App, model: &str) -> Result<()> {
    match app.live().routing.alias(model) {
        Some(_) => Ok(()),
        None => Err(Error::invalid("model", "model must be an alias of the routing document.")),
    }
}

/// The fields of an agent that a client writes.
struct AgentFields {
    name: String,
    description: Option<String>,
    model: String,
    instructions: Option<String>,
    defaults: Map<String, Value>,
    tools: Vec<Value>,
    metadata: BTreeMap<String, String>,
}

const FIELDS: [&str; 7] =
    ["name", "description", "model", "instructions", "defaults", "tools", "metadata"];

impl AgentFields {
    /// Reads all fields; 400 names the first invalid one.
    fn read(mut fields: BodyFields) -> Result<Self> {
        let name = fields.text("name")?;
        check_name(&name)?;
        let description: Option<String> = fields.take("description", "a string")?;
        if description.as_ref().is_some_and(|text| text.chars().count() > AGENT_DESCRIPTION_CHARS) {
            let most = AGENT_DESCRIPTION_CHARS;
            return Err(Error::invalid(
                "description",
                format!("description may have up to {most} characters."),
            ));
        }
        let model = fields.text("model")?;
        let instructions: Option<String> = fields.take("instructions", "a string")?;
        if instructions.as_ref().is_some_and(|text| text.len() > AGENT_INSTRUCTIONS) {
            return Err(Error::invalid(
                "instructions",
                format!("instructions may have up to {} bytes.", AGENT_INSTRUCTIONS),
            ));
        }
        let defaults: Map<String, Value> =
            fields.take("defaults", "an object")?.unwrap_or_default();
        check_defaults(&defaults)?;
        let tools: Vec<Value> = fields.take("tools", "a list of tools")?.unwrap_or_default();
        check_tools(&tools)?;
        let metadata: BTreeMap<String, String> =
            fields.take("metadata", "an object of strings")?.unwrap_or_default();
        check_pairs("metadata", &metadata)?;
        fields.finish()?;
        Ok(AgentFields { name, description, model, instructions, defaults, tools, metadata })
    }

    /// The agent's record as written by `who`, with the times of its creation and last update.
    fn row(
        self,
        id: AgentId,
        who: &Principal,
        (created_at, updated_at): (Timestamp, Timestamp),
    ) -> AgentRow {
        let AgentFields { name, description, model, instructions, defaults, tools, metadata } =
            self;
        // The data plane must know whether the writer had a credential.
        let trusted = !matches!(
            who,
            Principal::AgentTenant { via: AgentCredential::Open } | Principal::Anonymous
        );
        AgentRow {
            id,
            name,
            description,
            model,
            instructions,
            defaults,
            tools,
            trusted,
            metadata,
            created_at,
            updated_at,
        }
    }
}

/// Applies a merge patch to the fields of an agent.
fn merged(agent: &AgentRow, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut said = Map::new();
    if let Value::Object(mut record) = record(agent) {
        said.extend(
            FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), record.remove(*name)?))),
        );
    }
    match merge(Value::Object(said), Value::Object(patch.clone())) {
        Value::Object(merged) => merged,
        _ => Map::new(),
    }
}

/// Checks a name. It is used in `agent/<name>` and in paths; without `_` it is never an id.
fn check_name(name: &str) -> Result<()> {
    let plain =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if plain && (1..=AGENT_NAME_CHARS).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::invalid(
        "name",
        format!("name must have 1 to {} of the characters a-z, 0-9 and -.", AGENT_NAME_CHARS),
    ))
}

/// Checks default fields: sampling parameters only.
fn check_defaults(defaults: &Map<String, Value>) -> Result<()> {
    for (name, value) in defaults {
        let number = |least: f64, most: f64| {
            value.as_f64().is_some_and(|value| (least..=most).contains(&value))
        };
        let (well, what) = match name.as_str() {
            "temperature" => (number(0.0, 2.0), "a number from 0 to 2"),
            "top_p" | "min_p" => (number(0.0, 1.0), "a number from 0 to 1"),
            "frequency_penalty" | "presence_penalty" => {
                (number(-2.0, 2.0), "a number from -2 to 2")
            }
            "top_k" => (value.is_u64(), "a whole number from 0"),
            "seed" => (value.is_i64() || value.is_u64(), "a whole number"),
            "max_tokens" | "max_completion_tokens" => {
                (value.as_u64().is_some_and(|value| value > 0), "a whole number from 1")
            }
            "stop" => (is_stop(value), "a string or a list of up to four"),
            _ => {
                return Err(Error::invalid(
                    format!("defaults.{name}"),
                    format!("defaults may hold sampling parameters only; {name} is not one."),
                ));
            }
        };
        if !well {
            return Err(Error::invalid(
                format!("defaults.{name}"),
                format!("defaults.{name} must be {what}."),
            ));
        }
    }
    Ok(())
}

fn is_stop(value: &Value) -> bool {
    let sequence = |value: &Value| {
        value.as_str().is_some_and(|text| (1..=AGENT_STOP_BYTES).contains(&text.len()))
    };
    match value {
        Value::Array(values) => {
            (1..=AGENT_STOPS).contains(&values.len()) && values.iter().all(sequence)
        }
        value => sequence(value),
    }
}

/// Checks tools: functions in the form of chat completions, with unique names.
fn check_tools(tools: &[Value]) -> Result<()> {
    let (most, bytes) = (AGENT_TOOLS, AGENT_TOOLS_BYTES);
    let refuse = |detail: String| Err(Error::invalid("tools", detail));
    if tools.len() > most || tools.iter().map(|tool| tool.to_string().len()).sum::<usize>() > bytes
    {
        return refuse(format!("tools may have up to {most} entries and {bytes} bytes of JSON."));
    }
    // The same checks as for requests, which the tools become part of.
    let written = json!({ "tools": tools }).to_string();
    if let Err(error) = read_object(written.as_bytes(), |cursor, _| cursor.pass()) {
        return refuse(error.detail().to_owned());
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        let name =
            tool.pointer("/function/name").and_then(Value::as_str).filter(|name| !name.is_empty());
        match name.filter(|_| tool.get("type").and_then(Value::as_str) == Some("function")) {
            None => {
                return refuse(
                    "Each tool must be {\"type\": \"function\", \"function\": {\"name\": …}}."
                        .to_owned(),
                );
            }
            Some(name) if !names.insert(name) => {
                return refuse("Two tools have the same name.".to_owned());
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn shown(status: StatusCode, agent: &AgentRow, etag: &str) -> Response<Bytes> {
    let mut response = answer::json(status, &record(agent));
    conditional::tag(&mut response, etag);
    response
}

fn record(agent: &AgentRow) -> Value {
    json!({
        "object": "agent", "id": agent.id, "name": agent.name, "description": agent.description,
        "model": agent.model,
        "instructions": agent.instructions, "defaults": agent.defaults, "tools": agent.tools,
        "trusted": agent.trusted,
        "metadata": agent.metadata, "created_at": rfc3339(agent.created_at),
        "updated_at": rfc3339(agent.updated_at),
    })
}
