//! A request of the data plane as it is decided on: its body understood, and everything that a decision may look at copied
//! out. Live calls and `/v1/router/decide` come through here, so that they are told the same.

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;

use crate::app::{App, Live};
use crate::auth::Principal;
use crate::error::Result;
use crate::protocol::endpoint::Endpoint;
use crate::protocol::openai::{self, ModelRequest};
use crate::routing::decide::Refusal;
use crate::routing::inputs::{Inputs, RequestFacts, Who};

/// A request of the data plane that has been read: what is decided on, and what is sent.
///
/// Not `Debug`: the client's headers hold its credential.
pub struct Prompt {
    /// Which endpoint it is for.
    pub endpoint: Endpoint,
    /// Its body as the client sent it.
    pub body: Bytes,
    /// What was understood of that.
    pub request: ModelRequest,
    /// The client's headers.
    pub headers: HeaderMap,
}

impl Prompt {
    /// Reads a whole body, or says with 400 what is wrong with it.
    pub fn read(endpoint: Endpoint, body: Bytes, headers: HeaderMap) -> Result<Self> {
        let request = openai::read_request(&body, endpoint)?;
        Ok(Prompt { endpoint, body, request, headers })
    }

    /// The text of the last user message.
    pub fn last_user_text(&self) -> String {
        openai::last_user_text(&self.body, &self.request)
    }
}

/// Whether the `limits.models` of key and user allow the name; if not, the answer is that of a name that does not exist.
pub fn may_ask_for(principal: &Principal, model: &str) -> Result<()> {
    if principal.may_ask_for(model) { Ok(()) } else { Err(Refusal::ModelNotFound { model: model.to_string() }.into()) }
}

/// Copies out everything that the decision may look at.
pub fn gather(app: &App, live: &Live, at: Timestamp, prompt: &Prompt, principal: &Principal) -> Inputs {
    let request = &prompt.request;
    let signals = app.server.routing.signal_headers.iter().filter_map(|name| {
        let value = prompt.headers.get(name)?.to_str().ok()?;
        Some((name.clone(), value.to_string()))
    });
    let mut needs = Vec::new();
    for (needed, name) in
        [(request.tools > 0, "tools"), (request.images > 0, "vision"), (request.json_output, "json"), (request.audio > 0, "audio")]
    {
        if needed {
            needs.push(name.to_string());
        }
    }
    let mut inputs = Inputs {
        version: Inputs::VERSION,
        at,
        request: RequestFacts {
            endpoint: prompt.endpoint.as_str().to_string(),
            model: request.model.clone(),
            name: request.model.clone(),
            agent: None,
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
        health: app.standing(&live.routing, at),
    };
    inputs.complete(&live.routing, || Some(prompt.last_user_text()));
    inputs
}

fn who(principal: &Principal) -> Who {
    let key = principal.key();
    Who {
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
