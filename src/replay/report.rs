//! What a document would have done to the captures that were asked: counts, shifts, costs and the reasons, in bounded memory.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bounds;
use crate::capture::record::Head;
use crate::id::RequestId;
use crate::routing::recipe::Routing;

use super::evaluate::{Judged, Skipped, tokens};
use super::explain::Reason;

/// Stands for "no target at all".
const NONE: &str = "none";
/// Takes in what has no room of its own.
const OTHERS: &str = "others";

/// The report of an evaluation, as far as it has come.
#[derive(Debug, Default)]
pub struct Report {
    /// Captures decided again.
    pub evaluated: u64,
    /// Those whose first target is another.
    pub changed: u64,
    /// Those that found a target before and find none now.
    pub unroutable: u64,
    /// Those that find a target neither before nor now.
    pub unroutable_before: u64,
    /// Those that found a target before.
    pub routed_before: u64,
    /// Those that another rule matches.
    pub rule_changed: u64,
    /// Those whose plan is another.
    pub plan_changed: u64,
    /// Those of which something could not be known.
    pub inexact: u64,
    /// Those with targets that were taken to be healthy and idle.
    pub assumed: u64,
    /// Captures that belong here and could not be read, so that nobody knows what they would have added.
    pub unreadable: u64,
    /// Those whose cost is not known, before or after.
    pub unpriced: u64,
    skipped: BTreeMap<Skipped, u64>,
    changes: BTreeMap<(String, String), Change>,
    shift: BTreeMap<String, (u64, u64)>,
    before_usd: f64,
    after_usd: f64,
}

#[derive(Debug, Default)]
struct Change {
    count: u64,
    delta_usd: f64,
    unpriced: u64,
    reasons: BTreeMap<Reason, u64>,
    examples: Vec<RequestId>,
}

/// Where the prices of both sides come from: the candidate's list, and for what it does not price the other's. One list for
/// both sides: a change of prices alone moves no cost.
pub struct PriceList<'a> {
    /// The document that is evaluated.
    pub candidate: &'a Routing,
    /// The live one, or the baseline.
    pub other: Option<&'a Routing>,
}

impl PriceList<'_> {
    fn cost(&self, target: Option<&str>, head: &Head) -> Option<f64> {
        // Nothing is paid for what nobody serves.
        let Some(target) = target else { return Some(0.0) };
        let documents = [Some(self.candidate), self.other];
        let priced = |routing: &Routing| routing.target(target)?.prices?.cost(&tokens(head));
        documents.into_iter().flatten().find_map(priced)
    }
}

impl Report {
    /// Notes a capture that was not asked.
    pub fn skip(&mut self, why: Skipped) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Notes one that was; `reasons` are asked for only where it changed.
    pub fn add(&mut self, head: &Head, judged: &Judged<'_>, prices: &PriceList<'_>, reasons: impl FnOnce() -> Vec<Reason>) {
        let (from, to) = (judged.from(), judged.to());
        self.evaluated += 1;
        self.inexact += u64::from(judged.inexact);
        self.assumed += u64::from(judged.assumed);
        self.rule_changed += u64::from(judged.rule_changed());
        self.plan_changed += u64::from(judged.plan_changed());
        self.unroutable += u64::from(from.is_some() && to.is_none());
        self.routed_before += u64::from(from.is_some());
        self.unroutable_before += u64::from(from.is_none() && to.is_none());
        self.shifted(&from, true);
        self.shifted(&to, false);
        let costs = prices.cost(from.as_deref(), head).zip(prices.cost(to.as_deref(), head));
        match costs {
            Some((before, after)) => {
                self.before_usd += before;
                self.after_usd += after;
            }
            None => self.unpriced += 1,
        }
        if judged.changed() {
            self.changed += 1;
            let (from, to) = (from.unwrap_or_else(|| NONE.into()), to.unwrap_or_else(|| NONE.into()));
            let room = self.changes.len() < bounds::EVALUATE_CHANGES || self.changes.contains_key(&(from.clone(), to.clone()));
            let pair = if room { (from, to) } else { (OTHERS.into(), OTHERS.into()) };
            self.changes.entry(pair).or_default().add(&head.id, costs, reasons());
        }
    }

    fn shifted(&mut self, target: &Option<String>, before: bool) {
        let name = target.as_deref().unwrap_or(NONE);
        let room = self.shift.len() < bounds::EVALUATE_CHANGES || self.shift.contains_key(name);
        let counts = self.shift.entry(if room { name } else { OTHERS }.to_owned()).or_default();
        *(if before { &mut counts.0 } else { &mut counts.1 }) += 1;
    }

    /// How many changed for each that found a target before, 0 to 1: requests that nobody could serve do not make the others fewer.
    pub fn changed_share(&self) -> f64 {
        if self.changed == 0 { 0.0 } else { (self.changed as f64 / self.routed_before as f64).min(1.0) }
    }

    /// Leaves out which captures they were, for who may not see them.
    pub fn forget_examples(&mut self) {
        self.changes.values_mut().for_each(|change| change.examples.clear());
    }

    /// Dollars before and after, of those captures whose costs are known.
    pub fn cost_usd(&self) -> (f64, f64) {
        (self.before_usd, self.after_usd)
    }

    /// The report of contract 6.4; the greatest changes and shifts first.
    pub fn json(&self) -> Value {
        let mut changes: Vec<_> = self.changes.iter().collect();
        changes.sort_by(|a, b| b.1.count.cmp(&a.1.count).then_with(|| a.0.cmp(b.0)));
        let changes: Vec<Value> = changes.into_iter().map(|((from, to), change)| change.json(from, to)).collect();
        let mut shift: Vec<_> = self.shift.iter().collect();
        shift.sort_by_key(|(name, (before, after))| (std::cmp::Reverse(before.abs_diff(*after)), name.as_str()));
        let shift: Vec<Value> =
            shift.into_iter().map(|(target, (before, after))| json!({ "target": target, "before": before, "after": after })).collect();
        let skipped: serde_json::Map<String, Value> =
            Skipped::ALL.into_iter().map(|why| (why.as_str().to_owned(), self.skipped.get(&why).copied().unwrap_or(0).into())).collect();
        let mut report = json!({
            "object": "evaluation",
            "evaluated": self.evaluated, "changed": self.changed, "unroutable": self.unroutable,
            "unroutable_before": self.unroutable_before, "rule_changed": self.rule_changed, "plan_changed": self.plan_changed,
            "by_change": changes, "shift": shift,
            "cost": { "before": self.before_usd, "after": self.after_usd, "unpriced": self.unpriced },
            "inexact": self.inexact, "assumed": self.assumed, "skipped": skipped,
        });
        if let Some(fields) = report.as_object_mut().filter(|_| self.unreadable > 0) {
            fields.insert("unreadable".to_owned(), self.unreadable.into());
        }
        report
    }
}

impl Change {
    fn add(&mut self, id: &RequestId, costs: Option<(f64, f64)>, reasons: Vec<Reason>) {
        self.count += 1;
        match costs {
            Some((before, after)) => self.delta_usd += after - before,
            None => self.unpriced += 1,
        }
        for reason in reasons {
            if self.reasons.len() < bounds::EVALUATE_REASONS || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
        if self.examples.len() < bounds::EVALUATE_EXAMPLES {
            self.examples.push(id.clone());
        }
    }

    fn json(&self, from: &str, to: &str) -> Value {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let told = |(reason, count): (&Reason, &u64)| {
            let when = reason.when.as_ref().map(|when| format!(" ({when})")).unwrap_or_default();
            let detail = format!("{}{when}", reason.detail);
            json!({ "reason": reason.kind, "detail": detail, "count": count })
        };
        let reasons: Vec<Value> = reasons.into_iter().map(told).collect();
        // Where no cost of them is known the difference is not zero but unknown.
        let delta = (self.unpriced < self.count).then_some(self.delta_usd);
        json!({ "from": from, "to": to, "count": self.count, "cost_delta_usd": delta, "reasons": reasons, "examples": self.examples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_served_before_makes_no_share_smaller() {
        let share = |evaluated, routed_before, changed| Report { evaluated, routed_before, changed, ..Report::default() }.changed_share();
        assert_eq!([share(100, 10, 5), share(10, 10, 5), share(100, 0, 3), share(100, 2, 3)], [0.5, 0.5, 1.0, 1.0]);
        assert_eq!([share(0, 0, 0), share(5, 0, 0), share(5, 5, 0)], [0.0; 3]);
    }

    #[test]
    fn examples_are_left_out_where_asked() {
        let mut report = Report::default();
        let change = Change { count: 1, examples: vec![RequestId::known("req_1")], ..Change::default() };
        report.changes.insert(("a".into(), "b".into()), change);
        assert_eq!(report.json()["by_change"][0]["examples"], json!(["req_1"]));
        report.forget_examples();
        assert_eq!((&report.json()["by_change"][0]["examples"], &report.json()["by_change"][0]["count"]), (&json!([]), &json!(1)));
    }
}
