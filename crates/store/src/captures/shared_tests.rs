//! The index of captures in PostgreSQL, beyond the tests for both databases.

use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::postgres::servers::{self, Cluster};
use crate::tests::captures::{append, location, row, segment};
use crate::{CaptureFilter, DataDir, Faults, Opening, Store, StoreUrl};
use rerouter_base::id::Random;
use rerouter_base::secret::SecretBytes;

/// A gateway's store on this database.
async fn open(url: &str, dir: &TempDir) -> Store {
    let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
    let (dir, url) = (DataDir::take(dir.path()).unwrap(), StoreUrl::parse(url).unwrap());
    Store::open_at(dir, &url, unlock).await.unwrap().0
}

async fn pair() -> (String, [TempDir; 2], [Store; 2]) {
    let url = Cluster::shared().database().await;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let stores = [open(&url, &dirs[0]).await, open(&url, &dirs[1]).await];
    (url, dirs, stores)
}

async fn listed(store: &Store) -> Vec<RequestId> {
    let page = store.capture_index().list(CaptureFilter::default(), 50, None).await.unwrap();
    page.found.into_iter().map(|(id, _)| id).collect()
}

#[tokio::test]
async fn each_data_directory_has_numbers_of_its_own_and_sees_all_captures() {
    let (url, dirs, [a, b]) = pair().await;
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..2).map(|second| row(second, &random)).collect();
    append(&a, &rows[..1], 1).await;
    append(&b, &rows[1..], 1).await;
    let numbers = a.capture_index().numbers();
    assert_ne!(numbers.0, b.capture_index().numbers().0);
    assert_eq!(listed(&a).await, [rows[1].id.clone(), rows[0].id.clone()]);
    assert_eq!(listed(&b).await, listed(&a).await);
    assert_eq!(a.capture_index().segments().await.unwrap(), [(segment(&a, 1), true)]);
    let index = b.capture_index();
    assert_eq!(index.waiting_segments().await.unwrap()[0].0, segment(&b, 1).number);
    assert!(index.note_uploaded(segment(&b, 1).number).await.unwrap());
    assert!(!index.note_uploaded(segment(&b, 2).number).await.unwrap());
    assert!(index.waiting_segments().await.unwrap().is_empty());
    assert_eq!(a.capture_index().waiting_segments().await.unwrap().len(), 1);
    let named = a.instance().unwrap().to_owned();
    assert_eq!(index.gateway_of(segment(&a, 1).number).await.unwrap(), Some(named));
    let left = async |before_us| index.left_behind(before_us, 0).await.unwrap();
    assert_eq!(left(i64::MAX).await, [segment(&a, 1).number]);
    assert!(left(segment(&a, 1).newest_us).await.is_empty());
    drop((a, b, index));
    assert_eq!(open(&url, &dirs[0]).await.capture_index().numbers(), numbers);
}

#[tokio::test]
async fn nothing_brings_a_deleted_capture_back() {
    let (_url, _dirs, [a, b]) = pair().await;
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..5).map(|second| row(second, &random)).collect();
    append(&a, &rows[..1], 1).await;
    let id = rows[0].id.clone();
    let bob = UserId::known("usr_bob");
    assert!(b.capture_index().delete(&id, true, Reach::Owner(rows[0].owner.clone())).await.is_ok());
    // The deleted capture comes again, with a replay of it, a replay of that replay, and a replay
    // that is Bob's.
    rows[1].replay_of = Some(id.clone());
    rows[2].replay_of = Some(rows[1].id.clone());
    rows[3].replay_of = Some(id.clone());
    rows[3].owner = bob;
    append(&a, &rows[..2], 1).await;
    append(&a, &rows[2..], 1).await;
    assert_eq!(listed(&b).await, [rows[4].id.clone(), rows[3].id.clone()]);
    // A capture comes whose owner was deleted.
    let gone = RequestId::known("usr_gone");
    b.capture_index().delete(&gone, false, Reach::All).await.unwrap();
    let mut late = row(8, &random);
    late.owner = UserId::known("usr_gone");
    append(&a, &[late], 1).await;
    assert_eq!(listed(&b).await, [rows[4].id.clone(), rows[3].id.clone()]);
    // A capture that is deleted without its copies keeps its replays.
    let id = rows[3].id.clone();
    b.capture_index().delete(&id, false, Reach::All).await.unwrap();
    let mut late = row(9, &random);
    late.replay_of = Some(id.clone());
    append(&a, &[rows[3].clone(), late.clone()], 1).await;
    assert_eq!(listed(&b).await, [late.id, rows[4].id.clone()]);
    a.capture_index().forget_deleted(Duration::ZERO).await.unwrap();
    append(&a, &rows[3..4], 1).await;
    assert_eq!(listed(&b).await.len(), 3, "it was long ago");
}

#[tokio::test]
async fn rows_that_could_not_be_inserted_wait_for_a_restart_too() {
    let (url, dirs, [a, b]) = pair().await;
    let (faults, random) = (Faults::default(), Random::seeded(5));
    let rows: Vec<CaptureRow> = (0..30).map(|second| row(second, &random)).collect();
    let a = a.with_faults(faults.clone());
    assert_eq!(a.capture_index().spooled(9).await.unwrap(), None);
    faults.fail_appends(1);
    append(&a, &rows[..20], 1).await;
    // Later rows join them until they are moved.
    append(&a, &rows[20..], 1).await;
    assert!(listed(&b).await.is_empty());
    drop(a);
    let a = open(&url, &dirs[0]).await;
    let index = a.capture_index();
    assert_eq!(index.spooled_segments().await.unwrap(), [segment(&a, 1).number]);
    // Ann deletes one that the index does not have yet.
    index.delete(&rows[7].id, false, Reach::All).await.unwrap();
    let mut moved = 0;
    while let Some((segment, rows)) = index.spooled(8).await.unwrap() {
        moved += rows.len();
        index.move_spooled(segment.number, segment, rows).await.unwrap();
    }
    assert_eq!(moved, 30);
    assert!(index.spooled_segments().await.unwrap().is_empty());
    let there = listed(&b).await;
    assert_eq!(there.len(), 29);
    assert!(!there.contains(&rows[7].id));
    let late = row(40, &random);
    append(&a, std::slice::from_ref(&late), 1).await;
    assert_eq!(listed(&b).await[0], late.id);
    let location = b.capture_index().locate(&rows[4].id).await.unwrap().unwrap();
    assert_eq!((location.salt, location.segment), (Some([4; 16]), segment(&a, 1).number));
}

/// Also prints how many captures a second: `benches/run fleet` asks for more rounds. A row has the
/// head of a chat, or its bodies too: above 4 KiB they are in no row.
// The bench asks for more rounds by the environment, and the rate is its result.
#[allow(clippy::disallowed_methods, clippy::print_stdout)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_captures_a_second() {
    let rounds = std::env::var("REROUTER_USAGE_ROUNDS").map_or(1, |told| told.parse().unwrap());
    let random = Random::seeded(5);
    for (gateways, bytes) in [(1, 1_000), (4, 1_000), (1, 5_000), (4, 5_000)] {
        let url = Cluster::shared().database().await;
        let dirs: Vec<TempDir> = (0..gateways).map(|_| tempfile::tempdir().unwrap()).collect();
        let stores: Vec<Store> = join_all(dirs.iter().map(|dir| open(&url, dir))).await;
        let head: Arc<[u8]> = (0..bytes).map(|_| random.next_u64() as u8).collect();
        let batches = |store: &Store| {
            let located = |at: u64| {
                let location = location(store, 1, at);
                (row(9, &random), CaptureLocation { head_record: Some(head.clone()), ..location })
            };
            let batch = || (0..200).map(located).collect::<Vec<_>>();
            (0..5 * rounds).map(|_| batch()).collect::<Vec<_>>()
        };
        let work: Vec<_> = stores.iter().map(|store| (store, batches(store))).collect();
        let began = Instant::now();
        join_all(work.into_iter().map(async |(store, batches)| {
            for rows in batches {
                store.capture_index().insert(segment(store, 1), rows, false, || ()).await.unwrap();
            }
        }))
        .await;
        let rows = 1_000 * rounds * gateways;
        let rate = rows as f64 / began.elapsed().as_secs_f64();
        println!("{gateways} gateways, captures of {bytes} bytes: {rate:.0} rows/s");
        let stored = servers::run(&url, "SELECT count(*) FROM captures").await;
        assert_eq!(stored, [rows.to_string()]);
    }
}
