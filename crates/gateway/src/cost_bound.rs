//! The most that a request can use and cost, as far as its bytes and the document show.

use std::sync::Arc;

use http::HeaderMap;
use memchr::memmem;

use rerouter_access::limits::Reserve;
use rerouter_base::bounds;
use rerouter_base::money::{NanoUsd, nano_usd};
use rerouter_base::usage_kind::{UsageKind, UsageUnit};
use rerouter_core::prompt::Prompt;
use rerouter_dialect::protocol::Way;
use rerouter_dialect::request::Ceiling;
use rerouter_dialect::wire::tokens;
use rerouter_routing::Target;

/// Assumed context of a model without `context` if the size of the prompt is unknown: that of the
/// largest common models.
const CONTEXT_TOKENS: u64 = 1_000_000;

/// Why the most that a call can cost is not known.
pub(super) enum NoBound<'a> {
    Unpriced(&'a Target),
    /// The target has no factor for this member of the request and its value.
    UnknownMode(&'a Target, &'static str, &'a str),
}

/// The largest cost of the call, at the most expensive target, or why it is not known at the first
/// target of which it is not. If the client sets no limit on the answer, the reserve for one answer
/// may be cut to the money that is left.
pub(super) fn dearest<'a>(
    targets: &'a [Arc<Target>],
    prompt: &'a Prompt,
) -> Result<Reserve, NoBound<'a>> {
    let (mut least, mut most) = (0, 0);
    let bound = PromptBound::new(prompt.request.ceiling, &prompt.headers);
    let ceiling = bound.ceiling;
    for target in targets {
        let assumed = if ceiling.is_limited { 0 } else { bounds::ANSWER_TOKENS };
        let limit = default_limit(target, prompt).unwrap_or(assumed);
        let more = limit.saturating_sub(assumed);
        let (answers, unlimited) = (ceiling.answers.saturating_add(more), assumed + more);
        let cost_of = bound_at(target, prompt, bound.tokens(target))?;
        least = least.max(cost_of(answers.saturating_sub(unlimited))?);
        most = most.max(cost_of(answers)?);
    }
    Ok(Reserve::between(least, most))
}

/// The most that a call can cost at a target, by the tokens of its answer. `tokens`: those of its
/// prompt.
fn bound_at<'a>(
    target: &'a Target,
    prompt: &'a Prompt,
    tokens: u64,
) -> Result<impl Fn(u64) -> Result<NanoUsd, NoBound<'a>>, NoBound<'a>> {
    let unpriced = move || NoBound::Unpriced(target);
    let prices = target.prices.as_ref().ok_or_else(unpriced)?;
    let mut factor = 1.0;
    let is_sent = !target.is_translated(prompt.endpoint);
    for (member, mode) in prompt.request.modes.iter().filter(|_| is_sent) {
        let known = if prices.is_free() { Some(1.0) } else { prices.factor(member, mode) };
        let known = known.ok_or(NoBound::UnknownMode(target, member, mode))?;
        // The provider may serve the request without the mode that makes it cheaper.
        factor *= known.max(1.0);
    }
    let may_be = |kind: UsageKind| match kind {
        UsageKind::CacheWrite1h => may_cache_for_an_hour(&prompt.body),
        UsageKind::InputAudio => prompt.request.audio > 0 || prompt.request.ceiling.is_open,
        _ => true,
    };
    let [input, output] =
        [UsageUnit::Prompt, UsageUnit::Answer].map(|unit| prices.dearest(tokens, unit, may_be));
    let input = tokens as f64 * input.ok_or_else(unpriced)?;
    let request = prices.of_request(tokens);
    Ok(move |answer: u64| {
        let output = if answer == 0 { 0.0 } else { output.ok_or_else(unpriced)? };
        Ok(nano_usd((input + answer as f64 * output) * factor / 1e6 + request))
    })
}

/// Whether the request may write to a cache for an hour. A text with escapes may say it too.
pub(super) fn may_cache_for_an_hour(body: &[u8]) -> bool {
    memmem::find(body, b"\"1h\"").is_some() || memmem::find(body, b"\\u").is_some()
}

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
        Way::Translated(dialect) if gives_none() => dialect.default_limit(&target.terms),
        _ => None,
    }
}

/// Whether the client asks Anthropic's API for a longer context than its models have by default.
fn asks_for_long_context(headers: &HeaderMap) -> bool {
    let betas = headers.get_all("anthropic-beta").iter();
    betas.filter_map(|value| value.to_str().ok()).any(|betas| betas.contains("context-1m"))
}
