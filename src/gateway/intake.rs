//! Request bodies: read whole, within a size, a pace and a silence, or refused with the right
//! status. After a refusal the framing is in doubt or the client is still sending, so the
//! connection closes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;
use tokio::time::{Instant, timeout};

use crate::body_memory::Held;
use crate::bounds;
use crate::error::{Error, Kind, Result};

/// How slow a body may come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Bytes a second, on average since the beginning.
    pub(super) min_rate: u64,
    /// Before the rate is looked at.
    pub(super) grace: Duration,
}

/// Whether reading the body is work that is worth a look at the caller's limits first: it is
/// compressed, large or of unknown length. Any other is read, so that its refusal is captured.
pub(super) fn costs_work(session: &mut ServerSession) -> bool {
    let coded = session.req_header().headers.contains_key(header::CONTENT_ENCODING);
    let large =
        |length: Option<u64>| length.is_none_or(|length| length > bounds::READ_INLINE as u64);
    coded || (!session.is_body_empty() && large(content_length(session)))
}

/// Reads the body. `limit` in bytes; over it 413, too slow 408, broken 400, no room for it in
/// `held` 503.
pub(super) async fn read_body(
    session: &mut ServerSession,
    limit: usize,
    pace: Pace,
    held: &mut Held,
) -> Result<Bytes> {
    let Some(mut arriving) = Arriving::begin(session, limit, pace).await? else {
        return Ok(Bytes::new());
    };
    let mut body = BytesMut::new();
    while let Some(chunk) = arriving.next(session).await? {
        if body.is_empty() && arriving.announced == Some(chunk.len() as u64) {
            // Came in one piece: no copy. What follows is only the end of the body.
            if !held.set(chunk.len()) {
                return Err(Held::full());
            }
            return finish(session, chunk).await;
        }
        make_room(&mut body, &chunk, arriving.announced, held)?;
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Makes room for a chunk. What a client announces is not yet sent: room grows with what comes, but
/// not beyond what is announced, as a capture holds on to all of it while it waits.
fn make_room(
    body: &mut BytesMut,
    chunk: &[u8],
    announced: Option<u64>,
    held: &mut Held,
) -> Result<()> {
    let needed = body.len() + chunk.len();
    if needed <= body.capacity() {
        return Ok(());
    }
    // By what came and not by what is announced: room that is booked is nobody else's.
    let most = announced.map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let capacity = (2 * needed).max(bounds::BODY_BUFFER_MIN).min(most).max(needed);
    if !held.set(capacity) {
        return Err(Held::full());
    }
    let mut larger = BytesMut::with_capacity(capacity);
    larger.extend_from_slice(body);
    *body = larger;
    Ok(())
}

/// A body on its way in, within its size and pace.
struct Arriving {
    announced: Option<u64>,
    started: Instant,
    came: usize,
    limit: usize,
    pace: Pace,
}

impl Arriving {
    /// Asks for the body, or answers `None` where there is none.
    async fn begin(session: &mut ServerSession, limit: usize, pace: Pace) -> Result<Option<Self>> {
        let announced = content_length(session);
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(too_large(limit));
        }
        if session.is_body_empty() {
            return Ok(None);
        }
        if session.req_header().headers.contains_key(header::EXPECT) {
            session.write_continue_response().await.map_err(|error| broken(&error))?;
        }
        Ok(Some(Arriving { announced, started: Instant::now(), came: 0, limit, pace }))
    }

    /// The next bytes, or `None` at the end.
    async fn next(&mut self, session: &mut ServerSession) -> Result<Option<Bytes>> {
        let chunk = match timeout(bounds::BODY_SILENCE, session.read_request_body()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error)) => return Err(broken(&error)),
            Err(_) => return Err(Error::new(Kind::Timeout, "The body stopped arriving.")),
        };
        self.came += chunk.len();
        if self.came > self.limit {
            return Err(too_large(self.limit));
        }
        let (elapsed, whole) = (self.started.elapsed(), self.announced == Some(self.came as u64));
        if !whole
            && elapsed > self.pace.grace
            && (self.came as f64) < self.pace.min_rate as f64 * elapsed.as_secs_f64()
        {
            return Err(Error::new(Kind::Timeout, "The body arrives too slowly."));
        }
        Ok(Some(chunk))
    }
}

async fn finish(session: &mut ServerSession, body: Bytes) -> Result<Bytes> {
    match timeout(bounds::BODY_SILENCE, session.read_request_body()).await {
        Ok(Ok(_)) => Ok(body),
        Ok(Err(error)) => Err(broken(&error)),
        Err(_) => Err(Error::new(Kind::Timeout, "The body stopped arriving.")),
    }
}

/// Reads away what is left of a body that nobody wants, within [`bounds::DRAIN_BYTES`] and [`bounds::DRAIN_TIME`].
/// Whether all of it is gone, so that the connection may be used again.
pub(super) async fn drain(session: &mut ServerSession) -> bool {
    let waits_for_continue = session.req_header().headers.contains_key(header::EXPECT);
    if session.is_body_done() || session.is_body_empty() {
        return true;
    }
    if waits_for_continue
        || content_length(session).is_some_and(|length| length > bounds::DRAIN_BYTES as u64)
    {
        return false;
    }
    discard(session, bounds::DRAIN_BYTES).await
}

/// Reads and drops up to `most` bytes: a connection that closes with bytes unread resets, and the client may lose
/// the answer that it was given. Whether the body came to its end.
pub(super) async fn discard(session: &mut ServerSession, most: usize) -> bool {
    let reading = async {
        let mut left = most;
        while let Ok(chunk) = session.read_request_body().await {
            match chunk {
                None => return true,
                Some(chunk) if chunk.len() > left => return false,
                Some(chunk) => left -= chunk.len(),
            }
        }
        false
    };
    timeout(bounds::DRAIN_TIME, reading).await.unwrap_or(false)
}

fn content_length(session: &ServerSession) -> Option<u64> {
    session.req_header().headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn too_large(limit: usize) -> Error {
    Error::new(Kind::PayloadTooLarge, format!("The body is larger than {limit} bytes."))
}

/// What an error of the engine may say in a log: its kind. Its context quotes what the client sent, credentials too.
pub(super) fn kind_of(error: &pingora::Error) -> &str {
    error.etype().as_str()
}

fn broken(error: &pingora::Error) -> Error {
    match error.etype() {
        ErrorType::ReadTimedout => Error::new(Kind::Timeout, "The body stopped arriving."),
        _ => Error::new(Kind::InvalidRequest, "The body is not framed as announced.")
            .because(kind_of(error)),
    }
}
