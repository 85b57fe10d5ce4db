//! `TCP_CORK` of connections to providers: head and body of a request leave in one segment. Pingora
//! writes them one after the other and flushes each.
//!
//! The socket is corked before the head is written. Pingora then polls both directions of the
//! exchange in one task: the idle read of the client's side comes first, the write of the body
//! second. So the idle read wakes its own task once, and lets the segment go in the next poll.

use std::future::poll_fn;
use std::os::fd::{BorrowedFd, RawFd};
use std::task::Poll;

use rustix::net::sockopt;

/// A corked socket. The connection outlives this value.
pub(super) struct Cork(RawFd);

impl Cork {
    /// Holds back what is written to an HTTP/1 connection. `None` if the socket refuses.
    pub(super) fn new(socket: RawFd) -> Option<Self> {
        set(socket, true).then_some(Cork(socket))
    }

    /// Lets go what was written, once the body is.
    pub(super) async fn release(self) {
        // Also lets go if this future is dropped, as when the answer comes first.
        let _held = Held(self);
        let mut written = false;
        poll_fn(|context| {
            if std::mem::replace(&mut written, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

struct Held(Cork);

impl Drop for Held {
    fn drop(&mut self) {
        set(self.0.0, false);
    }
}

#[expect(unsafe_code, reason = "Pingora gives the descriptor of a connection as a number")]
fn set(socket: RawFd, corked: bool) -> bool {
    // SAFETY: Pingora's session owns the descriptor, and is alive: `new` runs in a hook of the
    // attempt, and `Held` is dropped in a future that borrows the session.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    sockopt::set_tcp_cork(socket, corked).is_ok()
}
