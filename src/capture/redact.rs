//! What the server document keeps out of captures: text that its expressions match, in whatever string it stands.

use bytes::Bytes;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::record::{Bodies, Head};
use crate::bounds;

/// What stands where a match stood.
const REDACTED: &str = "[redacted]";

/// The expressions; without any it does nothing. They match in linear time whatever they are held against.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Vec<Expression>);

/// A regular expression that matches something.
#[derive(Clone, Debug)]
pub struct Expression(Regex);

impl Expression {
    /// Compiles one; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text).size_limit(bounds::REDACT_COMPILED).build();
        let expression = compiled.map_err(|error| error.to_string().lines().last().unwrap_or_default().replace("error: ", ""))?;
        // It would match everywhere, and what it matches is nothing.
        if expression.is_match("") { Err("it matches the empty text".into()) } else { Ok(Expression(expression)) }
    }
}

impl Redactor {
    /// A redactor of these expressions.
    pub fn new(expressions: Vec<Expression>) -> Self {
        Redactor(expressions)
    }

    /// Takes matches out of all that is about to be written, and marks the head where there were any. What cannot be read as
    /// strings is not kept at all, and of a stream only what it amounts to: matches may lie across its events.
    pub(super) fn redact(&self, head: &mut Head, bodies: &mut Bodies) {
        if self.0.is_empty() {
            return;
        }
        let mut found = false;
        if head.request_captured {
            bodies.request = self.body(&bodies.request, head.request_truncated, &mut found);
        }
        if head.response_stream && !bodies.response.is_empty() {
            let mut assembled = head.assembled(&bodies.response);
            self.value(&mut assembled, &mut found);
            bodies.response = serde_json::to_vec(&assembled).unwrap_or_default().into();
            head.response_assembled = true;
            head.version = head.version.max(Head::ASSEMBLED);
        } else {
            bodies.response = self.body(&bodies.response, head.response_truncated, &mut found);
        }
        let inputs = head.inputs.iter_mut().flat_map(|inputs| inputs.request.headers.values_mut());
        let headers = head.request_headers.iter_mut().chain(&mut head.response_headers).map(|(_, value)| value);
        for text in headers.chain(inputs).chain(&mut head.client_request_id).chain(&mut head.error) {
            self.text(text, &mut found);
        }
        head.redacted |= found;
    }

    /// A body without matches: the same bytes where there are none.
    fn body(&self, body: &Bytes, truncated: bool, found: &mut bool) -> Bytes {
        if body.is_empty() {
            return Bytes::new();
        }
        let mut here = false;
        if let Ok(mut value) = serde_json::from_slice::<Value>(body) {
            self.value(&mut value, &mut here);
            *found |= here;
            return if here { serde_json::to_vec(&value).unwrap_or_default().into() } else { body.clone() };
        }
        // A piece of JSON may spell its strings in ways that are seen only where all of it is there.
        let text = std::str::from_utf8(body).ok().filter(|_| !truncated);
        let Some(mut text) = text.filter(|text| !text.trim_start().starts_with(['{', '[', '"'])).map(str::to_owned) else {
            *found = true;
            return Bytes::new();
        };
        self.text(&mut text, &mut here);
        *found |= here;
        if here { text.into() } else { body.clone() }
    }

    fn value(&self, value: &mut Value, found: &mut bool) {
        match value {
            Value::String(text) => self.text(text, found),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item, found)),
            Value::Object(fields) => {
                let named = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                    self.text(&mut name, found);
                    self.value(&mut value, found);
                    (name, value)
                });
                *fields = named.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &mut String, found: &mut bool) {
        for Expression(expression) in &self.0 {
            if let std::borrow::Cow::Owned(without) = expression.replace_all(text, regex::NoExpand(REDACTED)) {
                *text = without;
                *found = true;
            }
        }
    }
}
