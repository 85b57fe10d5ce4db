//! Evaluations: the decisions that another document would have made for captures, their cost, and
//! the reasons. Also the comparison of two captures, and the explanation of one recorded decision
//! (`why`, `otherwise`). All of it is pure except `run`, which reads captures on its own thread.

pub mod compare;
mod cost;
mod decided_case;
mod explain;
mod judge;
mod offline;
mod otherwise;
mod report;
mod run;
pub mod share;
#[cfg(test)]
mod tests;
mod why;

pub use judge::HealthSource;
pub use offline::OfflineEvaluation;
pub use report::EvaluationReport;
pub(crate) use run::document_of;
pub use run::{
    CaptureLimits, Document, Evaluation, EvaluationEvent, EvaluationProgress, begin, finish, turn,
};
pub use why::why;
