//! Where a document says what: for problems that only show when what it says is acted on.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Faults, Problem};
use super::tree::{Node, Value, join};
use crate::routing::Position;

/// Where a document says what, for what only shows when it is acted on.
#[derive(Clone, Default)]
pub(super) struct Written {
    file: String,
    places: BTreeMap<String, Position>,
    /// The paths of values that have faults, or are behind variables that were not looked at.
    unknown: BTreeSet<String>,
}

impl Written {
    pub(super) fn new(file: &str, root: &Node, faults: &Faults) -> Written {
        let mut places = BTreeMap::new();
        note_places(root, String::new(), &mut places);
        let unknown =
            faults.unknown.iter().chain(faults.iter().map(|fault| &fault.path)).cloned().collect();
        Written { file: file.to_owned(), places, unknown }
    }

    /// Whether something stands at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Whether it is known for sure what the value at this path is.
    pub(super) fn knows(&self, path: &str) -> bool {
        let above = |unknown: &String| {
            path.strip_prefix(unknown.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self.unknown.iter().any(above)
    }

    /// Whether that is known of everything in a section.
    pub(super) fn knows_all_of(&self, section: &str) -> bool {
        !self.unknown.iter().any(|unknown| unknown.starts_with(section))
    }

    /// A problem with the value at a path, or with what is nearest above it.
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

fn note_places(node: &Node, path: String, places: &mut BTreeMap<String, Position>) {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| note_places(&entry.node, join(&path, &entry.key), places)),
        Value::List(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| note_places(item, format!("{path}[{at}]"), places));
        }
        _ => {}
    }
    places.insert(path, node.at);
}
