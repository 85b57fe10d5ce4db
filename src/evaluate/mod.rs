//! Evaluations: what another document would have decided for captures, at which cost, and why. Also
//! the comparison of two captures. `judge`, `cost`, `explain`, `report` and `compare` are pure;
//! `run` reads captures on a thread of its own.

pub(crate) mod compare;
mod cost;
mod explain;
mod judge;
mod offline;
mod report;
mod run;
pub(crate) mod share;
#[cfg(test)]
mod tests;

pub(crate) use judge::HealthSource;
pub(crate) use offline::OfflineEvaluation;
pub(crate) use report::EvaluationReport;
pub(crate) use run::{
    CaptureLimits, Document, Evaluation, EvaluationEvent, EvaluationProgress, begin, finish, turn,
};
