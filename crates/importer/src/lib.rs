//! Converts the configuration of a LiteLLM proxy to a routing document. Everything that cannot be
//! converted is listed with its reason.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod address;
mod deployment;
mod groups;
mod notes;
mod params;
mod providers;
mod reasons;
mod settings;
mod write;

use serde_json::Value;

use self::deployment::deployments;
use self::notes::Notes;

pub struct LitellmImport {
    /// The routing document, as YAML.
    pub routing: String,
    /// Lines on what was not imported, with place and reason.
    pub notes: Vec<String>,
    /// Variables that the routing document reads.
    pub variables: Vec<String>,
    /// Number of names that clients can ask for.
    pub names: usize,
}

/// Converts a configuration, which was parsed from YAML.
pub fn import(configuration: &Value) -> LitellmImport {
    let mut notes = Notes::default();
    let defaults = settings::read(configuration, &mut notes);
    let list = deployments(configuration, &defaults, &mut notes);
    let groups = groups::groups(&list, &defaults, &mut notes);
    let names = groups::names(configuration, &groups, &mut notes);
    LitellmImport {
        routing: write::document(&list, &groups, &names),
        notes: notes.lines,
        variables: list.variables(),
        names: names.len(),
    }
}

#[cfg(test)]
mod tests;
