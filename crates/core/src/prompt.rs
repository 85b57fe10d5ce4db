//! Requests of the data plane: the body that was read, and the inputs copied out for the decision.
//! Live calls and `/v1/router/decide` both use this module, so they decide alike.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;

use crate::app::{App, Live};
use rerouter_access::auth::{Agent, Principal};
use rerouter_access::limits;
use rerouter_base::blocking::blocking;
use rerouter_base::body_memory::{BodyClass, Held};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, RefusalReason, Result};
use rerouter_base::turns::WorkTurn;
use rerouter_dialect::Dialect;
use rerouter_dialect::agent::{self, AgentPreset};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::neutral::request::Request as NeutralRequest;
use rerouter_dialect::request::{self, ModelRequest};
use rerouter_dialect::request_translation::{MalformedRequest, read_request, refused};
use rerouter_dialect::wire::coding::{Coding, Decoder};
use rerouter_routing::{
    AgentRef, Inputs, PrincipalFacts, RefusedFeature, RequestFacts, RoutingRefusal, TextPart,
    Untranslatable,
};

/// Bodies above this many bytes are read on blocking threads, which takes some milliseconds at
/// worst.
pub const READ_INLINE: usize = 128 << 10;

/// Prefix of agent names in `model`.
pub(crate) const AGENT_PREFIX: &str = "agent/";

/// A request of the data plane that was read.
///
/// Not `Debug`: the headers hold the client's credential.
pub struct Prompt {
    pub endpoint: Endpoint,
    /// The body: the client's, or with the agent's parts and its alias added.
    pub body: Bytes,
    pub request: ModelRequest,
    pub headers: HeaderMap,
    /// The part of the query that providers get.
    pub query: Option<String>,
    /// The request as it was before its agent was applied, if it has one.
    through: Option<AgentRoute>,
    neutral: Option<NeutralForm>,
}

/// A request in the neutral form, or the reason why it has none.
pub type NeutralForm = std::result::Result<Box<NeutralRequest>, MalformedRequest>;

/// A request before its agent was applied.
struct AgentRoute {
    sent: Bytes,
    asked: Arc<str>,
    agent: AgentRef,
}

impl Prompt {
    /// 400 if it is invalid.
    pub fn read(endpoint: Endpoint, body: Bytes, headers: HeaderMap) -> Result<Self> {
        let request = request::read_request(&body, endpoint)?;
        Ok(Prompt { endpoint, body, request, headers, query: None, through: None, neutral: None })
    }

    /// Reads a body as it came. A large or compressed body waits for its turn and is read on a
    /// blocking thread; `held` then counts its decoded size. Errors: 400, and 413 and 503.
    pub async fn read_in_turn(
        app: &App,
        who: &Principal,
        unread: UnreadBody<'_>,
        headers: HeaderMap,
    ) -> Result<Self> {
        let UnreadBody { endpoint, body, coding, costs, held } = unread;
        if coding.is_none() && body.len() <= READ_INLINE {
            return Prompt::read(endpoint, body, headers);
        }
        let limit = app.server.limits.request_body;
        let mut share = std::mem::replace(held, app.body_memory.begin(BodyClass::Requests));
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

    /// The name of the model as the client wrote it.
    pub fn asked(&self) -> &Arc<str> {
        self.through.as_ref().map_or(&self.request.model, |through| &through.asked)
    }

    pub fn agent(&self) -> Option<&AgentRef> {
        self.through.as_ref().map(|through| &through.agent)
    }

    /// Applies the agent, if one is requested: the request becomes one for the agent's alias. 404
    /// if there is no such agent or the caller may not use it; 400 and 413 if the request and the
    /// agent do not fit together. A refused request is unchanged.
    pub async fn take_agent(&mut self, app: &App, who: &Principal) -> Result<()> {
        let Some(name) =
            self.request.model.strip_prefix(AGENT_PREFIX).filter(|_| self.through.is_none())
        else {
            return Ok(());
        };
        let agent = app.auth.agents().named(name).filter(|agent| may_call(app, agent));
        let agent = agent.ok_or_else(|| RoutingRefusal::ModelNotFound {
            model: self.request.model.to_string(),
        })?;
        self.go_through(app, who, agent).await
    }

    /// Applies the agent again to a captured request that went through it. 409 if the agent has
    /// changed.
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
        let (body, request) = if self.body.len() <= READ_INLINE {
            with_agent(&by, endpoint, &self.body, &model, most)?
        } else {
            let (body, agent) = (self.body.clone(), by.clone());
            let adding = move || with_agent(&agent, endpoint, &body, &model, most);
            Box::pin(in_turn(app, (who, false), adding)).await??
        };
        self.neutral = None;
        self.through = Some(AgentRoute {
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

    /// Reads the request into the neutral form, unless that is done. A large request waits for its
    /// turn, as before.
    pub async fn read_neutral(&mut self, app: &App, who: &Principal) -> Result<()> {
        if self.neutral.is_some() {
            return Ok(());
        }
        let (endpoint, body) = (self.endpoint, self.body.clone());
        let reading = move || neutral_form(endpoint, &body);
        self.neutral = Some(if self.body.len() <= READ_INLINE {
            reading()
        } else {
            Box::pin(in_turn(app, (who, false), reading)).await?
        });
        Ok(())
    }

    /// Reads the neutral form on the current thread, which may block.
    pub(crate) fn read_neutral_here(&mut self) {
        self.neutral = Some(neutral_form(self.endpoint, &self.body));
    }

    /// The request in the neutral form, if it was read and has one.
    pub fn neutral(&self) -> Option<&NeutralRequest> {
        self.neutral.as_ref()?.as_deref().ok()
    }

    pub fn take_neutral(&mut self) -> Option<NeutralForm> {
        self.neutral.take()
    }

    /// The parts of the request that other dialects cannot carry; `None` if its neutral form was
    /// not read.
    pub fn untranslatable(&self) -> Option<Untranslatable> {
        let source = self.endpoint.dialect();
        let request = self.neutral.as_ref()?.as_deref();
        let refused = |target: Dialect| {
            let error = match request {
                Ok(request) => Error::from(refused(request, target)?),
                Err(malformed) => Error::from(malformed.clone()),
            };
            let member = error.field().unwrap_or_default().to_owned();
            let detail = error.detail().to_owned();
            Some((target.name().to_owned(), RefusedFeature { member, detail }))
        };
        let others = Dialect::TRANSLATED.into_iter().filter(|target| *target != source);
        Some(others.filter_map(refused).collect())
    }

    /// A text of the request, with its agent's instructions in the system prompt.
    pub fn text(&self, part: TextPart) -> String {
        match part {
            TextPart::User => request::last_user_text(&self.body, &self.request),
            TextPart::System => request::system_text(&self.body, self.endpoint),
        }
    }
}

pub struct UnreadBody<'a> {
    pub endpoint: Endpoint,
    pub body: Bytes,
    pub coding: Option<Coding>,
    /// Whether the call may cost money. If so, a spent budget refuses the body unread.
    pub costs: bool,
    pub held: &'a mut Held,
}

pub fn neutral_form(endpoint: Endpoint, body: &[u8]) -> NeutralForm {
    read_request(endpoint.dialect(), body).map(Box::new)
}

/// Waits for the caller's turn to work on a large body.
pub async fn reading_turn(app: &App, tenant: &str) -> Result<WorkTurn> {
    app.readers.take(tenant).await.ok_or_else(|| {
        let why = "Too many large bodies are being read. Retry later.";
        Error::new(Kind::Unavailable, why).retry_after(bounds::LIMIT_RETRY)
    })
}

/// Works on a large body on a blocking thread, when it is the caller's turn.
async fn in_turn<T: Send + 'static>(
    app: &App,
    (who, costs): (&Principal, bool),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let turn = reading_turn(app, &app.auth.tenant(who)).await?;
    // The caller may have reached a limit while the request waited.
    let draws = limits::draws(&app.auth, who);
    app.limits.look(&draws, costs, app.clock.now()).map_err(|refused| refused.error)?;
    let working = move || {
        let _turn = turn;
        work()
    };
    Ok(blocking(working).await?)
}

/// `held` counts the decoded size.
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

fn with_agent(
    by: &Agent,
    endpoint: Endpoint,
    body: &Bytes,
    model: &Range<usize>,
    most: usize,
) -> Result<(Bytes, ModelRequest)> {
    let instructions = by.instructions.as_deref();
    let preset =
        AgentPreset { model: &by.model, instructions, defaults: &by.defaults, tools: &by.tools };
    let body = agent::apply(&preset, endpoint, body, model)?;
    if body.len() > most {
        let why = format!("With what the agent adds the body is larger than {most} bytes.");
        return Err(Error::new(Kind::PayloadTooLarge, why));
    }
    let request = request::read_request(&body, endpoint)?;
    Ok((body, request))
}

/// Whether requests may use the agent. Text by an unauthenticated author must not cost anybody
/// money, except on a gateway that only its owner can reach.
pub fn may_call(app: &App, agent: &Agent) -> bool {
    agent.trusted || app.server.calls_untrusted()
}

/// Checks `limits.models` of the key and the user. A name that is not allowed has the same error as
/// an unknown one.
pub fn may_ask_for(principal: &Principal, model: &str) -> Result<()> {
    if principal.allows_model(model) {
        Ok(())
    } else {
        let unknown = RoutingRefusal::ModelNotFound { model: model.to_string() };
        Err(Error::from(unknown).refusing(RefusalReason::Request))
    }
}

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
            endpoint: Cow::Borrowed(prompt.endpoint.as_str()),
            model: Arc::clone(prompt.asked()),
            name: Arc::clone(&request.model),
            agent: prompt.agent().cloned(),
            needs,
            prompt_tokens: app.bias.correct(&live.routing, &request.model, request.prompt_tokens),
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
            untranslatable: None,
        },
        keywords: Default::default(),
        texts: Default::default(),
        principal: who(principal),
        seed: app.random.next_u64(),
        health: app.standing(&live.routing, Some(&request.model), at),
    };
    inputs.complete(&live.routing, &[], |part| Some(prompt.text(part)));
    inputs.complete_translation(&live.routing, || prompt.untranslatable());
    inputs
}

fn who(principal: &Principal) -> PrincipalFacts {
    let key = principal.key();
    PrincipalFacts {
        key: key.map(|key| key.id.clone().into()),
        user: principal.user_id().map(Arc::from),
        labels: key.map(|key| (*key.labels).clone()).unwrap_or_default(),
        user_labels: match principal {
            Principal::User { user, .. } => user.labels.clone(),
            _ => Default::default(),
        },
        models: key.and_then(|key| key.limits.models.clone()),
    }
}
