//! The state of a form: fresh, or as it was sent, with what the API refused.

use maud::{Markup, html};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::form::Form;
use super::pieces;
use rerouter_base::error::{Error, Kind};
use rerouter_core::api::ApiResult;

/// The values in a form. Inputs have the names of the API's fields, so that a refusal finds its
/// input.
#[derive(Clone, Copy, Default)]
pub(super) struct FormState<'a> {
    sent: Option<&'a Form>,
    refused: Option<&'a Error>,
}

/// An input with its label.
pub(super) struct Input<'a> {
    pub(super) label: &'a str,
    pub(super) name: &'a str,
    /// The value as long as nothing was sent.
    pub(super) before: &'a str,
    pub(super) hint: &'a str,
}

impl<'a> FormState<'a> {
    /// A form as it was sent, with the API's refusal.
    pub(super) fn refused(sent: &'a Form, refused: &'a Error) -> Self {
        FormState { sent: Some(sent), refused: Some(refused) }
    }

    /// A form as it was sent.
    pub(super) fn sent(sent: &'a Form) -> Self {
        FormState { sent: Some(sent), refused: None }
    }

    /// This form with a refusal.
    pub(super) fn with(self, refused: &'a Error) -> Self {
        FormState { refused: Some(refused), ..self }
    }

    /// The message why the form is shown again.
    pub(super) fn notice(&self) -> Markup {
        html! {
            @if let Some(error) = self.refused {
                (pieces::notice("bad", &html! { (error.detail()) }))
            }
        }
    }

    /// The value of an input.
    pub(super) fn value(&self, name: &str, before: &str) -> String {
        match self.sent {
            Some(sent) => sent.get(name).unwrap_or_default().to_owned(),
            None => before.to_owned(),
        }
    }

    /// Whether a box is checked, or an option is selected.
    pub(super) fn holds(&self, name: &str, value: &str, before: bool) -> bool {
        self.sent.map_or(before, |sent| sent.all(name).contains(&value))
    }

    pub(super) fn line(&self, input: &Input<'_>) -> Markup {
        self.of_kind(input, "text")
    }

    /// An input of this HTML type.
    pub(super) fn of_kind(&self, input: &Input<'_>, kind: &str) -> Markup {
        self.field(input, self.input(input, kind, None, None))
    }

    /// An input for a number, as text, so that the API can tell what is wrong with it.
    pub(super) fn number(&self, input: &Input<'_>) -> Markup {
        self.field(input, self.input(input, "text", Some("decimal"), None))
    }

    /// An input of one line, with suggested words.
    pub(super) fn suggested(&self, input: &Input<'_>, words: &[String]) -> Markup {
        let list = format!("{}-list", input.name);
        self.field(
            input,
            html! {
                (self.input(input, "text", None, Some(&list)))
                datalist id=(list) { @for word in words { option value=(word) {} } }
            },
        )
    }

    fn input(
        &self,
        input: &Input<'_>,
        kind: &str,
        mode: Option<&str>,
        list: Option<&str>,
    ) -> Markup {
        html! {
            input id=(input.name) name=(input.name) type=(kind) inputmode=[mode] list=[list]
                autocomplete="off" value=(self.value(input.name, input.before))
                aria-invalid=[self.is_wrong(input.name).then_some("true")];
        }
    }

    /// An input for a new password, which is never shown again.
    pub(super) fn new_password(&self, input: &Input<'_>) -> Markup {
        self.field(
            input,
            html! {
                input id=(input.name) name=(input.name) type="password" autocomplete="new-password"
                    required aria-invalid=[self.is_wrong(input.name).then_some("true")];
            },
        )
    }

    pub(super) fn lines(&self, input: &Input<'_>, rows: usize) -> Markup {
        self.field(
            input,
            html! {
                textarea id=(input.name) name=(input.name) rows=(rows) spellcheck="false"
                    aria-invalid=[self.is_wrong(input.name).then_some("true")] {
                    // HTML ignores a newline right after the tag.
                    "\n" (self.value(input.name, input.before))
                }
            },
        )
    }

    /// A selection of one of several words.
    pub(super) fn choice(&self, input: &Input<'_>, words: &[(&str, &str)]) -> Markup {
        self.field(
            input,
            html! {
                select id=(input.name) name=(input.name) {
                    @for (word, label) in words {
                        option value=(word)
                            selected[self.holds(input.name, word, *word == input.before)] {
                            (label)
                        }
                    }
                }
            },
        )
    }

    fn field(&self, input: &Input<'_>, control: Markup) -> Markup {
        let why = self.refused.filter(|_| self.is_wrong(input.name)).map(Error::detail);
        let control = html! {
            (control)
            @if let Some(why) = why { p .error { (why) } }
        };
        pieces::field(input.label, input.name, &control, input.hint)
    }

    /// Whether the API refused this input, or an object that it is part of.
    fn is_wrong(&self, name: &str) -> bool {
        self.refused.and_then(Error::field).is_some_and(|field| {
            name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Whether a refusal is shown in the form, because the caller may correct it or try again.
pub(super) fn is_of_form(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Unauthorized | Kind::NotFound)
}

/// The page of a refused form, with the status of the refusal.
pub(super) fn refused_page(page: ApiResult, error: &Error) -> ApiResult {
    page.map(|mut page| {
        *page.status_mut() = error.status();
        page
    })
}

/// A message that names the gateways that have not confirmed a change yet.
pub(super) fn unconfirmed(answer: &Value) -> Markup {
    let names = words(answer.get("unconfirmed"));
    html! {
        @if !names.is_empty() {
            (pieces::notice("warn", &html! {
                "It is stored. These gateways have not confirmed it yet: " (names) "."
            }))
        }
    }
}

/// The words of a list, separated by commas.
pub(super) fn words(list: Option<&Value>) -> String {
    let words = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(", ")
}

/// The lines that are not empty, trimmed.
pub(super) fn lines_of(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// `name=value` lines as an object of strings. A line without `=` is a name with an empty value.
pub(super) fn pairs_of(text: &str) -> Map<String, Value> {
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.trim().to_owned(), Value::from(value.trim()))
    };
    lines_of(text).into_iter().map(pair).collect()
}

/// An object of strings as `name=value` lines.
pub(super) fn pairs_text(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// The merge patch (RFC 7396) that turns `before` into `after`; `None` if nothing changes.
pub(super) fn patch_to(before: &Value, after: &Map<String, Value>) -> Option<Value> {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        let change = match (before.get(name), value) {
            (Some(old), same) if old == same => None,
            (Some(old @ Value::Object(_)), Value::Object(new)) => patch_to(old, new),
            _ => Some(value.clone()),
        };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn pairs_are_written_as_they_are_read() {
        let pairs = pairs_of(" team = search \n\ncapture=off\na=b=c\nbare");
        assert_eq!(
            Value::Object(pairs.clone()),
            json!({"team": "search", "capture": "off", "a": "b=c", "bare": ""})
        );
        let typed = serde_json::from_value(Value::Object(pairs.clone())).unwrap();
        assert_eq!(pairs_of(&pairs_text(&typed)), pairs);
    }

    fn apply(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut out = target.as_object().cloned().unwrap_or_default();
        for (name, value) in patch {
            match value {
                Value::Null => drop(out.remove(name)),
                value => {
                    let old = out.get(name).cloned().unwrap_or(Value::Null);
                    out.insert(name.clone(), apply(&old, value));
                }
            }
        }
        Value::Object(out)
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<u8>().prop_map(Value::from), "[a-c]".prop_map(Value::from)];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop::collection::btree_map("[a-d]", inner, 1..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
        .prop_filter("an object", Value::is_object)
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_one_to_the_other(before in object(), after in object()) {
            let wanted = after.as_object().unwrap();
            let reached = match patch_to(&before, wanted) {
                None => before.clone(),
                Some(patch) => apply(&before, &patch),
            };
            prop_assert_eq!(reached, after);
        }
    }
}
