//! The order of nodes, and decisions about nodes, under whole documents.

use std::sync::Arc;
use std::time::Duration;

use crate::config;
use rerouter_access::nodes::fixtures::{enrolled, nodes, registered, report, serving};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::NodeId;
use rerouter_routing::{RoutingRefusal, chat, decide};
use rerouter_store::NodeRow;
use rerouter_store::NodeStatus;

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
    let first = |decided: Result<rerouter_routing::Decision, RoutingRefusal>| {
        decided.map(|decision| format!("{}/{}", decision.provider, decision.model))
    };
    let reason = |inputs: &rerouter_routing::Inputs| {
        decide(&routing, inputs).unwrap().candidates[0].reason.clone()
    };
    assert_eq!(reason(&look(0)).as_deref(), Some("no_node"));
    let mut none = look(0);
    none.complete(&other, &[], |_| None);
    assert_eq!(
        first(decide(&other, &none)),
        Ok("nodes/n".into()),
        "a target that the document did not have is unknown, and counts as healthy"
    );

    let a = serving(&nodes, "a");
    let inputs = look(1);
    assert_eq!(first(decide(&routing, &inputs)), Ok("nodes/m".into()));
    let mut under_other = inputs.clone();
    under_other.complete(&other, &[], |_| None);
    assert_eq!(
        first(decide(&other, &under_other)),
        Ok("nodes/n".into()),
        "the same, although a node is known"
    );
    assert_eq!(reason(&look(31)).as_deref(), Some("no_node"));

    // The node is at its concurrency limit.
    let ready = nodes.ready("m", at(1)).remove(0);
    let target = Arc::new(ready.target(routing.target("nodes/m").unwrap()));
    let permit = rerouter_routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
    assert_eq!(reason(&look(1)).as_deref(), Some("concurrency"));
    let b = serving(&nodes, "b");
    let inputs = look(1);
    assert_eq!((reason(&inputs), inputs.health["nodes/m"].nodes), (None, Some(2)));
    assert_eq!(nodes.ready("m", at(1))[0].id, b.id, "a has a request of ours");
    drop(permit);
    // Each node has its own breaker.
    for _ in 0..5 {
        let permit = rerouter_routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
        permit.end(rerouter_routing::health::AttemptOutcome::Failed, Duration::ZERO, at(1));
    }
    let inputs = look(1);
    assert_eq!(
        (&inputs.health[a.id.as_str()].breaker, reason(&inputs)),
        (&rerouter_routing::BreakerState::Open, None)
    );
    let stored: rerouter_routing::Inputs =
        serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
    assert_eq!((&stored, decide(&routing, &stored)), (&inputs, decide(&routing, &inputs)));
    nodes.load(vec![registered(&a, 2, &["m"])]);
    nodes.begin(&a.id, 2, at(1));
    assert!(
        !look(1).health.contains_key("x")
            && look(1).health[a.id.as_str()].breaker == rerouter_routing::BreakerState::Closed,
        "a new epoch"
    );
    let mut nothing = chat("auto", 1);
    nothing.complete(&routing, &[], |_| None);
    assert_eq!(
        first(decide(&routing, &nothing)),
        Ok("nodes/m".into()),
        "without nodes in the inputs a target is unknown"
    );
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
        rerouter_routing::health::AttemptPermit::take(
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

/// The node with limits for the model `m`.
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
    let reason = |inputs: &rerouter_routing::Inputs| {
        decide(&routing, inputs).unwrap().candidates[0].reason.clone()
    };
    let able = |inputs: &rerouter_routing::Inputs| {
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
        let stored: rerouter_routing::Inputs =
            serde_json::from_str(&serde_json::to_string(&inputs).unwrap()).unwrap();
        assert_eq!(
            (&stored, decide(&routing, &stored)),
            (&inputs, decide(&routing, &inputs)),
            "it decides again as then"
        );
    }
    // Only the state of the one node that fits counts: its breaker is open.
    let long = nodes.ready("m", at(1)).into_iter().find(|ready| ready.id == blind.id).unwrap();
    let target = Arc::new(long.target(routing.target("nodes/m").unwrap()));
    for _ in 0..5 {
        let permit = rerouter_routing::health::AttemptPermit::take(&target, at(1), None).unwrap();
        permit.end(rerouter_routing::health::AttemptOutcome::Failed, Duration::ZERO, at(1));
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
    let refused = rerouter_base::error::Error::from(
        decide(&only, &asked(50, None, &["vision"])).unwrap_err(),
    );
    assert_eq!(
        refused.kind(),
        rerouter_base::error::Kind::UnsupportedFeature,
        "waiting does not help"
    );
}
