//! What reading a document reports beside its values.

use std::collections::BTreeSet;

use crate::place::Finding;

/// Limit on the problems reported for one document. Nobody reads more.
pub const DOCUMENT_PROBLEMS: usize = 100;

/// Looks up a variable. The error says why it must not be used.
pub type Lookup<'a> = dyn Fn(&str) -> Result<Option<String>, String> + 'a;

#[derive(Clone, Copy)]
pub struct VariableReader<'a> {
    pub lookup: &'a Lookup<'a>,
    /// Whether the document comes from the API. Such a document may contain credentials only as
    /// `${…}`.
    pub from_api: bool,
    /// Whether variables have real values instead of placeholders.
    pub expanded: bool,
    /// Whether placeholders replace variables without value and default.
    pub no_env: bool,
    /// Whether the query of a URL contains a credential.
    pub has_credential: fn(&str) -> bool,
    /// Reads certificates of authorities, as DER, from the PEM file at this path.
    pub load_authorities: fn(&str) -> Result<Vec<Vec<u8>>, String>,
}

/// The problems of a document, and how its variables are read.
#[derive(Default)]
pub struct Diagnostics<'v> {
    faults: Vec<Finding>,
    /// Probable mistakes in a valid document.
    pub warnings: Vec<Finding>,
    /// Whether the environment is not read. Then the document may be for another machine.
    pub no_env: bool,
    /// Paths of values that are unknown without the environment.
    pub unknown: BTreeSet<String>,
    /// `None` if variables were expanded before.
    pub variables: Option<VariableReader<'v>>,
}

impl Diagnostics<'_> {
    pub fn new(no_env: bool) -> Self {
        Diagnostics { no_env, ..Diagnostics::default() }
    }

    pub fn push(&mut self, fault: Finding) {
        self.faults.push(fault);
    }

    pub fn extend(&mut self, faults: impl IntoIterator<Item = Finding>) {
        self.faults.extend(faults);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.faults.iter()
    }

    /// Adds a fault that depends on this machine. It is only a warning if the document may be for
    /// another one.
    pub fn push_local(&mut self, fault: Finding) {
        let list = if self.no_env { &mut self.warnings } else { &mut self.faults };
        list.push(fault);
    }
}

impl From<Diagnostics<'_>> for Vec<Finding> {
    fn from(diagnostics: Diagnostics<'_>) -> Self {
        diagnostics.faults
    }
}
