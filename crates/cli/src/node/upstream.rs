//! The server beside a node: its models, their capabilities, and its load. All servers list their
//! models as OpenAI does; the rest each reports in its own way.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::{Agent, RequestBuilder};

use super::super::output::print_error;
use super::http::{NODE_RESPONSE_BYTES, agent, url};
use super::server_formats::{
    LlamaCppProps, OllamaModel, ServerLoad, field_by_model, listed_context, llama_cpp_props,
    llama_cpp_slots, metrics_load, ollama_model, positive,
};
use rerouter_base::secret::Secret;
use rerouter_records::NodeModel;
use rerouter_records::node::NODE_MODELS;
use rerouter_routing::{BaseUrl, MODEL_NAME_BYTES};
use rerouter_store::covers;

/// Longest time for a node to ask its server all that a report needs.
const NODE_QUERY_TIMEOUT: Duration = Duration::from_secs(4);

/// A server with an OpenAI-compatible API.
pub(super) struct Upstream {
    agent: Agent,
    base: BaseUrl,
    api_key: Option<Secret>,
    /// Patterns of the models to report; empty: all.
    patterns: Vec<String>,
    /// `None` until it is recognized, and again while it is down.
    kind: Option<ServerKind>,
    llama_cpp: LlamaCppProps,
    ollama_models: HashMap<String, OllamaModel>,
    /// Models that cannot be reported, as they were logged last.
    unreportable: Vec<String>,
}

/// Kinds of servers, as far as they are probed differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerKind {
    LlamaCpp,
    Ollama,
    /// vLLM, SGLang and others: the list and the metrics say it all.
    Other,
}

pub(super) struct ServerStatus {
    pub(super) models: Vec<NodeModel>,
    /// `None` if the server does not report its load.
    pub(super) load: Option<ServerLoad>,
}

#[derive(Debug)]
pub(super) enum ProbeError {
    /// It may be busy.
    Timeout(String),
    Unavailable(String),
}

impl Upstream {
    pub(super) fn new(
        base: BaseUrl,
        ca: Option<&Path>,
        api_key: Option<Secret>,
        patterns: Vec<String>,
    ) -> Result<Upstream, String> {
        Ok(Upstream {
            agent: agent(ca)?,
            base,
            api_key,
            patterns,
            kind: None,
            llama_cpp: LlamaCppProps::default(),
            ollama_models: HashMap::new(),
            unreportable: Vec::new(),
        })
    }

    pub(super) fn api_key(&self) -> Option<&Secret> {
        self.api_key.as_ref()
    }

    /// Asks for models and load, for [`NODE_QUERY_TIMEOUT`] at most.
    pub(super) fn probe(&mut self) -> Result<ServerStatus, ProbeError> {
        let until = Instant::now() + NODE_QUERY_TIMEOUT;
        let listed = self.list_models(until).inspect_err(|_| self.kind = None)?;
        if self.kind.is_none() {
            self.kind = self.recognize(&listed, until);
        }
        let load = match self.kind {
            Some(ServerKind::LlamaCpp) => self.probe_llama_cpp(until),
            Some(ServerKind::Ollama) => self.probe_ollama(&listed, until),
            Some(ServerKind::Other) | None => self.metrics(until),
        };
        Ok(ServerStatus { models: self.describe(&listed), load })
    }

    pub(super) fn is_up(&self) -> bool {
        self.list_models(Instant::now() + NODE_QUERY_TIMEOUT).is_ok()
    }

    pub(super) fn load(&mut self) -> Option<ServerLoad> {
        self.probe().ok().and_then(|status| status.load)
    }

    fn list_models(&self, until: Instant) -> Result<Vec<Value>, ProbeError> {
        let path = format!("{}/models", self.base.clone().versioned().path);
        let mut answer: Value = self.get(&path, until)?;
        match answer.get_mut("data").map(Value::take) {
            Some(Value::Array(listed)) => Ok(listed),
            // Ollama without models.
            Some(Value::Null) => Ok(Vec::new()),
            _ => Err(ProbeError::Unavailable(format!("the answer to {path} has no `data`"))),
        }
    }

    /// Recognizes the server by what only its kind answers; `None` if it does not answer in time.
    fn recognize(&self, listed: &[Value], until: Instant) -> Option<ServerKind> {
        if listed.iter().any(|model| model.get("max_model_len").is_some()) {
            return Some(ServerKind::Other);
        }
        let asked = |path: &str| match self.get(path, until) {
            Ok(answer) => Some(answer),
            Err(ProbeError::Unavailable(_)) => Some(Value::Null),
            Err(ProbeError::Timeout(_)) => None,
        };
        // First, because llama.cpp answers some of Ollama's requests too.
        let props = asked(&self.root("/props"))?;
        if ["default_generation_settings", "total_slots"]
            .iter()
            .any(|name| props.get(name).is_some())
        {
            return Some(ServerKind::LlamaCpp);
        }
        let tags = asked(&self.root("/api/tags"))?;
        let digests = tags.pointer("/models").and_then(Value::as_array);
        let ollama =
            digests.is_some_and(|models| models.iter().all(|model| model.get("digest").is_some()));
        Some(if ollama { ServerKind::Ollama } else { ServerKind::Other })
    }

    fn probe_llama_cpp(&mut self, until: Instant) -> Option<ServerLoad> {
        if let Ok(props) = self.get(&self.root("/props"), until) {
            self.llama_cpp = llama_cpp_props(&props);
        }
        if self.llama_cpp.is_sleeping {
            return Some(ServerLoad::default());
        }
        self.metrics(until)
            .or_else(|| llama_cpp_slots(&self.get(&self.root("/slots"), until).ok()?))
    }

    /// Ollama does not report requests; but without a loaded model none runs.
    fn probe_ollama(&mut self, listed: &[Value], until: Instant) -> Option<ServerLoad> {
        let digests = self
            .get(&self.root("/api/tags"), until)
            .map(|tags| field_by_model(&tags, "digest"))
            .unwrap_or_default();
        for name in listed.iter().filter_map(|model| model.get("id")?.as_str()) {
            let digest = digests.get(name).and_then(Value::as_str).map(str::to_owned);
            let known = self
                .ollama_models
                .get(name)
                .is_some_and(|model| digest.is_none() || model.digest == digest);
            if known || !self.is_reported(name) {
                continue;
            }
            let Ok(answer) = self.post(&self.root("/api/show"), &json!({ "model": name }), until)
            else {
                continue;
            };
            self.ollama_models
                .insert(name.to_owned(), OllamaModel { digest, ..ollama_model(&answer) });
        }
        self.ollama_models.retain(|name, _| {
            listed.iter().any(|model| model.get("id").and_then(Value::as_str) == Some(name))
        });
        let running =
            field_by_model(&self.get(&self.root("/api/ps"), until).ok()?, "context_length");
        for (name, context) in &running {
            if let Some(model) = self.ollama_models.get_mut(name) {
                model.loaded_context = positive(context).or(model.loaded_context);
            }
        }
        running.is_empty().then(ServerLoad::default)
    }

    fn metrics(&self, until: Instant) -> Option<ServerLoad> {
        self.ask(&self.root("/metrics"), None, until).ok().and_then(|text| metrics_load(&text))
    }

    /// The models to report, each once, as many as a node may have.
    fn describe(&mut self, listed: &[Value]) -> Vec<NodeModel> {
        let (mut models, mut names, mut unreportable): (Vec<NodeModel>, Vec<&str>, Vec<String>) =
            (Vec::new(), Vec::new(), Vec::new());
        for (model, name) in
            listed.iter().filter_map(|model| Some((model, model.get("id")?.as_str()?)))
        {
            if !self.is_reported(name) || names.contains(&name) {
                continue;
            }
            let valid = (1..=MODEL_NAME_BYTES).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic());
            if models.len() == NODE_MODELS || !valid {
                unreportable.push(name.to_owned());
                continue;
            }
            names.push(name);
            models.push(self.described(model, name));
        }
        if unreportable != self.unreportable {
            if !unreportable.is_empty() {
                let most = NODE_MODELS;
                print_error(&format!(
                    "a node reports up to {most} models with ASCII names; left out: \
                     {unreportable:?}\n"
                ));
            }
            self.unreportable = unreportable;
        }
        models
    }

    fn described(&self, model: &Value, name: &str) -> NodeModel {
        let mut context = listed_context(model);
        let mut capabilities = None;
        match self.kind {
            Some(ServerKind::LlamaCpp) => {
                context = context.or(self.llama_cpp.context);
                capabilities = self.llama_cpp.capabilities.as_ref();
            }
            Some(ServerKind::Ollama) => {
                let known = self.ollama_models.get(name);
                context = known.and_then(|known| known.loaded_context.or(known.context));
                capabilities = known.and_then(|known| known.capabilities.as_ref());
            }
            Some(ServerKind::Other) | None => {}
        }
        let capabilities =
            capabilities.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        NodeModel { id: name.to_owned(), context, capabilities }
    }

    fn is_reported(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| covers(pattern, name))
    }

    /// A path of the server outside `/v1`.
    fn root(&self, path: &str) -> String {
        format!("{}{path}", self.base.path.trim_end_matches("/v1"))
    }

    fn get(&self, path: &str, until: Instant) -> Result<Value, ProbeError> {
        read_json(path, &self.ask(path, None, until)?)
    }

    fn post(&self, path: &str, body: &Value, until: Instant) -> Result<Value, ProbeError> {
        read_json(path, &self.ask(path, Some(body), until)?)
    }

    /// The body of an answer with status 2xx.
    fn ask(&self, path: &str, body: Option<&Value>, until: Instant) -> Result<String, ProbeError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let url = url(&self.base, path);
        let answer = match body {
            None => self.prepare(self.agent.get(url), left).call(),
            Some(body) => self
                .prepare(self.agent.post(url), left)
                .header("content-type", "application/json")
                .send(body.to_string()),
        };
        let failed = |error: &dyn std::fmt::Display| {
            let why = format!("cannot get {path}: {error}");
            if Instant::now() < until {
                ProbeError::Unavailable(why)
            } else {
                ProbeError::Timeout(why)
            }
        };
        let answer = answer.map_err(|error| match error {
            ureq::Error::Timeout(_) => ProbeError::Timeout(format!("no answer to {path} in time")),
            error => failed(&error),
        })?;
        let status = answer.status();
        if !status.is_success() {
            return Err(ProbeError::Unavailable(format!("status {status} for {path}")));
        }
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(NODE_RESPONSE_BYTES).reader();
        reader.read_to_string(&mut text).map_err(|error| failed(&error))?;
        Ok(text)
    }

    fn prepare<B>(&self, mut request: RequestBuilder<B>, left: Duration) -> RequestBuilder<B> {
        if let Some(key) = &self.api_key {
            request = request.header("authorization", format!("Bearer {}", key.expose()));
        }
        request.config().timeout_global(Some(left)).build()
    }
}

fn read_json(path: &str, text: &str) -> Result<Value, ProbeError> {
    serde_json::from_str(text)
        .map_err(|_| ProbeError::Unavailable(format!("the answer to {path} is not JSON")))
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
