//! Connections from accept to close: the slot, the TLS handshake, and the requests, one after
//! another. A connection is counted when it is accepted, before its TLS handshake. One deadline
//! covers the handshake and the first request head.
//!
//! Pingora only accepts. Pingora 0.9 does not limit connections, allows a minute for a handshake
//! and unlimited time for the start of HTTP/2, and logs an error for each failed handshake. So
//! Pingora gets every listener as one without TLS, and this module does the rest.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use log::warn;
use pingora::apps::ServerApp;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, sleep, timeout_at};

use super::chunked_body::ChunkedStream;
use super::connection_limits::{ConnectionLimiter, ConnectionRefusal, ConnectionSlot};
use super::http1_head::{self, HeadDeadline, HeadRead};
use super::http2;
use super::service::HttpService;
use rerouter_base::log::LogThrottle;
use rerouter_core::app::App;

/// Idle timeout of a kept-alive connection after another process has taken over: clients reuse
/// connections within seconds.
const HANDED_OVER_IDLE: Duration = Duration::from_secs(5);
/// The same at a shutdown: a client in full swing sends its next request within this time.
pub(super) const SHUTDOWN_IDLE: Duration = Duration::from_millis(500);
/// Time limit for the first request head on a reserve slot, TLS handshake included.
pub(super) const RESERVE_HEAD: Duration = Duration::from_secs(3);
/// Shortest time that a handshake holds its turn, even if it ends sooner.
const HANDSHAKE_TURN: Duration = Duration::from_secs(1);

pub type TlsAcceptors = HashMap<SocketAddr, Acceptor>;

pub struct ConnectionLimits {
    pub most: usize,
    pub share: usize,
    /// The setting that bounds `most`, for the log.
    pub limit: &'static str,
}

/// Accepts the connections of one service, over the listeners of one thread or of all.
pub struct ConnectionAcceptor<S> {
    gate: Arc<ConnectionGate>,
    service: Arc<S>,
}

/// What decides whether a connection is served, for all threads that accept.
pub struct ConnectionGate {
    app: Arc<App>,
    limiter: Arc<ConnectionLimiter>,
    limit: &'static str,
    acceptors: TlsAcceptors,
    failed_handshakes: LogThrottle,
    at_limit: LogThrottle,
    at_address_limit: LogThrottle,
    at_handshake_limit: LogThrottle,
}

impl ConnectionGate {
    pub fn new(app: Arc<App>, limits: ConnectionLimits, acceptors: TlsAcceptors) -> Self {
        ConnectionGate {
            app,
            limiter: Arc::new(ConnectionLimiter::new(limits.most, limits.share)),
            limit: limits.limit,
            acceptors,
            failed_handshakes: LogThrottle::default(),
            at_limit: LogThrottle::default(),
            at_address_limit: LogThrottle::default(),
            at_handshake_limit: LogThrottle::default(),
        }
    }

    /// Takes a slot for a connection, or a reserve slot if the limits allow no other. `None` if no
    /// reserve slot is free either.
    fn admit(&self, peer: Option<IpAddr>) -> Option<ConnectionSlot> {
        let full = match self.limiter.take(self.app.server.counted(peer)) {
            Ok(slot) => return Some(slot),
            Err(full) => full,
        };
        self.tell_refused(full, peer);
        self.limiter.reserve(peer)
    }

    fn tell_refused(&self, full: ConnectionRefusal, peer: Option<IpAddr>) {
        self.app.metrics.request.connections_refused.with_label_values(&[full.as_str()]).inc();
        let (throttle, of, limit) = match full {
            ConnectionRefusal::All => (&self.at_limit, "", self.limit),
            ConnectionRefusal::Address => {
                (&self.at_address_limit, " of one address", "limits.connections_per_address")
            }
        };
        throttle.tell(|count| {
            let last = name(peer);
            warn!("connection limit{of} reached ({limit}): {count} refused, the last from {last}");
        });
    }

    fn deadline(&self, slot: &ConnectionSlot) -> Instant {
        let time = self.app.server.limits.header_timeout;
        Instant::now() + if slot.is_reserve() { time.min(RESERVE_HEAD) } else { time }
    }

    /// The TLS acceptor of the connection's listener, `Some(None)` if the listener has no TLS.
    /// `None` if the listener is unknown.
    fn identity(&self, stream: &Stream) -> Option<Option<&Acceptor>> {
        if self.acceptors.is_empty() {
            return Some(None);
        }
        let digest = stream.get_socket_digest()?;
        let listener = self.app.server.listener_at(*digest.local_addr()?.as_inet()?)?;
        match listener.tls {
            Some(_) => self.acceptors.get(&listener.address).map(Some),
            None => Some(None),
        }
    }

    /// Does the TLS handshake if the listener has TLS. `None` if it is refused or fails.
    async fn secure(&self, stream: Stream, deadline: Instant) -> Option<Stream> {
        let Some(identity) = self.identity(&stream)? else { return Some(stream) };
        let peer = peer(&stream);
        let network = self.app.server.counted(peer);
        let caller = network.map_or_else(|| stream.id().to_string(), |own| own.to_string());
        let turn = timeout_at(deadline, self.app.handshakes.take(&caller)).await;
        let Some(turn) = turn.ok().flatten() else {
            self.app.metrics.request.connections_refused.with_label_values(&["handshakes"]).inc();
            self.at_handshake_limit.tell(|count| {
                warn!("too many TLS handshakes: {count} refused, the last with {}", name(peer))
            });
            return None;
        };
        tokio::spawn(async move {
            sleep(HANDSHAKE_TURN).await;
            drop(turn);
        });
        let socket = stream.into_any().downcast::<Socket>().ok()?;
        let why = match timeout_at(deadline, identity.tls_handshake(*socket)).await {
            Ok(Ok(secured)) => return Some(Box::new(secured)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        self.failed_handshakes.tell(|count| {
            warn!("{count} TLS handshake(s) failed, the last with {}: {why}", name(peer))
        });
        None
    }

    /// Resolves when idle connections must close: [`SHUTDOWN_IDLE`] after the shutdown begins, or
    /// [`HANDED_OVER_IDLE`] after another process has taken over. In that time a client that reuses
    /// its connection still gets an answer, which closes the connection.
    async fn closing(&self, shutdown: &ShutdownWatch) {
        // An error means that the sender was dropped, which is a shutdown too.
        let _leaving = shutdown.clone().changed().await;
        sleep(if self.app.is_handed_over() { HANDED_OVER_IDLE } else { SHUTDOWN_IDLE }).await;
    }
}

impl<S: HttpService> ConnectionAcceptor<S> {
    pub fn new(gate: Arc<ConnectionGate>, service: S) -> Self {
        ConnectionAcceptor { gate, service: Arc::new(service) }
    }

    async fn http1(
        &self,
        mut stream: Stream,
        slot: ConnectionSlot,
        deadline: Instant,
        shutdown: &ShutdownWatch,
    ) {
        let mut deadline = HeadDeadline::First(deadline);
        loop {
            let came = tokio::select! {
                biased;
                came = http1_head::read(stream, deadline, self.gate.closing(shutdown)) => came,
                () = slot.revoked() => return,
            };
            if !slot.keep() {
                return;
            }
            let next = match came {
                HeadRead::Request(session) => {
                    self.service.serve(session, slot.is_reserve(), shutdown).await
                }
                HeadRead::Closed => None,
                HeadRead::Malformed(mut session, came, error) => {
                    self.service.refuse(&mut session, &came, error).await;
                    if !slot.is_reserve() {
                        http1_head::linger(session).await;
                    }
                    None
                }
            };
            let Some(next) = next.and_then(ChunkedStream::open) else { return };
            stream = next;
            deadline = HeadDeadline::Next(self.gate.app.server.limits.header_timeout);
        }
    }
}

#[async_trait]
impl<S: HttpService> ServerApp for ConnectionAcceptor<S> {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let _open = self.gate.app.begin_connection();
        let slot = self.gate.admit(peer(&stream))?;
        let deadline = self.gate.deadline(&slot);
        let stream = tokio::select! {
            secured = Box::pin(self.gate.secure(stream, deadline)) => secured?,
            () = slot.revoked() => return None,
        };
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            let peer = peer(&stream);
            let refused = |full| self.gate.tell_refused(full, peer);
            Box::pin(http2::serve(&self.service, stream, slot, deadline, shutdown, &refused)).await;
        } else {
            self.http1(stream, slot, deadline, shutdown).await;
        }
        None
    }
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    Some(digest.peer_addr()?.as_inet()?.ip().to_canonical())
}

fn name(peer: Option<IpAddr>) -> String {
    peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string())
}
