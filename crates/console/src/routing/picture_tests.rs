//! For any document, every node and edge is drawn once, inside the picture, and none overlap.

use proptest::prelude::*;
use serde_json::{Value, from_value, json};

use super::*;
use crate::routing::graph::{HealthTable, graph, health};
use crate::routing::traffic::DayTraffic;
use rerouter_records::routing::Outline;
use rerouter_records::usage::{UsageList, UsageRecord, UsageTotals};

/// An outline of this size, with `rules` rules in each recipe. `pick` chooses what each part names.
fn outline(
    aliases: usize,
    recipes: usize,
    rules: usize,
    targets: usize,
    pick: &[usize],
) -> Outline {
    let pick = |at: usize, of: usize| pick[at % pick.len()] % of;
    let aliases: Vec<Value> = (0..aliases)
        .map(|at| json!({ "name": format!("a{at}"), "recipe": format!("r{}", pick(at, recipes)) }))
        .collect();
    let rule = |recipe: usize, at: usize| {
        let first = pick(recipe + 3 * at, targets);
        let named = (0..=pick(recipe + at, targets.min(5)))
            .map(|next| json!({"target": format!("p/m{}", (first + next) % targets), "weight": 1}));
        let when = at.is_multiple_of(2).then_some("prompt_tokens > 60");
        json!({
            "name": format!("rule{at}"), "when": when, "strategy": "priority",
            "targets": named.collect::<Vec<Value>>(),
        })
    };
    let recipes: Vec<Value> = (0..recipes)
        .map(|recipe| {
            let rules: Vec<Value> = (0..rules).map(|at| rule(recipe, at)).collect();
            json!({ "name": format!("r{recipe}"), "rules": rules, "shadow": null })
        })
        .collect();
    from_value(json!({ "aliases": aliases, "recipes": recipes })).unwrap()
}

fn usage(rows: &[(&str, &str, &str, &str, u64)]) -> UsageList {
    let known = |name: &str| Some(Some(name.to_owned()).filter(|name| !name.is_empty()));
    let row =
        |(alias, recipe, rule, model, requests): &(&str, &str, &str, &str, u64)| UsageRecord {
            alias: known(alias),
            recipe: known(recipe),
            rule: known(rule),
            model: known(model),
            sums: UsageTotals { requests: *requests, ..UsageTotals::default() },
            ..UsageRecord::default()
        };
    let list = json!({"object": "list", "data": [], "has_more": false, "next": null,
        "span": {"since": null, "until": "2025-11-24T16:00:00Z"}});
    UsageList { data: rows.iter().map(row).collect(), ..from_value(list).unwrap() }
}

proptest! {
    #[test]
    fn every_node_and_edge_has_a_place_of_its_own(
        sizes in (1..20usize, 1..6usize, 1..6usize, 1..60usize),
        pick in prop::collection::vec(0..1000usize, 1..40),
        requests in prop::collection::vec(0..u64::MAX / 1000, 8),
        total: u64,
    ) {
        let outline = outline(sizes.0, sizes.1, sizes.2, sizes.3, &pick);
        let mut graph = graph(&outline, None, &HealthTable::new());
        for (at, edge) in graph.edges.iter_mut().enumerate() {
            edge.requests = requests[at % requests.len()];
        }
        let layout = layout(&graph, total);
        let named: std::collections::BTreeSet<&str> =
            graph.columns[3].iter().map(|node| node.name.as_str()).collect();
        prop_assert_eq!(named.len(), graph.columns[3].len(), "a target stands twice");
        prop_assert_eq!(graph.columns[2].len(), sizes.1 * sizes.2);
        let edges: std::collections::BTreeSet<_> =
            graph.edges.iter().map(|edge| (edge.column, edge.from, edge.to)).collect();
        prop_assert_eq!(edges.len(), graph.edges.len(), "an edge stands twice");
        prop_assert_eq!(layout.edges.len(), graph.edges.len());
        prop_assert!(layout.width.is_finite() && layout.height.is_finite());
        for (nodes, boxes) in graph.columns.iter().zip(&layout.nodes) {
            prop_assert_eq!(nodes.len(), boxes.len());
            for pair in boxes.windows(2) {
                prop_assert!(pair[0].y + pair[0].height < pair[1].y, "{:?}", pair);
            }
            for place in boxes {
                prop_assert!(place.x >= 0.0 && place.x + NODE_WIDTH <= layout.width);
                prop_assert!(place.y >= 0.0 && place.y + place.height <= layout.height);
            }
        }
        let mut ports = std::collections::BTreeSet::new();
        for (edge, curve) in graph.edges.iter().zip(&layout.edges) {
            let (from, to) =
                (layout.nodes[edge.column][edge.from], layout.nodes[edge.column + 1][edge.to]);
            for ((x, y), node) in [(curve.from, from), (curve.to, to)] {
                prop_assert!(y > node.y && y < node.y + node.height, "{:?} at {:?}", curve, node);
                let is_new = ports.insert((x.to_bits(), y.to_bits()));
                prop_assert!(is_new, "two edges end at one place");
            }
            prop_assert!((EDGE_THINNEST..=EDGE_WIDEST).contains(&curve.width));
        }
    }
}

#[test]
fn shares_of_traffic_stand_on_their_edges() {
    let outline = outline(2, 1, 1, 2, &[0, 1]);
    let traffic = DayTraffic::sum(usage(&[
        ("a0", "r0", "rule0", "p/m0", 30),
        ("a1", "r0", "rule0", "p/m0", 9),
        // Requests that nothing answered, that a removed target answered, or that named a target
        // directly.
        ("a0", "r0", "rule0", "", 1),
        ("a0", "r0", "rule0", "p/gone", 10),
        ("", "direct", "", "p/m0", 50),
    ]));
    assert_eq!((traffic.total, traffic.direct), (100, 50));
    let target = json!({
        "model": "m0", "breaker": "open", "retry_at": null, "ewma_ms": 12.3, "inflight": 0,
        "max_concurrency": null, "requests_1m": 9, "errors_1m": 7,
    });
    let provider =
        json!({ "object": "provider", "id": "p", "protocol": "openai", "targets": [target] });
    let health = health(&[from_value(provider).unwrap()]);
    let graph = graph(&outline, Some(&traffic), &health);
    let requests: Vec<(usize, u64)> =
        graph.edges.iter().map(|edge| (edge.column, edge.requests)).collect();
    assert_eq!(requests[..3], [(0, 41), (0, 9), (1, 50)]);
    assert_eq!(graph.requests(2), 39, "{:?}", graph.edges);
    let drawn = draw(&graph, traffic.total).into_string();
    for there in ["41 % · 41", "9.0 % · 9", "50 % · 50", "39 % · 39", "rt-bad"] {
        assert!(drawn.contains(there), "no {there} in {drawn}");
    }
    assert!(drawn.contains("breaker open, 7 of 9 failed"), "{drawn}");
    assert!(!drawn.contains("style="));
}

#[test]
fn names_are_text_and_an_empty_document_is_drawn() {
    let hostile = "</text><script>alert(1)</script>";
    let outline = json!({
        "aliases": [{ "name": hostile, "recipe": hostile }],
        "recipes": [{
            "name": hostile, "shadow": { "target": hostile, "percent": 1.5 },
            "rules": [{
                "name": hostile, "when": hostile, "strategy": "weighted",
                "targets": [{ "target": hostile, "weight": 1 }],
            }],
        }],
    });
    let outline = from_value(outline).unwrap();
    let drawn = draw(&graph(&outline, None, &HealthTable::new()), 0).into_string();
    assert!(!drawn.contains("<script") && drawn.matches("&lt;script").count() > 4, "{drawn}");
    let nothing = Outline { aliases: Vec::new(), recipes: Vec::new() };
    let empty = draw(&graph(&nothing, None, &HealthTable::new()), 0).into_string();
    assert!(empty.contains("<svg") && !empty.contains("NaN") && !empty.contains("inf"), "{empty}");
}
