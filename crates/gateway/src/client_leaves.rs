//! Notices that a client leaves while its answer is made.

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use pingora::{ErrorType, Result};

/// Most bytes behind a request that are dropped while its client waits. Beyond them, nobody notices
/// that the client leaves before the answer is written.
const STRAY_BYTES: usize = 16 << 10;

/// Resolves when the client leaves. Bytes that it sends meanwhile, such as its next request or the
/// line end of an old client, are dropped and counted in `dropped`. The connection then closes
/// after the answer, and the client sends that request again (RFC 9112 section 9.3.2).
pub(super) async fn left(
    session: &mut ServerSession,
    dropped: &mut usize,
) -> Result<Option<Bytes>> {
    while *dropped < STRAY_BYTES {
        match session.read_body_or_idle(true).await {
            // Pingora has read one byte.
            Err(error) if *error.etype() == ErrorType::ConnectError => {
                *dropped += 1;
                session.set_keepalive(None);
            }
            ended => return ended,
        }
    }
    std::future::pending().await
}
