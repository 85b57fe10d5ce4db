//! Starts with every pair of master keys, and the state that they leave.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use rerouter_base::clock::fixtures::at;
use rerouter_base::secret::Purpose;
use rerouter_store::{AuditFilter, DataDir, Store};

fn text(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

fn given(dir: &Path, key: Option<u8>, old: Option<u8>) -> MasterKeys {
    let secret = |byte: u8| Secret::new(text(byte));
    MasterKeys {
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
) -> Result<(Store, Unlocked), BootError> {
    open(dir, given(dir, key, old)).await
}

async fn open(dir: &Path, keys: MasterKeys) -> Result<(Store, Unlocked), BootError> {
    let unlock = move |opening: &Opening<'_>| {
        let unlocked = keys.unlock(opening)?;
        Ok((unlocked.keys.derive(Purpose::Documents, b""), unlocked))
    };
    Store::open_in(DataDir::take(dir)?, unlock).await
}

/// A derived key, to compare root keys: it is equal only if they are.
fn derived(unlocked: &Unlocked) -> [u8; 32] {
    *unlocked.keys.derive(Purpose::Digests, b"").expose()
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
    assert_eq!(files(dir).await, before, "a refused start changes nothing");
    error.to_string()
}

/// The master key files, and the wrapped root key.
async fn files(dir: &Path) -> (BTreeMap<String, String>, Option<WrappedRootKey>) {
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
    let row = |opening: &Opening<'_>| {
        Ok::<_, BootError>((SecretBytes::new([0; 32]), opening.root_key()?))
    };
    (keys, Store::open_in(DataDir::take(dir).unwrap(), row).await.unwrap().1)
}

#[tokio::test]
async fn the_master_key_is_made_once_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = start(dir.path(), None, None).await.unwrap();
    let (_, again) = start(dir.path(), None, None).await.unwrap();
    assert_eq!(derived(&first), derived(&again));
    assert!(!first.rewrapped && !again.rewrapped);
    let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let short = MasterKeys { key: Some(Secret::new("short")), ..given(dir.path(), None, None) };
    let wrong = open(dir.path(), short).await;
    assert!(
        wrong.err().unwrap().to_string().contains("REROUTER_MASTER_KEY is not 32 bytes in base64")
    );
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    let lost = refused(dir.path(), None, None).await;
    assert!(lost.contains("is missing") && lost.contains("restore the file"), "{lost}");
}

#[tokio::test]
async fn a_change_takes_the_previous_master_key_and_keeps_every_derived_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // A new store has no previous master key, so a given one is ignored.
    let (store, first) = start(dir, Some(1), Some(7)).await.unwrap();
    store.keep_document("0123456789ab", "the text", at(1)).await.unwrap();
    drop(store);
    for (key, old, word) in [
        (
            Some(2),
            None,
            "give the previous one beside it as REROUTER_MASTER_KEY_OLD or master.key.old",
        ),
        (Some(2), Some(3), "nothing was changed: give the one that it was last started with"),
        (Some(2), Some(2), "nothing was changed"),
        (None, None, "is missing"),
        (None, Some(2), "nothing was changed"),
    ] {
        let message = refused(dir, key, old).await;
        assert!(message.contains(word), "{key:?} {old:?}: {message}");
    }
    let short = MasterKeys { old: Some(Secret::new("short")), ..given(dir, Some(2), None) };
    let message = open(dir, short).await.err().unwrap().to_string();
    assert!(message.contains("REROUTER_MASTER_KEY_OLD is not 32 bytes in base64"), "{message}");
    // Refused without a new master key: otherwise a key file would be made that nobody knows of.
    let message = refused(dir, None, Some(1)).await;
    assert!(
        message.contains("set REROUTER_MASTER_KEY to a new one") && message.contains("master.key"),
        "{message}"
    );
    // The key changes to others, and back again.
    let changes = [(2, 1), (3, 2), (1, 3)];
    for (key, old) in changes {
        let (store, changed) = start(dir, Some(key), Some(old)).await.unwrap();
        assert!(changed.rewrapped && derived(&changed) == derived(&first), "{key} {old}");
        assert_eq!(store.live_document().await.unwrap().as_deref(), Some("the text"));
        drop(store);
        for unneeded in [None, Some(old), Some(9)] {
            let (_, again) = start(dir, Some(key), unneeded).await.unwrap();
            assert!(!again.rewrapped && derived(&again) == derived(&first), "{unneeded:?}");
        }
        let message = refused(dir, Some(old), None).await;
        assert!(message.contains("the store has another master key"), "{message}");
    }
}

/// A crash leaves a prefix of the journal. For each prefix one of the two master keys opens the
/// store, both together do, and no other key does.
#[tokio::test]
async fn a_crash_at_any_moment_leaves_one_valid_wrapping() {
    let dir = tempfile::tempdir().unwrap();
    drop(start(dir.path(), Some(1), None).await.unwrap());
    // An open read of the earlier state keeps the change in the journal.
    let reader = rerouter_store::hold_accounts(dir.path());
    let (store, first) = start(dir.path(), Some(2), Some(1)).await.unwrap();
    let [database, journal] = ["accounts.db", "accounts.db-wal"]
        .map(|name| std::fs::read(dir.path().join(name)).unwrap());
    drop((store, reader));
    // The journal has a header, and each frame has one before its page of 4 KiB.
    let frames = (journal.len() - 32) / (4_096 + 24);
    assert!(frames >= 1 && journal.len() == 32 + frames * (4_096 + 24), "{}", journal.len());
    let mut opened_by = Vec::new();
    let cuts = (0..=frames).flat_map(|frame| {
        let whole = 32 + frame * (4_096 + 24);
        [whole - 32, whole.saturating_sub(2_000), whole]
    });
    for cut in cuts {
        let crashed = tempfile::tempdir().unwrap();
        let crashed = crashed.path();
        let restore = || {
            for name in ["accounts.db-shm", "accounts.db-wal", "accounts.revision"] {
                let _none = std::fs::remove_file(crashed.join(name));
            }
            std::fs::write(crashed.join("accounts.db"), &database).unwrap();
            std::fs::write(crashed.join("accounts.db-wal"), &journal[..cut.min(journal.len())])
                .unwrap();
        };
        let mut opens = Vec::new();
        for (key, old) in [(1, None), (2, None), (3, Some(4)), (2, Some(1))] {
            restore();
            let opened = start(crashed, Some(key), old).await;
            assert!(opened.as_ref().map_or(true, |(_, by)| derived(by) == derived(&first)));
            opens.push(opened.is_ok());
        }
        assert!(opens[0] != opens[1] && !opens[2] && opens[3], "cut at {cut}: {opens:?}");
        opened_by.push(opens[1]);
    }
    assert!(opened_by.contains(&false) && opened_by.contains(&true), "{opened_by:?}");
}

#[tokio::test]
async fn files_do_as_well_and_the_next_key_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let root = derived(&start(dir, None, None).await.unwrap().1);
    let first = std::fs::read_to_string(dir.join(FILE)).unwrap();
    std::fs::rename(dir.join(FILE), dir.join(FILE_OLD)).unwrap();
    // The process was killed after it made the file, and before it changed the store.
    let killed = given(dir, None, None);
    let killed = Store::open_in(DataDir::take(dir).unwrap(), move |opening| {
        killed.unlock(opening)?;
        Err::<(SecretBytes, ()), _>(BootError("killed".into()))
    });
    assert!(killed.await.is_err());
    let second = std::fs::read_to_string(dir.join(FILE)).unwrap();
    assert_ne!(first, second);
    let alone = MasterKeys { key: Some(Secret::new(first.clone())), ..given(dir, None, None) };
    let (store, unlocked) = open(dir, alone).await.unwrap();
    assert!(!unlocked.rewrapped, "the previous one alone still opens it");
    drop(store);
    let (store, unlocked) = start(dir, None, None).await.unwrap();
    assert!(unlocked.rewrapped && derived(&unlocked) == root);
    drop(store);
    assert_eq!(
        std::fs::read_to_string(dir.join(FILE)).unwrap(),
        second,
        "the key that was made is used"
    );
    put(dir, FILE_OLD, "no key at all");
    assert!(
        !start(dir, None, None).await.unwrap().1.rewrapped,
        "a previous key that is not needed is not read"
    );
    std::fs::rename(dir.join(FILE), dir.join("aside")).unwrap();
    let message = refused(dir, None, None).await;
    assert!(message.contains("master.key.old does not hold 32 bytes"), "{message}");
}

#[tokio::test]
async fn the_previous_key_in_the_environment_and_the_new_one_in_a_file_are_a_pair() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(start(dir, Some(1), None).await.unwrap());
    put(dir, FILE, &text(2));
    let (_, unlocked) = start(dir, None, Some(1)).await.unwrap();
    assert!(unlocked.rewrapped);
    assert_eq!(std::fs::read_to_string(dir.join(FILE)).unwrap(), text(2));
}

#[tokio::test]
async fn a_set_variable_wins_over_the_file_and_a_refusal_names_the_file_that_would_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, FILE, &text(1));
    drop(start(dir, Some(2), None).await.unwrap());
    assert_eq!(std::fs::read_to_string(dir.join(FILE)).unwrap(), text(1));
    for wrong in [text(1), "no key at all".to_owned()] {
        put(dir, FILE, &wrong);
        assert!(!start(dir, Some(2), None).await.unwrap().1.rewrapped);
        assert!(start(dir, None, None).await.is_err(), "without the variable the file is read");
    }
    put(dir, FILE, &text(2));
    let message = refused(dir, Some(3), None).await;
    assert!(
        message.contains("the store has the master key in")
            && message.contains("unset the variable"),
        "{message}"
    );
    assert!(!start(dir, None, None).await.unwrap().1.rewrapped);
    std::fs::rename(dir.join(FILE), dir.join(FILE_OLD)).unwrap();
    assert!(start(dir, Some(3), None).await.unwrap().1.rewrapped, "as the message said");
}

/// A file without a key is found before a store is made or changed, and no other file is made
/// instead.
#[tokio::test]
async fn a_file_that_is_no_key_stops_a_start_which_leaves_everything_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, FILE, "short");
    for _ in 0..2 {
        let message = start(dir, None, None).await.err().unwrap().to_string();
        assert!(message.contains("does not hold 32 bytes in base64"), "{message}");
        assert_eq!(
            files(dir).await,
            ([(FILE.to_owned(), "short".to_owned())].into(), None),
            "no root key was made"
        );
    }
    std::fs::remove_file(dir.join(FILE)).unwrap();
    std::os::unix::fs::symlink(dir.join("not mounted"), dir.join(FILE)).unwrap();
    let message = start(dir, None, None).await.err().unwrap().to_string();
    assert!(message.contains("link"), "{message}");
    assert!(
        dir.join(FILE).is_symlink() && !dir.join("not mounted").exists(),
        "nothing is made in its place"
    );
    std::fs::remove_file(dir.join(FILE)).unwrap();
    drop(start(dir, Some(1), None).await.unwrap());
    put(dir, FILE, &text(2));
    std::fs::set_permissions(dir.join(FILE), std::fs::Permissions::from_mode(0o646)).unwrap();
    let message = refused(dir, None, Some(1)).await;
    assert!(message.contains("chmod 600"), "{message}");
}

#[tokio::test]
async fn a_change_is_audited_once_and_the_audit_holds_no_key() {
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
        .map(|row| (row.action.as_str(), row.target_type.as_str(), row.target.as_str()))
        .collect();
    assert_eq!(
        seen,
        [("master_key.change", "master_key", "3"), ("master_key.change", "master_key", "2")]
    );
    for row in &rows {
        assert_eq!(
            (row.actor_type.as_str(), row.actor.as_str(), row.at),
            ("operator", "operator", at(0))
        );
        assert_eq!((&row.request, &row.address), (&None, &None));
    }
    let shown = format!("{rows:?}");
    for byte in 1..=3 {
        assert!(!shown.contains(&text(byte)) && !shown.contains(&text(byte)[..20]), "{shown}");
    }
}
