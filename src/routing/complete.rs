//! Completes a decision's inputs with what a document needs of them.

use super::compiled::Routing;
use super::inputs::Inputs;
use super::{language, node_targets};

impl Inputs {
    /// Adds the expensive signals that the document's expressions read (language and keyword sets),
    /// and the state of its `nodes/…` targets. Known values stay, so inputs for another document
    /// lose nothing. `text` gives the last user message and is called only where a value is
    /// missing. Returns whether nothing is missing any more.
    pub fn complete(&mut self, routing: &Routing, text: impl Fn() -> Option<String>) -> bool {
        let signals = routing.signals();
        node_targets::fill(routing, &mut self.health, self.at, false);
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
