//! Redaction: decides which parts of a recorded call may be kept. Pure, and never on a request's
//! path: the capture worker calls it once for each capture, before any of it is written.
//!
//! Nearly all calls hold no secrets. [`Redactor::is_clean`] checks their packed bytes, and then
//! only the headers have to be [filtered](HeaderFilter). All other captures are unpacked.
//!
//! Credentials are found by field (see the tables in `fields.rs`) and removed. Then the removed
//! texts are replaced in all other decoded strings of the call. Encoded or split spellings are not
//! searched for.

mod answer;
mod credentials;
mod fields;
mod head;
mod header_filter;
mod rules;

use std::borrow::Cow;

use crate::capture::packed_capture::PackedCapture;
use crate::capture::record::{Bodies, Capture, Head};
use rerouter_base::secret::KeyRedactor;
use rerouter_dialect::wire::json;

pub use credentials::{is_in_query, without_credentials};
pub use head::{lost_names, lost_signals, lost_text};
pub(crate) use header_filter::HeaderFilter;
pub use rules::Expression;
use rules::{Replacements, Secrets};

#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// The expressions in `capture.redact` of the server document.
    expressions: Vec<Expression>,
    /// Hides the gateway's own keys.
    keys: KeyRedactor,
}

/// The parts of a call that may be kept. Only [`Redactor::redact`] creates one.
#[non_exhaustive]
pub struct RedactedCapture {
    pub head: Head,
    pub bodies: Bodies,
}

impl Redactor {
    /// A redactor that also removes text that matches these expressions.
    pub fn new(expressions: Vec<Expression>) -> Self {
        Redactor { expressions, keys: KeyRedactor::default() }
    }

    /// This redactor, which also hides these keys.
    #[must_use]
    pub fn veiling(self, keys: KeyRedactor) -> Self {
        Redactor { keys, ..self }
    }

    /// Whether only headers have to be removed. `false` also if this cannot be decided cheaply.
    /// `None` if the capture is damaged.
    pub(crate) fn is_clean(&self, capture: &PackedCapture) -> Option<bool> {
        let (facts, bodies, packed) = (capture.facts, &capture.bodies, capture.head()?);
        if facts.has_texts && head::may_hold_credentials(&packed.fields()?) {
            return Some(false);
        }
        let mut secrets = Secrets::default();
        let is_clean = self.expressions.is_empty()
            && !self.keys.is_in(packed.fields)
            && !self.holds_keys(bodies)
            && (!facts.request_captured || rules::find(&bodies.request, &mut secrets).is_empty())
            && answer::find(facts.is_stream, &bodies.response, &mut secrets).is_empty();
        Some(is_clean)
    }

    /// Whether a header of a request stays.
    fn keeps(&self, name: &str, value: &str) -> bool {
        !head::is_secret(name, value) && !self.hides(name) && !self.hides(value)
    }

    /// Whether an answer's header stays that would not stay in a request.
    fn keeps_challenge(&self, name: &str, value: &str) -> bool {
        head::is_challenge(name) && !self.hides(value)
    }

    /// Whether a text contains one of the gateway's own keys.
    fn hides(&self, text: &str) -> bool {
        self.keys.is_in(text.as_bytes())
    }

    fn holds_keys(&self, bodies: &Bodies) -> bool {
        self.keys.is_in(&bodies.request) || self.keys.is_in(&bodies.response)
    }

    /// Redacts a capture; `None` if its head cannot be written as JSON.
    pub fn redact(&self, capture: &Capture) -> Option<RedactedCapture> {
        let (mut head, mut bodies) = (capture.head.clone(), Bodies::default());
        head.request_headers.retain(|(name, value)| self.keeps(name, value));
        head.response_headers
            .retain(|(name, value)| self.keeps(name, value) || self.keeps_challenge(name, value));
        head::remove_credentials(&mut head);
        let mut secrets = Secrets::default();
        if head.request_captured {
            let found = rules::find(&capture.bodies.request, &mut secrets);
            if !found.is_empty() {
                head.lacks_of_request();
            }
            bodies.request = json::splice(&capture.bodies.request, found);
        }
        let answer = &capture.bodies.response;
        let in_answer = answer::find(head.answers_in_events(), answer, &mut secrets);
        let keys = self.holds_keys(&capture.bodies).then_some(&self.keys);
        let Some(rules) = Replacements::new(&secrets, keys, &self.expressions) else {
            head.lacks_of_request();
            return self.finish(head, Bodies::default());
        };
        if let Some(kept) = rules.body(&bodies.request, head.request_truncated) {
            head.lacks_of_request();
            bodies.request = kept;
        }
        bodies.response = answer::redact(&mut head, answer, in_answer, &rules);
        let head = if rules.is_empty() { head } else { head::redact(head, &rules)? };
        self.finish(head, bodies)
    }

    fn finish(&self, head: Head, bodies: Bodies) -> Option<RedactedCapture> {
        let text = serde_json::to_string(&head).ok()?;
        if let Cow::Owned(hidden) = self.keys.redact(&text)
            // Fails if a key from the environment equals a word that the head itself needs.
            && let Ok(head) = serde_json::from_str(&hidden)
        {
            return Some(RedactedCapture { head, bodies });
        }
        Some(RedactedCapture { head, bodies })
    }
}

#[cfg(test)]
mod tests;
