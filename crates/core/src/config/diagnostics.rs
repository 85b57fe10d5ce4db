//! What the readers of a document find, beside its values.

use std::collections::BTreeSet;

use rerouter_routing::Finding;

/// Diagnostics and warnings of a document, and the keys that its readers know.
#[derive(Default)]
pub(super) struct Diagnostics {
    faults: Vec<Finding>,
    /// Probable mistakes in a valid document.
    pub(super) warnings: Vec<Finding>,
    known_keys: BTreeSet<String>,
    /// The environment is not read, and the document may be for another machine.
    pub(super) no_env: bool,
    /// Paths of values that are unknown without the environment.
    pub(super) unknown: BTreeSet<String>,
}

impl Diagnostics {
    pub(super) fn new(no_env: bool) -> Self {
        Diagnostics { no_env, ..Diagnostics::default() }
    }

    pub(super) fn push(&mut self, fault: Finding) {
        self.faults.push(fault);
    }

    pub(super) fn extend(&mut self, faults: impl IntoIterator<Item = Finding>) {
        self.faults.extend(faults);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.faults.iter()
    }

    /// Adds a fault of this machine: only a warning if the document may be for another one.
    pub(super) fn push_local(&mut self, fault: Finding) {
        let list = if self.no_env { &mut self.warnings } else { &mut self.faults };
        list.push(fault);
    }

    pub(super) fn add_known_keys(&mut self, paths: impl Iterator<Item = String>) {
        self.known_keys.extend(paths);
    }

    /// The known keys that hold a value, not a section. `[]` stands for any item of a list.
    pub(super) fn value_keys(&self) -> Vec<String> {
        let is_below = |key: &str, other: &str| {
            other.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let is_section = |key: &String| self.known_keys.iter().any(|other| is_below(key, other));
        self.known_keys.iter().filter(|key| !is_section(key)).cloned().collect()
    }
}

impl From<Diagnostics> for Vec<Finding> {
    fn from(diagnostics: Diagnostics) -> Self {
        diagnostics.faults
    }
}
