//! The limit that refuses a request, and the error text: the limit and its owner, what is used,
//! what is reserved, and what this request would take.

use std::time::Duration;

use jiff::Timestamp;

use super::budget::{BudgetRefusal, Reserve};
use super::counters::SubjectCounters;
use super::remaining::{BudgetStatus, CountStatus};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind};
use rerouter_base::money::dollars;
use rerouter_store::{COUNTS, CountLimit, Counted, LimitOwner};

/// A limit that has no room for a request.
pub(super) struct LimitHit {
    row: &'static CountLimit,
    status: CountStatus,
    /// Time until it has room; `None` if the request exceeds even the unused limit.
    wait: Option<Duration>,
}

impl LimitHit {
    /// The limit with the longest wait that refuses a request of so many tokens.
    pub(super) fn of(counts: &SubjectCounters, whose: LimitOwner, tokens: u64) -> Option<Self> {
        let left = counts.remaining(whose).counts;
        let kinds = COUNTS.iter().zip(&counts.buckets).zip(left);
        let hits = kinds.filter_map(|((row, bucket), status)| {
            let status = status?;
            let count = row.counts.of(1, tokens);
            let wait = match bucket {
                Some(bucket) if bucket.has(count) => return None,
                Some(bucket) => bucket.could_have(count).then(|| bucket.wait_for(count)),
                None if status.left.remaining > 0 => return None,
                None => Some(bounds::LIMIT_RETRY),
            };
            Some(LimitHit { row, status, wait })
        });
        hits.max_by_key(LimitHit::wait)
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait.unwrap_or(Duration::MAX)
    }

    pub(super) fn error(&self, tokens: u64) -> Error {
        let error = Error::new(Kind::RateLimited, self.words(tokens));
        match self.wait {
            Some(wait) => error.retry_after(wait),
            None => {
                let window = self.row.window.unwrap_or(bounds::LIMIT_RETRY);
                error.retry_after(window).without_retry()
            }
        }
    }

    fn words(&self, tokens: u64) -> String {
        let CountStatus { whose, left, used, reserved } = &self.status;
        let limit = many(left.limit, self.row.counts.of("request", "token"));
        let request = self.row.counts.of("be one more.".to_owned(), format!("reserve {tokens}."));
        let limit = format!("The limit of {whose}, {limit} {}, is", self.row.span);
        if self.wait.is_none() {
            return format!("{limit} too small for this request, which would {request} {LESS}");
        }
        let gone = match (self.row.window, self.row.counts) {
            (None, _) => format!("{} under way", are(*used)),
            (_, Counted::Requests) => format!("{} used", are(*used)),
            (_, Counted::Tokens) => {
                format!("{} used, {} reserved by requests under way", are(*used), are(*reserved))
            }
        };
        format!("{limit} reached: {gone}, and this request would {request}")
    }
}

/// The advice if a limit is too small for one request.
const LESS: &str = "A shorter prompt or a smaller `max_tokens` reserves less.";

/// The refusal of a request that a budget does not pay.
pub(super) fn unpaid(
    refusal: BudgetRefusal,
    money: &BudgetStatus,
    wanted: Reserve,
    now: Timestamp,
) -> Error {
    let BudgetStatus { whose, budget, resets_at, .. } = money;
    let (spent, reserved, needed) =
        (dollars(money.spent), dollars(money.reserved), dollars(wanted.least));
    let at_least = if wanted.least < wanted.most { "at least " } else { "" };
    let held = match money.held {
        0 => String::new(),
        held => format!("{} USD is held by other gateways, ", dollars(held)),
    };
    let lost = match money.lost {
        0 => String::new(),
        lost => format!("{} USD was held by processes that died, ", dollars(lost)),
    };
    let sums = format!(
        "{spent} USD is spent, {held}{lost}{reserved} USD is reserved by requests under way, \
         and this request would reserve {at_least}{needed} USD."
    );
    let no_room = format!("The budget of {whose}, {budget}, has no room for this request: {sums}");
    match refusal {
        BudgetRefusal::Spent => {
            let next = budget.per.as_str();
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
        BudgetRefusal::Reserved => {
            Error::new(Kind::RateLimited, format!("{no_room} Retry when those have ended."))
                .retry_after(bounds::LIMIT_RETRY)
        }
        BudgetRefusal::NotHeld => {
            let words = format!(
                "A reservation of the budget of {whose}, {budget}, \
                 is pending: {sums} Retry in a second."
            );
            Error::new(Kind::RateLimited, words).retry_after(bounds::LIMIT_RETRY)
        }
    }
}

/// The refusal of a request whose hold cannot be stored.
pub(super) fn not_held() -> Error {
    let why = "The store is unavailable, and no part of the budget can be held; try again.";
    Error::new(Kind::Unavailable, why).retry_after(bounds::LIMIT_RETRY)
}

fn many(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn are(count: u64) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}
