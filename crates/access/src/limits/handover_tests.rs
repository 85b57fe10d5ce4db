//! Two processes on one store and its budgets, of which the first hands over to the second.

use super::tests::{World, at, day};
use super::*;
use rerouter_base::secret::SecretBytes;
use rerouter_store::{DataDir, Limits, Opening, Store, StoreError};

/// The store of the process after this one.
async fn successor(store: &Store) -> Store {
    let locks = store.data_locks().iter().map(|lock| lock.try_clone().unwrap()).collect();
    let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
    let dir = DataDir::handed_over(store.dir(), locks, None);
    Store::open_in(dir, unlock).await.unwrap().0
}

fn spent(limiter: &Limiter, draws: &[Draw]) -> NanoUsd {
    limiter.counted(&draws[0].subject).counts().account.as_ref().unwrap().spent()
}

/// Reserves an amount as soon as it is granted.
async fn reserve(
    limiter: &Limiter,
    store: &Store,
    draws: &[Draw],
    amount: NanoUsd,
) -> Option<LimitPermit> {
    for _ in 0..2 {
        let mut permit = limiter.admit(draws, 1, at(0)).unwrap();
        if limiter.reserve(&mut permit, Reserve::exactly(amount), at(0)).is_ok() {
            return Some(permit);
        }
        let _refused = permit.release();
        limiter.write(store, at(0)).await.unwrap();
    }
    None
}

#[tokio::test]
async fn two_processes_stay_within_a_budget_and_the_second_knows_what_both_spent() {
    let world = World::new(Limits::default()).await;
    let budget = Limits { budget: day(1_000), ..Limits::default() };
    let key = world.key(None, budget).await;
    let (draws, store) = (world.draws(&key), &world.store);
    let first = Limiter::default();
    first.open(&world.auth, store, at(0)).await.unwrap();
    let long = reserve(&first, store, &draws, 300).await.unwrap();
    let soon = reserve(&first, store, &draws, 100).await.unwrap();

    first.share(store).await.unwrap();
    let second = Limiter::default();
    let next = &successor(store).await;
    second.open(&world.auth, next, at(0)).await.unwrap();
    soon.settle(None, Some(100));
    let other = reserve(&second, next, &draws, 250).await.unwrap();
    assert!(reserve(&second, next, &draws, 500).await.is_none(), "all would be over 1,000");
    assert!(reserve(&first, store, &draws, 500).await.is_none(), "of either process");
    other.settle(None, Some(200));
    long.settle(None, Some(50));
    first.close(store).await.unwrap();
    next.predecessor_ended();
    second.stop_sharing(next, at(0)).await.unwrap();
    assert_eq!(spent(&second, &draws), 350);
    let rest = reserve(&second, next, &draws, 650).await.expect("what is left");
    rest.settle(None, Some(650));
    second.close(next).await.unwrap();
    let third = Limiter::default();
    third.open(&world.auth, store, at(0)).await.unwrap();
    assert_eq!(spent(&third, &draws), 1_000);
}

/// The second one ends before it serves: what it was granted counts as spent, and no more.
#[tokio::test]
async fn a_process_that_takes_its_budgets_back_counts_right() {
    let world = World::new(Limits::default()).await;
    let budget = Limits { budget: day(10_000), ..Limits::default() };
    let key = world.key(None, budget).await;
    let (draws, store) = (world.draws(&key), &world.store);
    let first = Limiter::default();
    first.open(&world.auth, store, at(0)).await.unwrap();
    reserve(&first, store, &draws, 1_000).await.unwrap().settle(None, Some(1_000));
    first.share(store).await.unwrap();
    let second = Limiter::default();
    second.open(&world.auth, &successor(store).await, at(0)).await.unwrap();
    drop(second);
    first.stop_sharing(store, at(0)).await.unwrap();
    let counted = spent(&first, &draws);
    assert!((1_000..=3_500).contains(&counted), "{counted}");
    first.close(store).await.unwrap();
    let third = Limiter::default();
    third.open(&world.auth, store, at(0)).await.unwrap();
    assert_eq!(spent(&third, &draws), counted);
}
