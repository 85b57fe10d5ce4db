//! The way in: what happens to a connection before its requests are anybody's. It is counted when
//! it is accepted, with TLS or without, and has one deadline until its first request head is whole,
//! the handshake included.
//!
//! Pingora accepts. What comes then is here, because Pingora 0.9 counts nothing, gives a handshake
//! a minute and the beginning of HTTP/2 for ever, and says an error for each handshake that fails.
//! So to Pingora every listener is one without TLS.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use log::warn;
use pingora::apps::ServerApp;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, timeout_at};

use super::chunks::Framed;
use super::head::{self, Came, Patience};
use super::places::{Full, Place, Places};
use super::{http2, reply};
use crate::app::App;
use crate::bounds;
use crate::error::Error;
use crate::log::LogThrottle;

/// What answers the requests that come through a [`Door`].
#[async_trait]
pub trait Serves: Send + Sync + 'static {
    /// Answers a request whose head has been read. `standby`: there was no place for its
    /// connection, which closes afterwards. Gives the connection back where another request may
    /// come on it.
    async fn serve(
        &self,
        session: Box<ServerSession>,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream>;

    /// Answers what came instead of a request head; the connection closes.
    async fn refuse(&self, session: &mut ServerSession, came: &[u8], error: Error);
}

/// What a listener with TLS shows, by the listener's address.
pub type Identities = HashMap<SocketAddr, Acceptor>;

/// How many connections there may be at once.
pub struct Room {
    /// In all.
    pub most: usize,
    /// From one address.
    pub share: usize,
    /// What sets `most`, for the log.
    pub limit: &'static str,
}

/// The way in to one service, over all of its listeners.
pub struct Door<S> {
    app: Arc<App>,
    serves: Arc<S>,
    places: Arc<Places>,
    limit: &'static str,
    identities: Identities,
    failed_handshakes: LogThrottle,
    crowded: LogThrottle,
    shares_used_up: LogThrottle,
}

impl<S: Serves> Door<S> {
    /// A way in to `serves`.
    pub fn new(app: Arc<App>, serves: S, room: Room, identities: Identities) -> Self {
        Door {
            app,
            serves: Arc::new(serves),
            places: Arc::new(Places::new(room.most, room.share)),
            limit: room.limit,
            identities,
            failed_handshakes: LogThrottle::default(),
            crowded: LogThrottle::default(),
            shares_used_up: LogThrottle::default(),
        }
    }

    /// A place for a connection, or one in the reserve; `None`: not even that.
    fn admit(&self, peer: Option<IpAddr>) -> Option<Place> {
        // Whoever comes by a proxy comes from its address.
        let counted = peer.filter(|peer| !self.app.server.trusts_proxy(*peer));
        let full = match self.places.take(counted) {
            Ok(place) => return Some(place),
            Err(full) => full,
        };
        self.app.metrics.connection_refused(full.as_str());
        match full {
            Full::All => self.crowded.tell(|count| {
                warn!("all connections are taken ({}): {count} found no place, the last from {}", self.limit, name(peer));
            }),
            Full::Share => self.shares_used_up.tell(|count| {
                let limit = "limits.connections_per_address";
                warn!("{} has its share of connections ({limit}): {count} from such addresses found no place", name(peer));
            }),
        }
        self.places.stand_by(peer)
    }

    /// When the head of the first request of a connection has to be there.
    fn deadline(&self, place: &Place) -> Instant {
        let time = self.app.server.limits.header_timeout;
        Instant::now() + if place.is_standby() { time.min(bounds::RESERVE_HEAD) } else { time }
    }

    /// The TLS of the listener that a connection came by, if that has any. `None`: it came by none.
    fn identity(&self, stream: &Stream) -> Option<Option<&Acceptor>> {
        if self.identities.is_empty() {
            return Some(None);
        }
        let digest = stream.get_socket_digest()?;
        let listener = self.app.server.listener_at(*digest.local_addr()?.as_inet()?)?;
        match listener.tls {
            Some(_) => self.identities.get(&listener.address).map(Some),
            None => Some(None),
        }
    }

    /// The handshake, where the listener asks for one.
    async fn secure(&self, stream: Stream, deadline: Instant) -> Option<Stream> {
        let Some(identity) = self.identity(&stream)? else { return Some(stream) };
        let peer = peer(&stream);
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

    /// One request after another on a connection.
    async fn http1(
        &self,
        mut stream: Stream,
        place: Place,
        deadline: Instant,
        shutdown: &ShutdownWatch,
    ) {
        let mut patience = Patience::Until(deadline);
        loop {
            let came = tokio::select! {
                biased;
                came = head::read(stream, patience, shutdown) => came,
                () = place.pressed() => return,
            };
            if !place.keep() {
                return;
            }
            let next = match came {
                Came::Request(session) => {
                    self.serves.serve(session, place.is_standby(), shutdown).await
                }
                Came::Nothing => None,
                Came::Wrong(mut session, came, error) => {
                    self.serves.refuse(&mut session, &came, error).await;
                    if !place.is_standby() {
                        head::linger(session).await;
                    }
                    None
                }
            };
            let Some(next) = next.and_then(Framed::open) else { return };
            stream = next;
            patience = Patience::Idle(self.app.server.limits.header_timeout);
        }
    }
}

#[async_trait]
impl<S: Serves> ServerApp for Door<S> {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let place = self.admit(peer(&stream))?;
        let deadline = self.deadline(&place);
        let stream = tokio::select! {
            secured = Box::pin(self.secure(stream, deadline)) => secured?,
            () = place.pressed() => return None,
        };
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            Box::pin(http2::serve(&self.serves, stream, place, deadline, shutdown)).await;
        } else {
            self.http1(stream, place, deadline, shutdown).await;
        }
        None
    }
}

/// The address at the other end.
fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    Some(digest.peer_addr()?.as_inet()?.ip().to_canonical())
}

fn name(peer: Option<IpAddr>) -> String {
    peer.map_or_else(|| "somebody".to_owned(), |peer| peer.to_string())
}

/// Writes a whole answer. Gives the connection back where `keep` says so and nothing of the request
/// is left on it.
pub async fn answer(
    mut session: Box<ServerSession>,
    response: Response<Bytes>,
    keep: bool,
) -> Option<Stream> {
    let keep = keep && session.is_body_empty();
    if keep {
        session.set_keepalive(Some(bounds::KEEP_ALIVE.as_secs()));
    }
    reply::write(&mut session, response, keep).await.ok()?;
    finish(session, keep).await
}

/// Writes an answer to what was no request; the connection closes.
pub async fn refuse(session: &mut ServerSession, response: Response<Bytes>) {
    reply::write_unparsed(session, response).await;
}

/// Gives the connection of a request back that is over, if it may be used again.
pub(super) async fn finish(mut session: Box<ServerSession>, reusable: bool) -> Option<Stream> {
    if !reusable {
        session.shutdown().await;
        return None;
    }
    match session.finish().await.ok().flatten()?.into_parts() {
        (stream, None) => Some(stream),
        // Requests that come before the answer to the one before them are not served: they would be
        // lost here.
        (_, Some(_)) => None,
    }
}
