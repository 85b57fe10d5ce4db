//! Who counts as dead.

use super::*;

const TIMING: Timing = Timing { lease: Duration::from_millis(1_000) };

fn peer(id: &str, renewals: u64) -> Peer {
    Peer { id: id.into(), name: id.into(), applied: 0, renewals, serves_stale: false }
}

#[test]
fn a_gateway_is_dead_when_it_was_silent_for_a_lease() {
    let mut reaper = Reaper::default();
    let mut look = |ms, others: &[Peer]| {
        let dead = reaper.look(Duration::from_millis(ms), TIMING, others);
        dead.into_iter().map(|(id, renewals)| format!("{id}{renewals}")).collect::<Vec<_>>()
    };
    for at in (0..1_000).step_by(200) {
        assert!(look(at, &[peer("a", 1), peer("b", at)]).is_empty());
    }
    assert_eq!(look(1_050, &[peer("a", 1), peer("b", 1_000)]), ["a1"]);
    // A row that went and came back is another one.
    assert!(look(1_060, &[peer("b", 1_000)]).is_empty());
    assert!(look(1_100, &[peer("a", 1), peer("b", 1_000)]).is_empty());
}

#[test]
fn a_finder_that_was_away_begins_anew() {
    let mut reaper = Reaper::default();
    assert!(reaper.look(Duration::ZERO, TIMING, &[peer("a", 1)]).is_empty());
    let late = Duration::from_secs(30);
    assert!(reaper.look(late, TIMING, &[peer("a", 1)]).is_empty(), "nobody could renew");
}

#[test]
fn one_that_goes_on_without_a_lease_is_not_dead() {
    let mut reaper = Reaper::default();
    let stale = Peer { serves_stale: true, ..peer("a", 1) };
    for at in 0..100 {
        let now = Duration::from_millis(at * 200);
        assert!(reaper.look(now, TIMING, std::slice::from_ref(&stale)).is_empty());
    }
}
