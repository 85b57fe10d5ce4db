//! Texts of documents as they lie on the disk.

use std::path::Path;

use super::*;
use crate::clock::tests::at;

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
    assert!(matches!(
        other.document("0123456789ab").await,
        Err(StoreError::Damaged(why)) if why.contains("0123456789ab")
    ));
    let key = SecretBytes::new([5; 32]);
    let sealed = sealed(&key, "0123456789ab", "one").unwrap();
    assert!(opened(&key, &("ba9876543210".to_owned(), sealed)).is_err());
}
