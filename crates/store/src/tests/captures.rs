use std::sync::Arc;

use super::*;
use crate::{ByteRange, CaptureLocation, CaptureRow, SegmentRow, Shadows};
use rerouter_base::clock::fixtures::at as at_second;
use rerouter_base::id::Random;
use rerouter_base::id::RequestId;

pub(crate) fn row(second: i64, random: &Random) -> CaptureRow {
    CaptureRow {
        id: RequestId::new(at_second(second), random),
        created_at_us: at_second(second).as_microsecond(),
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

/// The number of the first, second and so on segment of the gateway.
fn number(store: &Store, at: i64) -> i64 {
    store.capture_index().numbers().0 + at
}

pub(crate) fn segment(store: &Store, at: i64) -> SegmentRow {
    let newest_us = at_second(9).as_microsecond() - at;
    SegmentRow { number: number(store, at), newest_us, bytes: 4_000 }
}

pub(crate) fn location(store: &Store, segment: i64, at: u64) -> CaptureLocation {
    let range = |offset| ByteRange { offset, length: 7 };
    let bodies = at.is_multiple_of(2).then(|| range(at * 20 + 10));
    let salt = (!at.is_multiple_of(3)).then_some([at as u8; 16]);
    let head_record = store.is_shared().then(|| [at as u8; 9].as_slice().into());
    CaptureLocation {
        segment: number(store, segment),
        head: range(at * 20),
        bodies,
        salt,
        head_record,
    }
}

pub(crate) async fn append(store: &Store, rows: &[CaptureRow], at: i64) {
    let located = |(place, row): (u64, &CaptureRow)| (row.clone(), location(store, at, place));
    let rows = (0..).zip(rows).map(located).collect();
    store.capture_index().insert(segment(store, at), rows, false, || ()).await.unwrap();
}

pub(crate) async fn captures_are_listed_newest_first_and_by_filter(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..5).map(|second| row(second, &random)).collect();
    for (row, status) in rows.iter_mut().zip([200, 404, 500, 200, 200]) {
        row.status = status;
    }
    rows[3].owner = UserId::known("usr_bob");
    rows[2].replay_of = Some(rows[0].id.clone());
    rows[4].shadow_of = Some(rows[1].id.clone());
    append(&store, &rows, 1).await;
    let (index, ids) =
        (store.capture_index(), rows.iter().map(|row| row.id.clone()).collect::<Vec<RequestId>>());
    let list = async |filter: CaptureFilter, limit: usize, after: Option<&RequestId>| {
        let page = index.list(filter, limit, after.cloned()).await.unwrap();
        page.found
            .into_iter()
            .map(|(id, _)| ids.iter().position(|known| *known == id).unwrap())
            .collect::<Vec<_>>()
    };
    let all = CaptureFilter::default;
    assert_eq!(list(all(), 10, None).await, [3, 2, 1, 0]);
    assert_eq!(list(all(), 2, Some(&ids[3])).await, [2, 1]);
    assert_eq!(
        list(CaptureFilter { reach: Reach::Owner(rows[0].owner.clone()), ..all() }, 10, None).await,
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
    let us = |second: i64| Some(at_second(second).as_microsecond());
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
    for (at, id) in (0..).zip(&ids) {
        assert_eq!(index.locate(id).await.unwrap(), Some(location(&store, 1, at)));
    }
    assert_eq!(
        index.whose(&ids[3]).await.unwrap(),
        Some((UserId::known("usr_bob"), rows[3].key.clone()))
    );
    let unknown = RequestId::new(at_second(0), &random);
    assert_eq!(index.locate(&unknown).await.unwrap(), None);
    assert_eq!(
        index.known(vec![unknown, ids[4].clone()]).await.unwrap(),
        HashSet::from([ids[4].clone()])
    );
    append(&store, &rows[..1], 2).await;
    assert_eq!(index.locate(&ids[0]).await.unwrap(), Some(location(&store, 2, 0)), "the newer one");
}

pub(crate) async fn a_page_looks_at_so_many_rows_and_the_next_goes_on_there(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..25).map(|second| row(second, &random)).collect();
    rows[2].state = "failed".into();
    append(&store, &rows, 1).await;
    let index = store.capture_index();
    let filter = CaptureFilter { state: Some("failed".into()), ..Default::default() };
    let page = async |after: Option<RequestId>| {
        let filter = filter.clone();
        index.list_within(filter, 2, after, 10).await.unwrap()
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

pub(crate) async fn a_page_is_of_one_state_whatever_is_written_meanwhile(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    let rows: Vec<CaptureRow> = (0..3_000).map(|second| row(second, &random)).collect();
    append(&store, &rows[..100], 1).await;
    let index = store.capture_index();
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
        let page = index.list_within(CaptureFilter::default(), 20, None, 10).await.unwrap();
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

pub(crate) async fn a_segment_among_others_leaves_in_steps_and_takes_none_of_theirs(
    bed: &impl Bed,
) {
    let store = bed.open().await;
    let (index, random) = (store.capture_index(), Random::seeded(5));
    let rows: Vec<CaptureRow> = (0..80).map(|second| row(second, &random)).collect();
    let (leaves, stays): (Vec<_>, Vec<_>) =
        rows.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 0);
    let [leaves, stays] = [leaves, stays]
        .map(|rows| rows.into_iter().map(|(_, row)| row).collect::<Vec<CaptureRow>>());
    // An import may come later with older ids.
    append(&store, &leaves[20..], 1).await;
    append(&store, &stays, 2).await;
    append(&store, &leaves[..20], 1).await;
    assert_eq!(
        index.segments().await.unwrap(),
        [(segment(&store, 2), true), (segment(&store, 1), true)]
    );
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        steps.push(index.drop_captures(number(&store, 1), 17).await.unwrap());
    }
    assert_eq!(steps, [17, 17, 6, 0]);
    assert_eq!(
        index.segments().await.unwrap(),
        [(segment(&store, 2), true), (segment(&store, 1), false)]
    );
    for (rows, are_there) in [(leaves, false), (stays, true)] {
        for row in rows {
            assert_eq!(index.locate(&row.id).await.unwrap().is_some(), are_there);
        }
    }
}

pub(crate) async fn segments_are_known_with_what_is_left_in_them(bed: &impl Bed) {
    let store = bed.open().await;
    let (index, random) = (store.capture_index(), Random::seeded(5));
    let rows: Vec<CaptureRow> = (0..5).map(|second| row(second, &random)).collect();
    append(&store, &rows[..3], 1).await;
    append(&store, &rows[3..], 2).await;
    let grown = SegmentRow { bytes: 5_000, ..segment(&store, 1) };
    index.put_segment(grown.clone()).await.unwrap();
    assert_eq!(
        index.segments().await.unwrap(),
        [(segment(&store, 2), true), (grown.clone(), true)]
    );
    assert_eq!(index.drop_captures(number(&store, 1), 2).await.unwrap(), 2);
    assert_eq!(index.drop_captures(number(&store, 1), 2).await.unwrap(), 1);
    assert_eq!(index.segments().await.unwrap(), [(segment(&store, 2), true), (grown, false)]);
    index.drop_segment(number(&store, 1)).await.unwrap();
    assert_eq!(index.segments().await.unwrap(), [(segment(&store, 2), true)]);
    assert!(index.delete(&rows[0].id, false, Reach::All).await.unwrap().is_empty());
    assert!(index.locate(&rows[3].id).await.unwrap().is_some());
}

pub(crate) async fn failures_are_found_among_any_number_of_others(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    let mut rows: Vec<CaptureRow> = (0..40).map(|second| row(second, &random)).collect();
    for (at, status) in [(1, 500), (2, 404), (3, 400), (30, 399)] {
        rows[at].status = status;
    }
    rows[3].owner = UserId::known("usr_bob");
    append(&store, &rows, 1).await;
    let index = store.capture_index();
    for (owner, statuses, expected) in [
        (None, vec![(500, 599)], vec![1]),
        (None, vec![(500, 599), (404, 404)], vec![2, 1]),
        (None, vec![(400, 499)], vec![3, 2]),
        (Some("usr_ann"), vec![(400, 499)], vec![2]),
        (Some("usr_bob"), vec![(400, 599)], vec![3]),
    ] {
        let filter = CaptureFilter {
            reach: owner.map_or(Reach::All, |owner| Reach::Owner(UserId::known(owner))),
            statuses: statuses.clone(),
            ..Default::default()
        };
        let page = index.list_within(filter, 9, None, 10).await.unwrap();
        let found: Vec<&RequestId> = page.found.iter().map(|(id, _)| id).collect();
        assert_eq!(
            found,
            expected.iter().map(|at: &usize| &rows[*at].id).collect::<Vec<_>>(),
            "{owner:?} {statuses:?}"
        );
        assert_eq!(page.next, None);
    }
}

/// Imported captures may refer to each other in any way.
pub(crate) async fn the_copies_of_a_capture_end_whatever_they_say_of_each_other(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    // Each is a replay of the one before it and a shadow of the one before that. The first one is a
    // replay of the last one, and one more is a replay of itself.
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
    let index = store.capture_index();
    let delete = async |id: &RequestId, owner: Option<&str>| {
        let mut copies = index
            .delete(id, true, owner.map_or(Reach::All, |owner| Reach::Owner(UserId::known(owner))))
            .await
            .unwrap();
        copies.sort();
        copies
    };
    assert!(delete(&ids[0], Some("usr_bob")).await.is_empty(), "the copies are Ann's");
    assert_eq!(index.locate(&ids[0]).await.unwrap(), None);
    append(&store, &rows[..1], 1).await;
    assert_eq!(delete(&ids[0], Some("usr_ann")).await, ids[1..]);
    assert!(delete(&alone, None).await.is_empty());
    let left = index.list(CaptureFilter { shadows: Shadows::With, ..Default::default() }, 9, None);
    assert!(left.await.unwrap().found.is_empty());
}

pub(crate) async fn a_line_has_the_captures_of_its_keys_and_deletes_no_others(bed: &impl Bed) {
    let store = bed.open().await;
    let random = Random::seeded(5);
    let keys: Vec<KeyId> = (0..3).map(|at| KeyId::new(at_second(at), &random)).collect();
    let mut rows: Vec<CaptureRow> = (0..9).map(|second| row(second, &random)).collect();
    // Captures by the first key, by its child, by a stranger of the same owner, and without a key.
    // One capture by the first key has another owner.
    for (row, key) in rows.iter_mut().zip([0, 1, 2, 0, 2, 1, 3, 0, 1]) {
        row.key = keys.get(key).cloned();
    }
    rows[7].owner = UserId::known("usr_bob");
    for copy in [3, 4, 6, 7] {
        rows[copy].replay_of = Some(rows[0].id.clone());
    }
    // This is a copy by the child, but of a capture by the stranger.
    rows[8].replay_of = Some(rows[4].id.clone());
    append(&store, &rows, 1).await;
    let index = store.capture_index();
    let ann = UserId::known("usr_ann");
    let line = |keys: &[KeyId]| Reach::Line(ann.clone(), Arc::new(keys.iter().cloned().collect()));
    let list = async |filter: CaptureFilter, after: Option<RequestId>, limit: usize| {
        let page = index.list_within(filter, limit, after, 4).await.unwrap();
        let at = |id: &RequestId| rows.iter().position(|row| row.id == *id).unwrap();
        (page.found.iter().map(|(id, _)| at(id)).collect::<Vec<_>>(), page.next)
    };
    for (reach, status, expected) in [
        (line(&keys[..2]), 200, vec![8, 5, 3, 1, 0]),
        (line(&keys[2..]), 200, vec![4, 2]),
        (line(&keys[2..]), 404, vec![]),
        (line(&[]), 200, vec![]),
        (Reach::Owner(ann.clone()), 200, vec![8, 6, 5, 4, 3, 2, 1, 0]),
    ] {
        let statuses = vec![(status, status)];
        let filter = CaptureFilter { reach: reach.clone(), statuses, ..Default::default() };
        for limit in [1, 2, 9] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = list(filter.clone(), after, limit).await;
                assert!(page.len() <= limit, "{reach:?}");
                found.extend(page);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{reach:?} {limit}");
        }
    }
    let mut gone = index.delete(&rows[0].id, true, line(&keys[..2])).await.unwrap();
    gone.sort();
    assert_eq!(gone, [rows[3].id.clone()], "not what is reached over a stranger's");
    let all = CaptureFilter::default();
    let left = index.list(all, 9, None).await.unwrap().found;
    let left: HashSet<RequestId> = left.into_iter().map(|(id, _)| id).collect();
    let kept = [1, 2, 4, 5, 6, 7, 8].map(|at: usize| rows[at].id.clone());
    assert_eq!(left, HashSet::from(kept));
}
