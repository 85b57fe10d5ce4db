//! Reserves that are cut to what is left, what a refusal gives back, and the words for it.

use std::sync::Arc;

use super::tests::{World, at, day, draw, pay};
use super::*;
use rerouter_base::error::Kind;
use rerouter_store::{Budget, LimitOwner, Limits, Per};

/// What a request reserves that says nothing of the length of its answer.
const OPEN: Reserve = Reserve { least: 10, most: 5_000 };

fn paid(budget: Option<Budget>) -> Limits {
    Limits { budget, ..Limits::default() }
}

#[tokio::test]
async fn a_first_request_takes_what_is_there_and_a_second_finds_nothing() {
    let world = World::new(Limits::default()).await;
    let above = world.key(None, paid(day(800))).await;
    let below = world.key(Some(&above), paid(day(1_000))).await;
    let limiter = world.start().await;
    let draws = world.draws(&below);
    let first = pay(&limiter, &world, &draws, OPEN).await.unwrap();
    let money = first.remaining().money.unwrap();
    assert_eq!((money.whose, money.reserved, money.remaining()), (LimitOwner::KeyAbove, 800, 0));
    for wanted in [OPEN, Reserve::exactly(1), Reserve::between(0, 5_000)] {
        let mut second = limiter.admit(&draws, 1, at(0)).unwrap();
        let refused = limiter.reserve(&mut second, wanted, at(0)).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.retry_after_s(), refused.forbids_retry()),
            (Kind::RateLimited, Some(1), false)
        );
        assert!(
            refused.detail().contains("0.0000008 USD is reserved by requests under way"),
            "{}",
            refused.detail()
        );
    }
    let mut free = limiter.admit(&draws, 1, at(0)).unwrap();
    limiter.reserve(&mut free, Reserve::between(0, 0), at(0)).unwrap();
    first.settle(None, Some(40), false);
    limiter.write(&world.store, at(0)).await.unwrap();
    let next = pay(&limiter, &world, &draws, OPEN).await.unwrap();
    assert_eq!(next.remaining().money.unwrap().reserved, 760);
    // It costs more than was left: charged in full, and then there is nothing any more, but for
    // what is free.
    next.settle(None, Some(2_000), false);
    for wanted in [OPEN, Reserve::exactly(1)] {
        let mut late = limiter.admit(&draws, 1, at(0)).unwrap();
        let refused = limiter.reserve(&mut late, wanted, at(0)).unwrap_err();
        assert_eq!((refused.kind(), refused.forbids_retry()), (Kind::InsufficientQuota, true));
        assert!(refused.detail().contains("0.00000204 USD is spent"), "{}", refused.detail());
    }
    let mut free = limiter.admit(&draws, 1, at(0)).unwrap();
    limiter.reserve(&mut free, Reserve::exactly(0), at(0)).unwrap();
    limiter.close(&world.store).await.unwrap();
    let after = world.start().await;
    assert_eq!(
        after.remaining(&draws, at(0)).money.unwrap().spent,
        2_040,
        "an overdraft is remembered"
    );
}

#[tokio::test]
async fn a_budget_is_told_with_its_end_and_the_later_of_two() {
    let world = World::new(Limits {
        budget: Some(Budget { nano: 900, per: Per::Month }),
        ..Limits::default()
    })
    .await;
    let key = world.key(None, paid(day(500))).await;
    let limiter = world.start().await;
    let draws = world.draws(&key);
    let refused = |amount| {
        let mut permit = limiter.admit(&draws, 1, at(0)).unwrap();
        *limiter.reserve(&mut permit, Reserve::exactly(amount), at(0)).unwrap_err()
    };
    // Eight hours before the end of 24 November 2025.
    let of_day = refused(600);
    assert_eq!((of_day.kind(), of_day.retry_after_s()), (Kind::InsufficientQuota, Some(8 * 3_600)));
    for told in [
        "your key, 0.0000005 USD a day",
        "would reserve 0.0000006 USD",
        "more than the whole budget",
        "begins at 2025-11-25T00:00:00Z",
    ] {
        assert!(of_day.detail().contains(told), "{told}: {}", of_day.detail());
    }
    let of_both = refused(901);
    assert_eq!(of_both.retry_after_s(), Some((6 * 24 + 8) * 3_600), "{}", of_both.detail());
    for told in
        ["your user, 0.0000009 USD a month", "The next month begins at 2025-12-01T00:00:00Z"]
    {
        assert!(of_both.detail().contains(told), "{told}: {}", of_both.detail());
    }
}

#[test]
fn what_is_released_was_never_taken() {
    let limiter = Limiter::default();
    let draws = [draw(
        "key_a",
        Limits { rpm: Some(2), tpm: Some(100), concurrency: Some(1), ..Limits::default() },
    )];
    let untouched = limiter.remaining(&draws, at(0));
    for _ in 0..5 {
        let permit = limiter.admit(&draws, 60, at(0)).unwrap();
        let told = permit.remaining();
        assert_eq!(
            (
                told.counts[0].unwrap().left.remaining,
                told.counts[1].unwrap().reserved,
                told.counts[2].unwrap().used
            ),
            (1, 60, 1)
        );
        let refused = limiter.admit(&draws, 60, at(0)).err().unwrap();
        assert_eq!(refused.remaining, told, "and what is refused takes nothing");
        assert_eq!(permit.release(), untouched);
        // So too where it is dropped, as by a panic.
        drop(limiter.admit(&draws, 60, at(0)).unwrap());
        assert_eq!(limiter.remaining(&draws, at(0)), untouched);
    }
    limiter.admit(&draws, 60, at(0)).unwrap().settle(Some(30), None, false);
    let left = limiter.remaining(&draws, at(0));
    let tokens = left.counts[1].unwrap();
    assert_eq!(
        (left.counts[0].unwrap().used, tokens.used, tokens.reserved, tokens.left.remaining),
        (1, 30, 0, 70)
    );
}

#[test]
fn refusals_name_limit_use_and_need() {
    let limiter = Limiter::default();
    let told = |draws: &[Draw], tokens| {
        limiter.admit(draws, tokens, at(0)).err().unwrap().error.detail().to_owned()
    };
    let rate = [draw("key_r", Limits { rpm: Some(1), ..Limits::default() })];
    limiter.admit(&rate, 1, at(0)).unwrap().settle(None, None, false);
    assert_eq!(
        told(&rate, 1),
        "The limit of your key, 1 request a minute, is reached: 1 is used, \
         and this request would be one more."
    );
    let tokens = [Draw {
        whose: LimitOwner::KeyAbove,
        ..draw("key_t", Limits { tpm: Some(100), ..Limits::default() })
    }];
    limiter.admit(&tokens, 30, at(0)).unwrap().settle(None, None, false);
    let _held = limiter.admit(&tokens, 40, at(0)).unwrap();
    let words = "The limit of a key above yours, 100 tokens a minute, is reached: 30 are used, \
        40 are reserved by requests under way, and this request would reserve 31.";
    assert_eq!(told(&tokens, 31), words);
    assert!(told(&tokens, 101).starts_with(
        "The limit of a key above yours, 100 tokens a minute, \
                is too small for this request, which would reserve 101."
    ));
    let places = [Draw {
        whose: LimitOwner::User,
        ..draw("key_p", Limits { concurrency: Some(1), ..Limits::default() })
    }];
    let _held = limiter.admit(&places, 1, at(0)).unwrap();
    assert_eq!(
        told(&places, 1),
        "The limit of your user, 1 request at once, is reached: 1 is under way, \
         and this request would be one more."
    );
}

/// Threads that all want what is left, above and below: however they meet, what is reserved at once
/// is never more than there is.
#[tokio::test]
async fn threads_never_share_a_remainder() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let world = World::new(Limits::default()).await;
    let above = world.key(None, paid(day(100_000))).await;
    let keys = [
        above.clone(),
        world.key(Some(&above), paid(day(60_000))).await,
        world.key(Some(&above), Limits::default()).await,
    ];
    let limiter = Arc::new(world.start().await);
    let (under_way, passed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let clients = keys.iter().map(|key| world.draws(key)).map(|draws| {
        let (limiter, under_way, passed) =
            (Arc::clone(&limiter), Arc::clone(&under_way), Arc::clone(&passed));
        std::thread::spawn(move || {
            while passed.load(Ordering::SeqCst) < 300 {
                let mut permit = limiter.admit(&draws, 1, at(0)).unwrap();
                // More than there is of any of them: who passes has all of the one above, or all of
                // its own.
                if limiter.reserve(&mut permit, Reserve::between(1, 1_000_000), at(0)).is_ok() {
                    let reserved = permit
                        .held
                        .iter()
                        .filter_map(|held| held.money)
                        .map(|(_, reserved)| reserved)
                        .min()
                        .unwrap();
                    assert!(under_way.fetch_add(reserved, Ordering::SeqCst) + reserved <= 100_000);
                    passed.fetch_add(1, Ordering::SeqCst);
                    under_way.fetch_sub(reserved, Ordering::SeqCst);
                    permit.settle(None, Some(3), false);
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    while !clients.iter().all(std::thread::JoinHandle::is_finished) {
        limiter.write(&world.store, at(0)).await.unwrap();
    }
    for client in clients {
        client.join().unwrap();
    }
    let spent = limiter.remaining(&world.draws(&above), at(0)).money.unwrap().spent;
    assert_eq!(spent, 3 * passed.load(Ordering::SeqCst));
    assert!(spent > 0);
}
