//! Reads the section `limits` of the server document: what clients may use.

use std::time::Duration;

use super::diagnostics::Diagnostics;
use super::read::{Field, Section, to_usize};

/// Limits of connections and bodies.
#[derive(Clone)]
pub struct LimitSettings {
    /// Maximum time for the head of a request.
    pub header_timeout: Duration,
    /// Minimum bytes per second of a body; 0: any.
    pub body_min_rate: u64,
    /// Maximum bytes of a request body, after decompression.
    pub request_body: usize,
    /// Maximum bytes of all bodies in memory.
    pub body_memory: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections from one address. Default: a share of `connections`.
    pub connections_per_address: Option<usize>,
}

/// Reads the section `limits`.
pub(super) fn read(top: &mut Section<'_>, faults: &mut Diagnostics) -> LimitSettings {
    let mut section = top.below("limits", faults);
    let body = |field: &Field<'_>, faults: &mut Diagnostics| {
        let size = field.size(faults)?;
        if !(1..=1 << 30).contains(&size) {
            field.reject(faults, "must be from 1 byte to 1GiB", "for example `32MiB`");
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
                // A body is held beside its copy for a provider, or beside its compressed form.
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
