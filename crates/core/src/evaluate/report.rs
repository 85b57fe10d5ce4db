//! The report of an evaluation: counts, shifts, costs and reasons, in limited memory.

use std::collections::BTreeMap;

use rerouter_base::id::RequestId;
use rerouter_base::money::{NanoUsd, dollars, nano_usd};
use rerouter_captures::capture::record::Head;
use rerouter_records::evaluation::{
    ChangeRecord, CostRecord, CostSides, EvaluationRecord, ReasonCount, TargetShift, UnpricedTarget,
};

use super::cost::{Costs, Unpriced};
use super::explain::Reason;
use super::judge::{Judged, Question, Skipped};

/// Most pairs of targets, and most targets, that a report lists separately.
const EVALUATE_CHANGES: usize = 1_000;
/// Most reasons that a report lists for a pair of targets.
const EVALUATE_REASONS: usize = 20;
/// Most captures that a report names for a pair of targets.
const EVALUATE_EXAMPLES: usize = 5;

/// The name for "no target".
const NONE: &str = "none";
/// The name for all entries beyond the limit.
const OTHERS: &str = "others";

#[derive(Debug, Default)]
pub struct EvaluationReport {
    pub counts: EvaluationRecord,
    /// Captures that match the filter but could not be read.
    pub unreadable: u64,
    skipped: BTreeMap<Skipped, u64>,
    changes: BTreeMap<(String, String), TargetChange>,
    shift: BTreeMap<String, (u64, u64)>,
    cost: CostSums,
    /// Captures that used something that the prices do not count.
    unknown_usage: u64,
    /// The part of `cost` that rests on usage estimated by the gateway.
    estimated: CostSums,
    skipped_nano: NanoUsd,
    /// Captures with an unknown cost, before or after.
    unpriced: u64,
    unpriced_targets: BTreeMap<Unpriced, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CostSums {
    before: NanoUsd,
    after: NanoUsd,
    after_cold: NanoUsd,
}

impl CostSums {
    fn add(&mut self, other: CostSums) {
        self.before = self.before.saturating_add(other.before);
        self.after = self.after.saturating_add(other.after);
        self.after_cold = self.after_cold.saturating_add(other.after_cold);
    }

    /// The increase to `after`, in dollars.
    fn delta(self, after: NanoUsd) -> f64 {
        dollars(after.saturating_sub(self.before)) - dollars(self.before.saturating_sub(after))
    }
}

#[derive(Debug, Default)]
struct TargetChange {
    count: u64,
    cost: CostSums,
    /// Captures whose costs are in `cost`.
    priced: u64,
    /// Captures that used tokens, and have an unknown difference in cost.
    unpriced: u64,
    reasons: BTreeMap<Reason, u64>,
    examples: Vec<RequestId>,
}

impl EvaluationReport {
    pub(super) fn skip(&mut self, why: Skipped, head: &Head) {
        if why == Skipped::Limit {
            self.counts.refused_by_limits += 1;
            return;
        }
        *self.skipped.entry(why).or_default() += 1;
        if matches!(why, Skipped::Version | Skipped::Redacted) {
            self.skipped_nano = self.skipped_nano.saturating_add(head.cost_usd.map_or(0, nano_usd));
        }
    }

    /// `reasons` is called only if the first target differs.
    pub(super) fn add(
        &mut self,
        head: &Head,
        judged: &Judged<'_>,
        question: &Question<'_>,
        reasons: impl FnOnce() -> Vec<Reason>,
    ) {
        let (from, to) = (judged.from(), judged.to());
        self.counts.evaluated += 1;
        self.counts.inexact += u64::from(judged.inexact);
        self.counts.assumed += u64::from(judged.assumed);
        self.counts.rule_changed += u64::from(judged.rule_changed());
        self.counts.plan_changed += u64::from(judged.plan_changed());
        self.counts.unroutable += u64::from(from.is_some() && to.is_none());
        self.counts.newly_routed += u64::from(judged.is_newly_routed());
        self.counts.unroutable_before += u64::from(from.is_none() && to.is_none());
        self.count_shift(&from, true);
        self.count_shift(&to, false);
        // What was refused used nothing: nobody knows what it would cost.
        let is_known = head.refused.is_none();
        let costs = is_known.then(|| question.costs(head, from.as_deref(), to.as_deref()));
        costs.iter().for_each(|costs| self.add_costs(head, costs));
        self.counts.changed += u64::from(judged.changed());
        if judged.changed() || judged.is_newly_routed() {
            let (from, to) =
                (from.unwrap_or_else(|| NONE.into()), to.unwrap_or_else(|| NONE.into()));
            let room = self.changes.len() < EVALUATE_CHANGES
                || self.changes.contains_key(&(from.clone(), to.clone()));
            let pair = if room { (from, to) } else { (OTHERS.into(), OTHERS.into()) };
            self.changes.entry(pair).or_default().add(&head.id, costs.as_ref(), reasons());
        }
    }

    fn add_costs(&mut self, head: &Head, costs: &Costs) {
        let Costs { before, after, after_cold, has_unknown_usage } = costs;
        self.unknown_usage += u64::from(*has_unknown_usage);
        // An unknown cost after counts as the cost before, and an unknown cost before as 0 on both
        // sides. So the sums differ only by known changes.
        let sums = match (before, after) {
            (Ok(before), after) => CostSums {
                before: *before,
                after: *after.as_ref().unwrap_or(before),
                after_cold: *after_cold.as_ref().unwrap_or(before),
            },
            (Err(_), _) => CostSums::default(),
        };
        self.cost.add(sums);
        if head.usage.as_ref().is_some_and(|usage| usage.estimated) {
            self.estimated.add(sums);
        }
        let (lacks_before, lacks_after) = (before.as_ref().err(), after.as_ref().err());
        self.unpriced += u64::from(lacks_before.or(lacks_after).is_some());
        for unpriced in
            lacks_before.into_iter().chain(lacks_after.filter(|after| Some(*after) != lacks_before))
        {
            let room = self.unpriced_targets.len() < EVALUATE_CHANGES
                || self.unpriced_targets.contains_key(unpriced);
            let others = || Unpriced { target: OTHERS.to_owned(), lacks: unpriced.lacks };
            *self
                .unpriced_targets
                .entry(if room { unpriced.clone() } else { others() })
                .or_default() += 1;
        }
    }

    fn count_shift(&mut self, target: &Option<String>, before: bool) {
        let name = target.as_deref().unwrap_or(NONE);
        let room = self.shift.len() < EVALUATE_CHANGES || self.shift.contains_key(name);
        let counts = self.shift.entry(if room { name } else { OTHERS }.to_owned()).or_default();
        *(if before { &mut counts.0 } else { &mut counts.1 }) += 1;
    }

    /// Removes the ids of captures, for callers who may not read them.
    pub(crate) fn forget_examples(&mut self) {
        self.changes.values_mut().for_each(|change| change.examples.clear());
    }

    /// The report, with the largest changes and shifts first.
    pub fn record(&self) -> EvaluationRecord {
        let mut changes: Vec<_> = self.changes.iter().collect();
        changes.sort_by(|a, b| b.1.count.cmp(&a.1.count).then_with(|| a.0.cmp(b.0)));
        let mut shift: Vec<_> = self.shift.iter().collect();
        shift.sort_by_key(|(name, (before, after))| {
            (std::cmp::Reverse(before.abs_diff(*after)), name.as_str())
        });
        let shift = shift.into_iter().map(|(target, (before, after))| TargetShift {
            target: target.clone(),
            before: *before,
            after: *after,
        });
        // Refusals by limits have a count of their own.
        let reasons = Skipped::ALL.into_iter().filter(|why| *why != Skipped::Limit);
        let skipped = reasons.map(|why| {
            (why.as_str().to_owned(), self.skipped.get(&why).copied().unwrap_or_default())
        });
        EvaluationRecord {
            by_change: changes.into_iter().map(|(pair, change)| change.record(pair)).collect(),
            shift: shift.collect(),
            cost: self.cost_record(),
            routed_before: Some(self.counts.routed()),
            skipped: skipped.collect(),
            unreadable: Some(self.unreadable).filter(|unreadable| *unreadable > 0),
            ..self.counts.clone()
        }
    }

    fn cost_record(&self) -> CostRecord {
        let mut unpriced: Vec<_> = self.unpriced_targets.iter().collect();
        unpriced.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let row = |(of, count): (&Unpriced, &u64)| UnpricedTarget {
            target: of.target.clone(),
            lacks: of.lacks.as_str().to_owned(),
            count: *count,
        };
        CostRecord {
            before: dollars(self.cost.before),
            after: dollars(self.cost.after),
            after_warm: Some(dollars(self.cost.after)),
            after_cold: Some(dollars(self.cost.after_cold)),
            estimated: CostSides {
                before: dollars(self.estimated.before),
                after: dollars(self.estimated.after),
            },
            skipped: dollars(self.skipped_nano),
            unknown_usage: self.unknown_usage,
            unpriced: self.unpriced,
            unpriced_targets: unpriced.into_iter().map(row).collect(),
        }
    }
}

impl TargetChange {
    fn add(&mut self, id: &RequestId, costs: Option<&Costs>, reasons: Vec<Reason>) {
        self.count += 1;
        match costs {
            Some(Costs { before: Ok(before), after: Ok(after), after_cold: Ok(cold), .. }) => {
                let (before, after, after_cold) = (*before, *after, *cold);
                self.cost.add(CostSums { before, after, after_cold });
                self.priced += 1;
            }
            Some(_) => self.unpriced += 1,
            None => {}
        }
        for reason in reasons {
            if self.reasons.len() < EVALUATE_REASONS || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
        if self.examples.len() < EVALUATE_EXAMPLES {
            self.examples.push(id.clone());
        }
    }

    /// If no cost is known, the difference is unknown, not 0.
    fn known_delta(&self, after: NanoUsd) -> Option<f64> {
        (self.priced > 0).then(|| self.cost.delta(after))
    }

    fn record(&self, (from, to): &(String, String)) -> ChangeRecord {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let row = |(reason, count): (&Reason, &u64)| {
            let when = reason.when.as_ref().map(|when| format!(" ({when})")).unwrap_or_default();
            let detail = format!("{}{when}", reason.detail);
            ReasonCount { reason: reason.kind.to_owned(), detail, count: *count }
        };
        ChangeRecord {
            from: from.clone(),
            to: to.clone(),
            count: self.count,
            cost_delta_usd: self.known_delta(self.cost.after),
            cost_delta_cold_usd: self.known_delta(self.cost.after_cold),
            unpriced: self.unpriced,
            reasons: reasons.into_iter().map(row).collect(),
            examples: self.examples.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::id::{Random, UserId};
    use rerouter_captures::capture::fixtures::capture;

    #[test]
    fn what_nobody_served_before_makes_no_share_smaller() {
        let share = |evaluated, routed: u64, changed| {
            let unroutable_before = evaluated - routed;
            EvaluationRecord {
                evaluated,
                changed,
                unroutable_before,
                ..EvaluationRecord::default()
            }
            .changed_share()
        };
        assert_eq!(
            [share(100, 10, 5), share(10, 10, 5), share(100, 0, 3), share(100, 2, 3)],
            [0.5, 0.5, 1.0, 1.0]
        );
        assert_eq!([share(0, 0, 0), share(5, 0, 0), share(5, 5, 0)], [0.0; 3]);
    }

    #[test]
    fn what_is_left_out_but_was_billed_is_summed_apart() {
        let mut report = EvaluationReport::default();
        let head = Head {
            cost_usd: Some(0.25),
            ..capture(0, &UserId::known("usr_1"), &Random::seeded(1)).head
        };
        for why in Skipped::ALL {
            report.skip(why, &head);
        }
        let cost = report.record().cost;
        assert_eq!((cost.skipped, cost.before), (0.5, 0.0), "of another version, and redacted");
    }

    #[test]
    fn examples_are_left_out_where_asked() {
        let mut report = EvaluationReport::default();
        let change = TargetChange {
            count: 1,
            examples: vec![RequestId::known("req_1")],
            ..TargetChange::default()
        };
        report.changes.insert(("a".into(), "b".into()), change);
        assert_eq!(report.record().by_change[0].examples, [RequestId::known("req_1")]);
        report.forget_examples();
        let change = &report.record().by_change[0];
        assert_eq!((change.examples.as_slice(), change.count), (&[][..], 1));
    }
}
