//! The limit of open files, and the number of connections that it allows. Without a free descriptor
//! not even `/health` can be answered.

use log::warn;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not for clients: files, event queues, both reserves of connections, and the
/// metrics listener.
const DESCRIPTORS_SPARE: usize = 160;
/// Descriptors of a service that accepts, besides its listeners: its event queue and wake-ups.
const DESCRIPTORS_PER_SERVICE: usize = 3;
/// Descriptors of a listener of such a service: one to accept, and one for an upgrade.
const DESCRIPTORS_PER_LISTENER: usize = 2;
/// Descriptors for each client connection: one of its own, and one for a connection to a provider.
const DESCRIPTORS_PER_CONNECTION: usize = 2;

/// Raises the soft limit of open files to the hard limit. The soft limit is often 1,024, for
/// programs that use `select`.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        warn!("the limit of open files cannot be raised: {error}");
    }
}

/// The number of connections that the limit allows, `wanted` at most, beside services that each
/// have so many listeners.
pub(super) fn fit(wanted: usize, services: usize, listeners: usize) -> usize {
    let each = DESCRIPTORS_PER_SERVICE + DESCRIPTORS_PER_LISTENER * listeners;
    let spare = DESCRIPTORS_SPARE + each * services;
    let Some(descriptors) = getrlimit(Resource::Nofile)
        .current
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
    else {
        return wanted;
    };
    let fitting = fitting(wanted, descriptors, spare);
    if fitting < wanted {
        warn!(
            "limits.connections: {wanted} need {} open files; `ulimit -n` allows {descriptors}, \
             enough for {fitting} connections",
            spare + DESCRIPTORS_PER_CONNECTION * wanted
        );
    }
    fitting
}

fn fitting(wanted: usize, descriptors: usize, spare: usize) -> usize {
    let room = descriptors.saturating_sub(spare) / DESCRIPTORS_PER_CONNECTION;
    // At least a few connections are always allowed.
    wanted.min(room.max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_limit() {
        assert_eq!(fitting(20_000, 1 << 20, 160), 20_000);
        assert_eq!(fitting(20_000, 256, 160), 48);
        assert_eq!(fitting(4, 256, 160), 4);
        assert_eq!(fitting(20_000, 100, 160), 8);
    }
}
