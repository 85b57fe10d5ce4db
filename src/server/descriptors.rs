//! Descriptors: how many the process may have open, and how many connections fit into them. Without
//! any left nobody is answered, not even those who ask whether the gateway lives.

use log::warn;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bounds;

/// Raises the limit of open files to what this process may raise it to. The soft limit is often
/// 1,024 for the sake of programs that use `select`.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        warn!("the limit of open files stays as it is: {error}");
    }
}

/// So many of the wanted connections as there are descriptors for.
pub(super) fn fit(wanted: usize) -> usize {
    let Some(descriptors) = getrlimit(Resource::Nofile)
        .current
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
    else {
        return wanted;
    };
    let fitting = fitting(wanted, descriptors);
    if fitting < wanted {
        warn!(
            "limits.connections: {wanted} do not fit into {descriptors} open files (ulimit -n), and {fitting} are taken at once; {} are needed",
            bounds::DESCRIPTORS_SPARE + bounds::DESCRIPTORS_PER_CONNECTION * wanted
        );
    }
    fitting
}

fn fitting(wanted: usize, descriptors: usize) -> usize {
    let room =
        descriptors.saturating_sub(bounds::DESCRIPTORS_SPARE) / bounds::DESCRIPTORS_PER_CONNECTION;
    // Where there are hardly any, a few may be tried.
    wanted.min(room.max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_fit() {
        assert_eq!(fitting(20_000, 1 << 20), 20_000);
        assert_eq!(fitting(20_000, 256), 48);
        assert_eq!(fitting(4, 256), 4);
        assert_eq!(fitting(20_000, 100), 8);
    }
}
