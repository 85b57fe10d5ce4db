//! What speaks against a request, and the words for it: the limit and whose it is, what of it is
//! used, what requests under way have reserved, and what this request would take.

use std::time::Duration;

use jiff::Timestamp;

use super::Counts;
use super::budget::Short;
use super::draw::Whose;
use super::rate::Bucket;
use super::remaining::{Money, Places, Rate};
use super::reserve::Reserve;
use crate::bounds;
use crate::error::{Error, Kind};
use crate::store::{Per, dollars};

/// A limit that has no room for a request.
pub(super) enum Against {
    /// Nor would it have with nothing used.
    TooLarge(Rate),
    Requests(Rate, Duration),
    Tokens(Rate, Duration),
    Places(Places),
}

impl Against {
    /// Of what speaks against a request of so many tokens, that which does for longest.
    pub(super) fn of(counts: &Counts, whose: Whose, tokens: u64) -> Option<Self> {
        let left = counts.remaining(whose);
        let impossible = counts.tokens.as_ref().is_some_and(|bucket| !bucket.could_have(tokens));
        let too_large = left.tokens.filter(|_| impossible).map(Against::TooLarge);
        let requests = wait(counts.requests.as_ref(), 1).zip(left.requests);
        let tokens = wait(counts.tokens.as_ref(), tokens).zip(left.tokens);
        let places = left.places.filter(|places| places.remaining() == 0);
        let all = [
            places.map(Against::Places),
            requests.map(|(wait, rate)| Against::Requests(rate, wait)),
            tokens.map(|(wait, rate)| Against::Tokens(rate, wait)),
            too_large,
        ];
        all.into_iter().flatten().max_by_key(Against::wait)
    }

    /// How long it does.
    pub(super) fn wait(&self) -> Duration {
        match self {
            Against::TooLarge(_) => Duration::MAX,
            Against::Requests(_, wait) | Against::Tokens(_, wait) => *wait,
            Against::Places(_) => bounds::LIMIT_RETRY,
        }
    }

    /// The refusal of a request of so many tokens.
    pub(super) fn error(&self, tokens: u64) -> Error {
        let error = Error::new(Kind::RateLimited, self.words(tokens));
        match self {
            Against::TooLarge(_) => error.retry_after(Duration::from_secs(60)).without_retry(),
            _ => error.retry_after(self.wait()),
        }
    }

    fn words(&self, tokens: u64) -> String {
        match self {
            Against::TooLarge(Rate { whose, left, .. }) => {
                let limit = many(left.limit, "token");
                format!(
                    "The limit of {whose}, {limit} a minute, is too small for this request, which would reserve {tokens}. {LESS}"
                )
            }
            Against::Requests(rate, _) => {
                let (whose, limit, used) =
                    (rate.whose, many(rate.left.limit, "request"), are(rate.used()));
                format!(
                    "The limit of {whose}, {limit} a minute, is reached: {used} used, and this request would be one more."
                )
            }
            Against::Tokens(rate, _) => {
                let (whose, limit) = (rate.whose, many(rate.left.limit, "token"));
                let (used, reserved) = (are(rate.used()), are(rate.reserved));
                format!(
                    "The limit of {whose}, {limit} a minute, is reached: {used} used, {reserved} reserved by requests under way, \
                     and this request would reserve {tokens}."
                )
            }
            Against::Places(Places { whose, limit, in_use }) => {
                let (limit, in_use) = (many(*limit, "request"), are(*in_use));
                format!(
                    "The limit of {whose}, {limit} at once, is reached: {in_use} under way, and this request would be one more."
                )
            }
        }
    }
}

/// What helps where a limit is too small for one request.
const LESS: &str = "A shorter prompt or a smaller `max_tokens` reserves less.";

/// The refusal of a request that a budget does not pay.
pub(super) fn unpaid(short: Short, money: &Money, wanted: Reserve, now: Timestamp) -> Error {
    let Money { whose, budget, resets_at, .. } = money;
    let (spent, reserved, needed) =
        (dollars(money.spent), dollars(money.reserved), dollars(wanted.least));
    let at_least = if wanted.least < wanted.most { "at least " } else { "" };
    let sums = format!(
        "{spent} USD is spent, {reserved} USD is reserved by requests under way, and this request would reserve {at_least}{needed} USD."
    );
    let no_room = format!("The budget of {whose}, {budget}, has no room for this request: {sums}");
    match short {
        Short::Spent => {
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
        Short::Held => {
            Error::new(Kind::RateLimited, format!("{no_room} Try again when those have ended."))
                .retry_after(bounds::LIMIT_RETRY)
        }
        Short::NotGranted => {
            let words = format!(
                "More of the budget of {whose}, {budget}, is being set aside: {sums} Try again in a second."
            );
            Error::new(Kind::RateLimited, words).retry_after(bounds::LIMIT_RETRY)
        }
    }
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
