//! Answers to creations that may be repeated.

use super::*;
use crate::KeptCreation;

fn kept(name: u8, key: &KeyRow) -> KeptCreation {
    KeptCreation {
        id: [name; 32],
        about: [7; 32],
        payer: "usr_ann".into(),
        key: key.id.clone(),
        sealed: vec![0, 159, 255],
    }
}

pub(crate) async fn a_creation_has_one_key_and_one_answer(bed: &impl Bed) {
    let random = Random::seeded(9);
    let one = key(&UserId::admin(), &random);
    let rev = {
        let store = bed.open().await;
        assert_eq!(store.creation([1; 32], at(1)).await.unwrap(), None);
        let made = store.create_key_once(one.clone(), None, Some(kept(1, &one))).await.unwrap();
        assert_eq!(made.changes.len(), 1);
        made.rev
    };
    let store = bed.open().await;
    let found = store.creation([1; 32], at(2)).await.unwrap();
    assert_eq!(found, Some((kept(1, &one), rev)), "also after another start");
    // The same call at once, from many.
    let others: Vec<KeyRow> = (0..8).map(|_| key(&UserId::admin(), &random)).collect();
    let make = |row: &KeyRow| store.create_key_once(row.clone(), None, Some(kept(2, row)));
    let made = futures::future::join_all(others.iter().map(make)).await;
    let first: Vec<usize> = (0..8).filter(|at| made[*at].is_ok()).collect();
    assert!(first.len() == 1, "{first:?}");
    let refused = made.iter().filter_map(|made| made.as_ref().err());
    assert!(refused.into_iter().all(|error| matches!(error, StoreError::Repeated)));
    let (answer, _) = store.creation([2; 32], at(2)).await.unwrap().unwrap();
    assert_eq!(answer, kept(2, &others[first[0]]));
    let mut keys: Vec<KeyId> =
        store.load().await.unwrap().keys.into_iter().map(|key| key.id).collect();
    keys.sort();
    let mut expected = vec![one.id.clone(), answer.key];
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(store.creations_of("usr_ann".into()).await.unwrap(), 2);
    assert_eq!(store.creations_of("usr_bob".into()).await.unwrap(), 0);
}

pub(crate) async fn an_answer_is_there_exactly_when_its_key_is(bed: &impl Bed) {
    let random = Random::seeded(10);
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    let parent = key(&UserId::admin(), &random);
    store.create_key(parent.clone()).await.unwrap();
    let child = KeyRow { parent: Some(parent.id.clone()), ..key(&UserId::admin(), &random) };
    let make =
        async |seen| store.create_key_once(child.clone(), Some(seen), Some(kept(1, &child))).await;
    faults.fail_writes(1);
    assert!(matches!(make(1).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(make(9).await, Err(StoreError::Conflict)));
    assert_eq!(store.creation([1; 32], at(1)).await.unwrap(), None);
    make(1).await.unwrap();
    assert!(store.creation([1; 32], at(1)).await.unwrap().is_some());
    // What is young stays.
    store.trim_creations(at(2)).await.unwrap();
    assert!(matches!(make(1).await, Err(StoreError::Repeated)));
    assert_eq!(store.creation([1; 32], at(700)).await.unwrap(), None);
    store.trim_creations(at(700)).await.unwrap();
    assert_eq!(store.creation([1; 32], at(2)).await.unwrap(), None);
}
