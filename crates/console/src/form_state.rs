//! Draws forms: fresh ones, and submitted ones with the refusal of the API.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::form::Form;
use super::form_fields::FieldKind::{
    Beside, Choice, Line, List, Names, NewPassword, Number, Others, Pairs, Suggested, Text, Time,
};
use super::form_fields::{FormField, FormGroup};
use super::pieces;
use rerouter_base::error::{Error, Kind};
use rerouter_core::api::ApiResult;

/// What a page with forms shows: the record that is changed, the submitted form, and the API's
/// answer to it.
#[derive(Clone, Copy, Default)]
pub(super) struct FormState<'a> {
    pub(super) sent: Option<&'a Form>,
    pub(super) refused: Option<&'a Error>,
    /// The answer to a change, which some gateways may not have confirmed.
    pub(super) done: Option<&'a Value>,
    pub(super) record: Option<&'a Value>,
    pub(super) etag: &'a str,
    /// Suggestions for inputs.
    pub(super) words: &'a [String],
}

impl<'a> FormState<'a> {
    pub(super) fn sent(sent: &'a Form) -> Self {
        FormState { sent: Some(sent), ..FormState::default() }
    }

    /// The message about the result of the submitted form.
    pub(super) fn notice(&self) -> Markup {
        html! {
            @if let Some(answer) = self.done { (unconfirmed(answer)) }
            @if let Some(error) = self.refused {
                (pieces::notice("bad", &html! { (error.detail()) }))
            }
        }
    }

    pub(super) fn value(&self, name: &str, before: &str) -> String {
        self.sent.and_then(|sent| sent.get(name)).unwrap_or(before).to_owned()
    }

    /// Whether a box is checked.
    pub(super) fn holds(&self, name: &str, value: &str, before: bool) -> bool {
        self.sent.map_or(before, |sent| sent.all(name).contains(&value))
    }

    pub(super) fn groups(&self, form: &[FormGroup]) -> Markup {
        html! { @for group in form {
            @if group.legend.is_empty() { (self.fields(group.fields)) } @else {
                fieldset .form {
                    legend { (group.legend) }
                    p .hint { (group.hint) }
                    @if !group.columns.is_empty() {
                        div .access-columns { (self.fields(group.columns)) }
                    }
                    (self.fields(group.fields))
                }
            }
        } }
    }

    pub(super) fn fields(&self, fields: &[FormField]) -> Markup {
        html! { @for field in fields {
            @let why = self.refused.filter(|_| self.is_wrong(field.name)).map(Error::detail);
            (pieces::field(field.label, field.name, &html! {
                (self.input(field, why.map(|_| "true")))
                @if let Some(why) = why { p .error { (why) } }
            }, field.hint))
        } }
    }

    fn input(&self, field: &FormField, invalid: Option<&str>) -> Markup {
        let name = field.name;
        let mut value = self.value(name, &field.shown(self.record.unwrap_or(&Value::Null)));
        if matches!(field.kind, Time) {
            // Inputs of times know no zone.
            value.truncate(value.trim_end_matches('Z').len());
        }
        let line = |kind: &str, mode: Option<&str>, list: Option<&str>| {
            html! {
                input id=(name) name=(name) type=(kind) inputmode=[mode] list=[list]
                    autocomplete="off" value=(value) aria-invalid=[invalid];
            }
        };
        match field.kind {
            Line(kind) => line(kind, None, None),
            Time => line("datetime-local", None, None),
            Number => line("text", Some("decimal"), None),
            Suggested => {
                let list = format!("{name}-list");
                html! {
                    (line("text", None, Some(&list)))
                    datalist id=(list) { @for word in self.words { option value=(word) {} } }
                }
            }
            NewPassword => html! {
                input id=(name) name=(name) type="password" autocomplete="new-password" required
                    aria-invalid=[invalid];
            },
            Choice(words) | Beside(words) => html! {
                select id=(name) name=(name) {
                    @for (word, label) in words {
                        option value=(word) selected[value == *word] { (label) }
                    }
                }
            },
            Text(rows) | Names(rows) | Pairs(rows) | Others(rows, _) | List(rows) => html! {
                textarea id=(name) name=(name) rows=(rows) spellcheck="false"
                    aria-invalid=[invalid] {
                    // HTML ignores a newline right after the tag.
                    "\n" (value)
                }
            },
        }
    }

    /// Whether the API refused this input, or an object that it is part of.
    fn is_wrong(&self, name: &str) -> bool {
        self.refused.and_then(Error::field).is_some_and(|field| {
            name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Whether a refusal is shown at the form, so that the user can correct it or try again.
pub(super) fn is_of_form(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Unauthorized | Kind::NotFound)
}

pub(super) fn with_status(status: StatusCode, page: ApiResult) -> ApiResult {
    page.map(|mut page| {
        *page.status_mut() = status;
        page
    })
}

/// Says which gateways have not confirmed a change yet.
pub(super) fn unconfirmed(answer: &Value) -> Markup {
    let names = answer.get("unconfirmed").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    html! {
        @if !names.is_empty() {
            (pieces::notice("warn", &html! {
                "It is stored. These gateways have not confirmed it yet: " (names.join(", ")) "."
            }))
        }
    }
}
