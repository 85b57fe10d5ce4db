//! The limits of a call, in three steps: admit before the decision, reserve money after it, settle
//! at the end. Also the headers that tell the client what is left: `x-ratelimit-*` with OpenAI's
//! names and units, and `…-budget` in dollars.

use std::sync::LazyLock;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::admission::has_lease;
use super::cost_bound::{self, NoBound};
use super::exchange::HttpExchange;
use super::failure::AttemptFailure;
use super::outcome::{Bill, Outcome};
use rerouter_access::auth::Principal;
use rerouter_access::limits::{self, CountStatus, LimitPermit, Remaining, Reserve};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::money::{NanoUsd, dollars, nano_usd};
use rerouter_core::app::{App, Live};
use rerouter_core::prompt::Prompt;
use rerouter_routing::{Decision, Inputs};
use rerouter_store::{ByCount, COUNTS};

static LIMIT_BUDGET: HeaderName = HeaderName::from_static("x-ratelimit-limit-budget");
static REMAINING_BUDGET: HeaderName = HeaderName::from_static("x-ratelimit-remaining-budget");
static RESET_BUDGET: HeaderName = HeaderName::from_static("x-ratelimit-reset-budget");
/// `x-ratelimit-limit-*`, `-remaining-*` and `-reset-*` of each kind of limit.
static COUNT_HEADERS: LazyLock<ByCount<[HeaderName; 3]>> = LazyLock::new(|| {
    COUNTS.each_ref().map(|kind| {
        let end = kind.header?;
        let name = |part| HeaderName::try_from(format!("x-ratelimit-{part}-{end}")).ok();
        Some([name("limit")?, name("remaining")?, name("reset")?])
    })
});

/// Lets the request in, or refuses with 429.
pub(super) fn admit(
    app: &App,
    exchange: &mut HttpExchange,
    principal: &Principal,
    inputs: &Inputs,
) -> Result<LimitPermit> {
    let draws = limits::draws(&app.auth, principal);
    if draws.is_empty() {
        return Ok(LimitPermit::default());
    }
    let request = &inputs.request;
    let tokens = request
        .charged_prompt_tokens()
        .saturating_add(request.charged_answer_tokens(bounds::ANSWER_TOKENS));
    app.limits.admit(&draws, tokens, app.clock.now()).map_err(|refused| {
        tell(app, exchange, &refused.remaining);
        counted(app, refused.error)
    })
}

/// Refuses with 429 if the caller's limits leave no room for any call, so that a body that costs
/// work is not read at all.
pub(super) fn look(
    app: &App,
    exchange: &mut HttpExchange,
    principal: &Principal,
    costs: bool,
) -> Result<()> {
    let draws = limits::draws(&app.auth, principal);
    app.limits.look(&draws, costs, app.clock.now()).map_err(|refused| {
        tell(app, exchange, &refused.remaining);
        counted(app, refused.error)
    })
}

fn counted(app: &App, refusal: Error) -> Error {
    let limit = match refusal.kind() {
        Kind::InsufficientQuota => "budget",
        Kind::RateLimited => "rate",
        _ => return refusal,
    };
    app.metrics.request.limit_refusals.with_label_values(&[limit]).inc();
    refusal
}

pub(super) fn tell(app: &App, exchange: &mut HttpExchange, remaining: &Remaining) {
    if *remaining != Remaining::default() {
        exchange.rates = headers(remaining, app.clock.now());
    }
}

/// Reserves the cost of the call at the most expensive target that may be tried. If a target has no
/// price, the cost is unknown, and the call is refused rather than its budget ignored.
pub(super) async fn reserve(
    app: &App,
    permit: &mut LimitPermit,
    live: &Live,
    (decision, prompt): (&Decision, &Prompt),
    principal: &Principal,
) -> Result<()> {
    if !permit.has_budget() || !prompt.endpoint.costs() {
        return Ok(());
    }
    // Each may be asked: one that is barred by then counts as no attempt.
    let targets = live.routing.targets_of(decision);
    let wanted = cost_bound::dearest(&targets, prompt).map_err(|why| no_bound(permit, &why))?;
    let reserved = app.limits.reserve(permit, wanted, app.clock.now());
    match reserved {
        Err(_) if permit.awaits_hold() => {
            Box::pin(reserve_held(app, permit, wanted, principal)).await
        }
        reserved => reserved.map_err(|error| counted(app, *error)),
    }
}

/// A credential that is revoked meanwhile spends nothing.
async fn reserve_held(
    app: &App,
    permit: &mut LimitPermit,
    wanted: Reserve,
    principal: &Principal,
) -> Result<()> {
    let reserved = app.limits.reserve_held(permit, wanted, &app.clock).await;
    reserved.map_err(|error| counted(app, *error))?;
    has_lease(app)?;
    app.auth.recheck(principal, app.clock.now())
}

fn no_bound(permit: &LimitPermit, why: &NoBound<'_>) -> Error {
    let target = match why {
        NoBound::Unpriced(target) => target,
        NoBound::UnknownMode(target, member, mode) => {
            let told = format!(
                "`{member}` is `{mode}`, for which the prices of `{}` have no factor. A budget \
                pays for the request, so leave it out, or have the factor added to `multipliers` \
                of the model in the routing document.",
                target.name
            );
            return Error::invalid(*member, told);
        }
    };
    let remaining = permit.remaining();
    let whose = remaining
        .money
        .map(|money| format!(" of {}, {},", money.whose, money.budget))
        .unwrap_or_default();
    let name = &target.name;
    Error::new(
        Kind::Forbidden,
        format!(
            "The budget{whose} needs prices: `{name}`, which may be asked, has none. Add it to \
            `models` of the routing document."
        ),
    )
}

/// Replaces what the call reserved by what it used. A good answer without a usage leaves the
/// reserve as spent, and so does a whole answer whose bill is unknown because the client left. A
/// stream that the client left costs no more than its reserve. A call without an answer used
/// nothing.
pub(super) fn settle(permit: LimitPermit, outcome: &mut Outcome) {
    if outcome.bill == Bill::AtMost {
        outcome.limit_charge(dollars(permit.reserved()));
    }
    let cost = outcome.cost_usd().map(nano_usd);
    let (tokens, spent) = match &outcome.usage {
        Some(usage) => (Some(usage.total_tokens), cost),
        None if outcome.is_good() && outcome.failure != Some(AttemptFailure::InBand) => {
            (None, None)
        }
        None => (Some(0), Some(0)),
    };
    let estimated = outcome.usage.as_ref().is_some_and(|usage| usage.estimated);
    match outcome.bill {
        Bill::Told => permit.settle(tokens, spent, estimated),
        Bill::AtMost => permit.settle(tokens, spent, true),
        Bill::Unknown => permit.settle(None, None, true),
    }
}

/// Whether a budget pays for what this caller asks.
pub(super) fn pays(app: &App, principal: &Principal) -> bool {
    limits::draws(&app.auth, principal).iter().any(|draw| draw.caps.budget.is_some())
}

fn headers(left: &Remaining, now: Timestamp) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut row = |[limit, remaining, reset]: [&HeaderName; 3],
                   sums: [HeaderValue; 2],
                   full_again: Duration| {
        let [most, left] = sums;
        headers.insert(limit, most);
        headers.insert(remaining, left);
        if let Ok(text) = HeaderValue::try_from(duration(full_again)) {
            headers.insert(reset, text);
        }
    };
    for (count, names) in left.counts.iter().zip(&*COUNT_HEADERS) {
        if let (Some(CountStatus { left, .. }), Some(names)) = (count, names) {
            let sums = [left.limit, left.remaining].map(HeaderValue::from);
            row(names.each_ref(), sums, left.reset);
        }
    }
    if let Some(money) = left.money {
        row(
            [&LIMIT_BUDGET, &REMAINING_BUDGET, &RESET_BUDGET],
            [money.budget.nano, money.remaining()].map(usd),
            money.reset(now),
        );
    }
    headers
}

/// Dollars, as a plain number.
fn usd(nano: NanoUsd) -> HeaderValue {
    HeaderValue::try_from(dollars(nano).to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Puts the rate headers on an answer and removes the provider's: those are about the operator's
/// account there, and clients would take them for ours.
pub(super) fn name_rates(rates: &HeaderMap, headers: &mut HeaderMap) {
    if rates.is_empty() {
        return;
    }
    let theirs = |name: &&HeaderName| {
        ["x-ratelimit-", "anthropic-ratelimit-"]
            .iter()
            .any(|start| name.as_str().starts_with(start))
    };
    for name in headers.keys().filter(theirs).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    headers.extend(rates.iter().map(|(name, value)| (name.clone(), value.clone())));
}

/// A duration in OpenAI's format: `20ms`, `1s`, `6m0s`, `9h0m5s`.
fn duration(time: Duration) -> String {
    let millis = time.as_micros().div_ceil(1_000);
    let (hours, minutes, seconds, rest) =
        (millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60, millis % 1_000);
    let fraction = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}").trim_end_matches('0').to_owned()
    };
    match (hours, minutes, seconds) {
        (0, 0, 0) => format!("{rest}ms"),
        (0, 0, _) => format!("{seconds}{fraction}s"),
        (0, _, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_access::limits::BudgetStatus;
    use rerouter_access::limits::rate::RateLeft;
    use rerouter_store::{Budget, LimitOwner, Per};

    #[test]
    fn durations_are_openai_s() {
        for (millis, text) in [
            (0, "0ms"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_250, "1.25s"),
            (59_999, "59.999s"),
            (360_000, "6m0s"),
            (61_500, "1m1.5s"),
            (32_405_000, "9h0m5s"),
            (2_591_999_000, "719h59m59s"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_micros(1)), "1ms", "never less than it takes");
    }

    #[test]
    fn ours_replace_a_provider_s() {
        let rate = CountStatus {
            whose: LimitOwner::Key,
            left: RateLeft { limit: 60, remaining: 59, reset: Duration::from_secs(1) },
            used: 1,
            reserved: 0,
        };
        let now = Timestamp::UNIX_EPOCH;
        let mut answer = HeaderMap::new();
        answer.insert("x-ratelimit-limit-tokens", HeaderValue::from(1));
        name_rates(&headers(&Remaining::default(), now), &mut answer);
        assert_eq!(answer.len(), 1);
        name_rates(
            &headers(&Remaining { counts: [Some(rate), None, None], money: None }, now),
            &mut answer,
        );
        assert_eq!(
            (
                answer.len(),
                &answer["x-ratelimit-remaining-requests"],
                &answer["x-ratelimit-reset-requests"]
            ),
            (3, &HeaderValue::from(59), &HeaderValue::from_static("1s"))
        );
    }

    #[test]
    fn a_budget_is_told_in_dollars_whatever_was_spent() {
        let (now, resets_at) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(86_400).unwrap());
        for (nano, spent, limit, left) in [
            (10_000_000, 2_500, "0.01", "0.0099975"),
            (1, 0, "0.000000001", "0.000000001"),
            (5, 9, "0.000000005", "0"),
        ] {
            let budget = Budget { nano, per: Per::Day };
            let money = Some(BudgetStatus {
                whose: LimitOwner::User,
                budget,
                spent,
                estimated: 0,
                reserved: 0,
                held: 0,
                lost: 0,
                resets_at,
            });
            let headers = headers(&Remaining { money, ..Remaining::default() }, now);
            let told = [&LIMIT_BUDGET, &REMAINING_BUDGET, &RESET_BUDGET]
                .map(|name| headers[name].to_str().unwrap());
            assert_eq!(told, [limit, left, "24h0m0s"]);
        }
    }
}
