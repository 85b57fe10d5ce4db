//! Problems of documents, in the form that people read.

use std::fmt;

use rerouter_document::{DOCUMENT_PROBLEMS, Finding};

/// A problem of a document, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The document is valid nevertheless.
    pub warning: bool,
    /// File name of the document; empty if it has no file.
    pub file: String,
    /// Path of the value; empty for the document itself.
    pub path: String,
    /// Line in the file, counted from one; 0 without a place.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
    /// Description of the problem, without the place.
    pub message: String,
    /// Advice on how to fix the problem.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", line) => write!(f, "line {line}, column {}: ", self.column)?,
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}:{}: ", self.column)?,
        }
        if self.warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The problems of a document in order of their places, without duplicates, up to a maximum.
pub(super) fn problems(file: &str, faults: impl Into<Vec<Finding>>) -> Vec<Problem> {
    listed(file, faults.into(), false)
}

/// Probable mistakes in a valid document, listed in the same way as problems.
pub(super) fn warnings(file: &str, faults: Vec<Finding>) -> Vec<Problem> {
    listed(file, faults, true)
}

fn listed(file: &str, mut faults: Vec<Finding>, warning: bool) -> Vec<Problem> {
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    faults.truncate(DOCUMENT_PROBLEMS);
    let problem = |fault: Finding| Problem {
        warning,
        file: file.to_owned(),
        path: fault.path,
        line: fault.at.line,
        column: fault.at.column,
        message: fault.message,
        hint: fault.hint,
    };
    faults.into_iter().map(problem).collect()
}
