//! The reasons why a command fails.

use rerouter_core::config::Problem;

pub(super) type Result<T, E = CommandFailure> = std::result::Result<T, E>;

/// Why a command failed; each reason has its exit code.
#[derive(Debug)]
pub(super) enum CommandFailure {
    /// 0: the reader of standard output has read enough.
    PipeClosed,
    /// 1: `evaluate` broke a bound, `config diff` found a difference, or a check of `doctor`
    /// failed. The output tells which.
    BoundBroken,
    /// 1: a failure on this machine, or a gate of the gateway that a document did not pass.
    Failed(String),
    /// 2: an option, a document, a corpus or an output is unusable.
    Usage(String),
    /// 3: the gateway could not be reached, or refused.
    Gateway(String),
}

/// Problems of a document, one per line, and their number.
pub(super) fn problem_list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    format!("{}\n{} problem(s)", lines.join("\n"), lines.len())
}
