//! The replacements in decoded strings: the secrets of one call, keys of the gateway, and matches
//! of the operator's expressions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::Bytes;
use regex::{NoExpand, Regex, RegexBuilder};
use serde_json::Value;

use super::credentials::{is_in_address, is_random};
use super::fields::{self, FieldRole};
use rerouter_base::secret::KeyRedactor;
use rerouter_dialect::wire::json::{self, Edit};

/// Largest size of one compiled expression of `capture.redact`, in bytes.
const REDACT_COMPILED: usize = 1 << 20;

/// Replaces a removed text.
pub(super) const REDACTED: &str = "[redacted]";
/// Most bytes of secrets of one call that are searched for. A call with more keeps no bodies.
const MOST_SECRETS: usize = 256 << 10;

/// A regular expression of `capture.redact`. It matches in linear time.
#[derive(Clone, Debug)]
pub struct Expression(Regex);

impl Expression {
    /// Compiles an expression. The error tells what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text).size_limit(REDACT_COMPILED).build();
        let expression = compiled.map_err(|error| {
            error.to_string().lines().last().unwrap_or_default().replace("error: ", "")
        })?;
        if expression.is_match("") {
            return Err("it matches the empty text".into());
        }
        Ok(Expression(expression))
    }
}

/// The texts of the credentials of one call.
#[derive(Default)]
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Adds all strings in a JSON text.
    pub(super) fn add_json(&mut self, json: &[u8]) {
        json::read_part(json, |cursor| {
            fields::walk(cursor, FieldRole::Body, &mut |role, span| {
                let text = json.get(span).and_then(json::text).filter(|_| role != FieldRole::Name);
                text.into_iter().for_each(|text| self.add(&text));
            })
        });
    }

    /// Adds a text, and the words of it that may occur elsewhere: the credential after a scheme, or
    /// a parameter of a URL. Ordinary words are left out, because they would be found by chance.
    fn add(&mut self, text: &str) {
        let separators: &[char] =
            if text.contains("://") { &['/', '?', '#', '&', ';', '=', ':', '@'] } else { &[' '] };
        let words = text.split(separators).chain([text]);
        let secrets = words.filter(|word| is_random(word) && !word.contains(REDACTED));
        self.0.extend(secrets.map(str::to_owned));
    }
}

pub(super) struct Replacements<'a> {
    secrets: Option<AhoCorasick>,
    /// `None` if no body of the call holds a key of the gateway.
    keys: Option<&'a KeyRedactor>,
    pub(super) expressions: &'a [Expression],
}

impl<'a> Replacements<'a> {
    /// Prepares the search. `None` if there are too many secrets.
    pub(super) fn new(
        Secrets(secrets): &Secrets,
        keys: Option<&'a KeyRedactor>,
        expressions: &'a [Expression],
    ) -> Option<Self> {
        if secrets.is_empty() {
            return Some(Replacements { secrets: None, keys, expressions });
        }
        if secrets.iter().map(String::len).sum::<usize>() > MOST_SECRETS {
            return None;
        }
        // Of two secrets with the same beginning, the longer one is replaced as a whole.
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(secrets);
        Some(Replacements { secrets: Some(search.ok()?), keys, expressions })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_none() && self.keys.is_none() && self.expressions.is_empty()
    }

    /// Makes the replacements in a text; `None` if there are none to make.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let secrets = self.secrets.as_ref().filter(|secrets| secrets.is_match(text));
        let mut changed = secrets
            .map(|secrets| secrets.replace_all(text, &vec![REDACTED; secrets.patterns_len()]));
        if let Some(keys) = self.keys
            && let Cow::Owned(hidden) = keys.redact(changed.as_deref().unwrap_or(text))
        {
            changed = Some(hidden);
        }
        for Expression(expression) in self.expressions {
            let before = changed.as_deref().unwrap_or(text);
            if expression.is_match(before) {
                changed = Some(expression.replace_all(before, NoExpand(REDACTED)).into_owned());
            }
        }
        changed
    }

    /// Makes the replacements in the strings of a JSON body, whose other bytes stay, or in a plain
    /// text; `None` if there are none to make. If a body is neither, or was `cut` off, the result
    /// is empty.
    pub(super) fn body(&self, body: &Bytes, cut: bool) -> Option<Bytes> {
        if self.is_empty() || body.is_empty() {
            return None;
        }
        let (mut edits, mut whole) = (Vec::new(), false);
        let read = json::read_part(body, |cursor| {
            let walked = fields::walk(cursor, FieldRole::Body, &mut |_, span| {
                let text = body.get(span.clone()).and_then(json::text);
                // A string that is not valid text cannot be searched, so all of it is replaced.
                let changed =
                    text.map_or_else(|| Some(REDACTED.to_owned()), |text| self.text(&text));
                edits.extend(
                    changed.map(|text| Edit::new(span, Value::from(text).to_string().into_bytes())),
                );
            });
            whole = walked.is_ok();
            walked
        });
        if whole && read == body.len() {
            return (!edits.is_empty()).then(|| json::splice(body, edits));
        }
        match std::str::from_utf8(body) {
            Ok(text) if !cut => self.text(text).map(Bytes::from),
            _ => Some(Bytes::new()),
        }
    }
}

/// Finds the credentials of a JSON body, adds them to `secrets`, and returns their replacements.
pub(super) fn find(body: &[u8], secrets: &mut Secrets) -> Vec<Edit> {
    const REDACTED_JSON: &[u8] = b"\"[redacted]\"";
    let mut edits = Vec::new();
    json::read_part(body, |cursor| {
        fields::walk(cursor, FieldRole::Request, &mut |role, span| {
            let span = span.start..span.end.min(body.len());
            let raw = body.get(span.clone()).unwrap_or_default();
            let is_secret = match role {
                FieldRole::Credential => raw != REDACTED_JSON,
                // A URL that is not a whole string was cut off, and may have been a credential.
                FieldRole::Address => json::text(raw).is_none_or(|address| is_in_address(&address)),
                _ => false,
            };
            if is_secret {
                secrets.add_json(raw);
                edits.push(Edit::new(span, REDACTED_JSON));
            }
        })
    });
    edits
}
