//! A provider's refusal on its way out, without what that provider knows us by: careless ones quote it. However it is spelled, a star
//! stands for each byte, so that lengths stay; answers of success are nobody's to change.

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::HttpTask;

use crate::capture::scrub::credentials;
use crate::capture::spelled;
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
    let found: Vec<_> = secrets.flat_map(|secret| spelled::find(&said, secret)).collect();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::routing::provider::Base;
    use crate::secret::Secret;

    #[test]
    fn a_credential_is_masked_in_whatever_spelling() {
        let base = Base { host: "h".into(), port: 1, ..Base::default() };
        let provider = Provider::of_node(base, Some(Secret::new("ab/cd+0123456789".to_owned())), None, Arc::default());
        for said in ["ab/cd+0123456789", r"ab\/cd+0123456789", r"ab\u002fcd\u002B0123456789", r"ab\\\/cd+0123456789"] {
            let all = format!(r#"{{"error":"a\n\/ {said}, {said}"}}"#);
            let masked = bytes(Bytes::from(all.clone()), &provider);
            assert_eq!(masked, all.replace(said, &"*".repeat(said.len())), "{said}");
        }
        let other = Bytes::from_static(br#"{"error":"ab\ncd+0123456789"}"#);
        assert_eq!(bytes(other.clone(), &provider), other);
    }
}
