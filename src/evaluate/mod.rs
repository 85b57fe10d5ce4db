//! Evaluations: what another document would have decided for captures, at which cost, and why. Also
//! the comparison of two captures. `judge`, `cost`, `explain`, `report` and `compare` are pure;
//! `run` reads captures on a thread of its own.

pub mod compare;
mod cost;
mod explain;
mod judge;
mod offline;
mod report;
mod run;
pub mod share;
#[cfg(test)]
mod tests;

pub use judge::HealthSource;
pub use offline::OfflineEvaluation;
pub use report::EvaluationReport;
pub use run::{
    CaptureLimits, Document, Evaluation, EvaluationEvent, EvaluationProgress, begin, finish, turn,
};
