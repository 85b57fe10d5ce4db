//! Agents: named presets that clients use as a model. AGENT is one tenant, so whoever is let in sees all of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::body::{Fields, check_pairs};
use super::page::{self, Query};
use super::{PathParams, answer, audit};
use crate::app::App;
use crate::auth::{AgentCredential, Principal};
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::{Error, Kind, Result};
use crate::id::AgentId;
use crate::store::{Action, AgentRow, StoreError};

/// `POST /v1/agents`
pub async fn create(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    let now = app.clock.now();
    let mut fields = Fields::read(request)?;
    let name = fields.text("name")?;
    check_name(&name)?;
    let description: Option<String> = fields.take("description", "a string")?;
    if description.as_ref().is_some_and(|text| text.chars().count() > bounds::AGENT_DESCRIPTION_CHARS) {
        let most = bounds::AGENT_DESCRIPTION_CHARS;
        return Err(Error::invalid("description", format!("description may have {most} characters.")));
    }
    let model = fields.text("model")?;
    let instructions: Option<String> = fields.take("instructions", "a string")?;
    if instructions.as_ref().is_some_and(|text| text.len() > bounds::AGENT_INSTRUCTIONS) {
        return Err(Error::invalid("instructions", format!("instructions may have {} bytes.", bounds::AGENT_INSTRUCTIONS)));
    }
    let defaults: Map<String, Value> = fields.take("defaults", "an object")?.unwrap_or_default();
    check_defaults(&defaults)?;
    let tools: Vec<Value> = fields.take("tools", "a list of tools")?.unwrap_or_default();
    check_tools(&tools)?;
    let metadata: BTreeMap<String, String> = fields.take("metadata", "an object of strings")?.unwrap_or_default();
    check_pairs("metadata", &metadata)?;
    fields.finish()?;
    if app.live().routing.alias(&model).is_none() {
        return Err(Error::invalid("model", "model must be an alias of the routing document."));
    }
    let agent = AgentRow {
        id: AgentId::new(now, &app.random),
        name,
        description,
        model,
        instructions,
        defaults,
        tools,
        // While AGENT is open nobody has shown who they are; the data plane must know that.
        trusted: !matches!(who, Principal::AgentTenant { via: AgentCredential::Open } | Principal::Anonymous),
        metadata,
        created_at: now,
        updated_at: now,
    };
    let body = record(&agent);
    let location = HeaderValue::from_str(&format!("/v1/agents/{}", agent.id)).map_err(Error::internal)?;
    let event = audit::event(app, who, request, Action::AgentCreate, "agent", agent.id.as_str());
    let committed = app.store.noting(event).create_agent(agent).await.map_err(|error| match error {
        StoreError::Conflict => Error::new(Kind::Conflict, "An agent of this name exists already."),
        StoreError::LimitReached => Error::new(Kind::Conflict, "There are as many agents as there may be; delete some."),
        other => other.into(),
    })?;
    app.store.acknowledge(committed.rev).await?;
    let mut response = answer::json(StatusCode::CREATED, &body);
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// `GET /v1/agents`
pub async fn list(app: &App, _who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let query = Query::read(request.uri().query(), &["limit", "after"])?;
    let limit = query.limit()?;
    let parse = |text| AgentId::parse(text).ok_or_else(|| Error::invalid("after", "after must be the id of an agent."));
    let after = query.get("after").map(parse).transpose()?;
    let found = app.auth.agents().page(after.as_ref(), limit + 1);
    let found = found.iter().map(|agent| record(agent)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(found, limit)))
}

/// `GET /v1/agents/{id or name}`
pub async fn get(app: &App, _who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    Ok(answer::json(StatusCode::OK, &record(&*find(app, request)?)))
}

/// `DELETE /v1/agents/{id or name}`
pub async fn delete(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    let agent = find(app, request)?;
    let event = audit::event(app, who, request, Action::AgentDelete, "agent", agent.id.as_str());
    let committed = app.store.noting(event).delete_agent(&agent.id).await?;
    app.store.acknowledge(committed.rev).await?;
    Ok(answer::no_content())
}

fn find(app: &App, request: &Request<Bytes>) -> Result<std::sync::Arc<AgentRow>> {
    let params = request.extensions().get::<PathParams>();
    params.and_then(|params| app.auth.agents().find(params.first())).ok_or_else(|| Error::not_found("agent"))
}

/// A name stands in `agent/<name>` and in paths, so it is a plain label; an id, which has a `_`, is never one.
fn check_name(name: &str) -> Result<()> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if plain && (1..=bounds::AGENT_NAME_CHARS).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::invalid("name", format!("name must have 1 to {} of the characters a-z, 0-9 and -.", bounds::AGENT_NAME_CHARS)))
}

/// Sampling fields with values that some provider takes; what else a request may hold is the client's to say.
fn check_defaults(defaults: &Map<String, Value>) -> Result<()> {
    for (name, value) in defaults {
        let number = |least: f64, most: f64| value.as_f64().is_some_and(|value| (least..=most).contains(&value));
        let (well, what) = match name.as_str() {
            "temperature" => (number(0.0, 2.0), "a number from 0 to 2"),
            "top_p" | "min_p" => (number(0.0, 1.0), "a number from 0 to 1"),
            "frequency_penalty" | "presence_penalty" => (number(-2.0, 2.0), "a number from -2 to 2"),
            "top_k" => (value.is_u64(), "a whole number from 0"),
            "seed" => (value.is_i64() || value.is_u64(), "a whole number"),
            "max_tokens" | "max_completion_tokens" => (value.as_u64().is_some_and(|value| value > 0), "a whole number from 1"),
            "stop" => (is_stop(value), "a string or a list of up to four"),
            _ => return Err(Error::invalid(format!("defaults.{name}"), format!("defaults hold sampling fields only; {name} is none."))),
        };
        if !well {
            return Err(Error::invalid(format!("defaults.{name}"), format!("defaults.{name} must be {what}.")));
        }
    }
    Ok(())
}

fn is_stop(value: &Value) -> bool {
    let sequence = |value: &Value| value.as_str().is_some_and(|text| (1..=bounds::AGENT_STOP_BYTES).contains(&text.len()));
    match value {
        Value::Array(values) => (1..=bounds::AGENT_STOPS).contains(&values.len()) && values.iter().all(sequence),
        value => sequence(value),
    }
}

/// Functions as chat completions have them, each name once: by it a client's tool is told from the agent's.
fn check_tools(tools: &[Value]) -> Result<()> {
    let (most, bytes) = (bounds::AGENT_TOOLS, bounds::AGENT_TOOLS_BYTES);
    let refuse = |detail: String| Err(Error::invalid("tools", detail));
    if tools.len() > most || tools.iter().map(|tool| tool.to_string().len()).sum::<usize>() > bytes {
        return refuse(format!("tools may be {most}, and {bytes} bytes of JSON."));
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        let name = tool.pointer("/function/name").and_then(Value::as_str).filter(|name| !name.is_empty());
        match name.filter(|_| tool.get("type").and_then(Value::as_str) == Some("function")) {
            None => return refuse("Each tool must be {\"type\": \"function\", \"function\": {\"name\": …}}.".to_owned()),
            Some(name) if !names.insert(name) => return refuse("Two tools have one name.".to_owned()),
            Some(_) => {}
        }
    }
    Ok(())
}

fn record(agent: &AgentRow) -> Value {
    json!({
        "object": "agent", "id": agent.id, "name": agent.name, "description": agent.description, "model": agent.model,
        "instructions": agent.instructions, "defaults": agent.defaults, "tools": agent.tools, "trusted": agent.trusted,
        "metadata": agent.metadata, "created_at": rfc3339(agent.created_at), "updated_at": rfc3339(agent.updated_at),
    })
}
