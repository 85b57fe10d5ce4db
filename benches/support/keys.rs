//! Fills a store with keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use rerouter::internals::auth::{Auth, token};
use rerouter::internals::bounds;
use rerouter::internals::id::{KeyId, Random, UserId};
use rerouter::internals::interface::Interface;
use rerouter::internals::secret::{Keyring, Secret, SecretBytes};
use rerouter::internals::store::{Actor, KeyRow, KeyStatus, Store};

/// Keys per transaction while the store is filled.
const BATCH: usize = 5_000;
/// Number of secrets that are kept for look-ups.
pub const SAMPLE: usize = 1_000;

pub fn now() -> Timestamp {
    Timestamp::from_second(1_764_000_000).expect("a time")
}

pub fn auth() -> Auth {
    let keys = Keyring::from(&SecretBytes::new([1; 32]));
    Auth::new(keys, None, Some(Secret::new("cloud")), Duration::from_secs(1_800))
}

pub fn shown(secret: &Secret) -> HeaderMap {
    let line = HeaderValue::from_str(&format!("Bearer {}", secret.expose())).expect("a header");
    HeaderMap::from_iter([(header::AUTHORIZATION, line)])
}

/// Fills a store with keys. Returns some of their secrets.
pub async fn fill(dir: &Path, keys: usize, auth: &Auth) -> Vec<String> {
    let (store, random) = (Store::open(dir).await.expect("a store"), Random::seeded(7));
    let mut sample = Vec::new();
    let mut owner = UserId::new(now(), &random);
    let mut rows = Vec::with_capacity(BATCH);
    for n in 0..keys {
        if n % bounds::KEYS_PER_OWNER == 0 {
            owner = UserId::new(now(), &random);
        }
        let secret = token::mint("agt", &random);
        if n % (keys / SAMPLE).max(1) == 0 && sample.len() < SAMPLE {
            sample.push(secret.expose().to_owned());
        }
        rows.push(row(auth, &secret, &owner, &random));
        if rows.len() == BATCH || n + 1 == keys {
            store.create_keys(std::mem::take(&mut rows)).await.expect("keys");
        }
    }
    sample
}

fn row(auth: &Auth, secret: &Secret, owner: &UserId, random: &Random) -> KeyRow {
    KeyRow {
        id: KeyId::new(now(), random),
        interface: Interface::Agent,
        name: "a key of the bench".into(),
        redacted: token::redact(secret.expose()).into(),
        digest: auth.digest(secret),
        owner: owner.clone(),
        created_by: Actor { kind: "session".into(), id: owner.to_string() }.into(),
        parent: None,
        scopes: vec!["agents".into(), "keys".into()].into(),
        labels: Default::default(),
        limits: Default::default(),
        status: KeyStatus::Active,
        created_at: now(),
        expires_at: None,
        revoked_at: None,
        rotated_at: None,
        generation: 1,
        previous: None,
        made_open: false,
        maker: Some(owner.clone()),
        last_used_at: None,
        metadata: BTreeMap::from([("team".into(), "bench".into())]).into(),
    }
}
