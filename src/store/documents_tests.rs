//! Texts of documents as they lie on the disk.

use std::path::Path;

use super::*;
use crate::store::tests::at;
use crate::store::{schema, worker};

const CANARY: &str = "sk-canary-8277e0910d750195";

/// The files of the store that hold the canary.
fn in_clear(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let holds = |path: &Path| {
        memchr::memmem::find(&std::fs::read(path).unwrap(), CANARY.as_bytes()).is_some()
    };
    files
        .filter(|file| holds(&file.path()))
        .map(|file| file.file_name().into_string().unwrap())
        .collect()
}

const NO_FILE: [&str; 0] = [];

#[tokio::test]
async fn no_text_lies_on_the_disk_in_clear() {
    let dir = tempfile::tempdir().unwrap();
    // Larger than a page, as documents are.
    let text = format!("api_key: {CANARY}\n").repeat(1_000);
    let store = Store::open(dir.path()).await.unwrap();
    for number in 0..3 {
        store.keep_document("0123456789ab", &text, at(number)).await.unwrap();
        assert_eq!(in_clear(dir.path()), NO_FILE);
    }
    assert_eq!(store.document("0123456789ab").await.unwrap(), Some(text.clone()));
    drop(store);
    assert_eq!(in_clear(dir.path()), NO_FILE);
    let store = Store::open(dir.path()).await.unwrap();
    assert_eq!(store.live_document().await.unwrap(), Some(text));
}

#[tokio::test]
async fn a_text_opens_under_its_key_and_for_its_revision_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.keep_document("0123456789ab", "one", at(1)).await.unwrap();
    let other = Store { documents: SecretBytes::new([6; 32]), ..store.clone() };
    assert!(
        matches!(other.document("0123456789ab").await, Err(StoreError::Damaged(why)) if why.contains("0123456789ab"))
    );
    let key = SecretBytes::new([5; 32]);
    assert!(opened(&key, "ba9876543210", &sealed(&key, "0123456789ab", "one").unwrap()).is_err());
}

#[tokio::test]
async fn texts_that_a_build_kept_in_clear_are_sealed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("accounts.db");
    let text = format!("api_key: {CANARY}\n").repeat(1_000);
    let (before, _) = schema::ACCOUNTS.split_at(schema::ACCOUNTS.len() - 1);
    let mut old = worker::open(&path, worker::Durability::Full).unwrap();
    schema::migrate(&mut old, before).unwrap();
    for number in 1..=3 {
        let insert =
            "INSERT INTO documents (revision, text, created_at, live_at) VALUES (?1, ?2, ?3, ?3)";
        old.execute(insert, params![format!("{number:012}"), text, number]).unwrap();
    }
    // As a process leaves it that is killed: with its journal.
    let copy = tempfile::tempdir().unwrap();
    for name in ["accounts.db", "accounts.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    drop(old);
    assert_eq!((in_clear(dir.path()).len(), in_clear(copy.path()).len()), (1, 1));
    for dir in [dir, copy] {
        for _ in 0..2 {
            let store = Store::open(dir.path()).await.unwrap();
            assert_eq!(in_clear(dir.path()), NO_FILE, "while it runs");
            assert_eq!(store.live_document().await.unwrap(), Some(text.clone()));
            assert_eq!(store.document("000000000001").await.unwrap(), Some(text.clone()));
            assert_eq!(store.documents(10, None).await.unwrap().len(), 3);
            drop(store);
            assert_eq!(in_clear(dir.path()), NO_FILE);
        }
    }
}
