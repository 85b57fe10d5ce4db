//! The archive of captures over the store: heads as JSON, bodies sealed with AES-256-GCM under a key of their own, bound
//! to the capture's id. The interface that any other keeping of captures will take.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Bodies, Capture, Head};
use super::scrub;
use crate::error::Error;
use crate::id::{Random, RequestId, UserId};
use crate::secret::{self, SecretBytes};
use crate::store::{CaptureFilter, CaptureRow, Store, StoreError};

/// First byte of kept bodies: sealed, or in clear where the server document says so.
const SEALED: u8 = 1;
/// See [`SEALED`].
const CLEAR: u8 = 0;
/// First byte of a sealed text: this layout (request length, response length, both bodies).
const FRAME: u8 = 1;
/// The frame byte and two lengths.
const FRAME_HEAD: usize = 17;

/// Where captures are kept. Cloning is cheap.
#[derive(Clone)]
pub struct Archive {
    store: Store,
    key: SecretBytes,
    random: Random,
    encrypt: bool,
}

impl Archive {
    /// An archive in `store`, its key derived from the master key. `encrypt` concerns what is written from now on;
    /// either kind is read.
    pub fn new(store: Store, master: &SecretBytes, random: Random, encrypt: bool) -> Self {
        Archive { store, key: secret::derive(master, "rerouter capture key v1"), random, encrypt }
    }

    /// Keeps a batch, all or none, and tells how many that is: one that cannot be sealed is left out.
    pub async fn append(&self, captures: Arc<Vec<Capture>>) -> Result<usize, StoreError> {
        let archive = self.clone();
        // Sealing megabytes takes milliseconds that belong to requests.
        let sealed = tokio::task::spawn_blocking(move || captures.iter().filter_map(|capture| archive.seal(capture)).collect());
        let rows: Vec<CaptureRow> = sealed.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let count = rows.len();
        self.store.append_captures(rows).await.map(|()| count)
    }

    /// Heads, newest first, older than `after`, up to `limit`.
    pub async fn list(&self, filter: CaptureFilter, limit: usize, after: Option<RequestId>) -> Result<Vec<Head>, Error> {
        let rows = self.store.list_captures(filter, limit, after).await.map_err(Error::store_unavailable)?;
        rows.iter().map(|(id, head)| read_head(id, head)).collect()
    }

    /// One capture, whole.
    pub async fn get(&self, id: &RequestId) -> Result<Option<Capture>, Error> {
        let Some(row) = self.store.capture(id).await.map_err(Error::store_unavailable)? else { return Ok(None) };
        let head = read_head(&row.id, &row.head)?;
        let bodies = match &row.bodies {
            None => Bodies::default(),
            Some(kept) => self.unseal(&row.id, kept).ok_or_else(|| Error::internal(format!("bodies of {id} do not open")))?,
        };
        Ok(Some(Capture { head, bodies }))
    }

    /// Whose a capture is, if it is there.
    pub async fn owner(&self, id: &RequestId) -> Result<Option<UserId>, Error> {
        self.store.capture_owner(id).await.map_err(Error::store_unavailable)
    }

    /// Deletes a capture, and its replays with theirs if so asked. Durable and unreadable when it returns. Gives the
    /// replays that went.
    pub async fn delete(&self, id: &RequestId, replays: bool) -> Result<Vec<RequestId>, Error> {
        self.store.delete_capture(id, replays).await.map_err(Error::store_unavailable)
    }

    fn unseal(&self, id: &RequestId, kept: &[u8]) -> Option<Bodies> {
        let plain = match kept.split_first()? {
            (&SEALED, sealed) => secret::open(&self.key, id.as_str().as_bytes(), sealed)?,
            (&CLEAR, plain) => plain.to_vec(),
            _ => return None,
        };
        unframe(&Bytes::from(plain))
    }

    fn seal(&self, capture: &Capture) -> Option<CaptureRow> {
        let mut head = capture.head.clone();
        let (request, redacted) = if head.request_captured {
            let scrubbed = scrub::scrub_body(&capture.bodies.request);
            (scrubbed.body, scrubbed.redacted)
        } else {
            (Bytes::new(), false)
        };
        head.redacted |= redacted;
        let bodies = if request.is_empty() && capture.bodies.response.is_empty() {
            None
        } else {
            let mut kept = vec![if self.encrypt { SEALED } else { CLEAR }];
            let plain = frame(&request, &capture.bodies.response);
            kept.extend(if self.encrypt { secret::seal(&self.key, head.id.as_str().as_bytes(), &plain, &self.random)? } else { plain });
            Some(kept)
        };
        let decision = head.decision.as_ref();
        Some(CaptureRow {
            created_at_us: head.created_at.as_microsecond(),
            owner: head.owner.clone(),
            key: head.key.clone(),
            alias: decision.and_then(|decision| decision.alias.clone()),
            recipe: decision.map(|decision| decision.recipe.clone()),
            provider: head.served.as_ref().map(|served| served.provider.to_string()),
            model: head.served.as_ref().map(|served| served.model.to_string()),
            decided_provider: decision.map(|decision| decision.provider.clone()),
            decided_model: decision.map(|decision| decision.model.clone()),
            status: head.status,
            state: head.state.as_str().to_owned(),
            replay_of: head.replay_of.clone(),
            shadow_of: head.shadow_of.clone(),
            head: serde_json::to_vec(&head).ok()?,
            bodies,
            id: head.id,
        })
    }
}

fn read_head(id: &RequestId, head: &[u8]) -> Result<Head, Error> {
    let read = serde_json::from_slice::<Head>(head).map_err(|error| Error::internal(format!("head of {id}: {error}")))?;
    if read.version > Head::VERSION {
        return Err(Error::internal(format!("head of {id} has version {}, written by a newer build", read.version)));
    }
    Ok(read)
}

fn frame(request: &[u8], response: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEAD + request.len() + response.len());
    out.push(FRAME);
    out.extend_from_slice(&(request.len() as u64).to_be_bytes());
    out.extend_from_slice(&(response.len() as u64).to_be_bytes());
    out.extend_from_slice(request);
    out.extend_from_slice(response);
    out
}

/// Reads what [`frame`] wrote; `None` unless every byte is accounted for.
fn unframe(plain: &Bytes) -> Option<Bodies> {
    let (&version, rest) = plain.split_first()?;
    let (request, rest) = rest.split_first_chunk::<8>()?;
    let (response, rest) = rest.split_first_chunk::<8>()?;
    let request = usize::try_from(u64::from_be_bytes(*request)).ok()?;
    let response = usize::try_from(u64::from_be_bytes(*response)).ok()?;
    if version != FRAME || request.checked_add(response)? != rest.len() {
        return None;
    }
    let middle = FRAME_HEAD + request;
    Some(Bodies { request: plain.slice(FRAME_HEAD..middle), response: plain.slice(middle..) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::tests::capture;
    use super::*;

    async fn archive(dir: &tempfile::TempDir) -> Archive {
        let store = Store::open(dir.path(), b"fingerprint").await.unwrap();
        Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true)
    }

    #[tokio::test]
    async fn captures_come_back_whole_and_lie_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(&dir).await;
        let (owner, random) = (UserId::known("usr_1"), Random::seeded(1));
        let (first, mut second) = (capture(0, &owner, &random), capture(1, &owner, &random));
        second.bodies.request = Bytes::from_static(br#"{"model":"auto","tools":[{"authorization":"canary-mcp"}],"text":"canary-prompt"}"#);
        assert_eq!(archive.append(Arc::new(vec![first.clone(), second.clone()])).await.unwrap(), 2);
        assert_eq!(archive.get(&first.head.id).await.unwrap().as_ref(), Some(&first));
        let read = archive.get(&second.head.id).await.unwrap().unwrap();
        assert!(read.head.redacted && std::str::from_utf8(&read.bodies.request).unwrap().contains("canary-prompt"));
        let heads = archive.list(CaptureFilter::default(), 10, None).await.unwrap();
        assert_eq!(heads.iter().map(|head| &head.id).collect::<Vec<_>>(), [&second.head.id, &first.head.id]);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(memchr::memmem::find(&bytes, b"canary").is_none());
        }
    }

    #[tokio::test]
    async fn what_lies_in_the_clear_reads_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let sealing = archive(&dir).await;
        let clear = Archive { encrypt: false, ..sealing.clone() };
        let (owner, random) = (UserId::known("usr_1"), Random::seeded(1));
        let (first, second) = (capture(0, &owner, &random), capture(1, &owner, &random));
        clear.append(Arc::new(vec![first.clone()])).await.unwrap();
        sealing.append(Arc::new(vec![second.clone()])).await.unwrap();
        let stored = clear.store.capture(&first.head.id).await.unwrap().unwrap().bodies.unwrap();
        assert!(memchr::memmem::find(&stored, &first.bodies.request).is_some());
        assert_eq!(sealing.get(&first.head.id).await.unwrap(), Some(first));
        assert_eq!(clear.get(&second.head.id).await.unwrap(), Some(second));
    }

    #[tokio::test]
    async fn what_is_damaged_or_under_another_id_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(&dir).await;
        let (owner, random) = (UserId::known("usr_1"), Random::seeded(1));
        let mut row = archive.seal(&capture(0, &owner, &random)).unwrap();
        row.id = RequestId::known("req_other");
        let mut newer = archive.seal(&capture(1, &owner, &random)).unwrap();
        newer.head = String::from_utf8(newer.head).unwrap().replace("\"version\":1,\"id\"", "\"version\":2,\"id\"").into_bytes();
        let ids = [row.id.clone(), newer.id.clone()];
        archive.store.append_captures(vec![row, newer]).await.unwrap();
        for id in ids {
            assert_eq!(archive.get(&id).await.unwrap_err().status().as_u16(), 500, "{id}");
        }
        assert_eq!(archive.get(&RequestId::known("req_none")).await.unwrap(), None);
    }

    proptest! {
        #[test]
        fn frames_read_back_and_nothing_else_does(request: Vec<u8>, response: Vec<u8>, noise: Vec<u8>) {
            let plain = Bytes::from(frame(&request, &response));
            let bodies = Bodies { request: request.into(), response: response.into() };
            prop_assert_eq!(unframe(&plain), Some(bodies));
            prop_assert_eq!(unframe(&plain.slice(..plain.len() - 1)), None);
            prop_assert_eq!(unframe(&Bytes::from([&plain[..], &[0]].concat())), None);
            let _ = unframe(&Bytes::from(noise));
        }

        #[test]
        fn a_bent_seal_does_not_open(at: prop::sample::Index, bit in 0u8..8) {
            let key = SecretBytes::new([1; 32]);
            let mut sealed = secret::seal(&key, b"req_1", &frame(b"request", b"response"), &Random::System).unwrap();
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(secret::open(&key, b"req_1", &sealed), None);
        }
    }
}
