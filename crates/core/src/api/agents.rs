//! Agents: named presets that clients use as a model. AGENT has a single tenant, so every caller
//! sees all agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::ETAG;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::body::check_pairs;
use super::call::{Answer, Call};
use super::conditional::{self, IfMatch};
use super::page;
use crate::app::App;
use rerouter_access::auth::{Agent, AgentCredential, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::AgentId;
use rerouter_dialect::wire::json::read_object;
use rerouter_records::agent::{AgentRecord, NewAgent};
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::patch::MergePatch;
use rerouter_store::{Action, AgentRow, StoreError};

/// Longest name of an agent, in characters: the length of a DNS label.
const AGENT_NAME_CHARS: usize = 63;
/// Longest instructions of an agent, in bytes. Every request through the agent carries them.
const AGENT_INSTRUCTIONS: usize = 32 << 10;
/// Most tools of an agent: as many as OpenAI allows in a request.
const AGENT_TOOLS: usize = 128;
/// Most bytes of an agent's tools as JSON.
const AGENT_TOOLS_BYTES: usize = 64 << 10;
/// How many times a change of an agent is tried if concurrent changes interfere.
const AGENT_TRIES: usize = 4;
/// Most sequences in an agent's default `stop`: OpenAI allows four.
const AGENT_STOPS: usize = 4;
/// Longest stop sequence, in bytes.
const AGENT_STOP_BYTES: usize = 256;

pub(super) async fn create(call: Call<'_>, new: NewAgent) -> Result<Answer<AgentRecord>> {
    let (app, now) = (call.app, call.now());
    check(&new)?;
    check_model(app, &new.model)?;
    let agent = row(new, AgentId::new(now, &app.random), call.who, (now, now));
    let (record, etag) = (AgentRecord::from(&agent), agent.etag());
    let store = call.noting(Action::AgentCreate, "agent", agent.id.as_str());
    let committed = store.create_agent(agent).await.map_err(|error| match error {
        StoreError::Conflict => name_taken(),
        StoreError::LimitReached => Error::conflict("The maximum number of agents is reached."),
        other => other.into(),
    })?;
    let path = format!("/v1/agents/{}", record.id);
    tagged(call.commit(&committed, record).await?, &etag)?.at(&path)
}

pub(super) async fn list(call: Call<'_>, query: PageQuery) -> Result<Answer<Page<AgentRecord>>> {
    let after = page::after(query.after.as_deref(), "an agent", AgentId::parse)?;
    let found = call.app.auth.agents().page(after.as_ref(), query.limit + 1);
    let found = found.iter().map(|agent| AgentRecord::from(&***agent)).collect();
    Ok(Page::of(found, query.limit, |agent: &AgentRecord| agent.id.to_string()).into())
}

pub(super) async fn get(call: Call<'_>) -> Result<Answer<AgentRecord>> {
    let agent = find(call)?;
    let answer = tagged(AgentRecord::from(&**agent).into(), agent.etag())?;
    match conditional::has(call.request.headers(), agent.etag()) {
        true => Ok(answer.not_modified()),
        false => Ok(answer),
    }
}

/// `PATCH /v1/agents/{id or name}`: a merge patch (RFC 7396). Concurrent changes of other fields
/// are kept; with `If-Match` they lead to 412.
pub(super) async fn patch(
    call: Call<'_>,
    patch: MergePatch<NewAgent>,
) -> Result<Answer<AgentRecord>> {
    let condition = IfMatch::read(call.request.headers())?;
    for _ in 0..AGENT_TRIES {
        let agent = find(call)?;
        condition.check(agent.etag())?;
        let new = patch.apply("", &NewAgent::from(&**agent))?;
        check(&new)?;
        if new.model != agent.model {
            check_model(call.app, &new.model)?;
        }
        let changed = row(new, agent.id.clone(), call.who, (agent.created_at, agent.updated_at));
        if changed == **agent {
            return tagged(AgentRecord::from(&changed).into(), agent.etag());
        }
        let changed = AgentRow { updated_at: call.now(), ..changed };
        let (record, etag) = (AgentRecord::from(&changed), changed.etag());
        let store = call.noting(Action::AgentUpdate, "agent", agent.id.as_str());
        match store.update_agent(changed, agent.etag().to_owned()).await {
            Ok(committed) => return tagged(call.commit(&committed, record).await?, &etag),
            // The concurrent change is in memory already: try again.
            Err(StoreError::Stale | StoreError::NotFound) => {}
            Err(StoreError::Conflict) => return Err(name_taken()),
            Err(other) => return Err(other.into()),
        }
    }
    Err(Error::conflict("The agent changed repeatedly during this request; retry."))
}

pub(super) async fn delete(call: Call<'_>) -> Result<Answer<()>> {
    let condition = IfMatch::read(call.request.headers())?;
    let agent = find(call)?;
    condition.check(agent.etag())?;
    let seen = condition.names_one().then(|| agent.etag().to_owned());
    let store = call.noting(Action::AgentDelete, "agent", agent.id.as_str());
    let committed = store.delete_agent(&agent.id, seen).await.map_err(|error| match error {
        StoreError::Stale => Error::new(
            Kind::PreconditionFailed,
            "The agent has changed. Read it again, then retry.",
        ),
        other => other.into(),
    })?;
    call.commit(&committed, ()).await
}

fn find(call: Call<'_>) -> Result<Arc<Agent>> {
    call.app.auth.agents().find(call.id()).ok_or_else(|| Error::not_found("agent"))
}

fn tagged(answer: Answer<AgentRecord>, etag: &str) -> Result<Answer<AgentRecord>> {
    answer.with(ETAG, &format!("\"{etag}\""))
}

fn name_taken() -> Error {
    Error::conflict("An agent with this name already exists.")
}

/// If the document loses the alias later, requests to the agent are refused.
fn check_model(app: &App, model: &str) -> Result<()> {
    match app.live().routing.alias(model) {
        Some(_) => Ok(()),
        None => Err(Error::invalid("model", "model must be an alias of the routing document.")),
    }
}

/// Checks everything that a client writes except the model.
fn check(new: &NewAgent) -> Result<()> {
    check_name(&new.name)?;
    if new.instructions.as_ref().is_some_and(|text| text.len() > AGENT_INSTRUCTIONS) {
        let why = format!("instructions may have up to {AGENT_INSTRUCTIONS} bytes.");
        return Err(Error::invalid("instructions", why));
    }
    new.defaults.as_ref().map_or(Ok(()), check_defaults)?;
    new.tools.as_ref().map_or(Ok(()), |tools| check_tools(tools))?;
    new.metadata.as_ref().map_or(Ok(()), |metadata| check_pairs("metadata", metadata))
}

fn row(
    new: NewAgent,
    id: AgentId,
    who: &Principal,
    (created_at, updated_at): (Timestamp, Timestamp),
) -> AgentRow {
    // The data plane has to know whether the author had a credential.
    let trusted = !matches!(
        who,
        Principal::AgentTenant { via: AgentCredential::Open } | Principal::Anonymous
    );
    AgentRow {
        id,
        name: new.name,
        description: new.description,
        model: new.model,
        instructions: new.instructions,
        defaults: new.defaults.unwrap_or_default(),
        tools: new.tools.unwrap_or_default(),
        trusted,
        metadata: new.metadata.unwrap_or_default(),
        created_at,
        updated_at,
    }
}

/// Checks a name, which stands in `agent/<name>` and in paths. Without `_` it cannot equal an id.
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
        let refuse = |why| Err(Error::invalid(format!("defaults.{name}"), why));
        let (well, what) = match name.as_str() {
            "temperature" => (number(0.0, 2.0), "a number from 0 to 2"),
            "top_p" | "min_p" => (number(0.0, 1.0), "a number from 0 to 1"),
            "frequency_penalty" | "presence_penalty" => {
                (number(-2.0, 2.0), "a number from -2 to 2")
            }
            "top_k" => (value.is_u64(), "a whole number from 0"),
            "seed" => (value.is_i64() || value.is_u64(), "a whole number"),
            "max_tokens" | "max_completion_tokens" => {
                // As in requests.
                (value.as_i64().is_some_and(|value| value > 0), "a whole number from 1 to 2^63 - 1")
            }
            "stop" => (is_stop(value), "a string or a list of up to four"),
            _ => {
                return refuse(format!(
                    "defaults may hold sampling parameters only; {name} is not one."
                ));
            }
        };
        if !well {
            return refuse(format!("defaults.{name} must be {what}."));
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
    // The same checks as for requests, because the tools become part of them.
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
