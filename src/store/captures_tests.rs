//! The index of captures on real files.

use std::collections::HashMap;

use super::*;
use crate::id::{Random, UserId};
use crate::store::Shadows;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_764_000_000 + second).unwrap()
}

fn row(second: i64, random: &Random) -> CaptureRow {
    CaptureRow {
        id: RequestId::new(at(second), random),
        created_at_us: at(second).as_microsecond(),
        owner: UserId::known("usr_ann"),
        key: None,
        alias: Some("auto".into()),
        recipe: Some("balanced".into()),
        provider: Some("demo".into()),
        model: Some("echo".into()),
        decided_provider: Some("demo".into()),
        decided_model: Some("echo".into()),
        status: 200,
        state: "completed".into(),
        replay_of: None,
        shadow_of: None,
    }
}

fn segment(number: i64) -> SegmentRow {
    SegmentRow {
        number,
        sealed: true,
        newest_us: at(9).as_microsecond(),
        bytes: 4_000,
        synced: 4_000,
    }
}

fn placed(rows: &[CaptureRow], segment: i64) -> Vec<(CaptureRow, Place)> {
    let place = |position| Place { segment, heads: 200, bodies: Some(300), position };
    rows.iter().cloned().zip((0..).map(place)).collect()
}

async fn append(store: &Store, rows: &[CaptureRow], number: i64) {
    let rows = placed(rows, number);
    store.write_captures(move |index| index.append(&segment(number), &rows, || ())).await.unwrap();
}

#[tokio::test]
async fn captures_are_listed_newest_first_and_by_filter() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..5).map(|second| row(second, &random)).collect();
    for (row, status) in rows.iter_mut().zip([200, 404, 500, 200, 200]) {
        row.status = status;
    }
    rows[3].owner = UserId::known("usr_bob");
    rows[2].replay_of = Some(rows[0].id.clone());
    rows[4].shadow_of = Some(rows[1].id.clone());
    append(&store, &rows, 1).await;
    append(&store, &rows, 2).await;
    let ids: Vec<RequestId> = rows.iter().map(|row| row.id.clone()).collect();
    let list = async |filter: CaptureFilter, limit: usize, after: Option<&RequestId>| {
        let page = store.list_captures(filter, limit, after.cloned()).await.unwrap();
        page.found
            .into_iter()
            .map(|(id, _)| ids.iter().position(|known| *known == id).unwrap())
            .collect::<Vec<_>>()
    };
    let all = CaptureFilter::default;
    assert_eq!(list(all(), 10, None).await, [3, 2, 1, 0]);
    assert_eq!(list(all(), 2, Some(&ids[3])).await, [2, 1]);
    assert_eq!(
        list(CaptureFilter { owner: Some(rows[0].owner.clone()), ..all() }, 10, None).await,
        [2, 1, 0]
    );
    assert_eq!(
        list(CaptureFilter { statuses: vec![(404, 404), (500, 599)], ..all() }, 10, None).await,
        [2, 1]
    );
    assert_eq!(
        list(CaptureFilter { replay_of: Some(ids[0].clone()), ..all() }, 10, None).await,
        [2]
    );
    assert_eq!(
        list(CaptureFilter { shadows: Shadows::With, ..all() }, 10, None).await,
        [4, 3, 2, 1, 0]
    );
    assert_eq!(
        list(
            CaptureFilter { shadows: Shadows::Only, shadow_of: Some(ids[1].clone()), ..all() },
            10,
            None
        )
        .await,
        [4]
    );
    let us = |second: i64| Some(at(second).as_microsecond());
    assert_eq!(
        list(CaptureFilter { since_us: us(1), until_us: us(3), ..all() }, 10, None).await,
        [2, 1]
    );
    assert_eq!(
        list(CaptureFilter { until_us: us(2).map(|us| us + 1), ..all() }, 10, None).await,
        [2, 1, 0]
    );
    assert_eq!(
        list(CaptureFilter { since_us: us(3).map(|us| us + 1), ..all() }, 10, None).await,
        [0_usize; 0]
    );
    assert_eq!(
        list(CaptureFilter { alias: Some("' OR 1 --".into()), ..all() }, 10, None).await,
        [0_usize; 0]
    );
    let first = store.locate_capture(&ids[0]).await.unwrap();
    assert_eq!(
        first,
        Some(Place { segment: 1, heads: 200, bodies: Some(300), position: 0 }),
        "the first to say so is believed"
    );
    assert_eq!(store.capture_owner(&ids[3]).await.unwrap(), Some(UserId::known("usr_bob")));
    assert_eq!(store.locate_capture(&RequestId::new(at(0), &random)).await.unwrap(), None);
}

#[tokio::test]
async fn a_page_looks_at_so_many_rows_and_the_next_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..25).map(|second| row(second, &random)).collect();
    rows[2].state = "failed".into();
    append(&store, &rows, 1).await;
    let Backend::Sqlite(sqlite) = &*store.backend;
    let filter = CaptureFilter { state: Some("failed".into()), ..Default::default() };
    let page = async |after: Option<RequestId>| {
        let filter = filter.clone();
        sqlite
            .reader
            .run(move |connection| capture_list::list(connection, &filter, 2, after.as_ref(), 10))
            .await
            .unwrap()
    };
    let first = page(None).await;
    assert_eq!((first.found.len(), first.next.as_ref()), (0, Some(&rows[15].id)));
    let second = page(first.next).await;
    assert_eq!((second.found.len(), second.next.as_ref()), (0, Some(&rows[5].id)));
    let last = page(second.next).await;
    assert_eq!(
        (last.found.len(), last.found[0].0.clone(), last.next),
        (1, rows[2].id.clone(), None)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_of_one_state_whatever_is_written_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..3_000).map(|second| row(second, &random)).collect();
    append(&store, &rows[..100], 1).await;
    let Backend::Sqlite(sqlite) = &*store.backend;
    let writing = tokio::spawn({
        let (store, rows) = (store.clone(), rows[100..].to_vec());
        async move {
            for rows in rows.chunks(10) {
                append(&store, rows, 1).await;
            }
        }
    });
    let (mut pages, mut newest) = (0, None);
    while !writing.is_finished() {
        let list = |connection: &mut rusqlite::Connection| {
            capture_list::list(connection, &CaptureFilter::default(), 20, None, 10)
        };
        let page = sqlite.reader.run(list).await.unwrap();
        assert_eq!(
            page.next.as_ref(),
            page.found.last().map(|(id, _)| id),
            "the next page begins where this one ends"
        );
        newest = page.found.first().cloned();
        pages += 1;
    }
    writing.await.unwrap();
    assert!(
        pages > 10 && newest.is_some_and(|(id, _)| id > rows[100].id),
        "lists and writes were at once"
    );
}

#[tokio::test]
async fn what_is_buried_stays_out_and_its_place_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..4).map(|second| row(second, &random)).collect();
    append(&store, &rows[..2], 1).await;
    let graves: Vec<(RequestId, i64)> =
        [&rows[1], &rows[3]].map(|row| (row.id.clone(), 7)).to_vec();
    store.write_captures(move |index| index.bury(Some(&segment(3)), &graves)).await.unwrap();
    assert_eq!(store.locate_capture(&rows[1].id).await.unwrap(), None);
    append(&store, &rows[2..], 2).await;
    assert_eq!(
        store.locate_capture(&rows[3].id).await.unwrap(),
        None,
        "it was buried before it came"
    );
    assert!(store.locate_capture(&rows[2].id).await.unwrap().is_some());
    let (graves, due) = store
        .write_captures(|index| Ok(([index.graves(1)?, index.graves(2)?], index.due(7, 7)?)))
        .await
        .unwrap();
    assert_eq!((graves, due), ([vec![(200, 1)], vec![(200, 1)]], vec![1, 2]));
    assert_eq!(store.write_captures(|index| index.due(6, 7)).await.unwrap(), Vec::<i64>::new());
    let moved = (rows[0].id.clone(), Place { segment: 9, heads: 1, bodies: None, position: 0 });
    let placed = moved.clone();
    store.write_captures(move |index| index.place_anew(1, &[placed])).await.unwrap();
    store
        .write_captures(move |index| index.replace(1, &segment(9), &HashMap::from([moved])))
        .await
        .unwrap();
    assert_eq!(store.locate_capture(&rows[0].id).await.unwrap().unwrap().segment, 9);
    let left = store
        .write_captures(|index| Ok((index.graves(1)?, index.segments()?, index.forget(2, 10)?)))
        .await
        .unwrap();
    assert_eq!(
        (left.0, left.1.iter().map(|row| row.number).collect::<Vec<_>>(), left.2),
        (Vec::new(), vec![2, 3, 9], 1)
    );
}

#[tokio::test]
async fn what_is_deleted_while_its_segment_is_replaced_lies_in_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..3).map(|second| row(second, &random)).collect();
    append(&store, &rows, 1).await;
    let place = |position| Place { segment: 9, heads: 100, bodies: None, position };
    let places: Vec<(RequestId, Place)> =
        rows.iter().map(|row| row.id.clone()).zip((0..).map(place)).collect();
    let bury = async |row: &CaptureRow| {
        let grave = (row.id.clone(), 7);
        store.write_captures(move |index| index.bury(None, &[grave])).await.unwrap();
    };
    bury(&rows[0]).await;
    let step = places.clone();
    store.write_captures(move |index| index.place_anew(1, &step)).await.unwrap();
    bury(&rows[1]).await;
    store
        .write_captures(move |index| index.replace(1, &segment(9), &places.into_iter().collect()))
        .await
        .unwrap();
    assert_eq!(store.write_captures(|index| index.graves(9)).await.unwrap(), [(100, 0), (100, 1)]);
    assert_eq!(store.locate_capture(&rows[2].id).await.unwrap(), Some(place(2)));
}

#[tokio::test]
async fn failures_are_found_among_any_number_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..40).map(|second| row(second, &random)).collect();
    for (at, status) in [(1, 500), (2, 404), (3, 400), (30, 399)] {
        rows[at].status = status;
    }
    rows[3].owner = UserId::known("usr_bob");
    append(&store, &rows, 1).await;
    let Backend::Sqlite(sqlite) = &*store.backend;
    for (owner, statuses, expected) in [
        (None, vec![(500, 599)], vec![1]),
        (None, vec![(500, 599), (404, 404)], vec![2, 1]),
        (None, vec![(400, 499)], vec![3, 2]),
        (Some("usr_ann"), vec![(400, 499)], vec![2]),
        (Some("usr_bob"), vec![(400, 599)], vec![3]),
    ] {
        let filter = CaptureFilter {
            owner: owner.map(UserId::known),
            statuses: statuses.clone(),
            ..Default::default()
        };
        let page = sqlite
            .reader
            .run(move |connection| capture_list::list(connection, &filter, 9, None, 10))
            .await
            .unwrap();
        let found: Vec<&RequestId> = page.found.iter().map(|(id, _)| id).collect();
        assert_eq!(
            found,
            expected.iter().map(|at: &usize| &rows[*at].id).collect::<Vec<_>>(),
            "{owner:?} {statuses:?}"
        );
        assert_eq!(page.next, None);
    }
}

#[tokio::test]
async fn stalled_captures_never_stall_an_account_and_a_full_disk_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    faults.stall_appends();
    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.write_captures(|index| index.put_segment(&segment(1))).await }
    });
    store.keep_document("9f2c41d07a1b", "text", at(0)).await.unwrap();
    assert!(!appending.is_finished());
    faults.clear();
    appending.await.unwrap().unwrap();
    faults.fail_appends(1);
    assert!(matches!(store.write_captures(|_| Ok(())).await, Err(StoreError::Unavailable(_))));
    faults.fill_disk();
    assert!(matches!(store.write_captures(|_| Ok(())).await, Err(StoreError::Full(_))));
    faults.clear();
    store.write_captures(|_| Ok(())).await.unwrap();
}

#[tokio::test]
async fn a_damaged_index_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("captures.db");
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..400).map(|second| row(second, &random)).collect();
    for damage in 0..4 {
        let store = Store::open(dir.path()).await.unwrap();
        store
            .write_captures(|index| if index.has_old()? { index.forget_old(&[]) } else { Ok(()) })
            .await
            .unwrap();
        append(&store, &rows, 1).await;
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        match damage {
            0 => std::fs::write(&path, &whole[..whole.len() / 2]).unwrap(),
            1 => std::fs::write(&path, vec![7; whole.len()]).unwrap(),
            2 => std::fs::write(&path, [&whole[..4096], &vec![7; whole.len() - 4096][..]].concat())
                .unwrap(),
            _ => std::fs::write(dir.path().join("captures.db-damaged"), "").unwrap(),
        }
        if damage == 3 {
            // The mark of one that somebody took away is no reason not to start.
            for name in ["db", "db-wal", "db-shm"] {
                let _none = std::fs::remove_file(path.with_extension(name));
            }
            drop(Store::open(dir.path()).await.unwrap());
            assert!(!dir.path().join("captures.db-damaged").exists());
            std::fs::write(&path, &whole).unwrap();
            std::fs::write(dir.path().join("captures.db-damaged"), "").unwrap();
        }
        let store = Store::open(dir.path()).await.unwrap();
        assert!(
            store.write_captures(|index| index.segments()).await.unwrap().is_empty(),
            "{damage}"
        );
        assert!(!dir.path().join("captures.db-damaged").exists());
        let aside = dir.path().join("captures.damaged");
        assert_eq!(
            aside.exists(),
            damage != 1,
            "where nobody can say what it was it has another name: {damage}"
        );
        store.captures_complete();
        assert!(!aside.exists(), "{damage}");
        append(&store, &rows[..1], 1).await;
        drop(store);
        let store = Store::open(dir.path()).await.unwrap();
        assert!(store.locate_capture(&rows[0].id).await.unwrap().is_some(), "{damage}");
    }
}

/// A file of captures as it was before there were segments, with what `fill` inserts.
pub(crate) fn make_captures_of_the_second_schema(
    path: &Path,
    fill: impl FnOnce(&dyn Fn(&CaptureRow, &[u8], &[u8])),
) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(&schema::CAPTURES[..2].concat()).unwrap();
    file.pragma_update(None, "user_version", 2).unwrap();
    fill(&|row, head, bodies| {
        let captures = "INSERT INTO captures (id, created_at, owner, status, state, head) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        file.execute(
            captures,
            (row.id.as_str(), row.created_at_us, row.owner.as_str(), row.status, &row.state, head),
        )
        .unwrap();
        file.execute("INSERT INTO bodies (id, sealed) VALUES (?1, ?2)", (row.id.as_str(), bodies))
            .unwrap();
    });
}

/// Captures that come from elsewhere may say anything of each other.
#[tokio::test]
async fn the_family_of_a_capture_ends_whatever_they_say_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let random = Random::seeded(5);
    // Each is a replay of the one before it and a shadow of the one before that; the first and the last are replays of each
    // other, and one is of itself.
    let mut rows: Vec<CaptureRow> = (0..60).map(|second| row(second, &random)).collect();
    let ids: Vec<RequestId> = rows.iter().map(|row| row.id.clone()).collect();
    for (at, row) in rows.iter_mut().enumerate().skip(1) {
        row.replay_of = Some(ids[at - 1].clone());
        row.shadow_of = at.checked_sub(2).map(|before| ids[before].clone());
    }
    rows[0].replay_of = Some(ids[59].clone());
    rows.push(row(60, &random));
    let alone = rows[60].id.clone();
    rows[60].replay_of = Some(alone.clone());
    append(&store, &rows, 1).await;
    let family = async |id: &RequestId, most: usize| {
        let id = id.clone();
        store.write_captures(move |index| index.family(&id, None, most)).await.unwrap()
    };
    let newest_first: Vec<RequestId> = ids[1..].iter().rev().cloned().collect();
    assert_eq!(family(&ids[0], 100).await, newest_first);
    assert_eq!(family(&ids[0], 2).await, newest_first[..2]);
    assert!(family(&alone, 100).await.is_empty());
}

/// The ids in a file that is no index, as whoever finds it reads them.
fn rows_of(path: &Path) -> i64 {
    let count = |file: rusqlite::Connection| {
        file.query_row("SELECT count(*) FROM captures", [], |row| row.get(0))
    };
    rusqlite::Connection::open(path).and_then(count).unwrap()
}

#[tokio::test]
async fn a_damaged_file_of_before_there_were_segments_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("captures.db");
    let rows: Vec<CaptureRow> = (0..3).map(|second| row(second, &Random::seeded(5))).collect();
    make_captures_of_the_second_schema(&path, |insert| {
        rows.iter().for_each(|row| insert(row, b"{}", b"\0"))
    });
    let whole = std::fs::read(&path).unwrap();
    for (damage, kept) in
        [(0, "captures-damaged-1.db"), (1, "captures-damaged-2.db"), (2, "captures-damaged-3.db")]
    {
        match damage {
            0 => std::fs::write(dir.path().join("captures.db-damaged"), "").unwrap(),
            1 => std::fs::write(&path, &whole[..whole.len() - 4096]).unwrap(),
            // Nobody can say what it was.
            _ => std::fs::write(&path, vec![7; whole.len()]).unwrap(),
        }
        let length = std::fs::metadata(&path).unwrap().len();
        let store = Store::open(dir.path()).await.unwrap();
        store.captures_complete();
        assert!(store.write_captures(|index| index.segments()).await.unwrap().is_empty());
        drop(store);
        for journal in ["db-wal", "db-shm", "db"] {
            let _none = std::fs::remove_file(path.with_extension(journal));
        }
        assert_eq!(std::fs::metadata(dir.path().join(kept)).unwrap().len(), length, "{kept}");
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(rows_of(&dir.path().join("captures-damaged-1.db")), 3);
}
