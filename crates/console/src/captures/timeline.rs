//! The timeline of a request: each step as a bar.

use maud::{Markup, html};

use super::values::{outcome, target, visible};
use crate::pieces::{badge, duration_ms, table};
use rerouter_records::replay::CaptureRecord;

/// Width of a whole bar in SVG units.
const WIDTH: f64 = 1000.0;
/// Least width of a step in SVG units, so that it can be seen.
const LEAST: f64 = 4.0;

/// A row of the timeline. `from` and `to` are milliseconds since the request began.
struct TimelineStep {
    name: String,
    from: f64,
    to: f64,
    /// `ok`, `warn` (an answer that is an error), `bad` or empty.
    kind: &'static str,
    said: String,
}

/// The time before the first attempt, then the attempts without gaps between them, up to the end of
/// the request.
fn steps(capture: &CaptureRecord) -> Vec<TimelineStep> {
    let latency = capture.base.latency;
    let total = latency.total_ms as f64;
    let attempts = capture.decision.as_ref().map_or(&[][..], |decision| &decision.attempts);
    let routing = latency.routing_us as f64 / 1_000.0;
    // The time before the first attempt is the total less all attempts, in whole milliseconds.
    let rest = total - attempts.iter().map(|attempt| attempt.duration_ms as f64).sum::<f64>();
    let mut at = rest.max(routing);
    let (name, said) = match &capture.decision {
        Some(_) => ("Received and decided", format!("the decision took {}", duration_ms(routing))),
        None => ("Received and refused", String::new()),
    };
    let to = if attempts.is_empty() { total } else { at };
    let mut steps = vec![TimelineStep { name: name.to_owned(), from: 0.0, to, kind: "", said }];
    for attempt in attempts {
        let from = at;
        at += attempt.duration_ms as f64;
        let status = attempt.status.map(|status| format!("status {status}"));
        let node = attempt.node.as_ref().map(|node| format!("node {}", visible(node)));
        let error = attempt.error.as_ref();
        let error = error.map(|error| visible(&error.replace('_', " ")).into_owned());
        let said: Vec<String> = [status, error, node].into_iter().flatten().collect();
        steps.push(TimelineStep {
            name: target(&attempt.provider, &attempt.model),
            from,
            to: at,
            kind: match attempt.status {
                _ if attempt.error.is_some() => "bad",
                Some(400..) => "warn",
                _ => "ok",
            },
            said: said.join(", "),
        });
    }
    steps
}

pub(super) fn timeline(capture: &CaptureRecord) -> Markup {
    let steps = steps(capture);
    let latency = capture.base.latency;
    let end = steps.last().map_or(0.0, |last| last.to);
    let total = (latency.total_ms as f64).max(end);
    let first = latency.ttft_ms.map(|ms| ms as f64);
    let headings = html! {
        th scope="col" { "Step" }
        th.cap-bar scope="col" { "When" }
        th.num scope="col" { "Took" }
        th scope="col" { "Outcome" }
    };
    let rows = html! {
        @for step in &steps {
            tr {
                th scope="row" { (step.name) }
                td { (bar(step, total)) }
                td.num { (duration_ms(step.to - step.from)) }
                td {
                    @match step.kind {
                        "ok" => { (badge("ok", "answered")) " " }
                        "warn" => { (badge("warn", "answered with an error")) " " }
                        "bad" => { (badge("bad", "failed")) " " }
                        _ => {}
                    }
                    (step.said)
                }
            }
        }
        @if let Some(first) = first {
            tr {
                th scope="row" { "First token" }
                td { (mark(first, total)) }
                td.num { (duration_ms(first)) }
                td.muted { "since the request began" }
            }
        }
        tr {
            th scope="row" { "End" }
            td { (mark(total, total)) }
            td.num { (duration_ms(latency.total_ms as f64)) }
            td { (outcome(&capture.base)) }
        }
    };
    table("Steps", "cap-timeline", &headings, &rows)
}

/// The position of a time on a bar, in SVG units.
fn place(at: f64, total: f64) -> f64 {
    if total > 0.0 { (at / total * WIDTH).clamp(0.0, WIDTH) } else { 0.0 }
}

fn bar(step: &TimelineStep, total: f64) -> Markup {
    let from = place(step.from, total).min(WIDTH - LEAST);
    let width = (place(step.to, total) - from).max(LEAST);
    drawn(from, width, step.kind)
}

fn mark(at: f64, total: f64) -> Markup {
    drawn(place(at, total).min(WIDTH - LEAST), LEAST, "mark")
}

fn drawn(from: f64, width: f64, kind: &str) -> Markup {
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.rest x="0" y="4" width="1000" height="2" {}
            rect class=(format!("cap-{kind}")) x=(format!("{from:.1}")) y="0"
                width=(format!("{width:.1}")) height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::captures::fixtures;

    #[test]
    fn attempts_follow_each_other_up_to_the_end() {
        let answered = |status: u64| {
            fixtures::record(json!({"latency": {"total_ms": 9}, "status": status,
                "decision": {"attempts": [{"provider": "p", "model": "m", "status": status,
                    "duration_ms": 0}]}}))
        };
        assert_eq!(steps(&answered(400))[1].kind, "warn");
        let shown = timeline(&answered(400)).into_string();
        assert!(!shown.contains("badge-ok") && !shown.contains("completed"), "{shown}");
        assert!(timeline(&answered(200)).into_string().contains("badge-ok"));
        let attempt = |model: &str, ms: u64, error: Option<&str>| {
            json!({"provider": "p", "model": model, "status": 503, "error": error,
                "duration_ms": ms})
        };
        let capture = fixtures::record(json!({
            "latency": {"routing_us": 120, "ttft_ms": 260, "total_ms": 400},
            "decision": {"attempts": [attempt("a", 90, Some("server_error")),
                attempt("b", 300, None)]},
        }));
        let steps = steps(&capture);
        let spans: Vec<(f64, f64)> = steps.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(spans, [(0.0, 10.0), (10.0, 100.0), (100.0, 400.0)]);
        assert_eq!(steps[1].said, "status 503, server error");
        let html = timeline(&capture).into_string();
        assert!(
            html.contains("<rect class=\"cap-bad\" x=\"25.0\" y=\"0\" width=\"225.0\""),
            "{html}"
        );
    }

    #[test]
    fn odd_times_stay_within_the_bar() {
        for with in [
            json!({"latency": {"total_ms": 0}, "decision": null}),
            json!({"latency": {"total_ms": 5, "ttft_ms": 9},
                "decision": {"attempts": [{"provider": "<p>", "model": "m\u{202e}",
                    "duration_ms": 50}]}}),
        ] {
            let html = timeline(&fixtures::record(with)).into_string();
            assert!(!html.contains("NaN") && !html.contains("<p>") && !html.contains("\u{202e}"));
            for width in html.split("width=\"").skip(1) {
                let width: f64 = width.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=1000.0).contains(&width), "{html}");
            }
        }
    }
}
