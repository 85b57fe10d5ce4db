//! Requests that wait for a hold.

use std::time::Instant;

use super::reserve::HOLD_WAIT;
use super::tests::{World, at, day, pay};
use super::*;
use rerouter_base::clock::Clock;
use rerouter_base::error::Kind;
use rerouter_store::{KeyRow, Limits};

/// Writes whenever something is due, as the service does.
async fn keep_writing(limiter: &Limiter, world: &World) {
    loop {
        limiter.due(tokio::time::Instant::now() + USAGE_WRITE_INTERVAL).await;
        _ = limiter.write(&world.store, at(0)).await;
    }
}

async fn paid(world: &World, nano: NanoUsd) -> KeyRow {
    world.key(None, Limits { budget: day(nano), ..Limits::default() }).await
}

/// A request that is let in, and told that its budget lacks a hold.
fn lacking(limiter: &Limiter, draws: &[Draw], wanted: Reserve) -> LimitPermit {
    let mut permit = limiter.admit(draws, 1, at(0)).unwrap();
    let refused = limiter.reserve(&mut permit, wanted, at(0)).unwrap_err();
    assert_eq!((refused.kind(), refused.retry_after_s()), (Kind::RateLimited, Some(1)));
    assert!(permit.awaits_hold());
    permit
}

#[tokio::test]
async fn a_request_waits_for_a_hold_that_covers_it() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let above = paid(&world, 900).await;
    let key = world.key(Some(&above), Limits { budget: day(500), ..Limits::default() }).await;
    let draws = world.draws(&key);
    let clock = Clock::manual(at(0));
    // The first of a new budget, then one larger than the hold.
    for (wanted, took) in [(Reserve::exactly(10), 10), (Reserve::exactly(300), 300)] {
        let mut permit = lacking(&limiter, &draws, wanted);
        tokio::select! {
            held = limiter.reserve_held(&mut permit, wanted, &clock) => held.unwrap(),
            () = keep_writing(&limiter, &world) => {}
        }
        for held in &permit.held {
            assert_eq!(held.money.unwrap().1, took);
        }
        permit.settle(None, Some(took), false);
    }
    let rest = pay(&limiter, &world, &draws, Reserve { least: 1, most: 5_000 }).await.unwrap();
    assert_eq!(rest.held[0].money.unwrap().1, 500 - 10 - 300);
    rest.settle(None, None, false);
    let mut late = limiter.admit(&draws, 1, at(0)).unwrap();
    let refused = limiter.reserve(&mut late, Reserve::exactly(1), at(0)).unwrap_err();
    assert_eq!(refused.kind(), Kind::InsufficientQuota);
    assert!(!late.awaits_hold(), "nothing is waited for that will not come");
}

#[tokio::test]
async fn of_two_gateways_neither_spends_what_the_other_holds() {
    const BUDGET: NanoUsd = 10_000;
    let world = World::shared().await;
    let gateways = [world.start().await, world.start().await];
    let key = paid(&world, BUDGET).await;
    let draws = world.draws(&key);
    let clock = Clock::manual(at(0));
    let one = async |at_gateway: usize| {
        let limiter = &gateways[at_gateway];
        let wanted = Reserve::exactly(170);
        let Ok(mut permit) = limiter.admit(&draws, 1, at(0)) else { return 0 };
        let mut done = limiter.reserve(&mut permit, wanted, at(0));
        if permit.awaits_hold() {
            done = limiter.reserve_held(&mut permit, wanted, &clock).await;
        }
        if done.is_err() {
            return 0;
        }
        tokio::task::yield_now().await;
        permit.settle(None, Some(170), false);
        170
    };
    let all = futures::future::join_all((0..100).map(|n| one(n % 2)));
    let spent: NanoUsd = tokio::select! {
        spent = all => spent.into_iter().sum(),
        () = keep_writing(&gateways[0], &world) => 0,
        () = keep_writing(&gateways[1], &world) => 0,
    };
    assert!((BUDGET / 2..=BUDGET).contains(&spent), "{spent}");
}

#[tokio::test]
async fn a_wait_ends_and_while_the_store_fails_there_is_none() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let key = paid(&world, 1_000).await;
    let draws = world.draws(&key);
    let (clock, wanted) = (Clock::manual(at(0)), Reserve::exactly(10));
    // Nobody writes.
    let mut permit = lacking(&limiter, &draws, wanted);
    let began = Instant::now();
    let refused = limiter.reserve_held(&mut permit, wanted, &clock).await.unwrap_err();
    assert_eq!((refused.kind(), refused.retry_after_s()), (Kind::RateLimited, Some(1)));
    assert!(refused.detail().contains("is pending"), "{}", refused.detail());
    assert!(began.elapsed() >= HOLD_WAIT);

    world.faults.fail_every_write();
    limiter.write(&world.store, at(0)).await.unwrap_err();
    let mut permit = lacking(&limiter, &draws, wanted);
    let began = Instant::now();
    let refused = limiter.reserve_held(&mut permit, wanted, &clock).await.unwrap_err();
    assert_eq!((refused.kind(), refused.retry_after_s()), (Kind::Unavailable, Some(1)));
    assert!(refused.detail().contains("store is unavailable"), "{}", refused.detail());
    assert!(began.elapsed() < HOLD_WAIT);

    world.faults.clear();
    limiter.write(&world.store, at(0)).await.unwrap();
    limiter.reserve(&mut permit, wanted, at(0)).unwrap();
}
