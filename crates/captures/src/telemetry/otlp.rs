//! Writes calls as spans in OTLP's JSON, with the attributes of OpenTelemetry's conventions for
//! generative AI (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>). Attributes for which the
//! conventions have no name begin with `rerouter.`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::call_trace::{AttemptStep, CallTrace};
use crate::capture::record::{Attempt, CaptureState, Head};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::usage::Usage;
use rerouter_routing::{Preset, Provider};

/// OTLP's kind of a span that answers a request.
const SERVER: u8 = 2;
/// OTLP's kind of a span that makes a request.
const CLIENT: u8 = 3;
/// OTLP's status of a span that has no status.
const UNSET: u8 = 0;
/// OTLP's status of a span that failed.
const ERROR: u8 = 2;

/// The conventions' names of providers without a preset, by the end of their host names.
const OTHERS: [(&str, &str); 5] = [
    (".services.ai.azure.com", "azure.ai.inference"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.cohere.com", "cohere"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
];

#[derive(Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn text(&mut self, key: &str, value: &str) {
        self.0.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    fn optional(&mut self, key: &str, value: Option<&str>) {
        value.into_iter().for_each(|value| self.text(key, value));
    }

    /// Adds a whole number. JSON of protocol buffers writes 64-bit integers as text.
    fn whole(&mut self, key: &str, value: u64) {
        self.0.push(json!({ "key": key, "value": { "intValue": value.to_string() } }));
    }

    fn number(&mut self, key: &str, value: f64) {
        self.0.push(json!({ "key": key, "value": { "doubleValue": value } }));
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.0.push(json!({ "key": key, "value": { "boolValue": value } }));
    }

    fn usage(&mut self, usage: &Usage) {
        self.whole("gen_ai.usage.input_tokens", usage.prompt_tokens);
        self.whole("gen_ai.usage.output_tokens", usage.completion_tokens);
        if let Some(cached) = usage.counts.cached_tokens {
            self.whole("gen_ai.usage.cache_read.input_tokens", cached);
        }
        if usage.estimated {
            self.flag("rerouter.usage_estimated", true);
        }
    }
}

/// The description of the sender in each request.
pub(super) fn resource(instance: &str) -> Value {
    let mut attributes = Attributes::default();
    attributes.text("service.name", "rerouter");
    attributes.text("service.version", env!("CARGO_PKG_VERSION"));
    attributes.text("service.instance.id", instance);
    json!({ "attributes": attributes.0 })
}

/// The body of an export request.
pub(super) fn export(resource: &Value, calls: &[CallTrace]) -> Vec<u8> {
    let spans: Vec<Value> = calls.iter().flat_map(spans).collect();
    let scope = json!({ "name": "rerouter", "version": env!("CARGO_PKG_VERSION") });
    let body = json!({
        "resourceSpans": [{
            "resource": resource,
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }],
    });
    body.to_string().into_bytes()
}

/// The span of a call, and one span for each attempt.
fn spans(call: &CallTrace) -> Vec<Value> {
    let operation = operation(&call.head.endpoint);
    let mut spans = vec![call_span(call, operation)];
    let attempts = call.head.attempts.iter().zip(&call.steps).enumerate();
    spans.extend(attempts.map(|(number, made)| attempt_span(call, operation, number, made)));
    spans
}

fn call_span(call: &CallTrace, operation: &str) -> Value {
    let CallTrace { context, head, model, took, steps, .. } = call;
    let mut attributes = Attributes::default();
    attributes.text("gen_ai.operation.name", operation);
    attributes.text("gen_ai.request.model", model);
    if let Some(served) = &head.served {
        let by = steps.iter().rev().find(|step| step.target.provider.name == served.provider);
        let provider = by.map(|step| provider_name(&step.target.provider));
        attributes.text("gen_ai.provider.name", provider.unwrap_or(&served.provider));
        attributes.text("gen_ai.response.model", &served.model);
    }
    if let Some(usage) = &head.usage {
        attributes.usage(usage);
    }
    if let Some(ttft) = head.ttft_ms.filter(|_| head.stream) {
        attributes.number(
            "gen_ai.response.time_to_first_chunk",
            Duration::from_millis(ttft).as_secs_f64(),
        );
    }
    attributes.whole("http.response.status_code", head.status.into());
    let failed = head.state == CaptureState::Failed || head.status >= 500;
    attributes.optional("error.type", error_type(head.error.as_deref(), head.status).as_deref());
    of_gateway(head, &mut attributes);
    json!({
        "traceId": context.trace.to_string(),
        "spanId": context.span.to_string(),
        "parentSpanId": context.parent.map_or_else(String::new, |parent| parent.to_string()),
        "name": format!("{operation} {model}"),
        "kind": SERVER,
        "startTimeUnixNano": nanos(head.created_at, Duration::ZERO),
        "endTimeUnixNano": nanos(head.created_at, *took),
        "attributes": attributes.0,
        "status": { "code": if failed { ERROR } else { UNSET } },
    })
}

/// Adds the attributes that only this gateway has.
fn of_gateway(head: &Head, attributes: &mut Attributes) {
    attributes.text("rerouter.request_id", head.id.as_str());
    attributes.text("rerouter.endpoint", &head.endpoint);
    attributes.text("rerouter.state", head.state.as_str());
    attributes.flag("rerouter.stream", head.stream);
    attributes.text("rerouter.user", head.owner.as_str());
    attributes.optional("rerouter.key", head.key.as_ref().map(|key| key.as_str()));
    attributes.optional("rerouter.agent", head.agent.as_deref());
    if let Some(decision) = &head.decision {
        attributes.text("rerouter.recipe", &decision.recipe);
        attributes.optional("rerouter.rule", decision.rule.as_deref());
        attributes.text("rerouter.revision", &decision.revision);
    }
    if let Some(cost) = head.cost_usd {
        attributes.number("rerouter.cost_usd", cost);
    }
    for (key, id) in
        [("rerouter.replay_of", &head.replay_of), ("rerouter.shadow_of", &head.shadow_of)]
    {
        attributes.optional(key, id.as_ref().map(|id| id.as_str()));
    }
}

fn attempt_span(
    call: &CallTrace,
    operation: &str,
    number: usize,
    (attempt, step): (&Attempt, &AttemptStep),
) -> Value {
    let provider = &*step.target.provider;
    let mut attributes = Attributes::default();
    attributes.text("gen_ai.operation.name", operation);
    attributes.text("gen_ai.provider.name", provider_name(provider));
    attributes.text("gen_ai.request.model", &attempt.model);
    if provider.protocol.is_remote() {
        attributes.text("server.address", &provider.base.host);
        attributes.whole("server.port", provider.base.port.into());
    }
    if let Some(status) = attempt.status {
        attributes.whole("http.response.status_code", status.into());
    }
    let error = error_type(attempt.error.as_deref(), attempt.status.unwrap_or(0));
    attributes.optional("error.type", error.as_deref());
    attributes.text("rerouter.provider", &attempt.provider);
    attributes.optional("rerouter.node", attempt.node.as_deref());
    let is_last = number + 1 == call.steps.len();
    if let Some(served) = call.head.served.as_ref().filter(|_| is_last && error.is_none()) {
        attributes.text("gen_ai.response.model", &served.model);
        call.head.usage.iter().for_each(|usage| attributes.usage(usage));
    }
    let after = step.began.saturating_duration_since(call.began);
    json!({
        "traceId": call.context.trace.to_string(),
        "spanId": call.context.attempt(number).to_string(),
        "parentSpanId": call.context.span.to_string(),
        "name": format!("{operation} {}", attempt.model),
        "kind": CLIENT,
        "startTimeUnixNano": nanos(call.head.created_at, after),
        "endTimeUnixNano": nanos(call.head.created_at, after + step.took),
        "attributes": attributes.0,
        "status": { "code": if error.is_some() { ERROR } else { UNSET } },
    })
}

/// The operation of an endpoint in the conventions, or the endpoint's own name if they lack it.
fn operation(endpoint: &str) -> &str {
    match Endpoint::named(endpoint) {
        Some(known) if known.generates() => "chat",
        Some(Endpoint::CountTokens) => "count_tokens",
        _ => endpoint,
    }
}

/// The failure as one word or a status. In an error, a detail may follow after the word.
fn error_type(error: Option<&str>, status: u16) -> Option<String> {
    let word = error.map(|error| error.split(':').next().unwrap_or_default().to_owned());
    word.or_else(|| (status >= 400).then(|| status.to_string()))
}

/// The provider's name in the conventions, or its name in the document if they lack it.
fn provider_name(provider: &Provider) -> &str {
    known_name(&provider.base.host).unwrap_or(&provider.name)
}

fn known_name(host: &str) -> Option<&'static str> {
    let other = || OTHERS.iter().find(|(end, _)| host.ends_with(end)).map(|(_, name)| *name);
    Preset::of_host(host).and_then(|preset| preset.convention).or_else(other)
}

/// A time in nanoseconds since the epoch, as text.
fn nanos(at: Timestamp, after: Duration) -> String {
    let after = i128::try_from(after.as_nanos()).unwrap_or(0);
    (at.as_nanosecond() + after).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hosts_have_the_names_of_the_conventions() {
        for (host, name) in [
            ("api.openai.com", Some("openai")),
            ("mine.openai.azure.com", Some("azure.ai.openai")),
            ("bedrock-runtime.eu-central-1.amazonaws.com", Some("aws.bedrock")),
            ("europe-west1-aiplatform.googleapis.com", Some("gcp.vertex_ai")),
            ("openai.example.com", None),
            ("my-own.elb.eu-central-1.amazonaws.com", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(known_name(host), name, "{host}");
        }
    }

    #[test]
    fn errors_are_one_word_or_a_status() {
        for (error, status, expected) in [
            (None, 200, None),
            (None, 404, Some("404")),
            (Some("cut"), 200, Some("cut")),
            (Some("rate_limited: The key has …"), 429, Some("rate_limited")),
        ] {
            assert_eq!(error_type(error, status).as_deref(), expected);
        }
    }

    #[test]
    fn operations_are_those_of_the_conventions() {
        for (endpoint, expected) in [
            (Endpoint::ChatCompletions, "chat"),
            (Endpoint::Responses, "chat"),
            (Endpoint::Messages, "chat"),
            (Endpoint::Embeddings, "embeddings"),
            (Endpoint::CountTokens, "count_tokens"),
        ] {
            assert_eq!(operation(endpoint.as_str()), expected);
        }
    }
}
