//! The file of the index of captures, and its thread.

use super::*;
use crate::Store;
use crate::tests::captures::{append, row, segment};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::Random;

#[tokio::test]
async fn stalled_captures_never_stall_an_account_and_a_full_disk_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    faults.stall_appends();
    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.capture_index().put_segment(segment(&store, 1)).await }
    });
    store.keep_document("9f2c41d07a1b", "text", at(0)).await.unwrap();
    assert!(!appending.is_finished());
    faults.clear();
    appending.await.unwrap().unwrap();
    let put = async || store.capture_index().put_segment(segment(&store, 1)).await;
    faults.fail_appends(1);
    assert!(matches!(put().await, Err(StoreError::Unavailable(_))));
    faults.fill_disk();
    assert!(matches!(put().await, Err(StoreError::Full(_))));
    faults.clear();
    put().await.unwrap();
}

#[tokio::test]
async fn a_damaged_index_is_set_aside_with_its_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("captures.db");
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..400).map(|second| row(second, &random)).collect();
    for damage in 0..3 {
        let store = Store::open(dir.path()).await.unwrap();
        append(&store, &rows, 1).await;
        drop(store);
        std::fs::create_dir(dir.path().join("captures")).unwrap();
        std::fs::write(dir.path().join("captures/segment"), b"bytes").unwrap();
        let whole = std::fs::read(&path).unwrap();
        let damaged = match damage {
            0 => whole[..whole.len() / 2].to_vec(),
            1 => vec![7; whole.len()],
            _ => [&whole[..4096], &vec![7; whole.len() - 4096][..]].concat(),
        };
        std::fs::write(&path, damaged).unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        assert!(store.capture_index().segments().await.unwrap().is_empty(), "{damage}");
        let aside = dir.path().join(format!("captures-damaged-{}", damage + 1));
        assert!(aside.join("captures.db").exists() && aside.join("captures/segment").exists());
        assert!(!dir.path().join("captures").exists());
        append(&store, &rows[..1], 1).await;
        drop(store);
        let store = Store::open(dir.path()).await.unwrap();
        assert!(store.capture_index().locate(&rows[0].id).await.unwrap().is_some(), "{damage}");
    }
}
