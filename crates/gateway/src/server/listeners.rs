//! The sockets that a process listens on. The process binds them itself or inherits them from the
//! process before, and can hand them to the next one.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;

use async_trait::async_trait;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use rustix::net::sockopt;

use super::{BootError, ready};

/// Bytes that the kernel buffers for a client that does not read. The kernel takes twice as much,
/// with its own overhead. At a round trip of 100 ms a connection still reaches two megabytes a
/// second.
const SEND_BUFFER: usize = 256 << 10;

/// Listening sockets by their addresses. Pingora itself binds every other address.
#[derive(Default)]
pub(super) struct Sockets(HashMap<SocketAddr, TcpListener>);

impl Sockets {
    /// Opens a socket for each address: an inherited one, or a new one.
    pub(super) fn open(
        addresses: impl Iterator<Item = SocketAddr>,
        mut inherited: HashMap<SocketAddr, TcpListener>,
    ) -> Result<Self, BootError> {
        let mut sockets = HashMap::new();
        for address in addresses {
            let socket = match inherited.remove(&address) {
                Some(socket) => socket,
                None => ready::bind(address).map_err(|(_, why)| BootError(why))?,
            };
            let told = |error: io::Error| BootError(format!("cannot listen on {address}: {error}"));
            socket.set_nonblocking(true).map_err(told)?;
            // Accepted sockets inherit this size. Without it, the buffer grows to megabytes if a
            // client does not read.
            sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)
                .map_err(|error| told(error.into()))?;
            sockets.insert(address, socket);
        }
        Ok(Sockets(sockets))
    }

    /// Duplicates the sockets.
    pub(super) fn again(&self) -> io::Result<HashMap<SocketAddr, TcpListener>> {
        self.0.iter().map(|(address, socket)| Ok((*address, socket.try_clone()?))).collect()
    }

    /// Makes a service that listens on the sockets of these addresses.
    pub(super) fn under<S>(
        &mut self,
        service: S,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> ListeningService<S> {
        let sockets = addresses.filter_map(|address| self.0.remove_entry(&address)).collect();
        ListeningService { service, sockets }
    }
}

/// A Pingora service with the sockets that it listens on.
pub(super) struct ListeningService<S> {
    service: S,
    sockets: Vec<(SocketAddr, TcpListener)>,
}

#[async_trait]
impl<S: Service> Service for ListeningService<S> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        if let Some(fds) = &fds {
            for (address, socket) in self.sockets.drain(..) {
                fds.lock().add(address.to_string(), socket.into_raw_fd());
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
