//! States of nodes and leases, with a clock that the test sets.

use std::time::Instant;

use super::fixtures::{enrolled, nodes, registered, report, serving};
use super::*;
use rerouter_base::clock::fixtures::at;
use rerouter_store::PreviousNodeSecret;

#[test]
fn a_node_stands_as_it_reports_and_for_as_long_as_its_lease() {
    let nodes = nodes();
    let row = enrolled(&nodes, "a");
    nodes.load(vec![row.clone()]);
    let standing = |second| nodes.show(&row.id, at(second)).unwrap().standing;
    assert_eq!(standing(0), NodeState::Pending);
    assert_eq!(
        nodes.report(&row.id, report(1, NodeStatus::Ready, 0), at(0)),
        Err(HeartbeatRefusal::Unregistered)
    );
    nodes.load(vec![registered(&row, 1, &["m"])]);
    assert_eq!(standing(0), NodeState::Unreachable, "as after a start");
    nodes.begin(&row.id, 1, at(0));
    assert_eq!(
        (standing(0), standing(29), standing(30)),
        (NodeState::Ready, NodeState::Ready, NodeState::Unreachable)
    );
    nodes.report(&row.id, report(3, NodeStatus::Ready, 0), at(40)).unwrap();
    assert_eq!(
        (standing(39), standing(-30)),
        (NodeState::Ready, NodeState::Ready),
        "to a request that came before the report"
    );
    assert_eq!(
        (standing(40), standing(69), standing(70)),
        (NodeState::Ready, NodeState::Ready, NodeState::Unreachable)
    );
    for seq in [3, 2] {
        assert_eq!(
            nodes.report(&row.id, report(seq, NodeStatus::Ready, 0), at(60)),
            Err(HeartbeatRefusal::Seq)
        );
    }
    assert_eq!(standing(70), NodeState::Unreachable, "what is not taken extends nothing");
    nodes.report(&row.id, report(4, NodeStatus::Draining, 0), at(70)).unwrap();
    assert_eq!(standing(70), NodeState::Draining);
    nodes.report(&row.id, report(5, NodeStatus::Error, 0), at(70)).unwrap();
    assert_eq!((standing(70), nodes.ready("m", at(70)).len()), (NodeState::Draining, 0));
    nodes.report(&row.id, report(6, NodeStatus::Ready, 0), at(70)).unwrap();
    nodes.load(vec![registered(&row, 2, &["m"])]);
    assert_eq!(
        (standing(70), standing(100)),
        (NodeState::Ready, NodeState::Unreachable),
        "whoever registers again is there meanwhile"
    );
    assert_eq!(nodes.show(&row.id, at(70)).unwrap().lease_until, Some(at(100)));
    nodes.load(vec![registered(&row, 3, &["m"])]);
    assert_eq!((standing(70), nodes.ready("m", at(70)).len()), (NodeState::Ready, 1), "also twice");
    nodes.load(vec![registered(&row, 2, &["m"])]);
    nodes.report(&row.id, report(1, NodeStatus::Ready, 0), at(70)).unwrap();
    assert_eq!(
        (standing(70), nodes.ready("m", at(70)).len(), nodes.ready("n", at(70)).len()),
        (NodeState::Ready, 1, 0)
    );
    let mut left = registered(&row, 2, &["m"]);
    left.registration.as_mut().unwrap().ended = true;
    nodes.load(vec![left]);
    assert_eq!((standing(70), nodes.count(NodeState::Gone, at(70))), (NodeState::Gone, 1));
}

#[test]
fn a_clock_that_is_set_back_makes_no_lease_longer() {
    let nodes = nodes();
    let row = serving(&nodes, "a");
    nodes.report(&row.id, report(1, NodeStatus::Ready, 0), at(40)).unwrap();
    let standing = |second| nodes.show(&row.id, at(second)).unwrap().standing;
    assert_eq!((standing(-3_600), standing(40)), (NodeState::Ready, NodeState::Ready));
    nodes.get(&row.id).unwrap().lease().started = Instant::now().checked_sub(bounds::NODE_LEASE);
    assert_eq!(
        (standing(-3_600), standing(40)),
        (NodeState::Unreachable, NodeState::Unreachable),
        "by the clock that nobody sets"
    );
    nodes.report(&row.id, report(2, NodeStatus::Ready, 0), at(-3_600)).unwrap();
    assert_eq!(standing(-3_600), NodeState::Ready);
}

#[test]
fn a_secret_is_taken_by_generation_and_until_its_end() {
    let nodes = nodes();
    let random = Random::seeded(9);
    let mut row = enrolled(&nodes, "a");
    row.previous = Some(PreviousNodeSecret { secret: row.secret.clone(), expires_at: at(600) });
    row.generation = 2;
    row.secret = nodes.seal_secret(&row.id, 2, &Secret::new("two"), &random).unwrap();
    nodes.load(vec![row.clone()]);
    let takes = |generation, second| nodes.takes(&row.id, generation, at(second));
    assert_eq!(
        (takes(2, 0), takes(1, 599), takes(1, 600), takes(3, 0)),
        (true, true, false, false)
    );
    // A sealed secret does not open for another node.
    let other = NodeRow { secret: row.secret.clone(), generation: 1, ..enrolled(&nodes, "b") };
    nodes.load(vec![other.clone()]);
    assert!(!nodes.takes(&other.id, 1, at(0)));
}

#[test]
fn what_is_of_an_earlier_registration_does_not_count() {
    let nodes = nodes();
    let row = serving(&nodes, "a");
    let said =
        |epoch, signed_s, seq| Heartbeat { epoch, signed_s, ..report(seq, NodeStatus::Ready, 0) };
    nodes.report(&row.id, said(Some(1), 10, 7), at(1)).unwrap();
    let mut again = registered(&row, 2, &["m"]);
    again.registration.as_mut().unwrap().signed_s = 20;
    nodes.load(vec![again]);
    nodes.begin(&row.id, 2, at(20));
    assert_eq!(
        nodes.report(&row.id, said(Some(1), 25, 8), at(25)),
        Err(HeartbeatRefusal::Epoch),
        "by its word"
    );
    assert_eq!(
        nodes.report(&row.id, said(Some(3), 25, 8), at(25)),
        Err(HeartbeatRefusal::Epoch),
        "of one that is not there"
    );
    assert_eq!(
        nodes.report(&row.id, said(None, 19, 8), at(25)),
        Err(HeartbeatRefusal::Epoch),
        "it was under way"
    );
    nodes.begin(&row.id, 1, at(26));
    assert_eq!(
        nodes.show(&row.id, at(26)).unwrap().standing,
        NodeState::Ready,
        "a beginning that comes late changes nothing"
    );
    nodes.report(&row.id, said(Some(2), 25, 1), at(26)).unwrap();
    nodes.report(&row.id, said(None, 25, 2), at(26)).unwrap();
    let shown = nodes.show(&row.id, at(50)).unwrap();
    assert_eq!((shown.standing, shown.lease_until), (NodeState::Ready, Some(at(56))));
}
