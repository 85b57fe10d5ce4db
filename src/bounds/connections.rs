//! Limits of connections from clients. Heads, and what may be silent for how long, are with the
//! other limits of requests.

use std::time::Duration;

/// Connections that wait for their one request where there is no place left, as a part of the places:
/// health and management find room among them. Whoever is to be kept out of them has to see more come
/// than this while its request is under way.
pub const RESERVE_PART: usize = 4;
/// Least of them: some probes and an admin.
pub const RESERVE_LEAST: usize = 16;
/// Most of them: they cost memory and descriptors that places do not count.
pub const RESERVE_MOST: usize = 128;
/// How long such a connection has for its request, TLS included.
pub const RESERVE_HEAD: Duration = Duration::from_secs(3);
/// One address has at most one in so many of `limits.connections`, where
/// `limits.connections_per_address` says nothing.
pub const CONNECTIONS_SHARE: usize = 4;
/// Connections of the metrics listener: some collectors and probes. It has a reserve of its own.
pub const METRICS_CONNECTIONS: usize = 16;
/// Descriptors that are no client's: files, listeners, event queues, both reserves and the metrics
/// listener.
pub const DESCRIPTORS_SPARE: usize = 160;
/// Of the other descriptors a connection of a client may need two: its own, and one to a provider.
pub const DESCRIPTORS_PER_CONNECTION: usize = 2;
/// Bytes read ahead of a TLS record, which is as long as this.
pub const TLS_READ_AHEAD: usize = 16 << 10;
/// Requests at once on one HTTP/2 connection of a client.
pub const H2_STREAMS_OF_CLIENTS: u32 = 100;
/// A request head of HTTP/2, decoded: one that is larger than [`super::HEAD_BYTES`] is refused in
/// words, one that is larger than this by the library, without any.
pub const H2_HEAD_BYTES: u32 = 128 << 10;
/// The end of an answer over HTTP/2 that waits in its connection for the client to take it, and not
/// in the call that made it.
pub const H2_UNREAD: usize = 16 << 10;
/// Least time between two lines of the log about something that anybody can make happen as often as
/// they like.
pub const SELDOM: Duration = Duration::from_secs(60);
