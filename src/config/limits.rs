//! What clients may take of the gateway: the section `limits` of the server document.

use std::time::Duration;

use super::read::{Faults, Field, Section, to_usize};

/// What a client may take.
#[derive(Clone)]
pub struct LimitSettings {
    /// Time for a request's head.
    pub header_timeout: Duration,
    /// Bytes a second that a body must arrive with; 0: any.
    pub body_min_rate: u64,
    /// Bytes of a request body, decoded.
    pub request_body: usize,
    /// Bytes of bodies that the process holds at once.
    pub body_memory: usize,
    /// Connections at once.
    pub connections: usize,
    /// Of those, connections at once from one address; without it a part of them.
    pub connections_per_address: Option<usize>,
}

/// Reads the section `limits`.
pub(super) fn read(top: &mut Section<'_>, faults: &mut Faults) -> LimitSettings {
    let mut section = top.below("limits", faults);
    let body = |field: &Field<'_>, faults: &mut Faults| {
        let size = field.size(faults)?;
        if !(1..=1 << 30).contains(&size) {
            faults
                .push(field.fault("must be from 1 byte to 1GiB").hint(Some("for example `32MiB`")));
        }
        Some(size)
    };
    let request_body = section.read("request_body", faults, body).map_or(32 << 20, to_usize);
    let found = LimitSettings {
        header_timeout: section
            .read("header_timeout", faults, |f, p| f.positive_duration(p))
            .unwrap_or(Duration::from_secs(10)),
        body_min_rate: section.read("body_min_rate", faults, |f, p| f.rate(p)).unwrap_or(1 << 10),
        request_body,
        body_memory: section
            .read("body_memory", faults, |field, faults| {
                let size = field.size(faults)?;
                // A body is held beside its copy for a provider, or beside what it was compressed.
                if size < 4 * request_body as u64 {
                    faults.push(field.fault("must be at least four times `request_body`"));
                }
                Some(size)
            })
            .map_or((512 << 20).max(4 * request_body), to_usize),
        connections: section
            .read("connections", faults, |f, p| f.whole(p, 1, 1_000_000))
            .map_or(20_000, to_usize),
        connections_per_address: section
            .read("connections_per_address", faults, |f, p| f.whole(p, 1, 1_000_000))
            .map(to_usize),
    };
    section.finish(faults);
    found
}
