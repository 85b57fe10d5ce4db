//! The document as four columns (aliases, recipes, rules, targets) and the edges between
//! neighbours.

use std::collections::BTreeMap;

use super::traffic::DayTraffic;
use rerouter_records::routing::{Outline, OutlinedRule};
use rerouter_records::status::{Activity, ProviderStatus, ProviderTarget};

#[derive(Debug, Default)]
pub(super) struct RouteGraph {
    pub(super) columns: [Vec<RouteNode>; 4],
    pub(super) edges: Vec<RouteEdge>,
}

#[derive(Debug, Default)]
pub(super) struct RouteNode {
    pub(super) name: String,
    /// Shadow of a recipe, strategy and condition of a rule, or health of a target.
    pub(super) detail: String,
    pub(super) health: NodeHealth,
}

/// An edge from a node to a node of the next column.
#[derive(Debug)]
pub(super) struct RouteEdge {
    /// Index of the column where the edge begins.
    pub(super) column: usize,
    /// Indexes of the two nodes in their columns.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) requests: u64,
}

/// Health of a target, according to its circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeHealth {
    /// The health is not known, or the node is not a target.
    #[default]
    Unknown,
    Good,
    /// The breaker is half open: it lets a few requests through as a test.
    Trying,
    Bad,
}

/// Health of targets by `provider/model`, each with a description.
pub(super) type HealthTable = BTreeMap<String, (NodeHealth, String)>;

pub(super) fn health(providers: &[ProviderStatus]) -> HealthTable {
    let targets =
        providers.iter().flat_map(|of| of.targets.iter().map(move |target| (&of.id, target)));
    let row = |(provider, target): (&String, &ProviderTarget)| {
        ([provider, "/", &target.model].concat(), state(&target.activity))
    };
    targets.map(row).collect()
}

fn state(activity: &Activity) -> (NodeHealth, String) {
    let errors = match (activity.errors_1m, activity.requests_1m) {
        (0, _) => String::new(),
        (errors, requests) => format!(", {errors} of {requests} failed"),
    };
    let (health, word) = match activity.breaker.as_str() {
        "open" => (NodeHealth::Bad, "breaker open"),
        "half_open" => (NodeHealth::Trying, "breaker half open"),
        _ => (NodeHealth::Good, "healthy"),
    };
    (health, format!("{word}{errors}"))
}

/// The graph of an outline, which `GET /v1/router/config` returns. Targets are in the order in
/// which rules first name them.
pub(super) fn graph(
    Outline { aliases, recipes }: &Outline,
    traffic: Option<&DayTraffic>,
    health: &HealthTable,
) -> RouteGraph {
    let mut graph = RouteGraph::default();
    let mut targets: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, alias) in aliases.iter().enumerate() {
        graph.add_node(0, &alias.name, String::new(), NodeHealth::Unknown);
        if let Some(to) = recipes.iter().position(|known| known.name == alias.recipe) {
            let of_alias = |traffic: &DayTraffic| traffic.of_alias(&alias.name, &alias.recipe);
            let requests = traffic.map_or(0, of_alias);
            graph.edges.push(RouteEdge { column: 0, from: at, to, requests });
        }
    }
    for (from, recipe) in recipes.iter().enumerate() {
        let shadow = recipe.shadow.as_ref();
        let shadow = shadow.map(|to| format!("copies {} % to {}", to.percent, to.target));
        graph.add_node(1, &recipe.name, shadow.unwrap_or_default(), NodeHealth::Unknown);
        for rule in &recipe.rules {
            let requests = traffic.map_or(0, |traffic| traffic.of_rule(&recipe.name, &rule.name));
            let to = graph.add_node(2, &rule.name, detail(rule), NodeHealth::Unknown);
            graph.edges.push(RouteEdge { column: 1, from, to, requests });
            graph.add_targets(&mut targets, (&recipe.name, rule, to), traffic, health);
        }
    }
    graph
}

impl RouteGraph {
    /// Adds a node at the end of a column, and returns its index there.
    fn add_node(&mut self, column: usize, name: &str, detail: String, health: NodeHealth) -> usize {
        let Some(nodes) = self.columns.get_mut(column) else { return 0 };
        nodes.push(RouteNode { name: name.to_owned(), detail, health });
        nodes.len() - 1
    }

    fn add_targets<'o>(
        &mut self,
        known: &mut BTreeMap<&'o str, usize>,
        (recipe, rule, from): (&str, &'o OutlinedRule, usize),
        traffic: Option<&DayTraffic>,
        health: &HealthTable,
    ) {
        for name in rule.targets.iter().map(|target| target.target.as_str()) {
            let to = match known.get(name) {
                Some(place) => *place,
                None => {
                    let (state, words) = health.get(name).cloned().unwrap_or_default();
                    let place = self.add_node(3, name, words, state);
                    known.insert(name, place);
                    place
                }
            };
            // A rule may name several models that are counted under one pattern. They are one
            // target here.
            let of_rule = self.edges.iter().rev();
            let mut of_rule = of_rule.take_while(|edge| (edge.column, edge.from) == (2, from));
            if of_rule.any(|edge| edge.to == to) {
                continue;
            }
            let requests = traffic.map_or(0, |traffic| traffic.of_target(recipe, &rule.name, name));
            self.edges.push(RouteEdge { column: 2, from, to, requests });
        }
    }

    /// The sum of the requests on the edges that leave a column.
    pub(super) fn requests(&self, column: usize) -> u64 {
        self.edges.iter().filter(|edge| edge.column == column).map(|edge| edge.requests).sum()
    }
}

fn detail(OutlinedRule { strategy, when, .. }: &OutlinedRule) -> String {
    match when {
        Some(when) => format!("{strategy}, if {when}"),
        None => format!("{strategy}, always"),
    }
}
