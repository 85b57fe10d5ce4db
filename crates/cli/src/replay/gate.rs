//! The bounds that make `evaluate` a gate for CI, and the verdict on each.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::report::{cost_increase, percent, unpriced};
use rerouter_core::evaluate::share;
use rerouter_records::evaluation::EvaluationRecord;

/// A quotient of two sums may exceed a bound that it meets by this much.
const ROUNDING: f64 = 1e-9;

#[derive(Args)]
pub(super) struct Bounds {
    /// Fail if more than this share of the captures that found a target would go elsewhere, for
    /// example 2% or 0.02.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_changed: Option<f64>,
    /// Fail if a request that found a target would find none.
    #[arg(long)]
    forbid_unroutable: bool,
    /// Fail if more than this share of the captures that found a target would find none.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_unroutable: Option<f64>,
    /// Fail if the cost of the captures could rise by more than this share, for example 5% or 0.05.
    /// Prompt caches of targets that a request did not go to count as cold.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_cost_increase: Option<f64>,
    /// Assume for --max-cost-increase that as many tokens are cached elsewhere as were recorded.
    #[arg(long, requires = "max_cost_increase")]
    assume_warm: bool,
    /// Pass if no capture finds a target, or if all lack what the document reads, for example their
    /// bodies. Default: fail.
    #[arg(long)]
    allow_empty: bool,
    /// Write the verdicts as JUnit XML: one test case per bound, and `captures`.
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(super) struct GateVerdict {
    pub(super) name: &'static str,
    /// Why the bound is broken, if it is.
    pub(super) broken: Option<String>,
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    share::read(text).ok_or_else(|| format!("has to be {}", share::SPELLINGS))
}

/// Captures that would go elsewhere at an unknown difference in cost.
fn unknown_increases(report: &EvaluationRecord) -> u64 {
    report.by_change.iter().map(|change| change.unpriced).sum()
}

impl Bounds {
    fn any(&self) -> bool {
        self.max_changed.is_some()
            || self.forbid_unroutable
            || self.max_unroutable.is_some()
            || self.max_cost_increase.is_some()
            || self.junit.is_some()
    }

    /// The verdicts on a report; empty if no bound is given.
    pub(super) fn judge(&self, report: &EvaluationRecord) -> Vec<GateVerdict> {
        if !self.any() {
            return Vec::new();
        }
        let empty = !report.is_evidence() && !self.allow_empty;
        let why = if report.inexact < report.evaluated || report.evaluated == 0 {
            "there are no captures that find a target"
        } else {
            "all captures lack what the document reads"
        };
        let mut verdicts =
            vec![GateVerdict { name: "captures", broken: empty.then(|| why.to_owned()) }];
        let mut add = |name, broken| verdicts.push(GateVerdict { name, broken });
        if let Some(most) = self.max_changed {
            add("max-changed", too_many_changed(report, most));
        }
        if self.forbid_unroutable {
            let EvaluationRecord { unroutable: lost, evaluated: all, .. } = report;
            let why = || format!("{lost} of {all} captures would find no target any more");
            add("forbid-unroutable", (*lost > 0).then(why));
        }
        if let Some(most) = self.max_unroutable {
            add("max-unroutable", too_many_unroutable(report, most));
        }
        if let Some(most) = self.max_cost_increase.filter(|_| report.routed() > 0) {
            add("max-cost-increase", too_expensive(report, most, self.assume_warm));
        }
        verdicts
    }
}

fn too_many_changed(report: &EvaluationRecord, most: f64) -> Option<String> {
    let share = report.changed_share();
    (share > most).then(|| {
        format!(
            "{} of {} captures ({}) would go elsewhere, at most {} may",
            report.changed,
            report.routed(),
            percent(share),
            percent(most)
        )
    })
}

fn too_many_unroutable(report: &EvaluationRecord, most: f64) -> Option<String> {
    let (lost, all, share) = (report.unroutable, report.routed(), report.unroutable_share());
    (share > most).then(|| {
        let (share, most) = (percent(share), percent(most));
        format!("{lost} of {all} captures ({share}) would find no target, at most {most} may")
    })
}

/// An unknown cost breaks the bound too: it might exceed it.
fn too_expensive(report: &EvaluationRecord, most: f64, assume_warm: bool) -> Option<String> {
    let (warm, unknown) = (cost_increase(report, report.cost.after), unknown_increases(report));
    let increase = match report.cost.after_cold {
        _ if assume_warm => warm,
        Some(cold) => cost_increase(report, cold).max(warm),
        None => {
            let why = "this gateway does not say what cold caches cost: use --assume-warm";
            return Some(why.to_owned());
        }
    };
    if increase > most + ROUNDING {
        let (told, most) = (percent(increase), percent(most));
        let caches = if increase > warm { " if the caches of other targets are cold" } else { "" };
        return Some(format!(
            "the captures would cost {told} more{caches}, at most {most} is allowed"
        ));
    }
    (unknown > 0).then(|| {
        let why = unpriced(report);
        format!("{unknown} captures would go elsewhere at an unknown cost: {why}")
    })
}

impl GateVerdict {
    pub(super) fn holds(&self) -> bool {
        self.broken.is_none()
    }

    pub(super) fn line(&self) -> String {
        match &self.broken {
            None => format!("ok      {}\n", self.name),
            Some(why) => format!("BROKEN  {}: {why}\n", self.name),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "bound": self.name, "holds": self.holds(), "detail": self.broken })
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
