//! Request bodies: which body each kind of route takes, and how a body is read: whole, and within a
//! size, a minimum rate and a maximum silence. After most refusals the framing is in doubt or the
//! client is still sending, so the connection closes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Version, header};
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;
use tokio::time::{Instant, timeout};

use rerouter_base::body_memory::{BodyClass, Held};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_core::api::BodyKind;
use rerouter_core::app::App;
use rerouter_core::prompt::READ_INLINE;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::wire::coding::Coding;

/// Longest silence within a request body, whatever its rate so far.
const BODY_SILENCE: Duration = Duration::from_secs(10);
/// Largest unread body, in bytes, that is drained to keep its connection open.
const DRAIN_BYTES: usize = 1 << 20;
/// Bytes read and dropped after a refusal that closes the connection, so that the client reads the
/// answer and not a reset.
pub(super) const DISCARD_BYTES: usize = 64 << 20;
/// Longest time to drain or discard a body.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Largest body of a management call, in bytes. Documents have their own limit.
const MANAGEMENT_BODY: usize = 256 << 10;
/// Largest body of an evaluation, in bytes: a routing document as a JSON string, each byte escaped,
/// and a filter.
const EVALUATE_BODY: usize = 2 * bounds::DOCUMENT_BYTES + MANAGEMENT_BODY;
/// Largest form with a routing document in it, in bytes: each byte percent-encoded, and other
/// fields.
const FORM_BODY: usize = 3 * bounds::DOCUMENT_BYTES + MANAGEMENT_BODY;
/// Smallest buffer for a body that does not come in one piece.
const BODY_BUFFER_MIN: usize = 4 << 10;
/// Largest body of an import, in bytes: captures with the longest bodies, escaped.
pub const IMPORT_BODY: usize = 64 << 20;
/// Largest body of node events, in bytes.
const NODE_EVENTS_BODY: usize = 1 << 20;

#[derive(Clone, Copy)]
pub(super) enum BodyRules {
    /// An inference request, which may be compressed.
    Inference(Endpoint),
    Management(BodyKind),
    /// A body that is read and ignored.
    Ignored,
}

impl BodyRules {
    /// Whether the caller's limits are checked before a body that costs work is read. The value
    /// tells whether the call may cost money.
    pub(super) fn is_limited(self) -> Option<bool> {
        match self {
            BodyRules::Inference(endpoint) => Some(endpoint.costs()),
            BodyRules::Management(BodyKind::Prompt) => Some(false),
            BodyRules::Management(_) | BodyRules::Ignored => None,
        }
    }

    pub(super) fn room(self) -> BodyClass {
        match self {
            BodyRules::Management(_) => BodyClass::Management,
            BodyRules::Inference(_) | BodyRules::Ignored => BodyClass::Requests,
        }
    }

    /// Largest body in bytes.
    pub(super) fn limit(self, app: &App) -> usize {
        match self {
            BodyRules::Inference(_) | BodyRules::Management(BodyKind::Prompt) => {
                app.server.limits.request_body
            }
            BodyRules::Ignored
            | BodyRules::Management(BodyKind::Json | BodyKind::Patch | BodyKind::Form) => {
                MANAGEMENT_BODY
            }
            BodyRules::Management(BodyKind::DocumentForm) => FORM_BODY,
            BodyRules::Management(BodyKind::Events) => NODE_EVENTS_BODY,
            BodyRules::Management(BodyKind::Document) => bounds::DOCUMENT_BYTES,
            BodyRules::Management(BodyKind::Evaluation) => EVALUATE_BODY,
            BodyRules::Management(BodyKind::Lines) => IMPORT_BODY,
        }
    }

    /// 415 if the route does not take that coding.
    pub(super) fn coding(self, session: &ServerSession) -> Result<Option<Coding>> {
        let headers = &session.req_header().headers;
        match self {
            BodyRules::Inference(_) => {
                let lines = headers.get_all(header::CONTENT_ENCODING).iter();
                Coding::of(lines.map(HeaderValue::as_bytes))
            }
            BodyRules::Management(_) if headers.contains_key(header::CONTENT_ENCODING) => {
                let detail = "Management calls take no compressed bodies.";
                Err(Error::new(Kind::UnsupportedMediaType, detail).accepting("identity"))
            }
            BodyRules::Management(_) | BodyRules::Ignored => Ok(None),
        }
    }

    /// 415 if the route does not take that type.
    pub(super) fn check_type(self, session: &ServerSession, body: &[u8]) -> Result<()> {
        let BodyRules::Management(takes) = self else { return Ok(()) };
        if body.is_empty() {
            return Ok(());
        }
        let sent = session.req_header().headers.get(header::CONTENT_TYPE);
        let sent = sent.map(|kind| {
            kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
        });
        let is_sent =
            |taken: &&str| sent.is_some_and(|sent| sent.eq_ignore_ascii_case(taken.as_bytes()));
        if takes.types().iter().any(is_sent) {
            return Ok(());
        }
        let taken = takes.types().join(" or ");
        Err(Error::new(Kind::UnsupportedMediaType, format!("The body must be {taken}.")))
    }
}

#[derive(Clone, Copy, Debug)]
struct MinRate {
    /// Bytes a second, on average since the start.
    bytes: u64,
    /// Time before the rate is checked.
    grace: Duration,
}

/// Whether reading the body is costly enough to check the caller's limits first: the body is
/// compressed, large or of unknown length. Any other body is read at once, so that a refusal of the
/// request is captured.
pub(super) fn costs_work(session: &mut ServerSession) -> bool {
    let coded = session.req_header().headers.contains_key(header::CONTENT_ENCODING);
    let is_large = content_length(session).is_none_or(|length| length > READ_INLINE as u64);
    coded || (is_large && !session.is_body_empty())
}

/// Errors: 413 if the body is too large, 408 if it comes too slowly, 400 if it is broken, 503 if
/// `held` has no room for it.
pub(super) async fn read_body(
    app: &App,
    session: &mut ServerSession,
    kind: BodyRules,
    held: &mut Held,
) -> Result<Bytes> {
    let limits = &app.server.limits;
    let min_rate = MinRate { bytes: limits.body_min_rate, grace: limits.header_timeout };
    let Some(mut arriving) = Arriving::begin(session, kind.limit(app), min_rate).await? else {
        return Ok(Bytes::new());
    };
    let mut body = BytesMut::new();
    while let Some(chunk) = arriving.next(session).await? {
        if body.is_empty() && arriving.announced == Some(chunk.len() as u64) {
            // The whole body came in one chunk, so it is not copied. Only the end of the body
            // follows.
            if !held.set(chunk.len()) {
                return Err(Held::full());
            }
            return next_chunk(session).await.map(|_| chunk);
        }
        make_room(&mut body, &chunk, arriving.announced, held)?;
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The buffer grows as bytes come and never beyond the announced length: a capture keeps the whole
/// capacity while it waits.
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
    // Not the announced length at once: other requests could not use the reserved memory.
    let most = announced.map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let capacity = (2 * needed).max(BODY_BUFFER_MIN).min(most).max(needed);
    if !held.set(capacity) {
        return Err(Held::full());
    }
    let mut larger = BytesMut::with_capacity(capacity);
    larger.extend_from_slice(body);
    *body = larger;
    Ok(())
}

struct Arriving {
    announced: Option<u64>,
    started: Instant,
    came: usize,
    limit: usize,
    min_rate: MinRate,
}

impl Arriving {
    /// Begins to read the body, after a 100 (Continue) if the client waits for one. `None` if there
    /// is no body.
    async fn begin(
        session: &mut ServerSession,
        limit: usize,
        min_rate: MinRate,
    ) -> Result<Option<Self>> {
        let announced = content_length(session);
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(too_large(limit));
        }
        if session.is_body_empty() {
            return Ok(None);
        }
        let head = session.req_header();
        // HTTP/1.0 clients know no interim answers (RFC 9110 section 10.1.1).
        if head.headers.contains_key(header::EXPECT) && head.version != Version::HTTP_10 {
            session.write_continue_response().await.map_err(|error| broken(&error))?;
        }
        Ok(Some(Arriving { announced, started: Instant::now(), came: 0, limit, min_rate }))
    }

    async fn next(&mut self, session: &mut ServerSession) -> Result<Option<Bytes>> {
        let Some(chunk) = next_chunk(session).await? else { return Ok(None) };
        self.came += chunk.len();
        if self.came > self.limit {
            return Err(too_large(self.limit));
        }
        let (elapsed, whole) = (self.started.elapsed(), self.announced == Some(self.came as u64));
        if !whole
            && elapsed > self.min_rate.grace
            && (self.came as f64) < self.min_rate.bytes as f64 * elapsed.as_secs_f64()
        {
            return Err(Error::new(Kind::Timeout, "The body arrives too slowly."));
        }
        Ok(Some(chunk))
    }
}

async fn next_chunk(session: &mut ServerSession) -> Result<Option<Bytes>> {
    let late = |_| Error::new(Kind::Timeout, "The body stopped arriving.");
    let chunk = timeout(BODY_SILENCE, session.read_request_body()).await.map_err(late)?;
    chunk.map_err(|error| broken(&error))
}

/// Reads and drops the rest of a body, within [`DRAIN_BYTES`] and [`DRAIN_TIME`]. Returns whether
/// the body came to its end, so that the connection may be used again.
pub(super) async fn drain(session: &mut ServerSession) -> bool {
    let waits_for_continue = session.req_header().headers.contains_key(header::EXPECT);
    if session.is_body_done() || session.is_body_empty() {
        return true;
    }
    if waits_for_continue
        || content_length(session).is_some_and(|length| length > DRAIN_BYTES as u64)
    {
        return false;
    }
    discard(session, DRAIN_BYTES).await
}

/// Reads and drops up to `most` bytes. A connection that closes with bytes unread is reset, and the
/// client may lose its answer. Returns whether the body came to its end.
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
    timeout(DRAIN_TIME, reading).await.unwrap_or(false)
}

fn content_length(session: &ServerSession) -> Option<u64> {
    session.req_header().headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn too_large(limit: usize) -> Error {
    Error::new(Kind::PayloadTooLarge, format!("The body is larger than {limit} bytes."))
}

/// The type of a Pingora error, for logs. The rest of the error may quote the client, credentials
/// included.
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
