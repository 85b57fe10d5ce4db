//! The buckets of rates.

use proptest::prelude::*;

use super::*;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(1_764_000_000_000_000 + micros).unwrap()
}

fn full(limit: u64, now: Timestamp) -> Bucket {
    Bucket::full(limit, Duration::from_secs(60), now)
}

#[test]
fn a_bucket_fills_with_time() {
    let mut bucket = full(60, at(0));
    assert_eq!(bucket.left(), RateLeft { limit: 60, remaining: 60, reset: Duration::ZERO });
    bucket.take(60);
    assert!(!bucket.has(1) && bucket.could_have(60) && !bucket.could_have(61));
    assert_eq!(bucket.wait_for(1), Duration::from_micros(1_000_001));
    bucket.fill(at(999_999));
    assert!(!bucket.has(1));
    bucket.fill(at(1_000_000));
    assert!(bucket.has(1) && !bucket.has(2));
    assert_eq!(bucket.left().reset, Duration::from_secs(59));
    bucket.fill(at(-5_000_000));
    assert_eq!(bucket.left().remaining, 1, "a clock that goes back takes nothing");
    bucket.fill(at(-4_000_000));
    assert_eq!(bucket.left().remaining, 2, "and does not stop the flow");
    bucket.fill(at(600_000_000));
    assert!(bucket.is_full());
}

#[test]
fn requests_out_of_order_make_no_time() {
    let mut bucket = full(60, at(0));
    bucket.take(60);
    for _ in 0..1_000 {
        // Two that looked at the clock in one order and came here in the other.
        bucket.fill(at(900_000));
        bucket.fill(at(899_000));
    }
    assert!(!bucket.has(1));
    bucket.fill(at(1_000_000));
    assert!(bucket.has(1) && !bucket.has(2));
}

#[test]
fn what_was_used_beyond_is_owed_for_a_minute_at_most() {
    let mut bucket = full(10, at(0));
    bucket.take(1_000);
    assert_eq!(bucket.left().remaining, 0);
    bucket.fill(at(60_000_000));
    assert!(!bucket.has(1));
    bucket.fill(at(120_000_000));
    assert!(bucket.is_full());
    bucket.take(-50);
    assert!(bucket.is_full(), "nothing is put back that was not taken");
}

#[test]
fn another_rate_keeps_what_was_used() {
    let mut bucket = full(10, at(0));
    bucket.take(4);
    bucket.follow(100, at(0));
    assert_eq!(bucket.left().remaining, 96);
    bucket.follow(5, at(0));
    assert_eq!(bucket.left().remaining, 1);
    let mut huge = full(u64::MAX, at(0));
    huge.take(i64::MAX);
    huge.fill(at(i64::from(u32::MAX)));
    assert!(huge.could_have(1));
}

proptest! {
    /// Over any span, no more passes than a full bucket and what flowed in.
    #[test]
    fn never_more_than_the_rate(limit in 1u64..500,
        steps in proptest::collection::vec((0i64..5_000_000, 1u64..40), 1..200)) {
        let mut bucket = full(limit, at(0));
        let (mut now, mut taken) = (0, 0u64);
        for (pause, count) in steps {
            now += pause;
            bucket.fill(at(now));
            if bucket.has(count) {
                bucket.take(i64::try_from(count).unwrap());
                taken += count;
            } else {
                let wait = i64::try_from(bucket.wait_for(count).as_micros()).unwrap();
                let mut later = Bucket { ..bucket };
                later.fill(at(now + wait));
                prop_assert!(
                    !bucket.could_have(count) || wait > 120_000_000 || later.has(count)
                );
            }
            let minutes = 60_000_000 + u128::try_from(now).unwrap();
            let most = u128::from(limit) * minutes;
            prop_assert!(u128::from(taken) * 60_000_000 <= most);
            prop_assert!(bucket.left().remaining <= limit);
        }
    }
}
