//! A provider's refusal on its way out, without what that provider knows us by: careless ones quote it. A star stands for each byte,
//! so that lengths stay; answers of success are nobody's to change.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use pingora::protocols::http::HttpTask;

use crate::capture::scrub::credentials;
use crate::routing::provider::Provider;

/// Shorter credentials would be found by chance.
const SHORTEST: usize = 8;

/// The tasks with their bodies in one: a credential may have come in two pieces.
pub(super) fn tasks(tasks: Vec<HttpTask>, provider: &Provider) -> Vec<HttpTask> {
    let (mut out, mut after) = (Vec::new(), Vec::new());
    let (mut said, mut ends) = (BytesMut::new(), false);
    for task in tasks {
        match task {
            HttpTask::Header(..) => out.push(task),
            HttpTask::Body(piece, end) => {
                said.extend_from_slice(&piece.unwrap_or_default());
                ends |= end;
            }
            task => after.push(task),
        }
    }
    if ends || !said.is_empty() {
        out.push(HttpTask::Body((!said.is_empty()).then(|| bytes(said.freeze(), provider)), ends));
    }
    out.extend(after);
    out
}

/// A body, or what is kept of it.
pub(super) fn bytes(said: Bytes, provider: &Provider) -> Bytes {
    let secrets = credentials(provider).into_iter().map(str::as_bytes).filter(|secret| secret.len() >= SHORTEST);
    let found: Vec<_> = secrets.flat_map(|secret| memmem::find_iter(&said, secret).map(|at| at..at + secret.len())).collect();
    if found.is_empty() {
        return said;
    }
    let mut masked = BytesMut::from(said);
    for span in found {
        if let Some(place) = masked.get_mut(span) {
            place.fill(b'*');
        }
    }
    masked.freeze()
}
