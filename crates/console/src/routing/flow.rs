//! The flow of requests between targets, before and after a change: bands between two columns. The
//! height of a band is its share of the requests.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::picture::px;
use super::shares::{percent, share};
use crate::pieces;
use rerouter_records::evaluation::EvaluationRecord;

/// The report's name for the target of a request that has none.
pub(super) const NONE: &str = "none";

/// Width of the names beside the bars. All lengths here are in pixels.
const LABEL: f64 = 270.0;
/// Width of a bar.
const BAR: f64 = 12.0;
/// Width between the two columns of bars: room for the bands to bend.
const BANDS: f64 = 300.0;
/// Space above the first bar and below the last.
const MARGIN: f64 = 8.0;
/// Height of all requests together.
const HEIGHT: f64 = 300.0;
/// Least height of a bar or band, so that it can be seen.
const THINNEST: f64 = 1.0;
/// Least height of a target: that of its name.
const ROW: f64 = 22.0;
/// Space between two bars.
const ROW_GAP: f64 = 6.0;

/// Numbers of requests by their target before and after a change, the largest first.
#[derive(Debug, Default)]
pub(super) struct TargetFlows {
    pub(super) flows: Vec<(String, String, u64)>,
}

impl TargetFlows {
    /// The flows of a report: the changes, and for each target the requests that stay.
    pub(super) fn of(report: &EvaluationRecord) -> TargetFlows {
        let mut flows = Vec::new();
        let mut left: BTreeMap<&str, u64> = BTreeMap::new();
        for change in &report.by_change {
            *left.entry(&change.from).or_default() += change.count;
            flows.push((change.from.clone(), change.to.clone(), change.count));
        }
        for row in &report.shift {
            let gone = left.get(&*row.target).copied().unwrap_or(0);
            let stay = row.before.saturating_sub(gone);
            flows.push((row.target.clone(), row.target.clone(), stay));
        }
        flows.retain(|(.., requests)| *requests > 0);
        flows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
        TargetFlows { flows }
    }

    pub(super) fn total(&self) -> u64 {
        self.flows.iter().fold(0, |sum, (.., requests)| sum.saturating_add(*requests))
    }
}

/// Positions of targets on both sides, and of the bands between them.
#[derive(Debug, Default)]
pub(super) struct FlowLayout {
    pub(super) height: f64,
    pub(super) before: Vec<FlowBar>,
    pub(super) after: Vec<FlowBar>,
    /// In the order of the flows.
    pub(super) bands: Vec<FlowBand>,
}

/// A target on one side.
#[derive(Debug)]
pub(super) struct FlowBar {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) y: f64,
    pub(super) height: f64,
    /// The y at which its next band begins.
    next: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlowBand {
    /// Upper edges, on the left in `from` and on the right in `to`.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) height: f64,
}

pub(super) fn layout(flows: &TargetFlows) -> FlowLayout {
    let total = flows.total();
    let thick = |requests: u64| (HEIGHT * share(requests, total)).max(THINNEST);
    let sides = [0, 1].map(|side| {
        let mut sums: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        for (from, to, requests) in &flows.flows {
            let sum = sums.entry(if side == 0 { from } else { to }).or_default();
            *sum = (sum.0.saturating_add(*requests), sum.1 + thick(*requests));
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        // The largest first. Requests without a target come last.
        sums.sort_by_key(|(name, (requests, _))| {
            (*name == NONE, std::cmp::Reverse(*requests), *name)
        });
        let mut y = MARGIN;
        let mut bars = Vec::with_capacity(sums.len());
        for (name, (requests, height)) in sums {
            bars.push(FlowBar { name: name.to_owned(), requests, y, height, next: y });
            y += height.max(ROW) + ROW_GAP;
        }
        (bars, y - ROW_GAP + MARGIN)
    });
    let [(mut before, left), (mut after, right)] = sides;
    // In the order of the bars at both ends, so that fewer bands cross.
    let mut order: Vec<usize> = (0..flows.flows.len()).collect();
    let place = |bars: &[FlowBar], name: &str| bars.iter().position(|bar| bar.name == name);
    let ends: Vec<_> =
        flows.flows.iter().map(|(from, to, _)| (place(&before, from), place(&after, to))).collect();
    order.sort_by_key(|at| ends.get(*at).copied().unwrap_or_default());
    let mut bands = vec![FlowBand { from: 0.0, to: 0.0, height: 0.0 }; flows.flows.len()];
    for at in order {
        let (Some((from, to, requests)), Some(band)) = (flows.flows.get(at), bands.get_mut(at))
        else {
            continue;
        };
        band.height = thick(*requests);
        band.from = take(&mut before, from, band.height);
        band.to = take(&mut after, to, band.height);
    }
    FlowLayout { height: left.max(right), before, after, bands }
}

/// Takes a piece of this height from a target's bar, and returns its y.
fn take(bars: &mut [FlowBar], name: &str, height: f64) -> f64 {
    let Some(bar) = bars.iter_mut().find(|bar| bar.name == name) else { return 0.0 };
    let y = bar.next;
    bar.next += height;
    y
}

/// The picture as SVG. The tables beside it have the same numbers.
pub(super) fn draw(flows: &TargetFlows) -> Markup {
    let layout = layout(flows);
    let total = flows.total();
    let width = 2.0 * (LABEL + BAR) + BANDS;
    html! {
        svg.rt-flow role="img" width=(px(width)) height=(px(layout.height))
            viewBox={ "0 0 " (px(width)) " " (px(layout.height)) }
            aria-label="First choices: on the left with the live document, on the right with \
                yours. The tables below say the same."
        {
            @for ((from, to, requests), band) in flows.flows.iter().zip(&layout.bands) {
                path.(band_class(from, to)) d=(band_path(band)) {
                    title { (from) " → " (to) ": " (pieces::count(*requests)) }
                }
            }
            @for bar in &layout.before {
                (draw_bar(bar, (LABEL, 0.0, LABEL - 8.0), "end", total))
            }
            @for bar in &layout.after {
                @let place = (LABEL + BAR + BANDS, LABEL + 2.0 * BAR + BANDS, 8.0);
                (draw_bar(bar, place, "start", total))
            }
        }
    }
}

fn band_class(from: &str, to: &str) -> &'static str {
    match to {
        NONE if from != NONE => "rt-band rt-lost",
        _ if from == to => "rt-band rt-stays",
        _ => "rt-band rt-moves",
    }
}

fn band_path(band: &FlowBand) -> String {
    let (left, right) = (LABEL + BAR, LABEL + BAR + BANDS);
    let middle = f64::midpoint(left, right);
    let FlowBand { from, to, height } = *band;
    let (under, below) = (from + height, to + height);
    let [left, right, middle, from, to, under, below] =
        [left, right, middle, from, to, under, below].map(px);
    format!(
        "M{left} {from} C{middle} {from} {middle} {to} {right} {to} L{right} {below} C{middle} \
         {below} {middle} {under} {left} {under} Z"
    )
}

/// A bar at `x`, with its label beside it. A label that is too long is cut off.
fn draw_bar(bar: &FlowBar, (x, label, at): (f64, f64, f64), anchor: &str, total: u64) -> Markup {
    let height = bar.height.max(ROW);
    html! {
        rect.rt-bar.rt-lost[bar.name == NONE] x=(px(x)) y=(px(bar.y)) width=(px(BAR))
            height=(px(bar.height)) {}
        svg x=(px(label)) y=(px(bar.y)) width=(px(LABEL)) height=(px(height)) {
            title { (bar.name) }
            text.rt-label text-anchor=(anchor) x=(px(at)) y=(px(bar.height.max(ROW) / 2.0 + 4.0)) {
                (label_of(&bar.name)) " · " (pieces::count(bar.requests)) " · "
                (percent(bar.requests, total))
            }
        }
    }
}

pub(super) fn label_of(name: &str) -> &str {
    if name == NONE { "no target" } else { name }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
