//! The sockets that a process listens on. The process binds them itself or inherits them from the
//! process before, and can hand them to the next one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service as ServiceTrait;
use pingora::services::listening::Service;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{BootError, ready};

/// Read-ahead buffer for TLS, in bytes: the largest TLS record.
const TLS_READ_AHEAD: usize = 16 << 10;
/// Connections that wait to be accepted on a socket, as the standard library has it.
const BACKLOG: i32 = 128;

/// Bytes that the kernel buffers for a client that does not read. The kernel takes twice as much,
/// with its own overhead. At a round trip of 100 ms a connection still reaches two megabytes a
/// second.
const SEND_BUFFER: usize = 256 << 10;

/// A listening socket. The sockets of one address have numbers: the kernel spreads new connections
/// over them.
pub(super) struct ListeningSocket {
    address: SocketAddr,
    number: usize,
    socket: TcpListener,
}

impl ListeningSocket {
    /// The key in Pingora's table of descriptors.
    fn name(&self) -> String {
        format!("{}#{}", self.address, self.number)
    }
}

pub(super) struct Sockets(Vec<ListeningSocket>);

impl Sockets {
    /// Opens sockets: for each address all inherited ones, and as many new ones that each of its
    /// services has the same number. Only [`listen`] lets the kernel spread connections over new
    /// ones.
    pub(super) fn open(
        wanted: impl Iterator<Item = (SocketAddr, usize)>,
        mut inherited: Vec<(SocketAddr, TcpListener)>,
    ) -> Result<Self, BootError> {
        let mut sockets = Vec::new();
        for (address, services) in wanted {
            let told = |error: io::Error| BootError(format!("cannot listen on {address}: {error}"));
            let (own, others) = inherited.into_iter().partition(|(of, _)| *of == address);
            inherited = others;
            let own: Vec<_> = own.into_iter().map(|(_, socket)| socket).collect();
            let own = fill(address, own, services)?;
            for (number, socket) in own.into_iter().enumerate() {
                socket.set_nonblocking(true).map_err(told)?;
                // Accepted sockets inherit this size. Without it, the buffer grows to megabytes if
                // a client does not read.
                sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)
                    .map_err(|error| told(error.into()))?;
                sockets.push(ListeningSocket { address, number, socket });
            }
        }
        Ok(Sockets(sockets))
    }

    /// Duplicates the sockets.
    pub(super) fn again(&self) -> Result<Vec<(SocketAddr, TcpListener)>, BootError> {
        let again = |own: &ListeningSocket| Ok((own.address, own.socket.try_clone()?));
        let all: io::Result<_> = self.0.iter().map(again).collect();
        all.map_err(|error| BootError(error.to_string()))
    }

    /// Takes those sockets of an address that one of `parts` services listens on.
    pub(super) fn take(
        &mut self,
        address: SocketAddr,
        part: usize,
        parts: usize,
    ) -> Vec<ListeningSocket> {
        let own = |own: &mut ListeningSocket| own.address == address && own.number % parts == part;
        self.0.extract_if(.., own).collect()
    }
}

/// Lets connections come to these sockets. An upgrade calls this once it has taken over: a
/// connection that waits at a socket is reset when the socket closes.
pub(super) fn listen(sockets: &[(SocketAddr, TcpListener)]) -> Result<(), BootError> {
    sockets.iter().try_for_each(|(address, socket)| {
        net::listen(socket, BACKLOG)
            .map_err(|error| BootError(format!("cannot listen on {address}: {error}")))
    })
}

/// Binds further sockets to `address`, up to a multiple of the number of its services.
fn fill(
    address: SocketAddr,
    mut sockets: Vec<TcpListener>,
    services: usize,
) -> Result<Vec<TcpListener>, BootError> {
    // The first is bound without SO_REUSEPORT, so that an address in use is refused.
    if sockets.is_empty() {
        sockets.push(ready::bind(address).map_err(|(_, why)| BootError(why))?);
    }
    let told =
        |error: io::Error| BootError(format!("cannot bind {address} for each thread: {error}"));
    let more = sockets.len().next_multiple_of(services) - sockets.len();
    if let (Some(first), true) = (sockets.first(), more > 0) {
        // The port may be one that the kernel chose.
        let bound = first.local_addr().map_err(told)?;
        for socket in &sockets {
            sockopt::set_socket_reuseport(socket, true).map_err(|error| told(error.into()))?;
        }
        for _ in 0..more {
            sockets.push(bind_beside(bound).map_err(|error| told(error.into()))?);
        }
    }
    Ok(sockets)
}

fn bind_beside(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket.into())
}

pub(super) struct ListeningService<A> {
    service: Service<A>,
    sockets: Vec<ListeningSocket>,
}

impl<A> ListeningService<A> {
    pub(super) fn new(name: &str, app: A, threads: Option<usize>) -> Self {
        let mut service = Service::new(name.to_owned(), app);
        service.threads = threads;
        ListeningService { service, sockets: Vec::new() }
    }

    /// Adds listeners. Their read buffer is small, because Pingora's default of 64 KiB per
    /// connection is wasted on idle connections. Without TLS the reader has its own buffer; with
    /// TLS one record is enough.
    pub(super) fn listen(&mut self, sockets: Vec<ListeningSocket>, tls: bool) {
        let buffer = L4BufferSettings::default().read(if tls { TLS_READ_AHEAD } else { 0 });
        for socket in &sockets {
            self.service.add_listener(ListenerConfig::tcp(socket.name()).l4_buffer(buffer));
        }
        self.sockets.extend(sockets);
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> ServiceTrait for ListeningService<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        if let Some(fds) = &fds {
            for own in self.sockets.drain(..) {
                fds.lock().add(own.name(), own.socket.into_raw_fd());
            }
        }
        self.service.start_service(fds, shutdown, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads()
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.service.listen_addresses()
    }
}
