//! States of nodes, leases and the order of nodes, with a clock that the test sets.

use std::time::{Duration, Instant};

use super::*;
use crate::clock::tests::at;
use crate::config;
use crate::routing::{Refusal, chat, decide};
use crate::store::fixtures;
use crate::store::{NodeModel, PreviousNodeSecret, Registration};

fn nodes() -> Nodes {
    Nodes::new(&SecretBytes::new([1; 32]))
}

fn enrolled(nodes: &Nodes, name: &str) -> NodeRow {
    let random = Random::seeded(u64::from(name.as_bytes()[0]));
    let row = fixtures::node(&random);
    let secret = nodes.seal_secret(&row.id, 1, &Secret::new("one"), &random).unwrap();
    NodeRow { name: name.into(), secret, ..row }
}

fn registered(row: &NodeRow, epoch: u64, models: &[&str]) -> NodeRow {
    let models = models
        .iter()
        .map(|id| NodeModel { id: (*id).to_owned(), context: None, capabilities: None })
        .collect();
    let registration = Registration {
        epoch,
        at_us: 0,
        signed_s: 0,
        ended: false,
        version: "1".into(),
        endpoint: "http://192.0.2.1:8000".into(),
        api_key: None,
        models,
        max_concurrency: Some(1),
        labels: BTreeMap::new(),
    };
    NodeRow { registration: Some(registration), ..row.clone() }
}

fn report(seq: u64, status: NodeStatus, running: u32) -> Heartbeat {
    Heartbeat { epoch: None, signed_s: 0, seq, status, load: NodeLoad { running, queued: 0 } }
}

/// A node that serves `m` since second 0.
fn serving(nodes: &Nodes, name: &str) -> NodeRow {
    let row = registered(&enrolled(nodes, name), 1, &["m"]);
    nodes.load(vec![row.clone()]);
    nodes.begin(&row.id, 1, at(0));
    row
}

#[test]
fn a_node_stands_as_it_reports_and_for_as_long_as_its_lease() {
    let nodes = nodes();
    let row = enrolled(&nodes, "a");
    nodes.load(vec![row.clone()]);
    let standing = |second| nodes.show(&row.id, at(second)).unwrap().standing;
    assert_eq!(standing(0), NodeState::Pending);
    assert_eq!(
        nodes.report(&row.id, report(1, NodeStatus::Ready, 0), at(0)),
        Err(HeartbeatError::Unregistered)
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
            Err(HeartbeatError::Seq)
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
fn the_least_loaded_is_first_and_what_it_was_given_since_counts() {
    let nodes = nodes();
    let (a, b) = (serving(&nodes, "a"), serving(&nodes, "b"));
    let order = || nodes.ready("m", at(1)).iter().map(|ready| ready.id.clone()).collect::<Vec<_>>();
    let by_id =
        if a.id < b.id { [a.id.clone(), b.id.clone()] } else { [b.id.clone(), a.id.clone()] };
    assert_eq!(order(), by_id, "equal, and never asked: by id");
    let server = config::read_server("test", "", &|_| None).unwrap();
    let routing = config::read_routing("test", DOCUMENT, &server, &|_| None, None).unwrap();
    for asked in [0, 1, 0, 1, 0, 1] {
        let ready = nodes.ready("m", at(1)).remove(0);
        assert_eq!(ready.id, by_id[asked], "each in turn");
        ready.target(routing.target("nodes/m").unwrap());
    }
    nodes.report(&by_id[0], report(1, NodeStatus::Ready, 2), at(1)).unwrap();
    assert_eq!(order(), [by_id[1].clone(), by_id[0].clone()]);
    drop((a, b));
}

const DOCUMENT: &str = "providers:\n  p: { protocol: mock }\nrecipes:\n  \
    r: { rules: [ { name: d, targets: [ { target: nodes/m }, { target: p/x } ] } ] }\n\
    aliases: { auto: r }\n";
const OTHER: &str = "providers:\n  p: { protocol: mock }\nrecipes:\n  \
    r: { rules: [ { name: d, targets: [ { target: nodes/n }, { target: nodes/m } ] } ] }\n\
    aliases: { auto: r }\n";

#[test]
fn a_decision_looks_at_nodes_by_its_inputs_alone() {
    let server = config::read_server("test", "", &|_| None).unwrap();
    let read = |text: &str| config::read_routing("test", text, &server, &|_| None, None).unwrap();
    let (routing, other) = (read(DOCUMENT), read(OTHER));
    let nodes = nodes();
    let look = |second| {
        let mut inputs = chat("auto", 1);
        inputs.at = at(second);
        nodes.look(&routing, Some("auto"), at(second), &mut inputs.health);
        inputs
    };
    let first = |decided: Result<crate::routing::Decision, Refusal>| {
        decided.map(|decision| format!("{}/{}", decision.provider, decision.model))
    };
    let reason = |inputs: &crate::routing::Inputs| {
        decide(&routing, inputs).unwrap().candidates[0].reason.clone()
    };
    assert_eq!(reason(&look(0)).as_deref(), Some("no_node"));
    let mut none = look(0);
    none.complete(&other, |_| None);
    assert_eq!(
        first(decide(&other, &none)),
        Ok("nodes/n".into()),
        "a target that the document did not have is unknown, and counts as healthy"
    );

    let a = serving(&nodes, "a");
    let inputs = look(1);
    assert_eq!(first(decide(&routing, &inputs)), Ok("nodes/m".into()));
    let mut under_other = inputs.clone();
    under_other.complete(&other, |_| None);
    assert_eq!(
        first(decide(&other, &under_other)),
        Ok("nodes/n".into()),
        "the same, although a node is known"
    );
    assert_eq!(reason(&look(31)).as_deref(), Some("no_node"));

    // It is at its concurrency limit.
    let ready = nodes.ready("m", at(1)).remove(0);
    let target = Arc::new(ready.target(routing.target("nodes/m").unwrap()));
    let permit = crate::routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
    assert_eq!(reason(&look(1)).as_deref(), Some("concurrency"));
    let b = serving(&nodes, "b");
    let inputs = look(1);
    assert_eq!((reason(&inputs), inputs.health["nodes/m"].nodes), (None, Some(2)));
    assert_eq!(nodes.ready("m", at(1))[0].id, b.id, "a has a request of ours");
    drop(permit);
    // A breaker of its own.
    for _ in 0..5 {
        let permit = crate::routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
        permit.end(crate::routing::health::AttemptOutcome::Failed, Duration::ZERO, at(1));
    }
    let inputs = look(1);
    assert_eq!(
        (&inputs.health[a.id.as_str()].breaker, reason(&inputs)),
        (&crate::routing::BreakerState::Open, None)
    );
    let stored: crate::routing::Inputs =
        serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
    assert_eq!((&stored, decide(&routing, &stored)), (&inputs, decide(&routing, &inputs)));
    nodes.load(vec![registered(&a, 2, &["m"])]);
    nodes.begin(&a.id, 2, at(1));
    assert!(
        !look(1).health.contains_key("x")
            && look(1).health[a.id.as_str()].breaker == crate::routing::BreakerState::Closed,
        "a new epoch"
    );
    let mut nothing = chat("auto", 1);
    nothing.complete(&routing, |_| None);
    assert_eq!(
        first(decide(&routing, &nothing)),
        Ok("nodes/m".into()),
        "without nodes in the inputs a target is unknown"
    );
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
        Err(HeartbeatError::Epoch),
        "by its word"
    );
    assert_eq!(
        nodes.report(&row.id, said(Some(3), 25, 8), at(25)),
        Err(HeartbeatError::Epoch),
        "of one that is not there"
    );
    assert_eq!(
        nodes.report(&row.id, said(None, 19, 8), at(25)),
        Err(HeartbeatError::Epoch),
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

#[test]
fn places_are_taken_until_their_requests_end_whatever_the_node_says_meanwhile() {
    let nodes = nodes();
    let row = serving(&nodes, "a");
    let server = config::read_server("test", "", &|_| None).unwrap();
    let routing = config::read_routing("test", DOCUMENT, &server, &|_| None, None).unwrap();
    let planned = routing.target("nodes/m").unwrap();
    let take = |second| {
        let ready = nodes.ready("m", at(second)).remove(0);
        crate::routing::health::AttemptPermit::take(
            &Arc::new(ready.target(planned)),
            at(second),
            None,
        )
    };
    let permit = take(1).unwrap();
    let mut left = registered(&row, 1, &["m"]);
    left.registration.as_mut().unwrap().ended = true;
    nodes.load(vec![left]);
    assert_eq!(nodes.show(&row.id, at(1)).unwrap().inflight, 1, "it left with one");
    nodes.load(vec![registered(&row, 2, &["m"])]);
    nodes.begin(&row.id, 2, at(2));
    nodes.report(&row.id, report(1, NodeStatus::Ready, 1), at(2)).unwrap();
    assert!(
        !nodes.ready("m", at(2))[0].may_be_asked(at(2)) && take(2).is_err(),
        "its one place is taken"
    );
    assert_eq!(nodes.ready("m", at(2))[0].load, 1, "its word and ours are of the same request");
    let mut inputs = chat("auto", 1);
    inputs.at = at(2);
    nodes.look(&routing, Some("auto"), at(2), &mut inputs.health);
    assert_eq!(
        decide(&routing, &inputs).unwrap().candidates[0].reason.as_deref(),
        Some("concurrency")
    );
    drop(permit);
    assert!(take(2).is_ok());
}

/// The node with bounds for the model `m`.
fn bounded(
    row: &NodeRow,
    epoch: u64,
    context: Option<u64>,
    capabilities: Option<&[&str]>,
) -> NodeRow {
    let mut row = registered(row, epoch, &["m"]);
    let registration = row.registration.as_mut().unwrap();
    registration.max_concurrency = None;
    registration.models[0].context = context;
    registration.models[0].capabilities =
        capabilities.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    row
}

#[test]
fn a_node_that_cannot_take_a_request_is_none_for_it() {
    let server = config::read_server("test", "", &|_| None).unwrap();
    let read = |text: &str| config::read_routing("test", text, &server, &|_| None, None).unwrap();
    let routing = read(DOCUMENT);
    let nodes = nodes();
    let (small, blind) = (enrolled(&nodes, "a"), enrolled(&nodes, "b"));
    nodes.load(vec![
        bounded(&small, 1, Some(100), None),
        bounded(&blind, 1, Some(1_000), Some(&["tools"])),
    ]);
    [&small, &blind].iter().for_each(|row| nodes.begin(&row.id, 1, at(0)));
    let asked = |prompt_tokens, max_tokens, needs: &[&str]| {
        let mut inputs = chat("auto", 1);
        inputs.at = at(1);
        inputs.request.prompt_tokens = prompt_tokens;
        inputs.request.max_tokens = max_tokens;
        inputs.request.needs = needs.iter().map(|need| (*need).to_owned()).collect();
        nodes.look(&routing, Some("auto"), at(1), &mut inputs.health);
        inputs
    };
    let reason = |inputs: &crate::routing::Inputs| {
        decide(&routing, inputs).unwrap().candidates[0].reason.clone()
    };
    let able = |inputs: &crate::routing::Inputs| {
        let demand = inputs.request.demand();
        let ready = nodes.ready("m", at(1)).into_iter().filter(|ready| ready.takes("m", &demand));
        ready.map(|ready| ready.id).collect::<Vec<_>>()
    };
    let all = |mut ids: Vec<NodeId>| {
        ids.sort();
        ids
    };
    for (prompt_tokens, max_tokens, needs, wanted, speaks) in [
        (100, None, &[][..], vec![&small, &blind], None),
        (100, Some(1), &[], vec![&blind], None),
        (1_000, None, &["tools"], vec![&blind], None),
        (1_001, None, &[], vec![], Some("context")),
        (50, None, &["vision"], vec![&small], None),
        (500, None, &["vision"], vec![], Some("context")),
        (u64::MAX, Some(u64::MAX), &["vision"], vec![], Some("context")),
    ] {
        let inputs = asked(prompt_tokens, max_tokens, needs);
        assert_eq!(reason(&inputs).as_deref(), speaks, "{prompt_tokens} {max_tokens:?} {needs:?}");
        assert_eq!(able(&inputs), all(wanted.into_iter().map(|row| row.id.clone()).collect()));
        let stored: crate::routing::Inputs =
            serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
        assert_eq!(
            (&stored, decide(&routing, &stored)),
            (&inputs, decide(&routing, &inputs)),
            "it decides again as then"
        );
    }
    // The state of the only node that fits counts: its breaker is open.
    let long = nodes.ready("m", at(1)).into_iter().find(|ready| ready.id == blind.id).unwrap();
    let target = Arc::new(long.target(routing.target("nodes/m").unwrap()));
    for _ in 0..5 {
        let permit = crate::routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
        permit.end(crate::routing::health::AttemptOutcome::Failed, Duration::ZERO, at(1));
    }
    assert_eq!(
        (reason(&asked(500, None, &[])).as_deref(), reason(&asked(50, None, &[]))),
        (Some("breaker_open"), None)
    );
    nodes.load(vec![bounded(&small, 2, None, Some(&[]))]);
    nodes.begin(&small.id, 2, at(1));
    assert_eq!(reason(&asked(50, None, &["vision"])).as_deref(), Some("capability"));
    let only = read(
        "providers:\n  p: { protocol: mock }\nrecipes:\n  \
         r: { rules: [ { name: d, targets: [ { target: nodes/m } ] } ] }\naliases: { auto: r }\n",
    );
    let refused =
        crate::error::Error::from(decide(&only, &asked(50, None, &["vision"])).unwrap_err());
    assert_eq!(refused.kind(), crate::error::Kind::UnsupportedFeature, "waiting does not help");
}
