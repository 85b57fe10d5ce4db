//! Completes a decision's inputs with the expensive signals that a document reads.

use super::compiled::Routing;
use super::inputs::Inputs;
use super::language;

impl Inputs {
    /// Adds the expensive signals that the document's expressions read: language and keyword sets.
    /// Known values stay, so inputs for another document lose nothing. `text` gives the last user
    /// message and is called only where a value is missing. Returns whether nothing is missing any
    /// more.
    pub fn complete(&mut self, routing: &Routing, text: impl Fn() -> Option<String>) -> bool {
        let signals = routing.signals();
        if signals.keywords {
            self.keywords = routing.keywords().find(&self.keywords, &text);
        }
        if signals.language && self.request.language.is_none() {
            self.request.language = text().map(|text| language::detect(&text).to_owned());
        }
        (!signals.keywords || self.keywords.len() == routing.keywords().names().count())
            && (!signals.language || self.request.language.is_some())
    }
}
