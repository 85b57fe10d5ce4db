//! Which gateways count as dead.

use std::collections::BTreeSet;

use super::*;

const TIMING: Timing = Timing { lease: Duration::from_millis(1_000) };

/// The gateway that searches.
fn own() -> GatewayIdentity {
    GatewayIdentity {
        instance: "own".into(),
        directory: "own".into(),
        process: "p3".into(),
        name: "own".into(),
        version: "1".into(),
        address: "127.0.0.1:1".into(),
    }
}

fn peer(id: &str, renewals: u64) -> Peer {
    Peer {
        id: id.into(),
        directory: id.into(),
        process: "p2".into(),
        name: id.into(),
        lease: Duration::ZERO,
        applied: 0,
        renewals,
        serves_stale: false,
    }
}

#[test]
fn a_gateway_is_dead_when_it_was_silent_for_a_lease() {
    let mut reaper = Reaper::default();
    let mut look = |ms, others: &[Peer]| {
        let dead = reaper.look(
            Duration::from_millis(ms),
            TIMING,
            (&own(), &Predecessor::default()),
            others,
        );
        dead.into_iter().map(|(id, renewals)| format!("{id}{renewals}")).collect::<Vec<_>>()
    };
    for at in (0..1_000).step_by(200) {
        assert!(look(at, &[peer("a", 1), peer("b", at)]).is_empty());
    }
    assert_eq!(look(1_050, &[peer("a", 1), peer("b", 1_000)]), ["a1"]);
    // A row that vanished and came back counts as a new one.
    assert!(look(1_060, &[peer("b", 1_000)]).is_empty());
    assert!(look(1_100, &[peer("a", 1), peer("b", 1_000)]).is_empty());
}

#[test]
fn a_finder_that_was_away_begins_anew() {
    let mut reaper = Reaper::default();
    assert!(
        reaper
            .look(Duration::ZERO, TIMING, (&own(), &Predecessor::default()), &[peer("a", 1)])
            .is_empty()
    );
    let late = Duration::from_secs(30);
    assert!(
        reaper.look(late, TIMING, (&own(), &Predecessor::default()), &[peer("a", 1)]).is_empty(),
        "nobody could renew"
    );
}

#[test]
fn one_that_goes_on_without_a_lease_is_not_dead() {
    let mut reaper = Reaper::default();
    let stale = Peer { serves_stale: true, ..peer("a", 1) };
    for at in 0..100 {
        let now = Duration::from_millis(at * 200);
        assert!(
            reaper
                .look(now, TIMING, (&own(), &Predecessor::default()), std::slice::from_ref(&stale))
                .is_empty()
        );
    }
}

#[test]
fn a_longer_lease_is_waited_for() {
    let mut reaper = Reaper::default();
    let long = Peer { lease: Duration::from_secs(3), ..peer("a", 1) };
    let mut look = |ms| {
        let now = Duration::from_millis(ms);
        reaper
            .look(now, TIMING, (&own(), &Predecessor::default()), std::slice::from_ref(&long))
            .len()
    };
    let found: Vec<usize> = (0..=3_200).step_by(400).map(&mut look).collect();
    assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_process_before_this_one_is_dead_when_it_is_silent_and_a_twin_when_it_is_not() {
    let stale =
        |renewals| Peer { directory: "own".into(), serves_stale: true, ..peer("a", renewals) };
    let mut reaper = Reaper::default();
    let mut look = |ms, others: &[Peer]| {
        let dead = reaper
            .look(Duration::from_millis(ms), TIMING, (&own(), &Predecessor::default()), others)
            .len();
        (dead, reaper.twin().map(str::to_owned))
    };
    for at in (0..1_000).step_by(200) {
        assert_eq!(look(at, &[stale(1)]), (0, None));
    }
    assert_eq!(look(1_050, &[stale(1)]), (1, None));
    let mut look_at = |ms, renewals| look(ms, &[stale(renewals)]);
    assert_eq!(look_at(1_200, 2), (0, Some("a".into())));
    assert_eq!(look_at(1_400, 2), (0, Some("a".into())));
    assert_eq!(look(1_600, &[]), (0, None), "it left");
    // A later process is no twin: it is the one that must not answer.
    let later = |renewals| Peer { process: "p4".into(), ..stale(renewals) };
    assert_eq!((look(1_800, &[later(1)]), look(2_000, &[later(2)])), ((0, None), (0, None)));
}

/// The row of a process before this one.
fn before(id: &str, renewals: u64) -> Peer {
    Peer { directory: "own".into(), process: id.into(), ..peer(id, renewals) }
}

/// The dead gateways and the twin that are found in twenty looks, one every 100 ms. `predecessor`
/// ends at the look number `end`.
fn found(
    (predecessor, end): (Predecessor, u64),
    others: impl Fn(u64) -> Vec<Peer>,
) -> (Vec<String>, Option<String>) {
    let (mut reaper, mut all) = (Reaper::default(), BTreeSet::new());
    for at in 0..20 {
        if at == end {
            predecessor.ended();
        }
        let (now, before) = (Duration::from_millis(at * 100), &predecessor);
        let dead = reaper.look(now, TIMING, (&own(), before), &others(at));
        all.extend(dead.into_iter().map(|(id, _)| id));
        if reaper.twin().is_some() {
            break;
        }
    }
    (all.into_iter().collect(), reaper.twin().map(str::to_owned))
}

/// The predecessor `p2`, which ends at the look number `end`.
fn until(end: u64) -> (Predecessor, u64) {
    (Predecessor::new(Some("p2".into())), end)
}

#[test]
fn the_process_that_was_taken_over_from_is_neither() {
    let stale = |at: u64| vec![Peer { serves_stale: true, ..before("p2", at.min(5)) }];
    assert_eq!(found(until(u64::MAX), stale), (vec![], None));
}

#[test]
fn one_that_renewed_just_before_its_end_is_dead_and_no_twin() {
    for end in 2..8 {
        let stale = |at: u64| {
            // The renewal is seen at the first look after the end, or later still.
            let renewals = if at < end + end % 2 { 1 } else { 2 };
            vec![Peer { serves_stale: true, ..before("p2", renewals) }]
        };
        assert_eq!(found(until(end), stale), (vec!["p2".into()], None));
    }
}

#[test]
fn a_copy_is_found_during_an_upgrade() {
    let others = |at: u64| vec![before("p2", at), before("p0", at)];
    assert_eq!(found(until(u64::MAX), others), (vec![], Some("p0".into())));
}

#[test]
fn a_process_that_has_handed_over_does_not_call_the_next_one_dead() {
    let next = |_| vec![Peer { serves_stale: true, ..before("p4", 1) }];
    assert_eq!(found((Predecessor::default(), 0), next), (vec![], None));
}
