//! Reroutes with an `Idempotency-Key`, for as long as they may be repeated: under way, or with
//! their answer. Whichever gateway is asked, one runs at a time.

use std::time::Duration;

use jiff::Timestamp;

use super::columns::Columns;
use super::sql::{Transaction, params};
use super::{Store, StoreError};
use rerouter_base::id::RequestId;

/// Calls of one kind by one payer whose `Idempotency-Key` is remembered; beyond it a new key is
/// refused.
pub const REPEATS_SHARE: usize = 1_000;
/// Bytes of a payer's answers beyond which its next call is refused. A larger answer is not kept.
pub const REPEATS_SHARE_BYTES: usize = 8 << 20;
/// Time after which a gateway that was killed no longer holds the `Idempotency-Key` of a reroute.
pub const REROUTE_CLAIM: Duration = Duration::from_secs(60);
/// Time for which an `Idempotency-Key` counts.
pub const REPEATS_AGE: Duration = Duration::from_secs(600);

/// A reroute that asks for a place.
#[derive(Clone, Debug)]
pub struct NamedReroute {
    /// A digest of the caller and its `Idempotency-Key`.
    pub id: [u8; 32],
    pub original: RequestId,
    /// Of whose share of kept answers it takes one.
    pub payer: String,
    /// Random: tells this run from others under the same name.
    pub claim: [u8; 32],
}

/// What is known of a reroute.
#[derive(Debug, PartialEq, Eq)]
pub enum KnownReroute {
    /// Nothing. It runs under its claim from now on, which has to be renewed.
    New,
    UnderWay,
    Answered(RerouteAnswer),
    /// The name was used for another capture.
    OfAnother,
    /// It is new, and its payer has too many of late.
    Full,
}

/// The answer to a reroute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RerouteAnswer {
    /// The capture that was made, if there is one.
    pub replay: Option<RequestId>,
    /// The body, sealed; `None` if it was too large to be kept.
    pub sealed: Option<Vec<u8>>,
}

impl Store {
    /// Looks a reroute up, and claims its name if it is new.
    pub async fn claim_reroute(
        &self,
        call: NamedReroute,
        now: Timestamp,
    ) -> Result<KnownReroute, StoreError> {
        self.write_beside(move |transaction| claim(transaction, &call, now)).await
    }

    /// A claim that is not renewed ends after [`REROUTE_CLAIM`].
    pub async fn renew_reroute(
        &self,
        call: NamedReroute,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let renew = move |transaction: &Transaction<'_>| {
            let update = "UPDATE reroutes SET at = ?3 WHERE id = ?1 AND claim = ?2";
            transaction.execute(update, &params![call.id, call.claim, now]).map(drop)
        };
        self.write_beside(renew).await
    }

    /// Keeps the answer, if the claim has not ended; whether it was so.
    pub async fn answer_reroute(
        &self,
        call: NamedReroute,
        answer: RerouteAnswer,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let keep = move |transaction: &Transaction<'_>| {
            let update = "
                UPDATE reroutes SET claim = NULL, at = ?3, replay = ?4, sealed = ?5
                WHERE id = ?1 AND claim = ?2";
            let values = params![call.id, call.claim, now, answer.replay, answer.sealed];
            Ok(transaction.execute(update, &values)? > 0)
        };
        self.write_beside(keep).await
    }

    /// Ends a claim without an answer: the call may be repeated.
    pub async fn release_reroute(&self, call: NamedReroute) -> Result<(), StoreError> {
        let release = move |transaction: &Transaction<'_>| {
            let delete = "DELETE FROM reroutes WHERE id = ?1 AND claim = ?2";
            transaction.execute(delete, &params![call.id, call.claim]).map(drop)
        };
        self.write_beside(release).await
    }

    /// Deletes what is too old to be asked for.
    pub async fn trim_reroutes(&self, now: Timestamp) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            let oldest = before(now.as_microsecond(), REPEATS_AGE);
            transaction.execute("DELETE FROM reroutes WHERE at <= ?1", &params![oldest]).map(drop)
        };
        self.write_beside(trim).await
    }
}

fn claim(
    transaction: &Transaction<'_>,
    call: &NamedReroute,
    now: Timestamp,
) -> Result<KnownReroute, StoreError> {
    let at = now.as_microsecond();
    let ended = "
        DELETE FROM reroutes
        WHERE id = ?1 AND (at <= ?2 OR claim IS NOT NULL AND at <= ?3)";
    let times = [REPEATS_AGE, REROUTE_CLAIM].map(|age| before(at, age));
    transaction.execute(ended, &params![call.id, times[0], times[1]])?;
    if let Some(known) = find(transaction, call)? {
        return Ok(known);
    }
    if is_full(transaction, &call.payer)? {
        return Ok(KnownReroute::Full);
    }
    let insert = "
        INSERT INTO reroutes (id, original, payer, claim, at) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (id) DO NOTHING";
    let values = params![call.id, call.original, call.payer, call.claim, at];
    match transaction.execute(insert, &values)? {
        0 => Ok(find(transaction, call)?.unwrap_or(KnownReroute::UnderWay)),
        _ => Ok(KnownReroute::New),
    }
}

fn find(
    transaction: &Transaction<'_>,
    call: &NamedReroute,
) -> Result<Option<KnownReroute>, StoreError> {
    let select = "
        SELECT original, CASE WHEN claim IS NULL THEN 0 ELSE 1 END, replay, sealed
        FROM reroutes WHERE id = ?1";
    transaction.row(select, &params![call.id], |row| {
        let mut columns = Columns::of(row);
        let is_another = columns.text()? != call.original.as_str();
        let is_under_way: bool = columns.get()?;
        if is_another {
            return Ok(KnownReroute::OfAnother);
        }
        if is_under_way {
            return Ok(KnownReroute::UnderWay);
        }
        let replay = columns.maybe_text()?.and_then(RequestId::parse);
        Ok(KnownReroute::Answered(RerouteAnswer { replay, sealed: columns.maybe()? }))
    })
}

/// Whether a payer has its share of names, or of bytes.
fn is_full(transaction: &Transaction<'_>, payer: &str) -> Result<bool, StoreError> {
    let sum = "
        SELECT count(*), CAST(coalesce(sum(length(sealed)), 0) AS BIGINT)
        FROM reroutes WHERE payer = ?1";
    let share = transaction.row(sum, &params![payer], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.get::<i64>()?, columns.get::<i64>()?))
    })?;
    let (calls, bytes) = share.unwrap_or_default();
    let is_at = |value: i64, most: usize| usize::try_from(value).is_ok_and(|value| value >= most);
    Ok(is_at(calls, REPEATS_SHARE) || is_at(bytes, REPEATS_SHARE_BYTES))
}

fn before(at: i64, age: std::time::Duration) -> i64 {
    at.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
}
