//! For any report, every target and flow is drawn once, to scale, and none overlap.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use rerouter_records::evaluation::{ChangeRecord, TargetShift};

/// A report with these flows.
fn report(flows: &[(String, String, u64)]) -> EvaluationRecord {
    let changed = flows.iter().filter(|(from, to, _)| from != to);
    let changed = changed.map(|(from, to, count)| ChangeRecord {
        from: from.clone(),
        to: to.clone(),
        count: *count,
        cost_delta_usd: None,
        cost_delta_cold_usd: None,
        unpriced: 0,
        reasons: Vec::new(),
        examples: Vec::new(),
    });
    let names: BTreeSet<&String> = flows.iter().flat_map(|(from, to, _)| [from, to]).collect();
    let sum = |name: &String, side: fn(&(String, String, u64)) -> &String| -> u64 {
        flows.iter().filter(|flow| side(flow) == name).map(|flow| flow.2).sum()
    };
    let shift = names.iter().map(|name| {
        let (before, after) = (sum(name, |flow| &flow.0), sum(name, |flow| &flow.1));
        TargetShift { target: (*name).clone(), before, after }
    });
    EvaluationRecord {
        by_change: changed.collect(),
        shift: shift.collect(),
        ..EvaluationRecord::default()
    }
}

fn flows() -> impl Strategy<Value = Vec<(String, String, u64)>> {
    let name = || prop_oneof![4 => "[a-c]/[m-q]", 1 => Just(NONE.to_owned())];
    let counts = prop_oneof![4 => 1..1_000u64, 1 => 1..1_000_000_000u64];
    prop::collection::btree_map((name(), name()), counts, 0..40)
        .prop_map(|flows| flows.into_iter().map(|((from, to), count)| (from, to, count)).collect())
}

proptest! {
    #[test]
    fn what_flows_is_what_the_report_says(flows in flows()) {
        let drawn = TargetFlows::of(&report(&flows));
        let mut expected = flows.clone();
        expected.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
        prop_assert_eq!(drawn.flows, expected);
    }

    #[test]
    fn every_target_and_flow_has_a_place_of_its_own(flows in flows()) {
        let flows = TargetFlows { flows };
        let layout = layout(&flows);
        prop_assert!(layout.height.is_finite());
        prop_assert_eq!(layout.bands.len(), flows.flows.len());
        for (bars, side) in [(&layout.before, 0), (&layout.after, 1)] {
            let named: BTreeSet<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
            prop_assert_eq!(named.len(), bars.len());
            prop_assert_eq!(
                bars.iter().map(|bar| bar.requests).sum::<u64>(),
                flows.total(),
                "side {}", side
            );
            for pair in bars.windows(2) {
                prop_assert!(pair[0].y + pair[0].height.max(ROW) < pair[1].y);
            }
            prop_assert!(bars.iter().all(|bar| bar.y + bar.height <= layout.height));
            prop_assert!(bars.iter().all(|bar| (bar.next - bar.y - bar.height).abs() < 1e-6));
            // The bands of a bar fill it without a gap.
            let mut ends: Vec<(f64, f64)> = layout
                .bands
                .iter()
                .map(|band| (if side == 0 { band.from } else { band.to }, band.height))
                .collect();
            ends.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in ends.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0 + 1e-6, "{:?}", pair);
            }
        }
        let drawn = draw(&flows).into_string();
        prop_assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        prop_assert_eq!(drawn.matches("<path").count(), flows.flows.len());
    }
}

#[test]
fn names_are_text_and_what_is_lost_is_marked() {
    let hostile = "<script>alert(1)</script>/x";
    let flows = [(hostile.to_owned(), NONE.to_owned(), 3)];
    let drawn = draw(&TargetFlows::of(&report(&flows))).into_string();
    assert!(!drawn.contains("<script") && drawn.contains("&lt;script"), "{drawn}");
    assert!(
        drawn.contains("rt-band rt-lost") && drawn.contains("no target · 3 · 100 %"),
        "{drawn}"
    );
}
