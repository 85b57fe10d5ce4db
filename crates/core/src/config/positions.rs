//! The places of values in a document, for problems that appear only when a value is used.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Problem;
use rerouter_document::{Diagnostics, Position, TreeNode, TreeValue, join};

#[derive(Clone, Default)]
pub(super) struct Positions {
    file: String,
    places: BTreeMap<String, Position>,
    /// Paths of values that have faults or need unread variables.
    unknown: BTreeSet<String>,
}

impl Positions {
    pub(super) fn new(file: &str, root: &TreeNode, faults: &Diagnostics<'_>) -> Positions {
        let mut places = BTreeMap::new();
        note_places(root, String::new(), &mut places);
        let unknown =
            faults.unknown.iter().chain(faults.iter().map(|fault| &fault.path)).cloned().collect();
        Positions { file: file.to_owned(), places, unknown }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Whether the value at this path, and every value above it, is certain.
    pub(super) fn knows(&self, path: &str) -> bool {
        let above = |unknown: &String| {
            path.strip_prefix(unknown.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self.unknown.iter().any(above)
    }

    /// Whether every value in a section is certain.
    pub(super) fn knows_all_of(&self, section: &str) -> bool {
        !self.unknown.iter().any(|unknown| unknown.starts_with(section))
    }

    /// A missing value gets the place of the nearest value above it.
    pub(super) fn problem(&self, path: &str, message: String, hint: &str) -> Problem {
        let mut nearest = path;
        let at = loop {
            match (self.places.get(nearest), nearest.rfind(['.', '['])) {
                (Some(at), _) => break *at,
                (None, Some(end)) => nearest = nearest.get(..end).unwrap_or_default(),
                (None, None) => break Position { line: 1, column: 1 },
            }
        };
        let (path, hint) = (path.to_owned(), Some(hint.to_owned()));
        Problem {
            warning: false,
            file: self.file.clone(),
            path,
            line: at.line,
            column: at.column,
            message,
            hint,
        }
    }
}

fn note_places(node: &TreeNode, path: String, places: &mut BTreeMap<String, Position>) {
    match &node.value {
        TreeValue::Map(entries) => entries
            .iter()
            .for_each(|entry| note_places(&entry.node, join(&path, &entry.key), places)),
        TreeValue::List(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| note_places(item, format!("{path}[{at}]"), places));
        }
        _ => {}
    }
    places.insert(path, node.at);
}
