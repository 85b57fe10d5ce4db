//! The configuration of a LiteLLM proxy as a routing document. What cannot be carried is listed,
//! each with its reason.

mod address;
mod deployment;
mod groups;
mod notes;
mod params;
mod providers;
mod settings;
mod write;

use serde_json::Value;

use self::deployment::deployments;
use self::notes::Notes;

/// The result of an import.
pub(super) struct LitellmImport {
    /// The routing document, as YAML.
    pub(super) routing: String,
    /// Lines on what was not carried, each with its place and its reason.
    pub(super) notes: Vec<String>,
    /// Variables that the routing document reads.
    pub(super) variables: Vec<String>,
    /// Number of names that clients may ask for.
    pub(super) names: usize,
}

/// Reads a configuration, as its YAML says it.
pub(super) fn import(configuration: &Value) -> LitellmImport {
    let mut notes = Notes::default();
    let defaults = settings::read(configuration, &mut notes);
    let list = deployments(configuration, &defaults, &mut notes);
    let groups = groups::groups(&list.deployments, &defaults, &mut notes);
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
