//! The facts of a request, and their summary.

use std::ops::Range;
use std::sync::Arc;

use super::super::chat::stream_options::StreamOptions;
use super::generation_limits::{GenerationLimits, LimitRules};
use super::media::PromptSize;
use crate::wire::json::{self, Cursor, Edit, JsonError};
use crate::wire::tokens;
use rerouter_base::error::Error;

/// Limit on the bytes of `model`, as it is written into records and messages.
pub(super) const MODEL_BYTES: usize = 512;

/// Tokens of a message beside its text, for role and separators. A request takes as many once more.
pub(crate) const TOKENS_PER_MESSAGE: u64 = 4;
/// Tokens of a tool call beside its name and arguments.
pub(crate) const TOKENS_PER_CALL: u64 = 6;

/// A request, as routing and relaying see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// The requested model, not empty.
    pub model: Arc<str>,
    /// The span of the model's JSON string in the body, including quotes.
    pub model_span: Range<usize>,
    pub stream: bool,
    /// Whether the client asks for the usage of a stream (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The edit that makes a provider report a stream's usage, if the client does not ask for it.
    pub ask_usage: Option<Edit>,
    /// The number of answers that the client asks for (`n`, `best_of`).
    pub choices: Option<u64>,
    /// Number of messages, including tool results. Embeddings have none.
    pub messages: u64,
    pub tools: u64,
    /// Number of content parts that are images.
    pub images: u64,
    /// Number of content parts that are audio.
    pub audio: u64,
    /// Whether the answer must be JSON (`response_format`, `text.format`, `output_config.format`).
    pub json_output: bool,
    /// The client's limit on generated tokens. Providers differ in which member they follow, so the
    /// largest value counts.
    pub max_tokens: Option<u64>,
    /// Estimated tokens of the prompt: text and tool definitions by [`tokens`], images by their
    /// size, files and audio by their length.
    pub prompt_tokens: u64,
    pub ceiling: Ceiling,
    /// Members that may multiply prices, with their values.
    pub modes: Vec<(&'static str, String)>,
    /// Whether there is thinking of an answer that the gateway translated, which the dialect's own
    /// providers refuse.
    pub has_foreign_thinking: bool,
    /// Spans of the JSON strings in the last user message, including quotes.
    pub user_text: Vec<Range<usize>>,
}

/// Upper bound on the tokens of a request, as far as its bytes show. Budgets reserve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// Tokens of the prompt without images, one per byte. Tokenizers make at most that many, except
    /// for a few characters that some of them decompose.
    pub prompt: u64,
    pub images: u64,
    /// Whether the prompt may fill the model's context. Then a part of it is not in the request (an
    /// earlier response, a file by id or URL, results of a tool that the provider runs), or is a
    /// file whose pages are not counted here.
    pub is_open: bool,
    /// Tokens of all answers, including thinking beyond an answer's limit and predictions, which
    /// are billed alike.
    pub answers: u64,
    /// Whether the client limits the length of an answer. If not, `answers` assumes
    /// [`rerouter_base::bounds::ANSWER_TOKENS`], and an answer may be longer.
    pub is_limited: bool,
}

impl Ceiling {
    /// Upper bound on the prompt for a model with this context, which bills at most `image` tokens
    /// per image.
    pub fn prompt_tokens(&self, context: u64, image: u64) -> u64 {
        let seen = self.prompt.saturating_add(self.images.saturating_mul(image));
        if self.is_open { context } else { seen.min(context) }
    }
}

pub(crate) struct RequestRules {
    /// The members that the gateway reads, beside those in
    /// [`NAMES`](super::generation_limits::NAMES).
    pub acted_on: &'static [&'static str],
    /// Reads one of these members. `model`, `stream` and `extra_body` are read alike for all
    /// endpoints.
    pub member: fn(&mut Cursor<'_>, &str, &mut RequestBuilder) -> Result<(), JsonError>,
    /// Whether the request has messages. These add framing tokens, and the answer may have a limit.
    pub has_messages: bool,
    /// Whether a stream reports its usage only if `stream_options` ask for it.
    pub asks_usage: bool,
    /// The model family by which tool instructions are counted, if all models belong to one. `None`
    /// if the model's name decides.
    pub tools_of: Option<&'static str>,
    pub limits: LimitRules,
}

#[derive(Default)]
pub(crate) struct RequestBuilder {
    pub model: Option<Range<usize>>,
    pub request: ModelRequest,
    pub prompt: PromptSize,
    /// Estimated tokens of `system` or `instructions`.
    pub system_tokens: u64,
    pub tool_tokens: u64,
    pub format_tokens: u64,
    /// Whether there are tools or functions.
    pub has_tools: bool,
    pub limits: GenerationLimits,
    /// The offset at which the value of `stream` ends.
    pub stream_end: usize,
    pub options: Option<StreamOptions>,
}

impl RequestBuilder {
    pub(crate) fn finish(self, body: &[u8], rules: &RequestRules) -> Result<ModelRequest, Error> {
        let RequestBuilder { model, mut request, prompt, mut limits, .. } = self;
        let Some(span) = model else {
            return Err(Error::invalid("model", "`model` is missing."));
        };
        request.model = model_name(body.get(span.clone()).unwrap_or_default())?;
        request.model_span = span;
        request.include_usage = self.options.as_ref().is_some_and(|options| options.include_usage);
        request.ask_usage = match self.options {
            _ if !request.stream || !rules.asks_usage => None,
            Some(options) => options.ask,
            None => Some(Edit::new(
                self.stream_end..self.stream_end,
                &br#","stream_options":{"include_usage":true}"#[..],
            )),
        };
        if rules.has_messages {
            request.max_tokens = limits.limit;
        }
        request.choices = limits.choices();
        let instructions = match rules.tools_of {
            _ if !self.has_tools => 0,
            Some(family) => tokens::tool_instructions(family),
            None => tokens::tool_instructions(&request.model),
        };
        let framing =
            if rules.has_messages { TOKENS_PER_MESSAGE * (prompt.messages + 1) } else { 0 };
        request.prompt_tokens = framing
            + prompt.tokens
            + self.system_tokens
            + self.tool_tokens
            + self.format_tokens
            + instructions;
        // The target's family may differ from that of the requested model.
        let instructions = if self.has_tools { tokens::MOST_TOOL_INSTRUCTIONS } else { 0 };
        let written =
            (body.len() as u64).saturating_sub(prompt.apart) + prompt.beside + instructions;
        request.ceiling = Ceiling {
            prompt: written,
            images: prompt.images,
            is_open: prompt.is_open || limits.is_open,
            answers: limits.answers(&rules.limits),
            is_limited: limits.is_limited(),
        };
        request.modes = std::mem::take(&mut limits.modes);
        request.messages = prompt.messages;
        request.images = prompt.images;
        request.audio = prompt.audio;
        request.user_text = prompt.user_text;
        request.has_foreign_thinking = prompt.has_foreign_thinking;
        Ok(request)
    }
}

/// The text of the JSON string in `model`.
fn model_name(json: &[u8]) -> Result<Arc<str>, Error> {
    let why = match json::text(json) {
        Some(model) if model.is_empty() => "`model` is empty.",
        Some(model) if model.len() > MODEL_BYTES => "`model` is too long.",
        Some(model) => return Ok(Arc::from(&*model)),
        None => "`model` is not Unicode text: it holds a lone surrogate.",
    };
    Err(Error::invalid("model", why))
}
