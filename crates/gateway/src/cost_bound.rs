//! The most that a request can use and cost, as far as its bytes and the document show.

use std::sync::Arc;

use http::HeaderMap;

use rerouter_access::limits::Reserve;
use rerouter_base::bounds;
use rerouter_base::money::nano_usd;
use rerouter_core::prompt::Prompt;
use rerouter_dialect::protocol::Way;
use rerouter_dialect::request::Ceiling;
use rerouter_dialect::usage::Usage;
use rerouter_dialect::wire::tokens;
use rerouter_routing::Target;

/// Assumed context of a model without `context` if the size of the prompt is unknown: that of the
/// largest common models.
const CONTEXT_TOKENS: u64 = 1_000_000;

/// The largest cost of the call, at the most expensive target, or an error with the first target
/// that has no price. If the client sets no limit on the answer, the reserve for one answer may be
/// cut to the money that is left.
pub(super) fn dearest<'a>(
    targets: &'a [Arc<Target>],
    prompt: &Prompt,
) -> std::result::Result<Reserve, &'a Target> {
    let (mut least, mut most) = (0, 0);
    let bound = PromptBound::new(prompt.request.ceiling, &prompt.headers);
    let ceiling = bound.ceiling;
    for target in targets {
        let assumed = if ceiling.is_limited { 0 } else { bounds::ANSWER_TOKENS };
        let limit = default_limit(target, prompt).unwrap_or(assumed);
        let more = limit.saturating_sub(assumed);
        let (answers, unlimited) = (ceiling.answers.saturating_add(more), assumed + more);
        let prices = target.prices.as_ref().ok_or(&**target)?;
        let cost = |completion_tokens: u64| {
            let usage = Usage {
                prompt_tokens: bound.tokens(target),
                completion_tokens,
                total_tokens: 0,
                cached_tokens: None,
                estimated: true,
            };
            prices.cost(&usage).map(nano_usd).ok_or(&**target)
        };
        least = least.max(cost(answers.saturating_sub(unlimited))?);
        most = most.max(cost(answers)?);
    }
    Ok(Reserve::between(least, most))
}

/// What bounds the tokens of a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptBound {
    ceiling: Ceiling,
    least_context: u64,
}

impl PromptBound {
    pub(super) fn new(ceiling: Ceiling, headers: &HeaderMap) -> Self {
        let least_context = if asks_for_long_context(headers) { CONTEXT_TOKENS } else { 0 };
        PromptBound { ceiling, least_context }
    }

    /// The most tokens of the prompt at this target.
    pub(super) fn tokens(&self, target: &Target) -> u64 {
        let images = self.ceiling.images > 0;
        let image = if images { tokens::dearest_image(&target.model) } else { 0 };
        let context = target.context.unwrap_or(CONTEXT_TOKENS).max(self.least_context);
        self.ceiling.prompt_tokens(context, image)
    }
}

/// The answer limit in tokens that the gateway sends to this target if the client sets none.
fn default_limit(target: &Target, prompt: &Prompt) -> Option<u64> {
    let gives_none = || prompt.neutral().is_none_or(|request| request.max_tokens.is_none());
    match target.provider.way(prompt.endpoint)? {
        Way::Translated(dialect) if gives_none() => dialect.default_limit(),
        _ => None,
    }
}

/// Whether the client asks Anthropic's API for a longer context than its models have by default.
fn asks_for_long_context(headers: &HeaderMap) -> bool {
    let betas = headers.get_all("anthropic-beta").iter();
    betas.filter_map(|value| value.to_str().ok()).any(|betas| betas.contains("context-1m"))
}
