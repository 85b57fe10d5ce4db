//! Reads the entries of `model_list` as targets of providers.

use serde_json::{Map, Value, json};

use super::address::{address, duration, pattern};
use super::notes::{Notes, expanded, number, scalar, texts, variable};
use super::params::{CARRIED, DESCRIBED, model_settings};
use super::providers::{LitellmProvider, is_by_responses, of_model};
use super::settings::{LitellmDefaults, TIMEOUT};
use rerouter_base::secret::is_credential;
use rerouter_routing::PROVIDER_CONCURRENCY;

/// An entry that is imported.
#[derive(Debug)]
pub(super) struct LitellmDeployment {
    /// The name that clients ask for. Several entries may share it.
    pub(super) name: String,
    /// `model_info.id`. Fallbacks may refer to it.
    pub(super) id: Option<String>,
    pub(super) target: String,
    /// Weight, requests per minute and tokens per minute of the entry. They determine its share
    /// among the entries with its name.
    pub(super) shares: [Option<f64>; 3],
    /// The rank among the entries with its name, lowest first.
    pub(super) order: Option<f64>,
    /// Requests with one of these tags use this entry.
    pub(super) tags: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct DeploymentList {
    /// Providers by name, with their settings.
    pub(super) providers: Vec<(String, Map<String, Value>)>,
    /// Prices and abilities of targets.
    pub(super) models: Vec<(String, Map<String, Value>)>,
    pub(super) deployments: Vec<LitellmDeployment>,
    /// Names of entries that were left out.
    pub(super) left_out: Vec<String>,
    /// The settings of each provider with its plain key, by which equal providers are recognized.
    identities: Vec<Map<String, Value>>,
}

const NO_ENDPOINT: &str = "no endpoint of this mode is served";

/// Modes for which the gateway has an endpoint. An entry without a mode may be of any.
const MODES: [&str; 4] = ["", "chat", "embedding", "responses"];

/// Prefixes of models for which the gateway has no endpoint. They count if an entry has no mode.
const UNSERVED: [&str; 8] = [
    "rerank",
    "whisper",
    "tts-",
    "dall-e",
    "gpt-image",
    "sora",
    "text-moderation",
    "omni-moderation",
];

/// Reads the entries. Whatever cannot be imported is noted.
pub(super) fn deployments(
    configuration: &Value,
    defaults: &LitellmDefaults,
    notes: &mut Notes,
) -> DeploymentList {
    let mut list = DeploymentList::default();
    let entries = configuration.get("model_list").and_then(Value::as_array);
    for (at, entry) in entries.into_iter().flatten().enumerate() {
        let name = scalar(entry.get("model_name")).unwrap_or_default();
        let place = format!("model_list[{at}] ({name})");
        let reader = EntryReader { configuration, defaults, entry, place: &place };
        if let Err(why) = reader.read(&name, &mut list, notes) {
            notes.add(&place, &format!("left out: {why}"));
            list.left_out.push(name);
        }
    }
    list
}

struct EntryReader<'a> {
    configuration: &'a Value,
    defaults: &'a LitellmDefaults,
    entry: &'a Value,
    place: &'a str,
}

impl EntryReader<'_> {
    fn read(
        &self,
        name: &str,
        list: &mut DeploymentList,
        notes: &mut Notes,
    ) -> Result<(), &'static str> {
        let params = self.params()?;
        let info = self.entry.get("model_info").and_then(Value::as_object);
        let get = |key: &str| params.get(key).filter(|value| !value.is_null());
        let mode = scalar(info.and_then(|info| info.get("mode"))).unwrap_or_default();
        if !MODES.contains(&mode.as_str()) {
            return Err(NO_ENDPOINT);
        }
        let model = scalar(get("model")).ok_or("`litellm_params.model` is missing")?;
        let custom = scalar(get("custom_llm_provider"));
        let by_responses = is_by_responses(&model);
        let (provider, model) = of_model(&model, custom.as_deref())?;
        if mode.is_empty() && UNSERVED.iter().any(|beginning| model.starts_with(beginning)) {
            return Err(NO_ENDPOINT);
        }
        let model = pattern(name, model)?;
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if provider.prefix == "azure" && !model.contains("${") && !model.bytes().all(is_plain) {
            return Err("the name of a deployment must be letters, digits, `-`, `_` or `.`");
        }
        let mut settings = self.provider(&provider, &params, notes)?;
        match (by_responses, provider.prefix) {
            (true, "openai") => _ = settings.insert("endpoints".to_owned(), json!(["responses"])),
            (true, _) => notes.add(
                &format!("{}.litellm_params.model", self.place),
                "asked in chat completions: responses need Azure's newer API, see \
                 docs/providers.md",
            ),
            (false, _) => {}
        }
        let place = self.place;
        notes.add_left_out(&format!("{place}.litellm_params."), Some(&params), &CARRIED);
        notes.add_left_out(&format!("{place}.model_info."), info, &DESCRIBED);
        let provider = list.provider(provider.prefix, settings, |name| {
            notes.add(
                &format!("{}.litellm_params.api_key", self.place),
                &format!("a key in clear text is not copied: set {}", literal_variable(name)),
            );
        });
        let target = format!("{provider}/{model}");
        if !model.contains("${") {
            let settings = model_settings(&params, info, |key, value| {
                notes.within(&format!("{place}.{key}"), value, 0.0..=1.0)
            });
            list.add_model(&target, settings);
        }
        // LiteLLM configurations use either place.
        let share = |key: &str| {
            number(get(key)).or_else(|| number(self.entry.get(key))).filter(|n| *n > 0.0)
        };
        let shares = ["weight", "rpm", "tpm"].map(share);
        if shares.iter().skip(1).any(Option::is_some) {
            notes.add(
                &format!("{}.rpm, tpm", self.place),
                "used only as weights among this name's targets: limits belong to keys and users",
            );
        }
        list.deployments.push(LitellmDeployment {
            name: name.to_owned(),
            id: scalar(info.and_then(|info| info.get("id"))),
            target,
            shares,
            order: number(get("order")),
            tags: texts(get("tags")),
        });
        Ok(())
    }

    /// The parameters, merged with the credentials that they refer to.
    fn params(&self) -> Result<Map<String, Value>, &'static str> {
        let params = self.entry.get("litellm_params").and_then(Value::as_object);
        let mut params = params.ok_or("`litellm_params` is missing")?.clone();
        let Some(name) = scalar(params.get("litellm_credential_name")) else { return Ok(params) };
        let list = self.configuration.get("credential_list").and_then(Value::as_array);
        let found = list.into_iter().flatten().find(|credential| {
            credential.get("credential_name").and_then(Value::as_str) == Some(&name)
        });
        let values = found.and_then(|credential| credential.get("credential_values")?.as_object());
        for (key, value) in values.ok_or("its `litellm_credential_name` is unknown")? {
            params.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Ok(params)
    }

    /// The settings of the provider. A plain key is still in them.
    fn provider(
        &self,
        provider: &LitellmProvider,
        params: &Map<String, Value>,
        notes: &mut Notes,
    ) -> Result<Map<String, Value>, &'static str> {
        let text = |key: &str| scalar(params.get(key)).filter(|text| !text.trim().is_empty());
        let given = text("api_base").or_else(|| text("base_url"));
        let mut settings = address(provider, given.as_deref(), text("api_version").as_deref())?;
        let is_elsewhere = given.is_some() && provider.prefix == "openai";
        let key = match text("api_key") {
            Some(key) if key.eq_ignore_ascii_case("none") => None,
            Some(key) => Some(key),
            None if is_elsewhere => {
                let why = "no key is sent to this URL; LiteLLM would send OPENAI_API_KEY";
                notes.add(&format!("{}.litellm_params.api_key", self.place), why);
                None
            }
            None => {
                Some(format!("os.environ/{}", provider.key)).filter(|_| !provider.key.is_empty())
            }
        };
        settings.extend(key.map(|key| ("api_key".to_owned(), key.into())));
        let headers = self.headers(params, notes);
        if !headers.is_empty() {
            settings.insert("headers".to_owned(), Value::Object(headers));
        }
        let mut within = |key: &str, range| {
            notes.within(&format!("{}.litellm_params.{key}", self.place), params.get(key), range)
        };
        if let Some(total) = within("timeout", TIMEOUT).or(self.defaults.timeout) {
            settings.insert("timeouts".to_owned(), json!({ "total": duration(total) }));
        }
        let most = within("max_parallel_requests", 1.0..=PROVIDER_CONCURRENCY as f64);
        if let Some(most) = most {
            settings.insert("max_concurrency".to_owned(), json!(most as u64));
        }
        let mut breaker = Map::new();
        if let Some(fails) = self.defaults.allowed_fails {
            breaker.insert("consecutive".to_owned(), json!(fails as u64 + 1));
        }
        if let Some(rest) = self.defaults.cooldown {
            breaker.insert("open".to_owned(), duration(rest).into());
        }
        if !breaker.is_empty() {
            settings.insert("breaker".to_owned(), Value::Object(breaker));
        }
        Ok(settings)
    }

    fn headers(&self, params: &Map<String, Value>, notes: &mut Notes) -> Map<String, Value> {
        let mut headers = Map::new();
        let is_sendable = |value: &str| http::HeaderValue::from_str(value).is_ok();
        let organization = scalar(params.get("organization"));
        if let Some(organization) = organization.filter(|value| is_sendable(value)) {
            headers.insert("openai-organization".to_owned(), expanded(&organization).into());
        } else if params.get("organization").is_some_and(Value::is_array) {
            let why = "write a provider for each organization, with `headers`";
            notes.add(&format!("{}.litellm_params.organization", self.place), why);
        }
        let given = ["extra_headers", "headers"].iter().filter_map(|key| params.get(*key));
        for (name, value) in given.filter_map(Value::as_object).flatten() {
            let value = scalar(Some(value)).unwrap_or_default();
            let place = || format!("{}.litellm_params.extra_headers", self.place);
            if name.parse::<http::HeaderName>().is_err() || !is_sendable(&value) {
                notes.add(&place(), "not a header");
            } else if rerouter_routing::is_own_header(&name.to_lowercase()) {
                notes.add(&place(), "a header that the gateway sets itself");
            } else if is_credential(name) && variable(&value).is_none() {
                notes.add(&place(), "a credential in clear text is not copied");
            } else {
                headers.insert(name.to_lowercase(), expanded(&value).into());
            }
        }
        headers
    }
}

/// The variable that replaces a plain key.
fn literal_variable(provider: &str) -> String {
    format!("IMPORTED_{}_API_KEY", provider.to_uppercase().replace('-', "_"))
}

impl DeploymentList {
    /// Returns the name of the provider with these settings, which is added if it is new. `literal`
    /// is called with the name if the key is plain text. A variable then replaces the key.
    fn provider(
        &mut self,
        prefix: &str,
        settings: Map<String, Value>,
        literal: impl FnOnce(&str),
    ) -> String {
        let same = self.identities.iter().position(|known| *known == settings);
        if let Some((name, _)) = same.and_then(|at| self.providers.get(at)) {
            return name.clone();
        }
        let is_free = |name: &String| self.providers.iter().all(|(known, _)| known != name);
        let mut numbered = (2..).map(|n| format!("{prefix}-{n}"));
        let plain = Some(prefix.to_owned()).filter(|name| is_free(name));
        let name = plain.or_else(|| numbered.find(is_free)).unwrap_or_default();
        let mut written = settings.clone();
        if let Some(Value::String(key)) = written.get_mut("api_key") {
            *key = match variable(key) {
                Some(variable) => format!("${{{variable}}}"),
                None => {
                    literal(&name);
                    format!("${{{}}}", literal_variable(&name))
                }
            };
        }
        self.identities.push(settings);
        self.providers.push((name.clone(), written));
        name
    }

    fn add_model(&mut self, target: &str, settings: Map<String, Value>) {
        if !settings.is_empty() && self.models.iter().all(|(known, _)| known != target) {
            self.models.push((target.to_owned(), settings));
        }
    }

    /// The variables in the providers' settings, each once.
    pub(super) fn variables(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (_, settings) in &self.providers {
            let text = Value::Object(settings.clone()).to_string();
            for part in text.split("${").skip(1) {
                let name = part.split('}').next().unwrap_or_default().to_owned();
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        found
    }
}
