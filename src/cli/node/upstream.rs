//! The server beside a node, as the node asks it: which models it serves, what they can, and how busy it is. All of them list their
//! models as OpenAI does; what else they tell, each tells in its own way. Whatever a server does not tell is not told of it.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::{Agent, RequestBuilder};

use super::{agent, say, url};
use crate::bounds;
use crate::routing::BaseUrl;
use crate::secret::Secret;
use crate::store::covers;

/// A server that speaks OpenAI's API.
pub(super) struct Upstream {
    agent: Agent,
    base: BaseUrl,
    api_key: Option<Secret>,
    /// Patterns of the models to tell of; none: all.
    patterns: Vec<String>,
    /// What it turned out to be; none before it was asked, and after it did not answer.
    kind: Option<Kind>,
    /// What llama.cpp said last.
    props: Props,
    /// What Ollama said of a model, by its name.
    shown: HashMap<String, Shown>,
    /// Models that were left out, and said to be.
    left_out: Vec<String>,
}

/// Which server it is, as far as they are asked in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// llama.cpp's.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// Any other: vLLM and SGLang tell what they have to in their list and their metrics.
    Other,
}

/// How a server is.
pub(super) struct Seen {
    /// Its models, as a registration has them.
    pub(super) models: Vec<Value>,
    /// How busy it is, where it says so.
    pub(super) load: Option<Load>,
}

/// Requests at a server, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) running: u64,
    pub(super) queued: u64,
}

/// Why a server did not answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Not in time: it may be busy.
    Late(String),
    /// It is not there, or not well.
    Away(String),
}

/// What llama.cpp says of its one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Props {
    context: Option<u64>,
    capabilities: Option<Vec<&'static str>>,
    /// It has unloaded the model: nothing runs, and most questions would wake it.
    asleep: bool,
}

/// What Ollama says of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    /// Of what it was said.
    digest: Option<String>,
    /// What the model was made for, or set to.
    context: Option<u64>,
    /// With what it was loaded last. Kept when it is unloaded: so it will be again.
    loaded: Option<u64>,
    capabilities: Option<Vec<&'static str>>,
}

impl Upstream {
    /// The server at this URL, whose certificate `ca` may vouch for.
    pub(super) fn new(
        base: BaseUrl,
        ca: Option<&Path>,
        api_key: Option<Secret>,
        patterns: Vec<String>,
    ) -> Result<Upstream, String> {
        let (props, shown, left_out) = (Props::default(), HashMap::new(), Vec::new());
        Ok(Upstream {
            agent: agent(ca)?,
            base,
            api_key,
            patterns,
            kind: None,
            props,
            shown,
            left_out,
        })
    }

    /// What it wants to be shown by those who ask it.
    pub(super) fn api_key(&self) -> Option<&Secret> {
        self.api_key.as_ref()
    }

    /// Asks it all that a report tells, within [`bounds::NODE_ASK`].
    pub(super) fn look(&mut self) -> Result<Seen, Trouble> {
        let until = Instant::now() + bounds::NODE_ASK;
        let listed = self.list(until).inspect_err(|_| self.kind = None)?;
        if self.kind.is_none() {
            self.kind = self.recognize(&listed, until);
        }
        let load = match self.kind {
            Some(Kind::LlamaCpp) => self.look_at_llama_cpp(until),
            Some(Kind::Ollama) => self.look_at_ollama(&listed, until),
            Some(Kind::Other) | None => self.metrics(until),
        };
        Ok(Seen { models: self.describe(&listed), load })
    }

    /// Whether it answers at all.
    pub(super) fn answers(&self) -> bool {
        self.list(Instant::now() + bounds::NODE_ASK).is_ok()
    }

    /// How busy it is, as it said by its last look.
    pub(super) fn load(&mut self) -> Option<Load> {
        self.look().ok().and_then(|seen| seen.load)
    }

    fn list(&self, until: Instant) -> Result<Vec<Value>, Trouble> {
        let path = format!("{}/models", self.base.clone().versioned().path);
        let mut answer: Value = self.get(&path, until)?;
        match answer.get_mut("data").map(Value::take) {
            Some(Value::Array(listed)) => Ok(listed),
            _ => Err(Trouble::Away(format!("the answer to {path} has no `data`"))),
        }
    }

    /// Which server it is, by what only that one answers; none where it did not answer in time.
    fn recognize(&self, listed: &[Value], until: Instant) -> Option<Kind> {
        if listed.iter().any(|model| model.get("max_model_len").is_some()) {
            return Some(Kind::Other);
        }
        let asked = |path: &str| match self.get(path, until) {
            Ok(answer) => Some(answer),
            Err(Trouble::Away(_)) => Some(Value::Null),
            Err(Trouble::Late(_)) => None,
        };
        // First this one: llama.cpp answers some of Ollama's questions as well.
        let props = asked(&self.root("/props"))?;
        if ["default_generation_settings", "total_slots"]
            .iter()
            .any(|name| props.get(name).is_some())
        {
            return Some(Kind::LlamaCpp);
        }
        let tags = asked(&self.root("/api/tags"))?;
        let digests = tags.pointer("/models").and_then(Value::as_array);
        let ollama =
            digests.is_some_and(|models| models.iter().all(|model| model.get("digest").is_some()));
        Some(if ollama { Kind::Ollama } else { Kind::Other })
    }

    fn look_at_llama_cpp(&mut self, until: Instant) -> Option<Load> {
        if let Ok(props) = self.get(&self.root("/props"), until) {
            self.props = read_props(&props);
        }
        if self.props.asleep {
            return Some(Load::default());
        }
        self.metrics(until).or_else(|| read_slots(&self.get(&self.root("/slots"), until).ok()?))
    }

    /// It says nothing of requests; but where no model is loaded none runs.
    fn look_at_ollama(&mut self, listed: &[Value], until: Instant) -> Option<Load> {
        let digests = self
            .get(&self.root("/api/tags"), until)
            .map(|tags| by_name(&tags, "digest"))
            .unwrap_or_default();
        for name in listed.iter().filter_map(|model| model.get("id")?.as_str()) {
            let digest = digests.get(name).and_then(Value::as_str).map(str::to_owned);
            let known = self
                .shown
                .get(name)
                .is_some_and(|shown| digest.is_none() || shown.digest == digest);
            if known || !self.is_told(name) {
                continue;
            }
            let Ok(shown) = self.post(&self.root("/api/show"), &json!({ "model": name }), until)
            else {
                continue;
            };
            self.shown.insert(name.to_owned(), Shown { digest, ..read_show(&shown) });
        }
        self.shown.retain(|name, _| {
            listed.iter().any(|model| model.get("id").and_then(Value::as_str) == Some(name))
        });
        let running = by_name(&self.get(&self.root("/api/ps"), until).ok()?, "context_length");
        for (name, context) in &running {
            if let Some(shown) = self.shown.get_mut(name) {
                shown.loaded = some(context).or(shown.loaded);
            }
        }
        running.is_empty().then(Load::default)
    }

    fn metrics(&self, until: Instant) -> Option<Load> {
        self.ask(&self.root("/metrics"), None, until).ok().and_then(|text| read_load(&text))
    }

    /// The models to tell of, each once, as many as a node may have.
    fn describe(&mut self, listed: &[Value]) -> Vec<Value> {
        let (mut models, mut names, mut left_out): (Vec<Value>, Vec<&str>, Vec<String>) =
            (Vec::new(), Vec::new(), Vec::new());
        for (model, name) in
            listed.iter().filter_map(|model| Some((model, model.get("id")?.as_str()?)))
        {
            if !self.is_told(name) || names.contains(&name) {
                continue;
            }
            let sayable = (1..=bounds::MODEL_NAME_BYTES).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic());
            if models.len() == bounds::NODE_MODELS || !sayable {
                left_out.push(name.to_owned());
                continue;
            }
            names.push(name);
            models.push(self.described(model, name));
        }
        if left_out != self.left_out {
            if !left_out.is_empty() {
                let most = bounds::NODE_MODELS;
                say(&format!(
                    "a node tells of {most} models with names in ASCII; left out: {left_out:?}"
                ));
            }
            self.left_out = left_out;
        }
        models
    }

    fn described(&self, model: &Value, name: &str) -> Value {
        let mut context = context_of(model);
        let mut capabilities = None;
        match self.kind {
            Some(Kind::LlamaCpp) => {
                context = context.or(self.props.context);
                capabilities = self.props.capabilities.as_ref();
            }
            Some(Kind::Ollama) => {
                let shown = self.shown.get(name);
                context = shown.and_then(|shown| shown.loaded.or(shown.context));
                capabilities = shown.and_then(|shown| shown.capabilities.as_ref());
            }
            Some(Kind::Other) | None => {}
        }
        let mut described = json!({ "id": name });
        if let Value::Object(fields) = &mut described {
            fields.extend(context.map(|context| ("context".to_owned(), context.into())));
            fields.extend(
                capabilities.map(|words| ("capabilities".to_owned(), words.clone().into())),
            );
        }
        described
    }

    fn is_told(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| covers(pattern, name))
    }

    /// A path beside `/v1`.
    fn root(&self, path: &str) -> String {
        format!("{}{path}", self.base.path.trim_end_matches("/v1"))
    }

    fn get(&self, path: &str, until: Instant) -> Result<Value, Trouble> {
        read_json(path, &self.ask(path, None, until)?)
    }

    fn post(&self, path: &str, body: &Value, until: Instant) -> Result<Value, Trouble> {
        read_json(path, &self.ask(path, Some(body), until)?)
    }

    /// The text of a good answer.
    fn ask(&self, path: &str, body: Option<&Value>, until: Instant) -> Result<String, Trouble> {
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
            let why = format!("the server cannot be asked for {path}: {error}");
            if Instant::now() < until { Trouble::Away(why) } else { Trouble::Late(why) }
        };
        let answer = answer.map_err(|error| match error {
            ureq::Error::Timeout(_) => {
                Trouble::Late(format!("the server does not answer {path} in time"))
            }
            error => failed(&error),
        })?;
        let status = answer.status();
        if !status.is_success() {
            return Err(Trouble::Away(format!("the server answered {status} to {path}")));
        }
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(bounds::NODE_ANSWER).reader();
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

fn read_json(path: &str, text: &str) -> Result<Value, Trouble> {
    serde_json::from_str(text)
        .map_err(|_| Trouble::Away(format!("the answer to {path} is not JSON")))
}

/// One field of each model of a list of Ollama's.
fn by_name(answer: &Value, field: &str) -> HashMap<String, Value> {
    let models =
        answer.get("models").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pair = |model: &Value| {
        Some((
            model.get("name")?.as_str()?.to_owned(),
            model.get(field).cloned().unwrap_or_default(),
        ))
    };
    models.iter().filter_map(pair).collect()
}

fn some(tokens: &Value) -> Option<u64> {
    tokens.as_u64().filter(|tokens| *tokens > 0)
}

/// What a list says of a model's context: vLLM and SGLang, or llama.cpp where it has loaded the model.
fn context_of(model: &Value) -> Option<u64> {
    ["/max_model_len", "/meta/n_ctx"].iter().find_map(|place| some(model.pointer(place)?))
}

/// The abilities that decisions know, each with whether there is it.
fn words(known: [(&'static str, bool); 4]) -> Vec<&'static str> {
    known.into_iter().filter(|(_, able)| *able).map(|(word, _)| word).collect()
}

/// llama.cpp's `/props`: the context of one request, and what model and template can. Its grammar makes JSON of any model.
fn read_props(props: &Value) -> Props {
    let flag = |place: &str| props.pointer(place).and_then(Value::as_bool);
    let tools =
        ["/chat_template_caps/supports_tools", "/chat_template_caps/supports_tool_calls"].map(flag);
    // What the template does not say, the server makes up for.
    let tools = tools == [None, None] || tools.contains(&Some(true));
    let able = |name: &str| flag(&format!("/modalities/{name}")).unwrap_or(false);
    let capabilities = || {
        words([
            ("tools", tools),
            ("vision", able("vision")),
            ("json", true),
            ("audio", able("audio")),
        ])
    };
    Props {
        context: props.pointer("/default_generation_settings/n_ctx").and_then(some),
        capabilities: props.get("modalities").map(|_| capabilities()),
        asleep: flag("/is_sleeping").unwrap_or(false),
    }
}

/// Ollama's `/api/show`: the context that the model's file sets, within the one that it was made for, and its abilities.
fn read_show(shown: &Value) -> Shown {
    let made_for = || {
        let info = shown.get("model_info")?;
        some(info.get(format!("{}.context_length", info.get("general.architecture")?.as_str()?))?)
    };
    let set = || {
        let mut lines = shown.get("parameters")?.as_str()?.lines().map(str::split_whitespace);
        let value =
            lines.find_map(
                |mut words| if words.next() == Some("num_ctx") { words.next() } else { None },
            )?;
        value.parse::<u64>().ok().filter(|tokens| *tokens > 0)
    };
    let can = |told: &Vec<Value>| {
        let able = |word: &str| told.iter().any(|known| known == word);
        words([
            ("tools", able("tools")),
            ("vision", able("vision")),
            ("json", able("completion")),
            ("audio", able("audio")),
        ])
    };
    Shown {
        context: [made_for(), set()].into_iter().flatten().min(),
        capabilities: shown.get("capabilities").and_then(Value::as_array).map(can),
        ..Shown::default()
    }
}

/// llama.cpp's `/slots`: how many of its places are taken. Who waits for one, it does not say.
fn read_slots(slots: &Value) -> Option<Load> {
    let taken: Option<Vec<bool>> =
        slots.as_array()?.iter().map(|slot| slot.get("is_processing")?.as_bool()).collect();
    let running = taken?.into_iter().filter(|taken| *taken).count();
    Some(Load { running: u64::try_from(running).unwrap_or(u64::MAX), queued: 0 })
}

/// Sums of the gauges of vLLM, SGLang and llama.cpp, in Prometheus' text format; none where no one says what is running.
fn read_load(metrics: &str) -> Option<Load> {
    let (mut load, mut known) = (Load::default(), false);
    for line in metrics.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
            .filter(|value| (0.0..1e6).contains(value));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // between 0 and a million
        let count = value.unwrap_or_default() as u64;
        match name {
            "vllm:num_requests_running"
            | "sglang:num_running_reqs"
            | "llamacpp:requests_processing" => {
                known |= value.is_some();
                load.running += count;
            }
            "vllm:num_requests_waiting"
            | "sglang:num_queue_reqs"
            | "llamacpp:requests_deferred" => load.queued += count,
            _ => {}
        }
    }
    known.then_some(load)
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
