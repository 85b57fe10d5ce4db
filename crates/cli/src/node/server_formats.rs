//! Answers of the servers that a node may run beside: vLLM, SGLang, llama.cpp, Ollama. What a
//! server does not report stays unknown.

use std::collections::HashMap;

use serde_json::Value;

/// Requests at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerLoad {
    pub(super) running: u32,
    pub(super) queued: u32,
}

/// What llama.cpp reports of its one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LlamaCppProps {
    pub(super) context: Option<u64>,
    pub(super) capabilities: Option<Vec<&'static str>>,
    /// The model is unloaded: nothing runs, and most requests would load it.
    pub(super) is_sleeping: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OllamaModel {
    /// The version of the model that this describes.
    pub(super) digest: Option<String>,
    /// The context that the model has by its file.
    pub(super) context: Option<u64>,
    /// The context with which it was loaded last, kept when it is unloaded.
    pub(super) loaded_context: Option<u64>,
    pub(super) capabilities: Option<Vec<&'static str>>,
}

/// One field of each model of Ollama's `/api/tags` or `/api/ps`, by the name of the model.
pub(super) fn field_by_model(answer: &Value, field: &str) -> HashMap<String, Value> {
    let models = answer.get("models").and_then(Value::as_array).into_iter().flatten();
    let pair = |model: &Value| {
        let name = model.get("name")?.as_str()?.to_owned();
        Some((name, model.get(field).cloned().unwrap_or_default()))
    };
    models.filter_map(pair).collect()
}

pub(super) fn positive(tokens: &Value) -> Option<u64> {
    tokens.as_u64().filter(|tokens| *tokens > 0)
}

/// The context of a model in `/v1/models`: vLLM and SGLang, or llama.cpp with a loaded model.
pub(super) fn listed_context(model: &Value) -> Option<u64> {
    ["/max_model_len", "/meta/n_ctx"].iter().find_map(|field| positive(model.pointer(field)?))
}

fn capabilities(known: [(&'static str, bool); 4]) -> Vec<&'static str> {
    known.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Reads llama.cpp's `/props`. JSON output is always possible, because its grammar makes any model
/// write JSON.
pub(super) fn llama_cpp_props(props: &Value) -> LlamaCppProps {
    let flag = |field: &str| props.pointer(field).and_then(Value::as_bool);
    let tools =
        ["/chat_template_caps/supports_tools", "/chat_template_caps/supports_tool_calls"].map(flag);
    // The server emulates tools if the template does not mention them.
    let tools = tools == [None, None] || tools.contains(&Some(true));
    let modality = |name: &str| flag(&format!("/modalities/{name}")).unwrap_or(false);
    let found = || {
        capabilities([
            ("tools", tools),
            ("vision", modality("vision")),
            ("json", true),
            ("audio", modality("audio")),
        ])
    };
    LlamaCppProps {
        context: props.pointer("/default_generation_settings/n_ctx").and_then(positive),
        capabilities: props.get("modalities").map(|_| found()),
        is_sleeping: flag("/is_sleeping").unwrap_or(false),
    }
}

/// Reads llama.cpp's `/slots`: the number of busy slots. Waiting requests are not reported there.
pub(super) fn llama_cpp_slots(slots: &Value) -> Option<ServerLoad> {
    let taken: Option<Vec<bool>> =
        slots.as_array()?.iter().map(|slot| slot.get("is_processing")?.as_bool()).collect();
    let running = taken?.into_iter().filter(|taken| *taken).count();
    Some(ServerLoad { running: u32::try_from(running).unwrap_or(u32::MAX), queued: 0 })
}

/// Reads Ollama's `/api/show`. The context is the `num_ctx` in the model's file, at most the
/// context of its architecture.
pub(super) fn ollama_model(answer: &Value) -> OllamaModel {
    let architecture = || {
        let info = answer.get("model_info")?;
        let name = info.get("general.architecture")?.as_str()?;
        positive(info.get(format!("{name}.context_length"))?)
    };
    let num_ctx =
        || {
            let mut lines = answer.get("parameters")?.as_str()?.lines().map(str::split_whitespace);
            let value = lines.find_map(|mut words| {
                if words.next() == Some("num_ctx") { words.next() } else { None }
            })?;
            value.parse::<u64>().ok().filter(|tokens| *tokens > 0)
        };
    let named = |names: &Vec<Value>| {
        let has = |name: &str| names.iter().any(|known| known == name);
        capabilities([
            ("tools", has("tools")),
            ("vision", has("vision")),
            ("json", has("completion")),
            ("audio", has("audio")),
        ])
    };
    OllamaModel {
        context: [architecture(), num_ctx()].into_iter().flatten().min(),
        capabilities: answer.get("capabilities").and_then(Value::as_array).map(named),
        ..OllamaModel::default()
    }
}

/// Sums the gauges of vLLM, SGLang and llama.cpp in Prometheus text format; `None` if there is no
/// gauge of running requests.
pub(super) fn metrics_load(metrics: &str) -> Option<ServerLoad> {
    let (mut load, mut known) = (ServerLoad::default(), false);
    for line in metrics.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
            .filter(|value| (0.0..1e6).contains(value));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 0 and 1e6
        let count = value.unwrap_or_default() as u32;
        match name {
            "vllm:num_requests_running"
            | "sglang:num_running_reqs"
            | "llamacpp:requests_processing" => {
                known |= value.is_some();
                load.running = load.running.saturating_add(count);
            }
            "vllm:num_requests_waiting"
            | "sglang:num_queue_reqs"
            | "llamacpp:requests_deferred" => load.queued = load.queued.saturating_add(count),
            _ => {}
        }
    }
    known.then_some(load)
}

#[cfg(test)]
#[path = "server_formats_tests.rs"]
mod tests;
