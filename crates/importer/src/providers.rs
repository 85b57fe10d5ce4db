//! LiteLLM's providers by the prefix of a model's name, and their counterparts in a routing
//! document.

use rerouter_routing::PRESETS;

/// The counterpart of a LiteLLM provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LitellmProvider {
    /// Prefix of the model's name in LiteLLM. It is also the name of the provider here.
    pub(super) prefix: &'static str,
    pub(super) kind: ProviderKind,
    /// The variable from which LiteLLM reads the key if none is set. Empty if no key is needed.
    pub(super) key: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderKind {
    /// A preset with this name.
    Preset(&'static str),
    /// OpenAI's protocol, at this URL unless the entry sets another.
    OpenAi(&'static str),
    /// A provider without the endpoint for responses. LiteLLM too uses chat completions for it.
    Chat(&'static str),
    /// OpenAI's protocol, at a URL that the entry has to set.
    OpenAiElsewhere,
}

const fn row(prefix: &'static str, kind: ProviderKind, key: &'static str) -> LitellmProvider {
    LitellmProvider { prefix, kind, key }
}

use ProviderKind::{Chat, OpenAi, OpenAiElsewhere, Preset};

/// LiteLLM's providers that have no preset with the same name. Base URLs are from the providers'
/// documentation of their OpenAI-compatible APIs.
static OTHERS: &[LitellmProvider] = &[
    row("ollama_chat", Preset("ollama"), ""),
    row("hosted_vllm", Preset("vllm"), ""),
    row("together_ai", Chat("https://api.together.xyz/v1"), "TOGETHERAI_API_KEY"),
    row("fireworks_ai", Chat("https://api.fireworks.ai/inference/v1"), "FIREWORKS_AI_API_KEY"),
    row("perplexity", OpenAi("https://api.perplexity.ai"), "PERPLEXITYAI_API_KEY"),
    row("xai", OpenAi("https://api.x.ai/v1"), "XAI_API_KEY"),
    row("cerebras", Chat("https://api.cerebras.ai/v1"), "CEREBRAS_API_KEY"),
    row("nvidia_nim", Chat("https://integrate.api.nvidia.com/v1"), "NVIDIA_NIM_API_KEY"),
    row("deepinfra", Chat("https://api.deepinfra.com/v1/openai"), "DEEPINFRA_API_KEY"),
    row("sambanova", Chat("https://api.sambanova.ai/v1"), "SAMBANOVA_API_KEY"),
    row("cohere", Chat("https://api.cohere.ai/compatibility/v1"), "COHERE_API_KEY"),
    row("cohere_chat", Chat("https://api.cohere.ai/compatibility/v1"), "COHERE_API_KEY"),
    row("moonshot", Chat("https://api.moonshot.ai/v1"), "MOONSHOT_API_KEY"),
    row(
        "dashscope",
        Chat("https://dashscope.aliyuncs.com/compatible-mode/v1"),
        "DASHSCOPE_API_KEY",
    ),
    row("custom_openai", OpenAiElsewhere, ""),
    row("openai_like", OpenAiElsewhere, ""),
    row("lm_studio", OpenAiElsewhere, ""),
    row("llamafile", OpenAiElsewhere, ""),
    row("xinference", OpenAiElsewhere, ""),
    row("litellm_proxy", OpenAiElsewhere, ""),
];

/// Reasons why providers are not imported.
const REFUSED: &[(&str, &str)] = &[
    (
        "bedrock",
        "signed with AWS credentials; rerouter takes an Amazon Bedrock API key: `preset: \
        bedrock`",
    ),
    ("sagemaker", "signed with AWS credentials"),
    (
        "vertex_ai",
        "takes access tokens that run out after an hour; Google's models are also at \
        `gemini/`",
    ),
    ("auto_router", "write a rule for each kind of request: docs/routing.md"),
    ("text-completion-openai", "the endpoint for completions of texts is not served"),
    ("azure_text", "the endpoint for completions of texts is not served"),
    ("azure_ai", "write it by hand: `protocol: openai` with the endpoint's URL"),
    ("huggingface", "write it by hand, if the server has OpenAI's API: `protocol: openai`"),
];

/// The route of models that LiteLLM calls by the endpoint for responses, whatever endpoint the
/// client uses.
const RESPONSES: &str = "responses/";

/// Prefixes of models that tell LiteLLM how to call them.
const ROUTES: [&str; 3] = [RESPONSES, "o_series/", "gpt5_series/"];

/// Whether LiteLLM calls a model by the endpoint for responses only.
pub(super) fn is_by_responses(model: &str) -> bool {
    let rest = model.strip_prefix("openai/").or_else(|| model.strip_prefix("azure/"));
    rest.is_some_and(|rest| rest.starts_with(RESPONSES))
}

const UNKNOWN: &str = "no API of this provider that rerouter speaks is known";

fn find(name: &str) -> Result<LitellmProvider, &'static str> {
    if let Some((_, why)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return Err(why);
    }
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let preset = preset.map(|preset| {
        row(preset.name, Preset(preset.name), preset.key_variable.unwrap_or_default())
    });
    let other = || OTHERS.iter().find(|other| other.prefix == name).copied();
    preset.or_else(other).ok_or(UNKNOWN)
}

/// The provider of a model and the model's name there, or the reason why there is none.
pub(super) fn of_model<'m>(
    model: &'m str,
    custom: Option<&str>,
) -> Result<(LitellmProvider, &'m str), &'static str> {
    if model.trim().starts_with("os.environ/") {
        return Err("the name of the model is in a variable: write it down");
    }
    if let Some(custom) = custom {
        let rest = model.strip_prefix(custom).and_then(|rest| rest.strip_prefix('/'));
        return Ok((find(custom)?, rest.unwrap_or(model)));
    }
    match model.split_once('/') {
        Some((prefix, rest)) => {
            let routes: &[&str] = if ["openai", "azure"].contains(&prefix) { &ROUTES } else { &[] };
            let name = routes.iter().find_map(|route| rest.strip_prefix(route));
            Ok((find(prefix)?, name.unwrap_or(rest)))
        }
        None if model == "*" => {
            Err("all models of all providers: write an entry for each, such as `openai/*`")
        }
        // LiteLLM knows these models without a provider.
        None => {
            let is_of = |pattern: &&str| model.starts_with(pattern.trim_end_matches('*'));
            let mut known = PRESETS.iter().filter(|p| ["openai", "anthropic"].contains(&p.name));
            let preset = known.find(|preset| preset.names.iter().any(is_of));
            Ok((find(preset.ok_or(UNKNOWN)?.name)?, model))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_split_as_litellm_does() {
        let split = |model, custom| of_model(model, custom).map(|(to, name)| (to.prefix, name));
        for (model, custom, wanted) in [
            ("openai/facebook/opt-125m", None, ("openai", "facebook/opt-125m")),
            ("gpt-4o", None, ("openai", "gpt-4o")),
            ("claude-3-haiku-20240307", None, ("anthropic", "claude-3-haiku-20240307")),
            ("openrouter/google/palm", None, ("openrouter", "google/palm")),
            ("my-model", Some("openai"), ("openai", "my-model")),
            ("azure/gpt-4o-eu", Some("azure"), ("azure", "gpt-4o-eu")),
            ("openai/responses/o1-pro", None, ("openai", "o1-pro")),
            ("azure/o_series/my-o3", None, ("azure", "my-o3")),
            ("openrouter/responses/x", None, ("openrouter", "responses/x")),
        ] {
            assert_eq!(split(model, custom), Ok(wanted), "{model}");
        }
        for model in
            ["bedrock/x", "vertex_ai/gemini-pro", "voyage/x", "mystery", "*", "os.environ/M"]
        {
            assert!(split(model, None).is_err(), "{model}");
        }
    }
}
