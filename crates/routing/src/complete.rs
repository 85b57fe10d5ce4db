//! Completes a decision's inputs with the expensive signals that a document reads.

use super::compiled::Routing;
use super::condition::TextPart;
use super::inputs::{Inputs, Untranslatable};
use super::language;
use rerouter_dialect::endpoint::Endpoint;

impl Inputs {
    /// Adds the features of the request that other dialects cannot carry, if a target that the name
    /// may lead to needs a translation. `refused` computes them and is called only if they are
    /// missing. Returns whether the inputs are complete.
    pub fn complete_translation(
        &mut self,
        routing: &Routing,
        refused: impl FnOnce() -> Option<Untranslatable>,
    ) -> bool {
        let request = &mut self.request;
        let needed = Endpoint::named(&request.endpoint)
            .is_some_and(|endpoint| routing.translates(&request.name, endpoint));
        if needed && request.untranslatable.is_none() {
            request.untranslatable = refused();
        }
        !needed || request.untranslatable.is_some()
    }

    /// Adds the signals that the document's expressions read and that the capture may lack: headers
    /// (of those that it kept), language, keyword sets and matches in texts. Known values stay,
    /// save keyword sets that the document does not have. `part` returns a text of the request and
    /// is called only if a value is missing. Returns whether the inputs are complete.
    pub fn complete(
        &mut self,
        routing: &Routing,
        headers: &[(String, String)],
        part: impl Fn(TextPart) -> Option<String>,
    ) -> bool {
        let signals = routing.signals;
        for name in &routing.header_names {
            if let Some((_, value)) = headers.iter().find(|(header, _)| header == name) {
                self.request.headers.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        let text = || part(TextPart::User);
        let all_matched = routing.content.find(&mut self.texts, &part);
        if signals.keywords {
            self.keywords = routing.keywords.find(&self.keywords, text);
        }
        if signals.language && self.request.language.is_none() {
            self.request.language = text().map(|text| language::detect(&text).to_owned());
        }
        all_matched
            && (!signals.keywords || self.keywords.len() == routing.keywords.names().count())
            && (!signals.language || self.request.language.is_some())
    }
}
