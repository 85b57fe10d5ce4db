use super::*;
use crate::clock::tests::at;

fn by(caller: &str, key: &str, about: &str) -> IdempotentCall {
    IdempotentCall {
        caller: caller.into(),
        payer: format!("payer of {caller}"),
        key: key.into(),
        about: about.into(),
    }
}

fn begin(
    repeats: &IdempotencyCache<&'static str>,
    key: &str,
    about: &str,
    second: i64,
) -> Result<CallLookup<&'static str>> {
    repeats.begin(by("key_1", key, about), at(second))
}

fn claim_by(
    repeats: &IdempotencyCache<&'static str>,
    caller: &str,
    key: &str,
    second: i64,
) -> Claim<&'static str> {
    match repeats.begin(by(caller, key, "a"), at(second)) {
        Ok(CallLookup::First(claim)) => claim,
        _ => panic!("not the first"),
    }
}

fn claim(repeats: &IdempotencyCache<&'static str>, key: &str, second: i64) -> Claim<&'static str> {
    claim_by(repeats, "key_1", key, second)
}

fn refused(found: Result<CallLookup<&'static str>>) -> Kind {
    found.err().expect("a refusal").kind()
}

fn is_empty(repeats: &IdempotencyCache<&'static str>) -> bool {
    let table = repeats.table();
    table.calls.is_empty() && table.ended.is_empty() && table.shares.is_empty()
}

#[test]
fn a_call_is_made_once_and_its_answer_is_kept_for_ten_minutes() {
    let repeats = IdempotencyCache::new("capture");
    let first = claim(&repeats, "a", 0);
    assert_eq!(refused(begin(&repeats, "a", "a", 0)), Kind::Conflict, "under way");
    first.answered("answer", 3, at(5));
    assert!(matches!(begin(&repeats, "a", "a", 604), Ok(CallLookup::Repeated("answer"))));
    assert_eq!(refused(begin(&repeats, "a", "b", 604)), Kind::Conflict, "another capture");
    let other = repeats.begin(by("key_2", "a", "b"), at(604));
    assert!(matches!(other, Ok(CallLookup::First(_))), "another caller's key is another call");
    drop(other);
    drop(claim(&repeats, "a", 605));
    assert!(is_empty(&repeats), "no entry is left");
}

#[test]
fn expired_answers_are_removed_without_another_call() {
    let repeats = IdempotencyCache::new("capture");
    claim(&repeats, "a", 0).answered("answer", 4, at(5));
    repeats.sweep(at(604));
    assert!(!is_empty(&repeats));
    repeats.sweep(at(605));
    assert!(is_empty(&repeats));
}

#[test]
fn an_unfinished_call_may_be_repeated() {
    let repeats = IdempotencyCache::new("capture");
    drop(claim(&repeats, "a", 0));
    drop(claim(&repeats, "a", 0));
    assert!(is_empty(&repeats));
}

#[test]
fn memory_is_bounded_and_answers_do_not_expire_early() {
    let repeats = IdempotencyCache::new("capture");
    let (large, late) = (claim(&repeats, "large", 0), claim(&repeats, "late", 0));
    large.answered("large", 10 * bounds::REPEATS_BYTES, at(0));
    late.answered("late", 1, at(0));
    assert_eq!(refused(begin(&repeats, "more", "a", 1)), Kind::RateLimited);
    assert!(matches!(begin(&repeats, "large", "a", 1), Ok(CallLookup::Repeated("large"))));
    assert_eq!(
        refused(begin(&repeats, "late", "a", 1)),
        Kind::Conflict,
        "it is neither repeated nor answered"
    );
    drop(claim_by(&repeats, "key_2", "more", 1));
    drop(claim(&repeats, "more", 600));
    assert!(is_empty(&repeats));
}

#[test]
fn a_payer_has_only_its_share() {
    let repeats = IdempotencyCache::new("capture");
    let many = |caller: &str, second: i64| -> Vec<Claim<_>> {
        (0..bounds::REPEATS_SHARE)
            .map(|n| claim_by(&repeats, caller, &n.to_string(), second))
            .collect()
    };
    let claims = many("key_1", 0);
    assert_eq!(refused(begin(&repeats, "more", "a", 0)), Kind::RateLimited);
    drop(claim_by(&repeats, "key_2", "more", 0));
    let others: Vec<_> = (2..=bounds::REPEATS / bounds::REPEATS_SHARE)
        .map(|n| many(&format!("key_{n}"), 0))
        .collect();
    let whole = repeats.begin(by("key_0", "more", "a"), at(0));
    assert_eq!(refused(whole), Kind::RateLimited, "all of them together are bounded as well");
    drop((claims, others));
    drop(claim(&repeats, "more", 0));
    assert!(is_empty(&repeats));
}

#[test]
fn a_key_is_there_once_and_visible() {
    let headers = |values: &[&str]| {
        values
            .iter()
            .map(|value| (HEADER.parse().unwrap(), value.parse().unwrap()))
            .collect::<HeaderMap>()
    };
    assert_eq!(key(&headers(&[])).unwrap(), None);
    assert_eq!(key(&headers(&["8f1c-2"])).unwrap().as_deref(), Some("8f1c-2"));
    let long = "k".repeat(bounds::IDEMPOTENCY_KEY + 1);
    for bad in [&[""][..], &["a b"], &["a", "a"], &[long.as_str()]] {
        assert_eq!(key(&headers(bad)).unwrap_err().field(), Some("Idempotency-Key"), "{bad:?}");
    }
}
