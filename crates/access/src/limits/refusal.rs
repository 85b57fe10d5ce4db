//! The limit that refuses a request, and the error text: the limit and its owner, what is used,
//! what is reserved, and what this request would take.

use std::time::Duration;

use jiff::Timestamp;

use super::budget::{BudgetShortage, Reserve};
use super::counters::SubjectCounters;
use super::rate::Bucket;
use super::remaining::{BudgetStatus, ConcurrencyStatus, RateStatus};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind};
use rerouter_base::money::dollars;
use rerouter_store::{LimitOwner, Per};

/// A limit that has no room for a request.
pub(super) enum LimitHit {
    /// It would not have room even when unused.
    TooLarge(RateStatus),
    Requests(RateStatus, Duration),
    Tokens(RateStatus, Duration),
    Concurrency(ConcurrencyStatus),
}

impl LimitHit {
    /// The limit with the longest wait that refuses a request of so many tokens.
    pub(super) fn of(counts: &SubjectCounters, whose: LimitOwner, tokens: u64) -> Option<Self> {
        let left = counts.remaining(whose);
        let impossible = counts.tokens.as_ref().is_some_and(|bucket| !bucket.could_have(tokens));
        let too_large = left.tokens.filter(|_| impossible).map(LimitHit::TooLarge);
        let requests = wait(counts.requests.as_ref(), 1).zip(left.requests);
        let tokens = wait(counts.tokens.as_ref(), tokens).zip(left.tokens);
        let places = left.places.filter(|places| places.remaining() == 0);
        let all = [
            places.map(LimitHit::Concurrency),
            requests.map(|(wait, rate)| LimitHit::Requests(rate, wait)),
            tokens.map(|(wait, rate)| LimitHit::Tokens(rate, wait)),
            too_large,
        ];
        all.into_iter().flatten().max_by_key(LimitHit::wait)
    }

    /// How long until it has room.
    pub(super) fn wait(&self) -> Duration {
        match self {
            LimitHit::TooLarge(_) => Duration::MAX,
            LimitHit::Requests(_, wait) | LimitHit::Tokens(_, wait) => *wait,
            LimitHit::Concurrency(_) => bounds::LIMIT_RETRY,
        }
    }

    /// The refusal of a request of so many tokens.
    pub(super) fn error(&self, tokens: u64) -> Error {
        let error = Error::new(Kind::RateLimited, self.words(tokens));
        match self {
            LimitHit::TooLarge(_) => error.retry_after(Duration::from_secs(60)).without_retry(),
            _ => error.retry_after(self.wait()),
        }
    }

    fn words(&self, tokens: u64) -> String {
        match self {
            LimitHit::TooLarge(RateStatus { whose, left, .. }) => {
                let limit = many(left.limit, "token");
                format!(
                    "The limit of {whose}, {limit} a minute, is too small for this request, \
                     which would reserve {tokens}. {LESS}"
                )
            }
            LimitHit::Requests(rate, _) => {
                let (whose, limit, used) =
                    (rate.whose, many(rate.left.limit, "request"), are(rate.used()));
                format!(
                    "The limit of {whose}, {limit} a minute, is reached: {used} used, \
                     and this request would be one more."
                )
            }
            LimitHit::Tokens(rate, _) => {
                let (whose, limit) = (rate.whose, many(rate.left.limit, "token"));
                let (used, reserved) = (are(rate.used()), are(rate.reserved));
                format!(
                    "The limit of {whose}, {limit} a minute, is reached: {used} used, \
                     {reserved} reserved by requests under way, \
                     and this request would reserve {tokens}."
                )
            }
            LimitHit::Concurrency(ConcurrencyStatus { whose, limit, in_use }) => {
                let (limit, in_use) = (many(*limit, "request"), are(*in_use));
                format!(
                    "The limit of {whose}, {limit} at once, is reached: {in_use} under way, \
                     and this request would be one more."
                )
            }
        }
    }
}

/// What helps where a limit is too small for one request.
const LESS: &str = "A shorter prompt or a smaller `max_tokens` reserves less.";

/// The refusal of a request that a budget does not pay.
pub(super) fn unpaid(
    short: BudgetShortage,
    money: &BudgetStatus,
    wanted: Reserve,
    now: Timestamp,
) -> Error {
    let BudgetStatus { whose, budget, resets_at, is_shared, .. } = money;
    let (spent, reserved, needed) =
        (dollars(money.spent), dollars(money.reserved), dollars(wanted.least));
    let at_least = if wanted.least < wanted.most { "at least " } else { "" };
    let elsewhere = if *is_shared { " here or held by other gateways" } else { "" };
    let sums = format!(
        "{spent} USD is spent{elsewhere}, {reserved} USD is reserved by requests under way, \
         and this request would reserve {at_least}{needed} USD."
    );
    let no_room = format!("The budget of {whose}, {budget}, has no room for this request: {sums}");
    match short {
        BudgetShortage::Spent => {
            let next = match budget.per {
                Per::Day => "day",
                Per::Month => "month",
            };
            let too_large = if wanted.least > budget.nano {
                format!(" That is more than the whole budget. {LESS}")
            } else {
                String::new()
            };
            Error::new(
                Kind::InsufficientQuota,
                format!("{no_room}{too_large} The next {next} begins at {resets_at}."),
            )
            .retry_after(money.reset(now))
            .without_retry()
        }
        BudgetShortage::Held => {
            Error::new(Kind::RateLimited, format!("{no_room} Retry when those have ended."))
                .retry_after(bounds::LIMIT_RETRY)
        }
        BudgetShortage::NotGranted => {
            let words = format!(
                "A reservation of the budget of {whose}, {budget}, \
                 is pending: {sums} Retry in a second."
            );
            Error::new(Kind::RateLimited, words).retry_after(bounds::LIMIT_RETRY)
        }
    }
}

/// The refusal of a request whose budget is granted in parts, while none can be stored.
pub(super) fn ungranted() -> Error {
    let why = "The store is unavailable, and no part of the budget can be granted; try again.";
    Error::new(Kind::Unavailable, why).retry_after(bounds::LIMIT_RETRY)
}

fn wait(bucket: Option<&Bucket>, count: u64) -> Option<Duration> {
    bucket.filter(|bucket| !bucket.has(count)).map(|bucket| bucket.wait_for(count))
}

fn many(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn are(count: u64) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}
