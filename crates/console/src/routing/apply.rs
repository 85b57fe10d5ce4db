//! Applies a draft: shows the difference, evaluates the gate, and stops if another change came
//! first.

use http::header::{CONTENT_TYPE, IF_MATCH};
use http::{Method, Request, StatusCode};
use maud::{Markup, html};

use super::document::{check_text, revision_text};
use super::workbench::{Draft, RoutingTab, live, messages, report_place, tabs, written_file};
use super::{diff, report};
use crate::call::{PageCall, record};
use crate::form::Form;
use crate::form_state::with_status;
use crate::layout::Tab;
use crate::links::with_query;
use crate::{pieces, refusal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_core::api::{ApiRequest, ApiResult};
use rerouter_records::error::ManagementError;
use rerouter_records::routing::{Config, ConfigTaken};

/// The conditions of a change, as fields of a form.
struct GateFields {
    max_changed: String,
    forbid_unroutable: bool,
    allow_empty: bool,
}

impl GateFields {
    /// A form without them gets careful defaults.
    fn read(form: &Form) -> GateFields {
        match form.get("max_changed") {
            None => GateFields {
                max_changed: "10%".to_owned(),
                forbid_unroutable: true,
                allow_empty: false,
            },
            Some(most) => GateFields {
                max_changed: most.trim().to_owned(),
                forbid_unroutable: form.get("forbid_unroutable").is_some(),
                allow_empty: form.get("allow_empty").is_some(),
            },
        }
    }

    fn change(&self, draft: &Draft) -> Result<ApiRequest> {
        let is_open = self.max_changed.is_empty() && !self.forbid_unroutable;
        let flag = |is: bool| if is { "true" } else { "" };
        let conditions = [
            ("max_changed", self.max_changed.as_str()),
            ("forbid_unroutable", flag(self.forbid_unroutable)),
            ("allow_empty", flag(self.allow_empty && !is_open)),
        ];
        Request::builder()
            .method(Method::PUT)
            .uri(with_query("/v1/router/config", &conditions))
            .header(CONTENT_TYPE, "application/yaml")
            .header(IF_MATCH, format!("\"{}\"", draft.base))
            .body(draft.text.clone().into())
            .map_err(|_| Error::invalid("base", "The form names no revision."))
    }

    fn show(&self) -> Markup {
        html! {
            fieldset {
                legend { "Only if, of the requests of the last 24 hours," }
                div.field {
                    label for="max_changed" { "no more would go elsewhere than" }
                    input #max_changed name="max_changed" value=(self.max_changed) size="6"
                        placeholder="any" aria-describedby="max_changed-hint";
                    p.hint #max_changed-hint { "A share such as 2%. Empty: any number." }
                }
                div.field { label {
                    input type="checkbox" name="forbid_unroutable" checked[self.forbid_unroutable];
                    " none would lose its last target"
                } }
                div.field { label {
                    input type="checkbox" name="allow_empty" checked[self.allow_empty];
                    " apply it also if there were no requests in that time"
                } }
            }
        }
    }
}

/// `POST /console/routing/review`: the difference to the live document, and the gate.
pub(crate) async fn review(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let draft = Draft::read(&form);
    let live = live(call).await?;
    if draft.base != live.revision {
        return conflict(call, &draft, &live, None).await;
    }
    review_page(call, (&draft, &live), &GateFields::read(&form), StatusCode::OK, &html! {}).await
}

async fn review_page(
    call: PageCall<'_>,
    (draft, live): (&Draft, &Config),
    gate: &GateFields,
    status: StatusCode,
    told: &Markup,
) -> ApiResult {
    let diff = diff::compare(live.document.clone(), draft.text.clone()).await?;
    let (can_run, messages) = check_text(call, &draft.text).await?;
    let main = html! {
        (tabs(RoutingTab::Document))
        (told)
        h2 { "Your change" }
        @if diff.is_empty() {
            p { "The text is that of the live document." }
        } @else {
            (diff.show("Difference between the live document and yours"))
        }
        div #rt-messages.rt-messages { (messages) }
        form method="post" action="/console/routing/apply" {
            (draft.hidden())
            @if can_run { (gate.show()) }
            div.row.rt-buttons {
                @if can_run {
                    button.primary { "Make it live" }
                    button formaction="/console/routing/evaluate" { "What would this change?" }
                }
                button formaction="/console/routing/check" { "Back to the editor" }
                button formaction="/console/routing/download" { "Download" }
            }
        }
        @if can_run {
            p.muted {
                "The requests are decided again first, which may take some seconds. "
                @if let Some(file) = written_file(live) {
                    "The text is written to " code { (file) } "."
                }
            }
        } @else {
            p { "This document cannot become live. Mend it in the editor." }
        }
        (report_place(&html! {}))
    };
    with_status(status, call.page("Review and apply", Tab::Routing, main))
}

/// `POST /console/routing/apply`.
pub(crate) async fn apply(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let (draft, gate) = (Draft::read(&form), GateFields::read(&form));
    let told = match call.send(gate.change(&draft)?).await {
        Ok(response) if response.status().is_success() => {
            return applied(call, &record(&response)?);
        }
        Ok(response) => (response.status(), refused(&record(&response)?)),
        Err(error) if error.kind() == Kind::PreconditionFailed => {
            let live = live(call).await?;
            return conflict(call, &draft, &live, Some(&error)).await;
        }
        Err(error) => match error.kind() {
            Kind::InvalidRequest if error.field() == Some("max_changed") => {
                // The page labels this field with other words.
                let says = error.detail().replace("max_changed", "How many may go elsewhere");
                (error.status(), pieces::notice("bad", &html! { p { (says) } }))
            }
            Kind::Unauthorized | Kind::Forbidden | Kind::InsufficientScope => return Err(error),
            // The draft stays on the page, with the error.
            _ => (error.status(), refusal::words(&error)),
        },
    };
    let live = live(call).await?;
    review_page(call, (&draft, &live), &gate, told.0, &told.1).await
}

/// The refusal of a change: the gate's report, or the problems of the document.
fn refused(refusal: &ManagementError) -> Markup {
    html! {
        @let why = html! { p { (refusal.detail) } p { "Nothing has changed." } };
        (pieces::notice("bad", &why))
        @if let Some(found) = &refusal.report { (report::report(found)) }
        @else { (messages(refusal.problems.as_deref().unwrap_or_default(), &[])) }
    }
}

pub(super) fn applied(call: PageCall<'_>, taken: &ConfigTaken) -> ApiResult {
    let ConfigTaken { revision, previous, warnings } = taken;
    let main = html! {
        (tabs(RoutingTab::Document))
        (pieces::notice("ok", &html! {
            @if revision == previous {
                "Revision " code { (revision) } " is live, as it was: the text says the same."
            } @else {
                "Revision " code #live { (revision) } " is live, after " code { (previous) } "."
            }
        }))
        @if !warnings.is_empty() {
            h2 { "What to know" }
            ul { @for warning in warnings { li { (warning) } } }
        }
        p.row {
            a.button href="/console/routing" { "Document" }
            a.button href="/console/routing/revisions" { "Revisions" }
            a.button href="/console/captures" { "Captures" }
        }
    };
    call.page("The change is live", Tab::Routing, main)
}

/// The page if another change came first: both differences, and how to go on.
async fn conflict(
    call: PageCall<'_>,
    draft: &Draft,
    live: &Config,
    error: Option<&Error>,
) -> ApiResult {
    let base = revision_text(call, &draft.base).await.ok();
    let theirs = match base {
        Some(base) => Some(diff::compare(base, live.document.clone()).await?),
        None => None,
    };
    let yours = diff::compare(live.document.clone(), draft.text.clone()).await?;
    let onto = Draft { text: draft.text.clone(), base: live.revision.clone(), is_written: true };
    let main = html! {
        (tabs(RoutingTab::Document))
        (pieces::notice("bad", &html! {
            @if draft.base == live.revision {
                @if let Some(error) = error { p { (error.detail()) } }
            } @else {
                p {
                    "You edited revision " code { (draft.base) } ". Meanwhile revision "
                    code { (live.revision) } " became live. Nothing of yours was applied."
                }
            }
        }))
        @if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
            h2 { "What changed meanwhile" }
            (theirs.show("What changed meanwhile"))
        }
        h2 { "What applying yours would do now" }
        @if yours.is_empty() { p { "Nothing: the texts are the same." } }
        @else { (yours.show("Difference between the live document and yours")) }
        form.row method="post" action="/console/routing/check" {
            (onto.hidden())
            button.primary { "Edit yours again" }
            button formaction="/console/routing/review" { "Review it against the live one" }
            a.button href="/console/routing" { "Drop yours" }
        }
    };
    let page = call.page("Another change came first", Tab::Routing, main);
    with_status(StatusCode::PRECONDITION_FAILED, page)
}
