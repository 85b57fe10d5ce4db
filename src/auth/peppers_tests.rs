//! Secrets under more than one pepper, as a start after a change of the master key has them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::auth::tests::{World, at, bearer, cookie};
use crate::auth::*;
use crate::id::SessionId;
use crate::interface::{Interface, Surface};
use crate::secret::{Secret, SecretBytes};
use crate::store::{Change, Faults, KeyRow, KeyStatus, PreviousSecret, SessionRow};

const IDLE: Duration = Duration::from_secs(1800);

fn first() -> Keyring {
    Keyring::from(&SecretBytes::new([1; 32]))
}

fn second() -> Keyring {
    Keyring::new(&SecretBytes::new([2; 32]), 2, first().retired())
}

fn auth(keys: &Keyring) -> Auth {
    Auth::new(keys, Some(Secret::new("operator")), Some(Secret::new("cloud")), IDLE)
}

/// A store with what the first master key's time left in it, and the tables of a start under the second.
struct After {
    world: World,
    store: Store,
    _dir: tempfile::TempDir,
}

impl After {
    async fn a_change(make: impl AsyncFnOnce(&mut World, &Store)) -> After {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), b"master").await.unwrap();
        let mut world = World::of(auth(&first()));
        store.create_user(world.user.clone()).await.unwrap();
        make(&mut world, &store).await;
        world.auth = auth(&second());
        world.auth.attach(&store).await.unwrap();
        After { world, store, _dir: dir }
    }

    fn due(&self) -> usize {
        self.world.auth.0.peppers.due.len()
    }

    async fn stored(&self, id: &KeyId) -> KeyRow {
        self.store.load().await.unwrap().keys.into_iter().find(|key| key.id == *id).unwrap()
    }
}

async fn a_key(world: &World, store: &Store, interface: Interface) -> (Secret, KeyRow) {
    let secret = token::mint(interface.key_prefix(), &world.random);
    let row = world.row(interface, &secret);
    store.create_key(row.clone()).await.unwrap();
    (secret, row)
}

fn left(keys: u64, sessions: u64) -> Left {
    Left { keys, sessions }
}

#[tokio::test]
async fn keys_of_every_interface_stay_good_and_move_when_they_are_used() {
    let mut keys = Vec::new();
    let after = After::a_change(async |world, store| {
        for interface in Interface::ALL {
            keys.push(a_key(world, store, interface).await);
        }
    })
    .await;
    let surfaces = [Surface::Pin, Surface::Agent, Surface::DataPlane];
    for ((secret, row), interface) in keys.iter().zip(Interface::ALL) {
        for surface in surfaces {
            let expected = match (surface.interface() == interface, interface) {
                (true, Interface::Agent) => "AgentKey",
                (true, _) => "Key",
                (false, _) => "unknown",
            };
            for _ in 0..2 {
                assert_eq!(
                    after.world.who(surface, &[bearer(secret.expose())], 1),
                    expected,
                    "{interface:?} on {surface:?}"
                );
            }
        }
        assert_eq!(after.stored(&row.id).await.pepper, 1, "nothing waits for the store");
    }
    assert_eq!((after.due(), after.world.auth.unmoved(at(1))), (3, left(3, 0)));
    after.world.auth.move_due(&after.store).await.unwrap();
    assert_eq!((after.due(), after.world.auth.unmoved(at(1))), (0, left(0, 0)));
    for (secret, row) in &keys {
        let digest = after.world.auth.digest(secret);
        assert_eq!(after.stored(&row.id).await, KeyRow { digest, pepper: 2, ..row.clone() });
        let surface =
            surfaces.into_iter().find(|surface| surface.interface() == row.interface).unwrap();
        assert!(["Key", "AgentKey"].contains(&after.world.who(
            surface,
            &[bearer(secret.expose())],
            2
        )));
    }
    assert_eq!(after.due(), 0, "what has moved is found at once");
    after.world.auth.forget_peppers(&after.store, at(3)).await.unwrap();
    assert!(after.world.auth.0.peppers.older.load().is_empty());
    assert_eq!(after.world.who(Surface::Pin, &[bearer("operator")], 3), "Admin");
    assert_eq!(after.world.who(Surface::Agent, &[bearer("cloud")], 3), "CloudKey");
    assert_eq!(
        after.world.who(
            Surface::DataPlane,
            &[bearer(token::mint("rtr", &after.world.random).expose())],
            3
        ),
        "unknown"
    );
}

#[tokio::test]
async fn what_may_not_come_in_does_not_and_stays_as_it_is() {
    let mut keys = BTreeMap::new();
    let after = After::a_change(async |world, store| {
        for name in ["revoked", "inactive", "expired", "replaced", "killed"] {
            let secret = token::mint("rtr", &world.random);
            let row = world.row(Interface::Router, &secret);
            let row = match name {
                "revoked" => KeyRow { revoked_at: Some(at(0)), ..row },
                "inactive" => KeyRow { status: KeyStatus::Inactive, ..row },
                "expired" => KeyRow { expires_at: Some(at(1)), ..row },
                "replaced" => {
                    let previous =
                        PreviousSecret { digest: row.digest, pepper: 1, expires_at: at(1) };
                    KeyRow { digest: [3; 32], previous: Some(previous), ..row }
                }
                _ => row,
            };
            store.create_key(row.clone()).await.unwrap();
            keys.insert(name, (secret, row));
        }
    })
    .await;
    after.world.auth.kill(&keys["killed"].1.id);
    for (name, (secret, row)) in &keys {
        let reason = match *name {
            "killed" => "revoked",
            "replaced" => "expired",
            other => other,
        };
        assert_eq!(
            after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 2),
            reason,
            "{name}"
        );
        assert!(after.stored(&row.id).await == *row, "{name}");
    }
    assert_eq!(after.due(), 0);
    // The one that is inactive may be switched on, and the secret after the replaced one is by the old pepper too.
    after.world.auth.forget_peppers(&after.store, at(2)).await.unwrap();
    assert_eq!(after.world.auth.0.keys.of_older(at(2)), BTreeMap::from([(1, 2)]));
    assert_eq!(after.world.auth.unmoved(at(2)), left(2, 0), "what has ended needs no pepper");
    assert!(!after.world.auth.0.peppers.older.load().is_empty());
    for name in ["inactive", "replaced", "killed"] {
        after.world.auth.revoke(&after.store, &keys[name].1.id, at(2)).await.unwrap();
    }
    after.world.auth.forget_peppers(&after.store, at(2)).await.unwrap();
    assert!(after.world.auth.0.peppers.older.load().is_empty());
    assert_eq!(after.store.known_by_pepper(1, at(2)).await.unwrap(), left(0, 0));
}

#[tokio::test]
async fn a_secret_within_its_grace_moves_as_the_one_after_it_does() {
    let mut kept = None;
    let after = After::a_change(async |world, store| {
        let [old, new] = [0; 2].map(|_| token::mint("rtr", &world.random));
        let row = world.row(Interface::Router, &new);
        let previous =
            Some(PreviousSecret { digest: world.auth.digest(&old), pepper: 1, expires_at: at(60) });
        let row = KeyRow { previous, ..row };
        store.create_key(row.clone()).await.unwrap();
        kept = Some((old, new, row));
    })
    .await;
    let (old, new, row) = kept.unwrap();
    for secret in [&old, &new] {
        assert_eq!(after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "Key");
        after.world.auth.move_due(&after.store).await.unwrap();
        assert_eq!(after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "Key");
    }
    let (stored, digest) =
        (after.stored(&row.id).await, |secret: &Secret| after.world.auth.digest(secret));
    let previous = stored.previous.unwrap();
    assert_eq!(
        (stored.digest, stored.pepper, previous.digest, previous.pepper),
        (digest(&new), 2, digest(&old), 2)
    );
    assert_eq!(after.world.who(Surface::DataPlane, &[bearer(old.expose())], 60), "expired");
    assert_eq!(after.world.auth.unmoved(at(2)), left(0, 0));
}

#[tokio::test]
async fn sessions_stay_and_each_of_their_secrets_moves_when_it_is_shown() {
    let mut kept = None;
    let after = After::a_change(async |world, store| {
        let [crumb, token] = [0; 2].map(|_| token::mint("ses", &world.random));
        let row = SessionRow {
            id: SessionId::new(at(0), &world.random),
            user: world.user.id.clone(),
            cookie_digest: world.auth.digest(&crumb),
            cookie_pepper: 1,
            token_digest: world.auth.digest(&token),
            token_pepper: 1,
            created_at: at(0),
            expires_at: at(50_000),
            last_seen: at(0),
        };
        store.create_session(row.clone(), world.user.password.clone(), 20).await.unwrap();
        kept = Some((crumb, token, row));
    })
    .await;
    let (crumb, token, row) = kept.unwrap();
    let auth = &after.world.auth;
    assert_eq!(after.world.who(Surface::Pin, &[cookie(&token)], 1), "unknown");
    assert_eq!(after.world.who(Surface::Pin, &[bearer(crumb.expose())], 1), "unknown");
    assert_eq!(after.due(), 0);
    assert_eq!(after.world.who(Surface::Pin, &[cookie(&crumb)], 1700), "Session");
    auth.move_due(&after.store).await.unwrap();
    assert_eq!(auth.unmoved(at(1700)), left(0, 1), "the token is still to come");
    // What is in memory of the session outlives the move: neither that it was seen nor that the store is to hear of it is lost.
    assert_eq!(after.world.who(Surface::Pin, &[bearer(token.expose())], 1900), "Session");
    auth.move_due(&after.store).await.unwrap();
    assert_eq!(auth.0.sessions.unsaved(IDLE, at(1900)).0, [(row.id.clone(), at(1900))]);
    assert_eq!(
        (auth.unmoved(at(1900)), after.world.who(Surface::Pin, &[cookie(&crumb)], 2000)),
        (left(0, 0), "Session")
    );
    after.store.end_session(&row.id).await.unwrap();
    for shown in [cookie(&crumb), bearer(token.expose())] {
        assert_eq!(after.world.who(Surface::Pin, &[shown], 2001), "unknown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_use_is_refused_while_its_digest_moves() {
    let mut keys = Vec::new();
    let after = After::a_change(async |world, store| {
        for _ in 0..bounds::KEYS_PER_OWNER {
            keys.push(a_key(world, store, Interface::Router).await.0);
        }
    })
    .await;
    let (auth, over) = (after.world.auth.clone(), Arc::new(AtomicBool::new(false)));
    let uses: Vec<_> = (0..2)
        .map(|_| {
            let (auth, over) = (auth.clone(), Arc::clone(&over));
            let lines: Vec<HeaderMap> = keys
                .iter()
                .map(|secret| {
                    HeaderMap::from_iter([(
                        http::header::AUTHORIZATION,
                        bearer(secret.expose()).1.parse().unwrap(),
                    )])
                })
                .collect();
            std::thread::spawn(move || {
                let mut refused = 0;
                while !over.load(Ordering::Acquire) {
                    refused += lines
                        .iter()
                        .filter(|line| {
                            auth.identify(line, Surface::DataPlane, false, at(1)).is_err()
                        })
                        .count();
                }
                refused
            })
        })
        .collect();
    let gone = async {
        while !auth.0.peppers.older.load().is_empty() {
            auth.move_due(&after.store).await.unwrap();
            auth.forget_peppers(&after.store, at(1)).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    over.store(true, Ordering::Release);
    let refused: usize = uses.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(refused, 0);
}

#[test]
fn a_secret_that_moves_between_two_looks_is_found_by_the_third() {
    let (auth, looks) = (auth(&second()), Mutex::new(Vec::new()));
    let digest = auth.digest(&Secret::new("s"));
    let look_until = |hit: usize| {
        looks.lock().unwrap().clear();
        auth.known("s", &digest, Shown::Token, |digest| {
            let mut looks = looks.lock().unwrap();
            looks.push(*digest);
            if looks.len() == hit { Ok(Principal::Admin) } else { Err(UNKNOWN) }
        })
    };
    let old = token::Pepper::new(first().pepper()).digest("s");
    for (hit, expected) in [(1, &[digest][..]), (2, &[digest, old]), (3, &[digest, old, digest])] {
        assert!(look_until(hit).is_ok());
        assert_eq!(*looks.lock().unwrap(), expected);
    }
    assert_eq!((look_until(4).unwrap_err(), looks.lock().unwrap().len()), (UNKNOWN, 3));
    auth.0.peppers.forget(1);
    assert_eq!(
        (look_until(2).unwrap_err(), looks.lock().unwrap().len()),
        (UNKNOWN, 1),
        "without another pepper one look is all"
    );
}

#[tokio::test]
async fn what_the_store_did_not_take_is_tried_again() {
    let mut kept = None;
    let after = After::a_change(async |world, store| {
        kept = Some(a_key(world, store, Interface::Router).await)
    })
    .await;
    let (secret, row) = kept.unwrap();
    let faults = Faults::default();
    let failing = after.store.clone().with_faults(faults.clone());
    faults.fail_every_write();
    let keeper = {
        let (auth, store, clock) = (after.world.auth.clone(), failing, Clock::manual(at(1)));
        tokio::spawn(async move { auth.keep_moving(&store, &clock).await })
    };
    assert_eq!(after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "Key");
    after.world.auth.move_due(&after.store.clone().with_faults(faults.clone())).await.unwrap_err();
    assert_eq!((after.due(), after.stored(&row.id).await.pepper), (1, 1));
    assert_eq!(after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "Key");
    faults.clear();
    tokio::time::timeout(Duration::from_secs(20), keeper)
        .await
        .expect("it ends when nothing is left")
        .unwrap();
    assert_eq!(after.stored(&row.id).await.pepper, 2);
}

#[tokio::test]
async fn peppers_go_one_by_one() {
    let mut keys = Vec::new();
    let mut after = After::a_change(async |world, store| {
        keys.push(a_key(world, store, Interface::Router).await)
    })
    .await;
    keys.push(a_key(&after.world, &after.store, Interface::Router).await);
    assert_eq!(keys[1].1.pepper, 2);
    let third = Keyring::new(&SecretBytes::new([3; 32]), 3, second().retired());
    after.world.auth = auth(&third);
    after.world.auth.load(after.store.load().await.unwrap());
    for (secret, row) in &keys {
        assert_eq!(
            after.world.who(Surface::DataPlane, &[bearer(secret.expose())], 1),
            "Key",
            "pepper {}",
            row.pepper
        );
    }
    assert_eq!(after.due(), 2);
    after.world.auth = auth(&third);
    after.world.auth.load(after.store.load().await.unwrap());
    after.world.who(Surface::DataPlane, &[bearer(keys[0].0.expose())], 1);
    let committed = after
        .store
        .move_digests(
            after.world.auth.0.peppers.due.iter().map(|due| due.value().clone()).collect(),
        )
        .await
        .unwrap();
    assert!(matches!(committed.changes.as_slice(), [Change::Key(_)]));
    after.world.auth.apply(&committed);
    after.world.auth.forget_peppers(&after.store, at(1)).await.unwrap();
    assert_eq!(
        after.world.auth.0.peppers.older_numbers(),
        BTreeSet::from([2]),
        "the first is not needed, the second is"
    );
}
