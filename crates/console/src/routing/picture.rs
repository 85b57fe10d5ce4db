//! The graph of the document as SVG: positions of nodes and edges, and the drawing. The SVG has
//! plain attributes, and colours come from CSS classes.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::graph::{NodeHealth, RouteEdge, RouteGraph, RouteNode};
use super::shares::{percent, share};
use crate::pieces;

/// Space around the picture. All lengths here are in pixels.
const MARGIN: f64 = 8.0;
/// Width of a node, enough for usual names.
const NODE_WIDTH: f64 = 210.0;
/// Least height of a node, for its name and a line below.
const NODE_HEIGHT: f64 = 44.0;
/// Space between columns, for the number on an edge.
const COLUMN_GAP: f64 = 130.0;
/// Space between two nodes of a column.
const ROW_GAP: f64 = 12.0;
/// Distance between the ends of two edges at one node: the height of a number.
const PORT: f64 = 16.0;
/// Width of an edge that all requests take. It is less than [`PORT`], so that edges lie side by
/// side.
const EDGE_WIDEST: f64 = 12.0;
/// Least width of an edge that requests took, so that it can be seen.
const EDGE_THINNEST: f64 = 1.5;

/// Positions of all nodes and edges, in pixels.
#[derive(Debug, Default)]
pub(super) struct GraphLayout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// By column, in the order of the graph's nodes.
    pub(super) nodes: [Vec<NodeBox>; 4],
    /// In the order of the graph's edges.
    pub(super) edges: Vec<EdgeCurve>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodeBox {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) height: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EdgeCurve {
    pub(super) from: (f64, f64),
    pub(super) to: (f64, f64),
    pub(super) width: f64,
}

/// For each node, the indexes of the nodes at the other ends of its edges, in order. The key has
/// the node's column, whether the edges leave the node, and its index.
type EdgeEnds = BTreeMap<(usize, bool, usize), Vec<usize>>;

fn ends(edges: &[RouteEdge]) -> EdgeEnds {
    let mut ends = EdgeEnds::new();
    for RouteEdge { column, from, to, .. } in edges {
        ends.entry((*column, true, *from)).or_default().push(*to);
        ends.entry((column + 1, false, *to)).or_default().push(*from);
    }
    ends.values_mut().for_each(|others| others.sort_unstable());
    ends
}

/// Places the nodes of a column below each other, each as high as its edges need. The width of an
/// edge is its share of `total` requests.
pub(super) fn layout(graph: &RouteGraph, total: u64) -> GraphLayout {
    let ends = ends(&graph.edges);
    let mut layout = GraphLayout::default();
    for (column, nodes) in graph.columns.iter().enumerate() {
        let x = MARGIN + column as f64 * (NODE_WIDTH + COLUMN_GAP);
        let mut y = MARGIN;
        let mut boxes = Vec::with_capacity(nodes.len());
        for place in 0..nodes.len() {
            let most = [true, false].map(|leaving| ends.get(&(column, leaving, place)));
            let most = most.into_iter().flatten().map(Vec::len).max().unwrap_or(0);
            let height = NODE_HEIGHT.max(PORT * (most + 1) as f64);
            boxes.push(NodeBox { x, y, height });
            y += height + ROW_GAP;
        }
        layout.height = layout.height.max(y - ROW_GAP + MARGIN);
        layout.width = x + NODE_WIDTH + MARGIN;
        if let Some(column) = layout.nodes.get_mut(column) {
            *column = boxes;
        }
    }
    layout.edges = graph.edges.iter().map(|edge| layout.curve(&ends, edge, total)).collect();
    layout
}

impl GraphLayout {
    fn node(&self, column: usize, place: usize) -> NodeBox {
        let column = self.nodes.get(column).map_or(&[][..], Vec::as_slice);
        column.get(place).copied().unwrap_or_default()
    }

    /// The curve of an edge. Edges end at a node in the order of their other ends, so that fewer
    /// cross.
    fn curve(&self, ends: &EdgeEnds, edge: &RouteEdge, total: u64) -> EdgeCurve {
        let RouteEdge { column, from, to, requests } = *edge;
        let port = |(column, leaving, place), other: usize| {
            let others = ends.get(&(column, leaving, place)).map_or(&[][..], Vec::as_slice);
            port(self.node(column, place), others.partition_point(|own| *own < other), others.len())
        };
        let width = EDGE_WIDEST * share(requests, total);
        EdgeCurve {
            from: (self.node(column, from).x + NODE_WIDTH, port((column, true, from), to)),
            to: (self.node(column + 1, to).x, port((column + 1, false, to), from)),
            width: width.clamp(EDGE_THINNEST, EDGE_WIDEST),
        }
    }
}

/// The y of an edge's end at a node, where it is number `place` of `all` ends.
fn port(node: NodeBox, place: usize, all: usize) -> f64 {
    let first = node.y + (node.height - PORT * all.saturating_sub(1) as f64) / 2.0;
    first + PORT * place as f64
}

/// A length as the value of an attribute.
pub(super) fn px(length: f64) -> String {
    format!("{length:.1}")
}

/// The whole picture. [`in_words`] says the same as a list.
pub(super) fn draw(graph: &RouteGraph, total: u64) -> Markup {
    let layout = layout(graph, total);
    let titles = ["Aliases", "Recipes", "Rules", "Targets"];
    /// Height of the titles of the columns.
    const HEAD: f64 = 28.0;
    html! {
        svg.rt-picture role="img" aria-label="Aliases, recipes, rules and targets. The list below \
            says the same in words." width=(px(layout.width)) height=(px(layout.height + HEAD))
            viewBox={ "0 0 " (px(layout.width)) " " (px(layout.height + HEAD)) }
        {
            @for (column, title) in titles.iter().enumerate() {
                text.rt-column y="18"
                    x=(px(MARGIN + column as f64 * (NODE_WIDTH + COLUMN_GAP))) { (title) }
            }
            g transform={ "translate(0 " (px(HEAD)) ")" } {
                @for (edge, curve) in graph.edges.iter().zip(&layout.edges) {
                    (draw_edge(edge, curve))
                }
                // Drawn after all edges, so that no edge crosses a number.
                @for (edge, curve) in graph.edges.iter().zip(&layout.edges) {
                    @if edge.requests > 0 { (draw_share(edge, curve, total)) }
                }
                @for (nodes, boxes) in graph.columns.iter().zip(&layout.nodes) {
                    @for (node, place) in nodes.iter().zip(boxes) {
                        (draw_node(node, place))
                    }
                }
            }
        }
    }
}

fn draw_edge(edge: &RouteEdge, curve: &EdgeCurve) -> Markup {
    let ((x1, y1), (x2, y2)) = (curve.from, curve.to);
    let middle = f64::midpoint(x1, x2);
    let used = edge.requests > 0;
    html! {
        path.rt-edge.rt-idle[!used] fill="none" stroke-width=(px(curve.width))
            d={ "M" (px(x1)) " " (px(y1)) " C" (px(middle)) " " (px(y1)) " " (px(middle)) " "
                (px(y2)) " " (px(x2)) " " (px(y2)) } {}
    }
}

/// The share and the number of an edge's requests, above the edge.
fn draw_share(edge: &RouteEdge, curve: &EdgeCurve, total: u64) -> Markup {
    let (x, y) = curve.from;
    html! {
        text.rt-share x=(px(x + 8.0)) y=(px(y - curve.width / 2.0 - 2.0)) {
            (percent(edge.requests, total)) " · " (pieces::count(edge.requests))
        }
    }
}

/// A node. Text that is too long for it is cut off, and its `title` has the whole text.
fn draw_node(node: &RouteNode, place: &NodeBox) -> Markup {
    let middle = place.height / 2.0;
    let has_detail = !node.detail.is_empty();
    let class = match node.health {
        NodeHealth::Unknown => "rt-node",
        NodeHealth::Good => "rt-node rt-good",
        NodeHealth::Trying => "rt-node rt-trying",
        NodeHealth::Bad => "rt-node rt-bad",
    };
    html! {
        svg class=(class) x=(px(place.x)) y=(px(place.y)) width=(px(NODE_WIDTH))
            height=(px(place.height))
        {
            title { (node.name) @if has_detail { " – " (node.detail) } }
            rect x="0.5" y="0.5" width=(px(NODE_WIDTH - 1.0)) height=(px(place.height - 1.0))
                rx="5" {}
            text.rt-name x="10" y=(px(if has_detail { middle - 3.0 } else { middle + 4.0 })) {
                (node.name)
            }
            @if has_detail {
                text.rt-detail x="10" y=(px(middle + 13.0)) { (node.detail) }
            }
        }
    }
}

/// The picture as nested lists.
pub(super) fn in_words(graph: &RouteGraph, total: u64) -> Markup {
    html! {
        ul {
            @for edge in graph.edges.iter().filter(|edge| edge.column == 0) {
                @let ends = (node(graph, 0, edge.from), node(graph, 1, edge.to));
                @if let (Some(alias), Some(recipe)) = ends {
                    li {
                        code { (alias.name) } " leads to the recipe " code { (recipe.name) }
                        (traffic(edge, total))
                    }
                }
            }
        }
        ul {
            @for (at, recipe) in graph.columns.get(1).into_iter().flatten().enumerate() {
                li {
                    "Recipe " code { (recipe.name) }
                    @if !recipe.detail.is_empty() { ": " (recipe.detail) }
                    (rules_in_words(graph, at, total))
                }
            }
        }
    }
}

fn rules_in_words(graph: &RouteGraph, recipe: usize, total: u64) -> Markup {
    html! {
        ul {
            @for edge in graph.edges.iter().filter(|edge| leaves(edge, 1, recipe)) {
                @if let Some(rule) = node(graph, 2, edge.to) {
                    li {
                        "Rule " code { (rule.name) } ": " (rule.detail) (traffic(edge, total))
                        ul {
                            @let next = graph.edges.iter();
                            @for edge in next.filter(|next| leaves(next, 2, edge.to)) {
                                @if let Some(target) = node(graph, 3, edge.to) {
                                    li {
                                        code { (target.name) }
                                        @if !target.detail.is_empty() { ", " (target.detail) }
                                        (traffic(edge, total))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn leaves(edge: &RouteEdge, column: usize, place: usize) -> bool {
    edge.column == column && edge.from == place
}

fn node(graph: &RouteGraph, column: usize, place: usize) -> Option<&RouteNode> {
    graph.columns.get(column)?.get(place)
}

fn traffic(edge: &RouteEdge, total: u64) -> Markup {
    html! {
        @if total > 0 {
            " (" (percent(edge.requests, total)) ", " (pieces::count(edge.requests)) " requests)"
        }
    }
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
