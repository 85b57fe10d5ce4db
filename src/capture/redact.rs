//! What the server document keeps out of captures: text that its expressions match, in whatever string it stands.

use bytes::Bytes;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::echo::REDACTED;
use super::names;
use super::record::{Bodies, Head};
use super::sift::{each_string, unescaped};
use crate::bounds;

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
        let (mut found, mut answered) = (false, false);
        if head.request_captured {
            bodies.request = self.body(&bodies.request, head.request_truncated, &mut found);
        }
        if head.response_stream && !bodies.response.is_empty() {
            bodies.response = self.stream(head, &bodies.response, &mut answered);
        } else {
            bodies.response = self.body(&bodies.response, head.response_truncated, &mut answered);
        }
        // What it says may go on where it was cut; nothing says that it matches.
        let cut = |id: &String| id.chars().count() >= bounds::CLIENT_REQUEST_ID_CHARS;
        head.client_request_id.take_if(|id| cut(id));
        names::each(head, &|text| self.without(text), &mut found);
        names::of_answer(head, &|text| self.without(text), &mut answered);
        if answered {
            head.lacks_of_answer();
        }
        if found {
            head.lacks_of_request();
        }
    }

    /// What a stream amounts to, without matches. One that is cut may end within what would be one.
    fn stream(&self, head: &mut Head, stream: &Bytes, found: &mut bool) -> Bytes {
        if head.response_truncated {
            *found = true;
            return Bytes::new();
        }
        let mut assembled = head.assembled(stream);
        self.value(&mut assembled, found);
        head.response_assembled = true;
        head.version = head.version.max(Head::ASSEMBLED);
        serde_json::to_vec(&assembled).unwrap_or_default().into()
    }

    /// A body without matches: the same bytes where there are none.
    fn body(&self, body: &Bytes, truncated: bool, found: &mut bool) -> Bytes {
        if body.is_empty() {
            return Bytes::new();
        }
        let mut here = false;
        if let Ok(mut value) = serde_json::from_slice::<Value>(body) {
            // Not by the value, which has one of several members of a name.
            let read = each_string(body, &mut |text, _| here |= self.matches(text));
            *found |= here || read < body.len();
            return match here {
                _ if read < body.len() => Bytes::new(),
                false => body.clone(),
                true => {
                    self.value(&mut value, &mut here);
                    serde_json::to_vec(&value).unwrap_or_default().into()
                }
            };
        }
        // A piece of JSON may spell its strings in ways that are seen only where all of it is there.
        let text = std::str::from_utf8(body).ok().filter(|_| !truncated);
        let Some(mut text) = text.filter(|text| !text.trim_start().starts_with(['{', '[', '"'])).map(str::to_owned) else {
            *found = true;
            return Bytes::new();
        };
        self.text(&mut text, &mut here);
        if text.contains('\\') && self.without(&unescaped(text.as_bytes())).is_some() {
            // It quotes a string, which says what it should not.
            *found = true;
            return Bytes::new();
        }
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
        if let Some(without) = self.without(text) {
            *text = without;
            *found = true;
        }
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|Expression(expression)| expression.is_match(text))
    }

    /// The text without matches, where there are any.
    fn without(&self, text: &str) -> Option<String> {
        let mut out = None::<String>;
        for Expression(expression) in &self.0 {
            let before = out.as_deref().unwrap_or(text);
            if let std::borrow::Cow::Owned(without) = expression.replace_all(before, regex::NoExpand(REDACTED)) {
                out = Some(without);
            }
        }
        out
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
