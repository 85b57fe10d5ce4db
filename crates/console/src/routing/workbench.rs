//! The editor of the routing document, which several pages share: the text, its problems, and what
//! can be done with it.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::call::PageCall;
use crate::form::Form;
use crate::pieces;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::Result;
use rerouter_records::routing::{Config, ConfigSource, ProblemRecord};

pub(super) async fn live(call: PageCall<'_>) -> Result<Config> {
    call.read("/v1/router/config").await
}

/// The file that a change is written to, if the document is in a file.
pub(super) fn written_file(live: &Config) -> Option<&String> {
    live.file.as_ref().filter(|_| live.source == ConfigSource::File)
}

/// The text in the editor.
pub(super) struct Draft {
    pub(super) text: String,
    /// The revision that the draft is to replace.
    pub(super) base: String,
    /// Whether the text came from a form, so that leaving the page would lose it.
    pub(super) is_written: bool,
}

impl Draft {
    pub(super) fn read(form: &Form) -> Draft {
        Draft {
            text: form.text("document").to_owned(),
            base: form.text("base").to_owned(),
            is_written: true,
        }
    }

    /// The draft as hidden fields of a form.
    pub(super) fn hidden(&self) -> Markup {
        html! {
            input type="hidden" name="base" value=(self.base);
            textarea name="document" hidden aria-label="Routing document"
                data-rt-written[self.is_written] { "\n" (self.text) }
        }
    }
}

/// Which captures a document is evaluated on, and with which health of targets.
pub(super) struct EvaluateOptions {
    limit: u64,
    since: &'static str,
    health: &'static str,
}

const LIMITS: [(u64, &str); 3] = [
    (1_000, "the last 1\u{2009}000"),
    (10_000, "the last 10\u{2009}000"),
    (100_000, "the last 100\u{2009}000"),
];
/// Word, hours, label.
const AGES: [(&str, Option<i64>, &str); 3] = [
    ("day", Some(24), "of the last 24 hours"),
    ("week", Some(7 * 24), "of the last 7 days"),
    ("all", None, "of any age"),
];
const HEALTH: [(&str, &str); 3] = [
    ("recorded", "as they were then"),
    ("current", "as they are now"),
    ("healthy", "as if all were healthy"),
];

impl EvaluateOptions {
    /// Reads the options of a form, with defaults for those that are missing.
    pub(super) fn read(form: &Form) -> EvaluateOptions {
        let limit = form.text("limit").parse().ok();
        let limit = limit.filter(|limit| LIMITS.iter().any(|(known, _)| known == limit));
        let age = AGES.iter().find(|(word, ..)| *word == form.text("since"));
        let health = HEALTH.iter().find(|(word, _)| *word == form.text("health"));
        EvaluateOptions {
            limit: limit.unwrap_or(10_000),
            since: age.map_or("day", |(word, ..)| word),
            health: health.map_or("recorded", |(word, _)| word),
        }
    }

    /// The body of `POST /v1/router/replay/evaluate`, which compares with the live document.
    pub(super) fn ask(&self, document: &str, now: Timestamp) -> Value {
        let age = AGES.iter().find(|(word, ..)| *word == self.since).and_then(|(_, age, _)| *age);
        let filter = match age {
            Some(hours) => json!({ "since": rfc3339(now - jiff::Span::new().hours(hours)) }),
            None => json!({}),
        };
        json!({
            "document": document, "baseline": "current", "health": self.health,
            "limit": self.limit, "filter": filter,
        })
    }

    fn show(&self) -> Markup {
        html! {
            details.rt-options {
                summary { "Which requests are decided again" }
                div.row {
                    label { "Requests " select name="limit" {
                        @for (limit, label) in LIMITS {
                            option value=(limit) selected[limit == self.limit] { (label) }
                        }
                    } }
                    label { "Age " select name="since" {
                        @for (word, _, label) in AGES {
                            option value=(word) selected[word == self.since] { (label) }
                        }
                    } }
                    label { "Targets are " select name="health" {
                        @for (word, label) in HEALTH {
                            option value=(word) selected[word == self.health] { (label) }
                        }
                    } }
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RoutingTab {
    Document,
    Evaluate,
    Revisions,
}

pub(super) fn tabs(open: RoutingTab) -> Markup {
    let tabs = [
        (RoutingTab::Document, "/console/routing", "Document"),
        (RoutingTab::Evaluate, "/console/routing/evaluate", "Evaluate"),
        (RoutingTab::Revisions, "/console/routing/revisions", "Revisions"),
    ];
    html! {
        nav.tabs aria-label="Routing" {
            @for (tab, path, label) in tabs {
                a.tab href=(path) aria-current=[(tab == open).then_some("page")] { (label) }
            }
        }
    }
}

/// The form with the text and its buttons. `messages` is the HTML of problems and warnings.
pub(super) fn editor(draft: &Draft, options: &EvaluateOptions, messages: &Markup) -> Markup {
    html! {
        form.rt-form method="post" action="/console/routing/check" {
            input type="hidden" name="base" value=(draft.base);
            label for="rt-text" { "Routing document" }
            div.rt-editor {
                pre.rt-gutter aria-hidden="true" {}
                // A browser drops the first line end of a text area.
                textarea #rt-text.mono name="document" rows="26" wrap="off" spellcheck="false"
                    autocomplete="off" autocapitalize="off" aria-describedby="rt-messages"
                    data-rt-written[draft.is_written]
                    hx-post="/console/routing/check" hx-trigger="load, input changed delay:400ms"
                    hx-target="#rt-messages" hx-sync="this:replace" { "\n" (draft.text) }
            }
            div #rt-messages.rt-messages aria-live="polite" { (messages) }
            div.row.rt-buttons {
                button { "Check" }
                button.primary formaction="/console/routing/evaluate" {
                    "What would this change?"
                }
                button formaction="/console/routing/review" { "Review and apply…" }
                button formaction="/console/routing/download" { "Download" }
            }
            (options.show())
        }
    }
}

/// The elements for the progress of an evaluation and for its report.
pub(super) fn report_place(report: &Markup) -> Markup {
    html! {
        div #rt-progress.notice.info hidden {
            label for="rt-bar" { "Deciding captured requests again" }
            progress #rt-bar {}
            p #rt-reached.num role="status" {}
            button #rt-stop type="button" { "Stop" }
        }
        section #rt-report tabindex="-1" aria-label="Report" { (report) }
    }
}

/// Problems and warnings of a document, each with a link to its line.
pub(super) fn messages(problems: &[ProblemRecord], warnings: &[ProblemRecord]) -> Markup {
    html! {
        @if problems.is_empty() && warnings.is_empty() {
            p { (pieces::badge("ok", "valid")) " No problem was found." }
        } @else {
            p {
                @if problems.is_empty() { (pieces::badge("ok", "valid")) " " }
                (tally(problems.len(), "problem")) ", " (tally(warnings.len(), "warning")) "."
            }
            ul.rt-list {
                @for problem in problems { (message(problem, "problem", "bad")) }
                @for warning in warnings { (message(warning, "warning", "warn")) }
            }
        }
    }
}

fn message(problem: &ProblemRecord, kind: &str, look: &str) -> Markup {
    let ProblemRecord { path, line, column, message, hint } = problem;
    html! {
        li {
            (pieces::badge(look, kind)) " "
            a href="#rt-text" data-rt-line=(line) data-rt-column=(column) data-rt-kind=(kind) {
                "Line " (line) ", column " (column)
            }
            @if !path.is_empty() { " " code { (path) } }
            ": " (pieces::prose(message))
            @if let Some(hint) = hint { span.muted { " – " (pieces::prose(hint)) } }
        }
    }
}

/// `no problem`, `1 problem`, `2 problems`.
pub(super) fn tally(number: usize, noun: &str) -> String {
    match number {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", pieces::count(number as u64)),
    }
}
