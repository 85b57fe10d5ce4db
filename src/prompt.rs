//! A request of the data plane as it is decided on: its body understood, and everything that a decision may look at copied
//! out. Live calls and `/v1/router/decide` come through here, so that they are told the same.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;

use crate::app::{App, Live};
use crate::auth::{Agent, Principal};
use crate::blocking::blocking;
use crate::body_memory::{Held, Room};
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::protocol::agent::{self, Preset};
use crate::protocol::coding::{Coding, Decoder};
use crate::protocol::endpoint::Endpoint;
use crate::protocol::openai::{self, ModelRequest};
use crate::routing::{AgentRef, Inputs, PrincipalFacts, Refusal, RequestFacts};

/// What the names of agents begin with where models are asked for.
pub const AGENT_PREFIX: &str = "agent/";

/// A request of the data plane that has been read: what is decided on, and what is sent.
///
/// Not `Debug`: the client's headers hold its credential.
pub struct Prompt {
    /// Which endpoint it is for.
    pub endpoint: Endpoint,
    /// Its body: as the client sent it, or with the agent's part in it, asking for the agent's alias.
    pub body: Bytes,
    /// What was understood of that.
    pub request: ModelRequest,
    /// The client's headers.
    pub headers: HeaderMap,
    /// What of the client's query goes to a provider.
    pub query: Option<String>,
    /// What there was before an agent.
    through: Option<Through>,
}

/// What a request that goes through an agent was.
struct Through {
    /// The body as the client sent it.
    sent: Bytes,
    /// The model asked for.
    asked: String,
    /// The agent.
    agent: AgentRef,
}

impl Prompt {
    /// Reads a whole body, or says with 400 what is wrong with it.
    pub fn read(endpoint: Endpoint, body: Bytes, headers: HeaderMap) -> Result<Self> {
        let request = openai::read_request(&body, endpoint)?;
        Ok(Prompt { endpoint, body, request, headers, query: None, through: None })
    }

    /// The same for a body as it came. A large or compressed one is read in its turn, on a thread
    /// that may wait; `held` then counts what it becomes. 413 and 503 beside 400.
    pub async fn read_in_turn(
        app: &App,
        who: &Principal,
        unread: Unread<'_>,
        headers: HeaderMap,
    ) -> Result<Self> {
        let Unread { endpoint, body, coding, costs, held } = unread;
        if coding.is_none() && body.len() <= bounds::READ_INLINE {
            return Prompt::read(endpoint, body, headers);
        }
        let limit = app.server.limits.request_body;
        let mut share = std::mem::replace(held, app.body_memory.begin(Room::Requests));
        let reading = move || -> Result<(Prompt, Held)> {
            let body = match coding {
                None => body,
                Some(coding) => decode(coding, &body, limit, &mut share)?,
            };
            Ok((Prompt::read(endpoint, body, headers)?, share))
        };
        let (prompt, share) = Box::pin(in_turn(app, (who, costs), reading)).await??;
        *held = share;
        Ok(prompt)
    }

    /// The body as the client sent it.
    pub fn sent(&self) -> &Bytes {
        self.through.as_ref().map_or(&self.body, |through| &through.sent)
    }

    /// The model asked for, as the client wrote it.
    pub fn asked(&self) -> &str {
        self.through.as_ref().map_or(&self.request.model, |through| &through.asked)
    }

    /// The agent that it goes through.
    pub fn agent(&self) -> Option<&AgentRef> {
        self.through.as_ref().map(|through| &through.agent)
    }

    /// Where an agent is asked for, makes it a request for the agent's alias, with the agent's part in it. 404 where there is no
    /// such agent, or none that may be called; 400 and 413 where the two do not go together. What was refused is as it was.
    pub async fn take_agent(&mut self, app: &App, who: &Principal) -> Result<()> {
        let Some(name) =
            self.request.model.strip_prefix(AGENT_PREFIX).filter(|_| self.through.is_none())
        else {
            return Ok(());
        };
        let agent = app.auth.agents().named(name).filter(|agent| may_call(app, agent));
        let agent =
            agent.ok_or_else(|| Refusal::ModelNotFound { model: self.request.model.clone() })?;
        self.go_through(app, who, agent).await
    }

    /// The same for a request that went through an agent before: 409 where that is no more what it was.
    pub async fn take_agent_again(
        &mut self,
        app: &App,
        who: &Principal,
        seen: &AgentRef,
    ) -> Result<()> {
        let agent = app
            .auth
            .agents()
            .find(&seen.id)
            .filter(|agent| agent.etag() == seen.etag && may_call(app, agent));
        let agent = agent.ok_or_else(|| {
            let name = &seen.name;
            Error::new(
                Kind::AgentGone,
                format!(
                    "The agent `{name}` that the request went through was changed or deleted since."
                ),
            )
        })?;
        self.go_through(app, who, agent).await
    }

    async fn go_through(&mut self, app: &App, who: &Principal, by: Arc<Agent>) -> Result<()> {
        let most = app.server.limits.request_body;
        let (endpoint, model) = (self.endpoint, self.request.model_span.clone());
        let (body, request) = if self.body.len() <= bounds::READ_INLINE {
            with_agent(&by, endpoint, &self.body, &model, most)?
        } else {
            let (body, agent) = (self.body.clone(), by.clone());
            let adding = move || with_agent(&agent, endpoint, &body, &model, most);
            Box::pin(in_turn(app, (who, false), adding)).await??
        };
        self.through = Some(Through {
            sent: std::mem::replace(&mut self.body, body),
            asked: std::mem::replace(&mut self.request, request).model,
            agent: AgentRef {
                id: by.id.to_string(),
                name: by.name.clone(),
                etag: by.etag().to_owned(),
            },
        });
        Ok(())
    }

    /// The text of the last user message.
    pub fn last_user_text(&self) -> String {
        openai::last_user_text(&self.body, &self.request)
    }
}

/// A body as it came, not read yet.
pub struct Unread<'a> {
    /// Which endpoint it is for.
    pub endpoint: Endpoint,
    /// Its bytes.
    pub body: Bytes,
    /// How they are coded.
    pub coding: Option<Coding>,
    /// Whether it may cost money: then a budget that is spent refuses it unread.
    pub costs: bool,
    /// What is held in memory for it.
    pub held: &'a mut Held,
}

/// Does work on a large body in the caller's turn, on a thread that may wait: the data path's own
/// threads stay free.
async fn in_turn<T: Send + 'static>(
    app: &App,
    (who, costs): (&Principal, bool),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let turn = app.readers.take(&app.auth.tenant(who)).await.ok_or_else(|| {
        let why = "Too many large bodies are being read; this one had no turn in time.";
        Error::new(Kind::Unavailable, why).retry_after(bounds::LIMIT_RETRY)
    })?;
    // Of what waited behind the caller's own, some may have no room left by now.
    let draws = limits::draws(&app.auth, who);
    app.limits.look(&draws, costs, app.clock.now()).map_err(|refused| refused.error)?;
    let working = move || {
        let _turn = turn;
        work()
    };
    Ok(blocking(working).await?)
}

/// Decodes a body; `held` follows what it becomes.
fn decode(coding: Coding, body: &Bytes, limit: usize, held: &mut Held) -> Result<Bytes> {
    let mut decoder = Decoder::new(coding, limit);
    decoder.push(body);
    while decoder.step()? {
        if !held.set(body.len() + decoder.decoded()) {
            return Err(Held::full());
        }
    }
    let decoded = decoder.finish()?;
    if !held.set(decoded.len()) {
        return Err(Held::full());
    }
    Ok(decoded)
}

/// The body with what an agent adds, and what is understood of that.
fn with_agent(
    by: &Agent,
    endpoint: Endpoint,
    body: &Bytes,
    model: &Range<usize>,
    most: usize,
) -> Result<(Bytes, ModelRequest)> {
    let instructions = by.instructions.as_deref();
    let preset =
        Preset { model: &by.model, instructions, defaults: &by.defaults, tools: &by.tools };
    let body = agent::apply(&preset, endpoint, body, model)?;
    if body.len() > most {
        let why = format!("With what the agent adds the body is larger than {most} bytes.");
        return Err(Error::new(Kind::PayloadTooLarge, why));
    }
    let request = openai::read_request(&body, endpoint)?;
    Ok((body, request))
}

/// Whether requests may go through the agent: nobody spends money by what somebody wrote who showed no credential, unless this is
/// nobody's gateway but one's own.
pub fn may_call(app: &App, agent: &Agent) -> bool {
    agent.trusted || app.server.call_untrusted
}

/// Whether the `limits.models` of key and user allow the name; if not, the answer is that of a name that does not exist.
pub fn may_ask_for(principal: &Principal, model: &str) -> Result<()> {
    if principal.allows_model(model) {
        Ok(())
    } else {
        Err(Refusal::ModelNotFound { model: model.to_string() }.into())
    }
}

/// Copies out everything that the decision may look at.
pub fn gather(
    app: &App,
    live: &Live,
    at: Timestamp,
    prompt: &Prompt,
    principal: &Principal,
) -> Inputs {
    let request = &prompt.request;
    let signals = app.server.routing.signal_headers.iter().filter_map(|name| {
        let value = prompt.headers.get(name)?.to_str().ok()?;
        Some((name.clone(), value.to_string()))
    });
    let mut needs = Vec::new();
    for (needed, name) in [
        (request.tools > 0, "tools"),
        (request.images > 0, "vision"),
        (request.json_output, "json"),
        (request.audio > 0, "audio"),
    ] {
        if needed {
            needs.push(name.to_string());
        }
    }
    let mut inputs = Inputs {
        version: Inputs::VERSION,
        at,
        request: RequestFacts {
            endpoint: prompt.endpoint.as_str().to_string(),
            model: prompt.asked().to_owned(),
            name: request.model.clone(),
            agent: prompt.agent().cloned(),
            needs,
            prompt_tokens: app.bias.correct(&request.model, request.prompt_tokens),
            max_tokens: request.max_tokens,
            choices: request.choices,
            stream: request.stream,
            messages: request.messages,
            tools: request.tools,
            images: request.images,
            audio: request.audio,
            json_output: request.json_output,
            language: None,
            headers: signals.collect(),
        },
        keywords: Default::default(),
        principal: who(principal),
        seed: app.random.next_u64(),
        health: app.standing(&live.routing, Some(&request.model), at),
    };
    inputs.complete(&live.routing, || Some(prompt.last_user_text()));
    inputs
}

fn who(principal: &Principal) -> PrincipalFacts {
    let key = principal.key();
    PrincipalFacts {
        key: key.map(|key| key.id.to_string()),
        user: principal.user_id().map(|user| user.to_string()),
        labels: key.map(|key| key.labels.clone()).unwrap_or_default(),
        user_labels: match principal {
            Principal::User { user, .. } => user.labels.clone(),
            _ => Default::default(),
        },
        models: key.and_then(|key| key.limits.models.clone()),
    }
}
