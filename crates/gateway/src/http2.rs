//! One HTTP/2 connection: its streams and its end. Pingora's own HTTP/2 server is not used: it has
//! no deadline for the start of the connection, answers some heads without logging them, and has no
//! idle timeout.

use std::sync::Arc;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use pingora::protocols::http::ServerSession;
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_limits::{ConnectionRefusal, ConnectionSlot};
use super::http2_stream::{H2_UNSENT, Http2Session};
use super::intake::DRAIN_TIME;
use super::service::HttpService;
use rerouter_base::bounds;

/// Most concurrent requests on one HTTP/2 connection of a client.
const H2_STREAMS_OF_CLIENTS: u32 = 100;
/// Largest decoded HTTP/2 request head, in bytes. A head above
/// [`HEAD_BYTES`](super::framing::HEAD_BYTES) is refused with an answer; a head above this size is
/// refused by the library, without one.
const H2_HEAD_BYTES: u32 = 128 << 10;

/// A stream whose head has been read.
type NewStream = (Request<RecvStream>, SendResponse<Bytes>);

/// Serves a connection that has negotiated `h2`, until it closes.
pub(super) async fn serve<S: HttpService>(
    service: &Arc<S>,
    stream: Stream,
    slot: ConnectionSlot,
    deadline: Instant,
    shutdown: &ShutdownWatch,
    refused: &(dyn Fn(ConnectionRefusal) + Sync),
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let opened = tokio::select! {
        opened = timeout_at(deadline, open(stream)) => opened,
        () = slot.revoked() => return,
    };
    let Ok(Some((connection, first))) = opened else { return };
    if slot.keep() {
        let streams = Streams {
            service,
            digest,
            shutdown,
            slot,
            refused,
            active: watch::channel(()).0,
            unsent: Arc::new(Semaphore::new(H2_UNSENT)),
        };
        streams.drive(connection, first).await;
    }
}

/// Opens a connection and waits for its first request head.
async fn open(stream: Stream) -> Option<(Connection<Stream, Bytes>, NewStream)> {
    let mut options = Builder::new();
    options.max_header_list_size(H2_HEAD_BYTES).max_concurrent_streams(H2_STREAMS_OF_CLIENTS);
    let mut connection = options.handshake(stream).await.ok()?;
    let first = connection.accept().await?.ok()?;
    Some((connection, first))
}

struct Streams<'a, S> {
    service: &'a Arc<S>,
    digest: Arc<Digest>,
    shutdown: &'a ShutdownWatch,
    slot: ConnectionSlot,
    /// Called for each stream for which no slot is free.
    refused: &'a (dyn Fn(ConnectionRefusal) + Sync),
    /// Each stream that is being answered holds a receiver.
    active: watch::Sender<()>,
    unsent: Arc<Semaphore>,
}

impl<S: HttpService> Streams<'_, S> {
    async fn drive(&self, mut connection: Connection<Stream, Bytes>, first: NewStream) {
        let mut leaves = self.shutdown.clone();
        let mut next = Some(first);
        // `leaving`: the client was asked to open no more streams. `refusing`: streams that come
        // nevertheless are refused.
        let (mut leaving, mut refusing) = (false, false);
        loop {
            if let Some((request, mut respond)) = next.take() {
                match refusing {
                    true => respond.send_reset(Reason::REFUSED_STREAM),
                    false => self.answer(request, respond),
                }
            }
            if self.slot.is_reserve() && !refusing {
                connection.graceful_shutdown();
                (leaving, refusing) = (true, true);
            }
            let idle = async {
                self.active.closed().await;
                self.slot.release();
                sleep(if leaving { DRAIN_TIME } else { bounds::KEEP_ALIVE }).await;
            };
            // Returning drops the connection and the answers that the client has not read.
            tokio::select! {
                biased;
                _ = leaves.changed(), if !leaving => {
                    connection.graceful_shutdown();
                    leaving = true;
                }
                begun = connection.accept() => match begun {
                    Some(Ok(begun)) => next = Some(begun),
                    _ => return,
                },
                () = idle => return,
                () = self.slot.revoked() => return,
            }
        }
    }

    fn answer(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let (digest, unsent) = (self.digest.clone(), self.unsent.clone());
        let session = Http2Session::new(request, respond, digest, unsent);
        let session = Box::new(ServerSession::new_custom(Box::new(session)));
        let (service, shutdown) = (self.service.clone(), self.shutdown.clone());
        // The connection's own slot covers one request at a time.
        let needs_slot = !self.slot.is_reserve() && self.active.receiver_count() > 0;
        let slot = needs_slot.then(|| self.slot.beside().map_err(self.refused));
        let standby = self.slot.is_reserve() || matches!(slot, Some(Err(())));
        let active = self.active.subscribe();
        tokio::spawn(async move {
            service.serve(session, standby, &shutdown).await;
            drop((active, slot));
        });
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
