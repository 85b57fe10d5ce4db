//! "What would this change?": evaluates a draft against the live document over captured requests.
//! The script reads progress as JSON lines, and the report as HTML in the last line. Without a
//! script, the answer is the whole page.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use maud::{Markup, html};
use serde_json::json;

use super::workbench::{
    self, Draft, EvaluateOptions, RoutingTab, editor, messages, report_place, tabs,
};
use super::{document, report};
use crate::call::{self, PageCall, record};
use crate::form::Form;
use crate::layout::Tab;
use crate::refusal;
use rerouter_base::error::Result;
use rerouter_core::api::{ApiResult, ProgressStep, ProgressStream};
use rerouter_records::error::ManagementError;

const TITLE: &str = "What would this change?";

/// `GET /console/routing/evaluate`.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let live = workbench::live(call).await?;
    let draft = document::draft(call, &live).await?;
    page(call, &draft, &EvaluateOptions::read(&Form::default()), &html! {})
}

fn page(
    call: PageCall<'_>,
    draft: &Draft,
    options: &EvaluateOptions,
    report: &Markup,
) -> ApiResult {
    let main = html! {
        (tabs(RoutingTab::Evaluate))
        p {
            "Captured requests are decided again under the document below, and compared with the \
             decisions of the live one. No provider is called."
        }
        (document::source(call))
        (editor(draft, options, &html! {}))
        (report_place(report))
    };
    call.page(TITLE, Tab::Routing, main)
}

/// `POST /console/routing/evaluate`. The evaluation ends when the browser leaves the page.
pub(crate) async fn run(call: PageCall<'_>) -> Result<ProgressStream> {
    match begin(call).await {
        Ok(stream) => Ok(stream),
        Err(error) => Ok(ProgressStream::at_once(false, call.refusal(error))),
    }
}

async fn begin(call: PageCall<'_>) -> Result<ProgressStream> {
    let form = call.form()?;
    let (draft, options) = (Draft::read(&form), EvaluateOptions::read(&form));
    let ask = options.ask(&draft.text, call.app.clock.now());
    let request = call::request(Method::POST, "/v1/router/replay/evaluate", Some(&ask))?;
    if ProgressStream::is_wanted(call.request.headers()) {
        let work = call.progress(request).await?;
        return Ok(ProgressStream::of(true, work.steps, |step| match step {
            Ok(ProgressStep::Line(line)) => ProgressStep::Line(line),
            Ok(ProgressStep::Answer(answer)) => last_line(answer),
            Err(error) => last_line(Err(error)),
        }));
    }
    let report = shown(call.send(request).await);
    Ok(ProgressStream::at_once(false, page(call, &draft, &options, &report)))
}

fn last_line(answer: ApiResult) -> ProgressStep {
    let line = json!({ "html": shown(answer).into_string() });
    ProgressStep::Answer(Ok(Response::new(line.to_string().into())))
}

/// The answer of an evaluation as HTML: its report, the problems of the document, or the error.
fn shown(answer: ApiResult) -> Markup {
    let read = |response: Response<Bytes>| match response.status() {
        StatusCode::OK => Ok(report::report(&record(&response)?)),
        _ => {
            let refusal: ManagementError = record(&response)?;
            Ok(html! {
                h2 { "The document cannot be evaluated" }
                (messages(&refusal.problems.unwrap_or_default(), &[]))
            })
        }
    };
    answer.and_then(read).unwrap_or_else(|error| refusal::words(&error))
}
