//! Limits of client connections. Those of request heads and silences are with the other limits of
//! requests.

use std::time::Duration;

/// Denominator of the share of connections in reserve: those without a place, waiting for their
/// one request. Health and management find room among them.
pub const RESERVE_PART: usize = 4;
/// Smallest reserve: some probes and an admin.
pub const RESERVE_MIN: usize = 16;
/// Largest reserve: it costs memory and descriptors beyond `limits.connections`.
pub const RESERVE_MAX: usize = 128;
/// Time for such a connection to send its request, TLS included.
pub const RESERVE_HEAD: Duration = Duration::from_secs(3);
/// Denominator of an address's share of `limits.connections`, without
/// `limits.connections_per_address`.
pub const CONNECTIONS_SHARE: usize = 4;
/// Connections of the metrics listener: some collectors and probes. It has a reserve of its
/// own.
pub const METRICS_CONNECTIONS: usize = 16;
/// Descriptors that are no client's: files, listeners, event queues, both reserves and the
/// metrics listener.
pub const DESCRIPTORS_SPARE: usize = 160;
/// Descriptors of a client's connection: its own, and one to a provider.
pub const DESCRIPTORS_PER_CONNECTION: usize = 2;
/// Bytes read ahead of a TLS record: its largest size.
pub const TLS_READ_AHEAD: usize = 16 << 10;
/// Requests at once on one HTTP/2 connection of a client.
pub const H2_STREAMS_OF_CLIENTS: u32 = 100;
/// Bytes of an HTTP/2 request head, decoded. One above [`super::HEAD_BYTES`] is refused with an
/// answer, one above this by the library, without.
pub const H2_HEAD_BYTES: u32 = 128 << 10;
/// Bytes of answers that wait in an HTTP/2 connection for its socket, and not in the calls that
/// made them.
pub const H2_UNSENT: usize = 64 << 10;
/// Denominator of `limits.body_memory` for the bytes of all answers that wait for their clients.
pub const UNREAD_PART: usize = 8;
/// The least of them: clients that read are slow for a moment, too.
pub const UNREAD_MIN: usize = 32 << 20;
/// Bytes that a call takes while its whole answer waits, without the answer itself.
pub const UNREAD_ANSWER: usize = 16 << 10;
/// Bytes that a provider's answer takes while it waits, beside its copy for the capture: what is
/// read ahead of the client.
pub const UNREAD_STREAM: usize = 512 << 10;
/// Bytes of a whole answer that a client reads within [`UNREAD_TIME`], or all of a smaller one.
pub const UNREAD_PIECE: usize = 64 << 10;
/// Longest wait for a client that reads none of a whole answer.
pub const UNREAD_TIME: Duration = Duration::from_secs(10);
/// Bytes that the kernel keeps for a client that does not read; it takes twice as much with its own
/// overhead. At a round trip of 100 ms a connection still has two megabytes a second.
pub const SEND_BUFFER: usize = 256 << 10;
/// TLS handshakes that begin in a second: each takes up to two milliseconds of a core.
pub const HANDSHAKES: usize = 1_000;
/// Those of one network.
pub const HANDSHAKES_SHARE: usize = 200;
/// Time for which a handshake keeps its turn, however soon it is done.
pub const HANDSHAKE_TURN: Duration = Duration::from_secs(1);
/// Shortest time between two log lines about something that anybody can cause.
pub const LOG_THROTTLE: Duration = Duration::from_secs(60);
