//! Starts with every pair of master keys, and what they leave.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::auth::{Auth, token};
use crate::id::{KeyId, NodeId, UserId};
use crate::interface::Interface;
use crate::nodes::Nodes;
use crate::store::{
    Actor, AuditFilter, DataDir, KeyRow, KeyStatus, NodeModel, NodeRow, PreviousNodeSecret,
    Registration, Store,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_764_000_000 + second).unwrap()
}

fn text(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

fn given(dir: &Path, key: Option<u8>, old: Option<u8>) -> Given {
    let secret = |byte: u8| Secret::new(text(byte));
    Given {
        dir: dir.to_owned(),
        key: key.map(secret),
        old: old.map(secret),
        random: Random::System,
        now: at(0),
    }
}

async fn start(
    dir: &Path,
    key: Option<u8>,
    old: Option<u8>,
) -> Result<(Store, Claimed), BootError> {
    open(dir, given(dir, key, old)).await
}

async fn open(dir: &Path, given: Given) -> Result<(Store, Claimed), BootError> {
    let claim = move |masters: &Masters<'_>| {
        given.claim(masters).map(|claimed| (claimed.keys.documents().clone(), claimed))
    };
    Store::open_in(DataDir::take(dir)?, claim).await
}

fn put(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
    std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

async fn refused(dir: &Path, key: Option<u8>, old: Option<u8>) -> String {
    let before = files(dir).await;
    let Err(error) = start(dir, key, old).await else {
        panic!("it starts with {key:?} and {old:?}")
    };
    assert_eq!(files(dir).await, before, "a start that is refused changes nothing");
    error.to_string()
}

/// Key files, and what the store says of its master keys.
async fn files(dir: &Path) -> (BTreeMap<String, String>, Vec<MasterRow>) {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let keys = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("master"));
    let keys = keys
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect();
    let known =
        |masters: &Masters<'_>| masters.rows().map(|rows| (SecretBytes::new([0; 32]), rows));
    let known = Store::open_in(DataDir::take(dir).unwrap(), known).await;
    (keys, known.unwrap().1)
}

#[tokio::test]
async fn the_master_key_is_made_once_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = start(dir.path(), None, None).await.unwrap();
    let (_, again) = start(dir.path(), None, None).await.unwrap();
    assert_eq!(first.keys.pepper().expose(), again.keys.pepper().expose());
    assert!(!first.changed && !again.changed);
    let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let short = Given { key: Some(Secret::new("short")), ..given(dir.path(), None, None) };
    let wrong = open(dir.path(), short).await;
    assert!(
        wrong.err().unwrap().to_string().contains("REROUTER_MASTER_KEY is not 32 bytes in base64")
    );
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    let lost = refused(dir.path(), None, None).await;
    assert!(lost.contains("is not there") && lost.contains("restore the file"), "{lost}");
}

#[tokio::test]
async fn a_store_goes_over_with_the_one_before_and_with_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Where there is nothing to go over from, the one before counts for nothing.
    drop(start(dir, Some(1), Some(7)).await.unwrap());
    for (key, old, word) in [
        (Some(2), None, "REROUTER_MASTER_KEY_OLD"),
        (Some(2), Some(3), "nothing is changed"),
        (Some(2), Some(2), "nothing is changed"),
        (None, None, "is not there"),
        (None, Some(2), "nothing is changed"),
    ] {
        let told = refused(dir, key, old).await;
        assert!(told.contains(word), "{key:?} {old:?}: {told}");
    }
    // The right one before, and none to go over to: who forgot it is not left with a file that he does not know of.
    let told = refused(dir, None, Some(1)).await;
    assert!(
        told.contains("set REROUTER_MASTER_KEY to a new one") && told.contains("master.key"),
        "{told}"
    );
    let (_, claimed) = start(dir, Some(2), Some(1)).await.unwrap();
    assert!(claimed.changed && claimed.keys.number() == 2);
    for old in [None, Some(1), Some(9)] {
        let (_, claimed) = start(dir, Some(2), old).await.unwrap();
        assert!(!claimed.changed, "the one before is not needed any more: {old:?}");
        assert_eq!(claimed.keys.captures().len(), 2);
        assert_eq!(
            claimed.keys.captures()[1].1.expose(),
            Keyring::from(&SecretBytes::new([1; 32])).captures()[0].1.expose()
        );
    }
    for old in [None, Some(2)] {
        let told = refused(dir, Some(1), old).await;
        assert!(told.contains("gave this master key up for another at 20"), "{told}");
    }
    // On to the third, from which all are reached.
    let (_, claimed) = start(dir, Some(3), Some(2)).await.unwrap();
    let captures: Vec<[u8; 32]> =
        claimed.keys.captures().iter().map(|(_, key)| *key.expose()).collect();
    let expected = [3, 2, 1]
        .map(|byte| *Keyring::from(&SecretBytes::new([byte; 32])).captures()[0].1.expose());
    assert_eq!(captures, expected);
}

#[tokio::test]
async fn files_do_as_well_and_the_next_key_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(start(dir, None, None).await.unwrap());
    let first = std::fs::read_to_string(dir.join(FILE)).unwrap();
    std::fs::rename(dir.join(FILE), dir.join(FILE_OLD)).unwrap();
    // A process that is killed when the file is there and the store has not heard of it.
    let killed = given(dir, None, None);
    let killed = Store::open_in(DataDir::take(dir).unwrap(), move |masters| {
        killed.claim(masters)?;
        Err::<(SecretBytes, ()), _>(BootError("killed".into()))
    });
    assert!(killed.await.is_err());
    let second = std::fs::read_to_string(dir.join(FILE)).unwrap();
    assert_ne!(first, second);
    let alone = Given { key: Some(Secret::new(first.clone())), ..given(dir, None, None) };
    let (store, claimed) = open(dir, alone).await.unwrap();
    assert!(!claimed.changed, "the one before alone opens it still");
    drop(store);
    let (store, claimed) = start(dir, None, None).await.unwrap();
    assert!(claimed.changed);
    drop(store);
    assert_eq!(
        std::fs::read_to_string(dir.join(FILE)).unwrap(),
        second,
        "the one that was made is taken"
    );
    put(dir, FILE_OLD, "no key at all");
    assert!(
        !start(dir, None, None).await.unwrap().1.changed,
        "what is not needed is not looked at"
    );
    std::fs::rename(dir.join(FILE), dir.join("aside")).unwrap();
    let told = refused(dir, None, None).await;
    assert!(told.contains("master.key.old does not hold 32 bytes"), "{told}");
}

fn key(auth: &Auth, owner: &UserId, secret: &Secret) -> KeyRow {
    KeyRow {
        id: KeyId::new(at(0), &Random::System),
        interface: Interface::Router,
        name: "ci".into(),
        redacted: token::redact(secret.expose()),
        digest: auth.digest(secret),
        pepper: auth.pepper(),
        owner: owner.clone(),
        created_by: Actor { kind: "admin_key".into(), id: "usr_admin".into() },
        parent: None,
        scopes: vec!["inference".into()],
        labels: BTreeMap::new(),
        limits: Default::default(),
        status: KeyStatus::Active,
        created_at: at(0),
        expires_at: None,
        revoked_at: None,
        rotated_at: None,
        generation: 1,
        previous: None,
        made_open: false,
        maker: None,
        last_used_at: None,
        metadata: Default::default(),
    }
}

#[tokio::test]
async fn the_one_before_in_the_environment_and_the_new_one_in_a_file_are_a_pair() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(start(dir, Some(1), None).await.unwrap());
    put(dir, FILE, &text(2));
    let (_, claimed) = start(dir, None, Some(1)).await.unwrap();
    assert!(claimed.changed);
    assert_eq!(std::fs::read_to_string(dir.join(FILE)).unwrap(), text(2));
}

/// Which of the variable and the file is taken, and that nobody is left to guess why one is not.
#[tokio::test]
async fn where_the_variable_is_set_the_file_is_not_looked_at_and_named_where_it_is_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, FILE, &text(1));
    // A new store is made with the variable's.
    drop(start(dir, Some(2), None).await.unwrap());
    assert_eq!(std::fs::read_to_string(dir.join(FILE)).unwrap(), text(1));
    for wrong in [text(1), "no key at all".to_owned()] {
        put(dir, FILE, &wrong);
        assert!(!start(dir, Some(2), None).await.unwrap().1.changed);
        assert!(start(dir, None, None).await.is_err(), "alone it is looked at");
    }
    put(dir, FILE, &text(2));
    let told = refused(dir, Some(3), None).await;
    assert!(
        told.contains("the store has the master key of")
            && told.contains("take the variable out of the environment"),
        "{told}"
    );
    assert!(!start(dir, None, None).await.unwrap().1.changed);
    std::fs::rename(dir.join(FILE), dir.join(FILE_OLD)).unwrap();
    assert!(start(dir, Some(3), None).await.unwrap().1.changed, "as it was told");
}

/// What is wrong with a file is found before a store is made, or changed, and a start without the file makes no other.
#[tokio::test]
async fn a_file_that_is_no_key_stops_a_start_which_leaves_everything_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, FILE, "short");
    for _ in 0..2 {
        let told = start(dir, None, None).await.err().unwrap().to_string();
        assert!(told.contains("does not hold 32 bytes in base64"), "{told}");
        assert_eq!(
            files(dir).await,
            ([(FILE.to_owned(), "short".to_owned())].into(), Vec::new()),
            "no store was begun"
        );
    }
    std::fs::remove_file(dir.join(FILE)).unwrap();
    std::os::unix::fs::symlink(dir.join("not mounted"), dir.join(FILE)).unwrap();
    let told = start(dir, None, None).await.err().unwrap().to_string();
    assert!(told.contains("a link to what is not there"), "{told}");
    assert!(
        dir.join(FILE).is_symlink() && !dir.join("not mounted").exists(),
        "nothing is made in its place"
    );
    std::fs::remove_file(dir.join(FILE)).unwrap();
    drop(start(dir, Some(1), None).await.unwrap());
    put(dir, FILE, &text(2));
    std::fs::set_permissions(dir.join(FILE), std::fs::Permissions::from_mode(0o646)).unwrap();
    let told = refused(dir, None, Some(1)).await;
    assert!(told.contains("chmod 600"), "{told}");
}

#[tokio::test]
async fn a_change_is_in_the_audit_and_a_start_that_changes_nothing_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(start(dir, Some(1), None).await.unwrap());
    drop(start(dir, Some(1), None).await.unwrap());
    refused(dir, Some(2), Some(3)).await;
    drop(start(dir, Some(2), Some(1)).await.unwrap());
    drop(start(dir, Some(2), Some(1)).await.unwrap());
    let (store, _) = start(dir, Some(3), Some(2)).await.unwrap();
    let rows = store.audit(AuditFilter::default(), 10, None).await.unwrap().unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.action.as_str(), row.target.kind.as_str(), row.target.id.as_str()))
        .collect();
    assert_eq!(
        seen,
        [("master_key.change", "master_key", "3"), ("master_key.change", "master_key", "2")]
    );
    for row in &rows {
        assert_eq!(
            (row.actor.kind.as_str(), row.actor.id.as_str(), row.at),
            ("operator", "operator", at(0))
        );
        assert_eq!((&row.request, &row.address), (&None, &None));
    }
    // As an admin's doing it leaves last.
    assert_eq!(store.trim_audit(at(0), 2).await.unwrap(), 0);
    let shown = format!("{rows:?}");
    for byte in 1..=3 {
        assert!(!shown.contains(&text(byte)) && !shown.contains(&text(byte)[..20]), "{shown}");
    }
}

#[tokio::test]
async fn so_many_peppers_and_no_more_while_keys_are_known_by_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut ids = Vec::new();
    let most = u8::try_from(bounds::PEPPERS).unwrap();
    for byte in 1..=most {
        let (store, claimed) =
            start(dir, Some(byte), byte.checked_sub(1).filter(|old| *old > 0)).await.unwrap();
        assert_eq!(claimed.keys.older_peppers().count() + 1, usize::from(byte));
        let auth = Auth::new(&claimed.keys, None, None, std::time::Duration::from_secs(60));
        let row = key(&auth, &UserId::admin(), &token::mint("rtr", &Random::System));
        assert_eq!(row.pepper, u32::from(byte));
        ids.push(row.id.clone());
        store.create_key(row).await.unwrap();
    }
    let told = refused(dir, Some(most + 1), Some(most)).await;
    assert!(
        told.contains("4 keys and 0 sessions")
            && told.contains("1 keys and 0 sessions of them by the first"),
        "{told}"
    );
    let (store, _) = start(dir, Some(most), None).await.unwrap();
    store.revoke_key(&ids[1], at(1)).await.unwrap();
    drop(store);
    let (_, claimed) = start(dir, Some(most + 1), Some(most)).await.unwrap();
    let older: Vec<u32> = claimed.keys.older_peppers().map(|(number, _)| number).collect();
    assert_eq!(older, [4, 3, 1], "the pepper that nothing is known by is left out");
    assert_eq!(claimed.keys.captures().len(), usize::from(most) + 1, "its captures are not");
}

#[tokio::test]
async fn secrets_of_nodes_go_over_and_one_that_does_not_open_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (store, claimed) = start(dir, Some(1), None).await.unwrap();
    let (nodes, random) = (Nodes::new(&claimed.keys), Random::System);
    let enrolled = |name: &str| {
        let id = NodeId::new(at(0), &random);
        NodeRow {
            name: name.into(),
            models: vec!["*".into()],
            endpoint: None,
            generation: 1,
            secret: nodes.seal_secret(&id, 1, &Secret::new("one"), &random).unwrap(),
            previous: None,
            created_at: at(0),
            rotated_at: None,
            registration: None,
            id,
        }
    };
    let (sound, broken) =
        (enrolled("sound"), NodeRow { secret: vec![7; 60], ..enrolled("broken") });
    store.create_node(sound.clone()).await.unwrap();
    store.create_node(broken.clone()).await.unwrap();
    let next = NodeRow {
        generation: 2,
        secret: nodes.seal_secret(&sound.id, 2, &Secret::new("two"), &random).unwrap(),
        previous: Some(PreviousNodeSecret { secret: sound.secret.clone(), expires_at: at(600) }),
        ..sound.clone()
    };
    store.rotate_node(next).await.unwrap();
    let registration = Registration {
        epoch: 1,
        at_us: 0,
        signed_s: 0,
        ended: false,
        version: "1".into(),
        endpoint: "http://192.0.2.1:8000".into(),
        api_key: nodes.seal_key(&sound.id, &Secret::new("wanted"), &random),
        models: vec![NodeModel { id: "m".into(), context: None, capabilities: None }],
        max_concurrency: None,
        labels: BTreeMap::new(),
    };
    store.register_node(&sound.id, registration).await.unwrap();
    let before = store.load().await.unwrap();
    drop(store);

    let (store, claimed) = start(dir, Some(2), Some(1)).await.unwrap();
    let after = store.load().await.unwrap();
    assert_eq!((after.rev, after.nodes.len()), (before.rev, 2));
    assert!(after.nodes.contains(&broken));
    let moved = after.nodes.iter().find(|node| node.id == sound.id).unwrap();
    assert!(!before.nodes.contains(moved), "it is sealed anew");
    let nodes = Nodes::new(&claimed.keys);
    nodes.load(after.nodes.clone());
    assert!(
        nodes.takes(&sound.id, 1, at(599))
            && nodes.takes(&sound.id, 2, at(599))
            && !nodes.takes(&sound.id, 1, at(600))
    );
    assert!(!nodes.takes(&broken.id, 1, at(0)));
    assert_eq!(
        nodes.places(),
        [("192.0.2.1".to_owned(), 8000)],
        "what it wants to be shown opens too"
    );
    let under_the_first = Nodes::new(&SecretBytes::new([1; 32]));
    under_the_first.load(after.nodes);
    assert!(!under_the_first.takes(&sound.id, 2, at(0)) && under_the_first.places().is_empty());
}

#[tokio::test]
async fn texts_of_documents_go_over() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (store, _) = start(dir, Some(1), None).await.unwrap();
    store.keep_document("0123456789ab", "first", at(1)).await.unwrap();
    store.keep_document("ba9876543210", "second", at(2)).await.unwrap();
    drop(store);
    for (key, old) in [(Some(2), Some(1)), (Some(2), None), (Some(3), Some(2))] {
        let (store, _) = start(dir, key, old).await.unwrap();
        assert_eq!(store.document("0123456789ab").await.unwrap().as_deref(), Some("first"));
        assert_eq!(store.live_document().await.unwrap().as_deref(), Some("second"));
    }
}
