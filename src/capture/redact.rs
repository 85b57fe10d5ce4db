//! What the server document keeps out of captures: text that its expressions match, in whatever string it stands.

use std::ops::Range;

use bytes::Bytes;
use regex::{Regex, RegexBuilder};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::echo::REDACTED;
use super::names;
use super::record::{Bodies, Head, State};
use super::scrub::ends_early;
use super::sift::unescaped;
use crate::auth::Veil;
use crate::bounds;
use crate::protocol::json::{self, Cursor, Edit, JsonError, JsonKind, MemberName};

/// Members at the top of an answer whose numbers are times and counts, in every protocol: any expression of enough digits matches
/// some of them, and of nobody do they say anything.
const COUNTS_AND_TIMES: [&str; 4] = ["created", "created_at", "completed_at", "usage"];
/// Members of an answer whose fractions are as long as any number that somebody looks for, by the thousand.
const MEASURES: [&str; 2] = ["embedding", "logprob"];
/// What the errors are called of a call whose answer is whole, and of a status that makes it one that failed.
const REFUSALS: [&str; 3] = ["rate_limited", "server_error", "unauthorized"];

/// The expressions; without any it does nothing. They match in linear time whatever they are held against. Beside them what
/// is kept out whatever the document says: keys that a client put where a name belongs.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Vec<Expression>, Veil);

/// A regular expression that matches something.
#[derive(Clone, Debug)]
pub struct Expression(Regex);

impl Expression {
    /// Compiles one; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text).size_limit(bounds::REDACT_COMPILED).build();
        let expression = compiled.map_err(|error| {
            error.to_string().lines().last().unwrap_or_default().replace("error: ", "")
        })?;
        // It would match everywhere, and what it matches is nothing.
        if expression.is_match("") {
            Err("it matches the empty text".into())
        } else {
            Ok(Expression(expression))
        }
    }
}

/// What is looked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A request, or anything in it.
    Request,
    /// An answer, at its top.
    Answer,
    /// Anything in it.
    Part,
    /// One of its [`COUNTS_AND_TIMES`].
    Counts,
    /// One of its [`MEASURES`].
    Measures,
}

impl Of {
    /// What a member of it is.
    fn member(self, name: MemberName<'_>) -> Self {
        let is = |names: &[&str]| names.iter().any(|known| name.is(known));
        match self {
            Of::Answer if is(&COUNTS_AND_TIMES) => Of::Counts,
            Of::Answer | Of::Part if is(&MEASURES) => Of::Measures,
            within => within.element(),
        }
    }

    /// What an element of it is.
    fn element(self) -> Self {
        if self == Of::Answer { Of::Part } else { self }
    }

    /// Whether a number of it is looked at.
    fn looks_at(self, number: &str) -> bool {
        match self {
            Of::Counts => false,
            Of::Measures => !number.contains(['.', 'e', 'E']),
            Of::Request | Of::Answer | Of::Part => true,
        }
    }
}

/// A string that cannot be read.
struct Unread;

/// What is told of a string, a name or a number that is to change: where it stands, and what it says then.
type Change<'a> = dyn FnMut(Range<usize>, Result<String, Unread>) + 'a;

impl Redactor {
    /// A redactor of these expressions.
    pub fn new(expressions: Vec<Expression>) -> Self {
        Redactor(expressions, Veil::default())
    }

    /// The same with the keys that this one knows.
    #[must_use]
    pub fn veiling(self, veil: Veil) -> Self {
        Redactor(self.0, veil)
    }

    /// What hides keys in a head.
    pub(super) fn veil(&self) -> &Veil {
        &self.1
    }

    /// Takes matches out of all that is about to be written, and marks the head where there were any. What cannot be read as
    /// strings is not kept at all, and of a stream only what it amounts to: matches may lie across its events.
    pub(super) fn redact(&self, head: &mut Head, bodies: &mut Bodies) {
        if self.0.is_empty() {
            return;
        }
        let (mut found, mut answered) = (false, false);
        if head.request_captured {
            bodies.request =
                self.body(&bodies.request, Of::Request, head.request_truncated, &mut found);
        }
        if head.response_stream && !bodies.response.is_empty() {
            bodies.response = self.stream(head, &bodies.response, &mut answered);
        } else {
            bodies.response =
                self.body(&bodies.response, Of::Answer, breaks_off(head), &mut answered);
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

    /// What a stream amounts to, without matches. One that ends early may end within what would be one.
    fn stream(&self, head: &mut Head, stream: &Bytes, found: &mut bool) -> Bytes {
        let assembled =
            if ends_early(head) { None } else { serde_json::to_vec(&head.assembled(stream)).ok() };
        let Some((kept, changed)) =
            assembled.and_then(|assembled| self.json(&assembled.into(), Of::Answer))
        else {
            *found = true;
            return Bytes::new();
        };
        *found |= changed;
        head.response_assembled = true;
        head.version = head.version.max(Head::ASSEMBLED);
        kept
    }

    /// A body without matches: the same bytes where there are none.
    fn body(&self, body: &Bytes, of: Of, cut: bool, found: &mut bool) -> Bytes {
        if body.is_empty() {
            return Bytes::new();
        }
        // A number does not say that it is over.
        let ends = !cut
            || body.trim_ascii_start().starts_with(b"{")
            || body.trim_ascii_start().starts_with(b"[");
        if ends && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
            let kept = self.json(body, of);
            *found |= kept.as_ref().is_none_or(|(_, changed)| *changed);
            return kept.map(|(kept, _)| kept).unwrap_or_default();
        }
        // A piece of JSON may spell its strings in ways that are seen only where all of it is there.
        let text = std::str::from_utf8(body).ok().filter(|_| !cut);
        let Some(text) = text.filter(|text| !text.trim_start().starts_with(['{', '[', '"'])) else {
            *found = true;
            return Bytes::new();
        };
        let without = self.without(text);
        let said = without.as_deref().unwrap_or(text);
        if said.contains('\\') && self.without(&unescaped(said.as_bytes())).is_some() {
            // It quotes a string, which says what it should not.
            *found = true;
            return Bytes::new();
        }
        *found |= without.is_some();
        without.map_or_else(|| body.clone(), Bytes::from)
    }

    /// JSON without matches in its strings, numbers and names, and whether there were any; every other byte as it was, so also each
    /// of several members of a name. `None` where it cannot be read.
    fn json(&self, body: &Bytes, of: Of) -> Option<(Bytes, bool)> {
        let (mut edits, mut all) = (Vec::new(), true);
        let read = json::read_part(body, |cursor| {
            self.walk(cursor, of, &mut |span, with| match with {
                Ok(with) => edits.push(Edit::new(span, Value::from(with).to_string().into_bytes())),
                Err(Unread) => all = false,
            })
        });
        if read < body.len() || !all {
            return None;
        }
        let changed = !edits.is_empty();
        Some((json::splice(body, edits), changed))
    }

    /// Gives `each` what is to change, and where.
    fn walk(
        &self,
        cursor: &mut Cursor<'_>,
        of: Of,
        each: &mut Change<'_>,
    ) -> Result<(), JsonError> {
        match cursor.kind()? {
            JsonKind::Object => cursor.members(|cursor, name| {
                self.string(cursor, name.span(), each);
                self.walk(cursor, of.member(name), each)
            }),
            JsonKind::Array => cursor.elements(|cursor| self.walk(cursor, of.element(), each)),
            JsonKind::String => {
                let span = cursor.skip()?;
                self.string(cursor, span, each);
                Ok(())
            }
            JsonKind::Number => {
                let span = cursor.skip()?;
                let number = String::from_utf8_lossy(cursor.raw(&span));
                // What is left of a number says nothing.
                if of.looks_at(&number) && self.matches_number(&number) {
                    each(span, Ok(REDACTED.to_owned()));
                }
                Ok(())
            }
            JsonKind::True | JsonKind::False | JsonKind::Null => cursor.pass(),
        }
    }

    /// A string or a name: where it says what it should not, or nothing that can be read (half a character).
    fn string(&self, cursor: &Cursor<'_>, span: Range<usize>, each: &mut Change<'_>) {
        match json::text(cursor.raw(&span)) {
            None => each(span, Err(Unread)),
            Some(text) => {
                self.without(&text).into_iter().for_each(|without| each(span.clone(), Ok(without)))
            }
        }
    }

    /// Whether a number matches as it is written, or as its digits without an exponent.
    fn matches_number(&self, number: &str) -> bool {
        let digits = || number.parse::<f64>().ok().map(|number| number.to_string());
        self.matches(number)
            || (number.contains(['e', 'E']) && digits().is_some_and(|digits| self.matches(&digits)))
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|Expression(expression)| expression.is_match(text))
    }

    /// The text without matches, where there are any.
    fn without(&self, text: &str) -> Option<String> {
        let mut out = None::<String>;
        for Expression(expression) in &self.0 {
            let before = out.as_deref().unwrap_or(text);
            if let std::borrow::Cow::Owned(without) =
                expression.replace_all(before, regex::NoExpand(REDACTED))
            {
                out = Some(without);
            }
        }
        out
    }
}

/// Whether an answer that is no stream may end within what it says. What failed by its status alone was read to its end.
fn breaks_off(head: &Head) -> bool {
    let refused = head.state == State::Failed
        && head.error.as_deref().is_none_or(|error| REFUSALS.contains(&error));
    head.response_truncated || (ends_early(head) && !refused)
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
