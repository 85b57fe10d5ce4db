//! What the readers of a document find, beside its values.

use std::collections::BTreeSet;

use crate::place::Finding;

/// Problems reported for one document: nobody reads more.
pub const DOCUMENT_PROBLEMS: usize = 100;

/// Looks up a variable; the error says why it must not be used.
pub type Lookup<'a> = dyn Fn(&str) -> Result<Option<String>, String> + 'a;

/// Reads texts that may hold variables.
#[derive(Clone, Copy)]
pub struct VariableReader<'a> {
    pub lookup: &'a Lookup<'a>,
    /// The document is from the API: it may hold credentials as `${…}` only.
    pub from_api: bool,
    /// Variables have their values, not placeholders.
    pub expanded: bool,
    /// Placeholders stand for variables without value and default.
    pub no_env: bool,
    /// Whether the query of a URL holds a credential.
    pub has_credential: fn(&str) -> bool,
    /// Reads the certificates of authorities, in DER, from the PEM file of this path.
    pub load_authorities: fn(&str) -> Result<Vec<Vec<u8>>, String>,
}

/// What is wrong with a document, and how its variables are read.
#[derive(Default)]
pub struct Diagnostics<'v> {
    faults: Vec<Finding>,
    /// Probable mistakes in a valid document.
    pub warnings: Vec<Finding>,
    /// The environment is not read, and the document may be for another machine.
    pub no_env: bool,
    /// Paths of values that are unknown without the environment.
    pub unknown: BTreeSet<String>,
    /// Reads texts that may hold variables; `None` where they were expanded before.
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

    /// Adds a fault of this machine: only a warning if the document may be for another one.
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
