//! Maps Pingora's hooks for an attempt to methods of [`InferenceCall`]: the permit and the address
//! of the attempt, and how it failed. Whether another attempt follows is decided in
//! [`InferenceCall::attempt_failed`].

use std::time::Duration;

use log::warn;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, Result};

use super::call::InferenceCall;
use super::failure::{
    AttemptFailure, BAD_STATUS, CUT, IN_BAND, NO_FIRST_CONTENT, OVER_TIME, TOO_LARGE,
};
use super::peers::Peers;
use rerouter_store::PanicPoint;

/// Begins the next attempt: takes the permit of its target and returns the address to connect to.
pub(super) async fn peer(peers: &Peers, call: &InferenceCall) -> Result<Box<HttpPeer>> {
    let target = call
        .begin_attempt()
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the plan is used up"))?;
    if call.answers_itself(&target) {
        // Pingora's work ends here: the answer only has to be written.
        let mut over = Error::explain(ErrorType::InternalError, "answered with an estimate");
        over.set_retry(false);
        return Err(over);
    }
    if let Err(barred) = call.admit(&target) {
        return Err(unconnected(call, "no permit", barred));
    }
    call.app.store.faults().pass(PanicPoint::Attempt);
    let peer = peers.peer(&target.provider).await;
    peer.map_err(|why| {
        warn!("provider {}: no address to connect to: {why}", target.provider.name);
        unconnected(call, "no address", AttemptFailure::Connect)
    })
}

fn unconnected(call: &InferenceCall, why: &'static str, failure: AttemptFailure) -> Box<Error> {
    let mut error = Error::explain(ErrorType::ConnectError, why).into_up();
    error.set_retry(call.attempt_failed(failure, false));
    error
}

/// A reused connection that breaks within this time was closed before the request came to the
/// provider. Later the provider may have worked on the request.
const STALE: Duration = Duration::from_secs(1);

/// Notes how the attempt failed and tells Pingora whether to make another. `replaceable`: the
/// connection was reused, or the provider has another address.
pub(super) fn failed(
    call: Option<&InferenceCall>,
    mut error: Box<Error>,
    known: Option<AttemptFailure>,
    replaceable: bool,
) -> Box<Error> {
    let Some(call) = call else { return error };
    if call.progress().relay.has_said_all() {
        // The answer is whole: only its framing is broken, or the client left before its end.
        error.set_retry(false);
        return error;
    }
    let failure = known.unwrap_or_else(|| classify(call, &error));
    let is_early = || call.progress().started.is_some_and(|began| began.elapsed() < STALE);
    let replaced = replaceable
        && (failure == AttemptFailure::Connect || (failure == AttemptFailure::Cut && is_early()));
    let again = call.attempt_failed(failure, replaced);
    if failure != AttemptFailure::ClientGone {
        // Pingora blames the client's side for our deadlines, though the provider is at fault.
        error.as_up();
    }
    error.set_retry(again);
    error
}

fn classify(call: &InferenceCall, error: &Error) -> AttemptFailure {
    match error.etype() {
        // A status that came counts, even if the rest of the answer did not come.
        ErrorType::Custom(NO_FIRST_CONTENT | OVER_TIME) => {
            refused(call).unwrap_or(AttemptFailure::Timeout)
        }
        ErrorType::Custom(BAD_STATUS) => refused(call).unwrap_or(AttemptFailure::ServerError),
        ErrorType::Custom(IN_BAND) => AttemptFailure::InBand,
        ErrorType::Custom(CUT) => AttemptFailure::Cut,
        ErrorType::Custom(TOO_LARGE) => AttemptFailure::TooLarge,
        _ if *error.esource() == ErrorSource::Downstream => AttemptFailure::ClientGone,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => {
            refused(call).unwrap_or(AttemptFailure::Timeout)
        }
        _ if *error.esource() == ErrorSource::Upstream => {
            refused(call).unwrap_or(AttemptFailure::Cut)
        }
        _ => AttemptFailure::Internal,
    }
}

/// The failure that the status of an uncommitted answer means.
fn refused(call: &InferenceCall) -> Option<AttemptFailure> {
    let progress = call.progress();
    if progress.relay.committed { None } else { progress.relay.refused() }
}
