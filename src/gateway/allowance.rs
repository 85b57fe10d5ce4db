//! What a call may use up, at its three moments: let in before the decision, money reserved after it, settled at the end.
//! And what of that the client reads: `x-ratelimit-*`, in OpenAI's names and units.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::exchange::Exchange;
use super::record::Outcome;
use crate::app::{App, Live};
use crate::auth::Principal;
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::limits::{self, Left, Permit, Rates, Reserve};
use crate::protocol::endpoint::Endpoint;
use crate::protocol::openai::Ceiling;
use crate::protocol::tokens;
use crate::protocol::usage::Usage;
use crate::routing::decide::Decision;
use crate::routing::inputs::Inputs;
use crate::routing::recipe::Target;
use crate::store::{NanoUsd, nano_usd};

static LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
static REMAINING_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
static RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
static LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
static REMAINING_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
static RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");

/// Lets the request in, or refuses with 429; the answer says what is left of the rates either way.
pub(super) fn admit(app: &App, exchange: &mut Exchange, principal: &Principal, inputs: &Inputs) -> Result<Permit> {
    let draws = limits::draws(&app.auth, principal);
    if draws.is_empty() {
        return Ok(Permit::default());
    }
    let request = &inputs.request;
    let tokens = request.charged_prompt_tokens().saturating_add(request.charged_answer_tokens(bounds::ANSWER_TOKENS));
    match app.limits.admit(&draws, tokens, app.clock.now()) {
        Ok(permit) => {
            exchange.rates = headers(permit.rates());
            Ok(permit)
        }
        Err(refused) => {
            exchange.rates = headers(refused.rates);
            Err(*refused.error)
        }
    }
}

/// Reserves what the call costs at the dearest of the targets that may be tried. Where one has no price there is no such sum,
/// and a budget that cannot be kept is refused rather than ignored.
pub(super) fn reserve(app: &App, permit: &mut Permit, live: &Live, decision: &Decision, inputs: &Inputs, ceiling: &Ceiling) -> Result<()> {
    let costs = inputs.request.endpoint != Endpoint::CountTokens.as_str();
    if !permit.has_budget() || !costs {
        return Ok(());
    }
    let mut targets = live.routing.targets_of(decision);
    targets.truncate(live.routing.retry_of(decision).attempts.max(1));
    let wanted = dearest(&targets, inputs, ceiling)?;
    app.limits.reserve(permit, wanted, app.clock.now()).map_err(|refused| *refused.error)
}

/// From what the call is likely to cost to what it costs at most.
fn dearest(targets: &[Arc<Target>], inputs: &Inputs, ceiling: &Ceiling) -> Result<Reserve> {
    let (mut least, mut most) = (0, 0);
    for target in targets {
        let cost = |prompt_tokens: u64| {
            let usage = Usage { prompt_tokens, completion_tokens: ceiling.answers, total_tokens: 0, cached_tokens: None, estimated: true };
            cost_of(target, &usage).ok_or_else(|| {
                let name = &target.name;
                Error::new(
                    Kind::Forbidden,
                    format!("Your key has a budget, and `{name}`, which may be asked, has no price in the routing document."),
                )
            })
        };
        let (likely, dearest) = prompt_tokens(inputs.request.prompt_tokens, ceiling, target);
        least = least.max(cost(likely)?);
        most = most.max(cost(dearest)?);
    }
    Ok(Reserve::between(least, most))
}

/// Tokens that the prompt is likely to take of a target, and those that it takes at most.
fn prompt_tokens(estimated: u64, ceiling: &Ceiling, target: &Target) -> (u64, u64) {
    let image = if ceiling.images > 0 { tokens::dearest_image(&target.model) } else { 0 };
    let most = ceiling.prompt_tokens(target.context.unwrap_or(bounds::CONTEXT_TOKENS), image);
    let likely = if ceiling.is_open { most } else { estimated.saturating_add(estimated / bounds::ESTIMATE_OFF).min(most) };
    (likely, most)
}

/// Puts what the call used in the place of what it had reserved. A good answer that does not say what it used leaves the
/// reserve as spent; a call that got none used nothing but what abandoned attempts reported.
pub(super) fn settle(permit: Permit, outcome: &Outcome) {
    let lost_tokens = total(outcome.lost.iter().map(|(_, usage)| usage.total_tokens));
    let lost_cost: NanoUsd = total(outcome.lost.iter().filter_map(|(target, usage)| cost_of(target, usage)));
    let (tokens, spent) = match &outcome.usage {
        Some(usage) => (Some(usage.total_tokens), outcome.cost_usd().map(nano_usd)),
        None if outcome.is_good() => (None, None),
        None => (Some(0), Some(0)),
    };
    permit.settle(tokens.map(|tokens| tokens.saturating_add(lost_tokens)), spent.map(|spent| spent.saturating_add(lost_cost)));
}

/// The sum of what providers reported, which may be any number.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn cost_of(target: &Target, usage: &Usage) -> Option<NanoUsd> {
    target.prices.as_ref()?.cost(usage).map(nano_usd)
}

fn headers(rates: Rates) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let rows = [
        (rates.requests, [&LIMIT_REQUESTS, &REMAINING_REQUESTS, &RESET_REQUESTS]),
        (rates.tokens, [&LIMIT_TOKENS, &REMAINING_TOKENS, &RESET_TOKENS]),
    ];
    for (left, [limit, remaining, reset]) in rows {
        if let Some(Left { limit: rate, remaining: left, reset: full_again }) = left {
            headers.insert(limit, HeaderValue::from(rate));
            headers.insert(remaining, HeaderValue::from(left));
            if let Ok(text) = HeaderValue::try_from(duration(full_again)) {
                headers.insert(reset, text);
            }
        }
    }
    headers
}

/// Puts them on an answer. Those of a provider speak of the operator's account there; beside ours they would be taken for ours.
pub(super) fn name_rates(rates: &HeaderMap, headers: &mut HeaderMap) {
    if rates.is_empty() {
        return;
    }
    let theirs = |name: &&HeaderName| ["x-ratelimit-", "anthropic-ratelimit-"].iter().any(|start| name.as_str().starts_with(start));
    for name in headers.keys().filter(theirs).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    headers.extend(rates.iter().map(|(name, value)| (name.clone(), value.clone())));
}

/// As OpenAI writes durations: `20ms`, `1s`, `6m0s`.
fn duration(time: Duration) -> String {
    let millis = time.as_micros().div_ceil(1_000);
    let (minutes, seconds, rest) = (millis / 60_000, millis / 1_000 % 60, millis % 1_000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:03}").trim_end_matches('0').to_owned() };
    match (minutes, seconds) {
        (0, 0) => format!("{rest}ms"),
        (0, _) => format!("{seconds}{fraction}s"),
        _ => format!("{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_may_report_any_number() {
        assert_eq!(total([3, 4].into_iter()), 7);
        assert_eq!(total([u64::MAX, 1, u64::MAX].into_iter()), u64::MAX);
    }

    #[test]
    fn durations_are_openai_s() {
        for (millis, text) in
            [(0, "0ms"), (20, "20ms"), (1_000, "1s"), (1_250, "1.25s"), (59_999, "59.999s"), (360_000, "6m0s"), (61_500, "1m1.5s")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_micros(1)), "1ms", "never less than it takes");
    }

    #[test]
    fn ours_replace_a_provider_s() {
        let left = Left { limit: 60, remaining: 59, reset: Duration::from_secs(1) };
        let mut answer = HeaderMap::new();
        answer.insert(&LIMIT_TOKENS, HeaderValue::from(1));
        name_rates(&headers(Rates::default()), &mut answer);
        assert_eq!(answer.len(), 1);
        name_rates(&headers(Rates { requests: Some(left), tokens: None }), &mut answer);
        assert_eq!(
            (answer.len(), &answer[&REMAINING_REQUESTS], &answer[&RESET_REQUESTS]),
            (3, &HeaderValue::from(59), &HeaderValue::from_static("1s"))
        );
    }
}
