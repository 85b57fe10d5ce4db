//! A collector of OpenTelemetry: it takes what is exported to it, and reads it as strictly as the
//! published JSON of `ExportTraceServiceRequest` allows
//! (opentelemetry/proto/collector/trace/v1/trace_service.proto; ids in hexadecimal, numbers of 64
//! bits as texts, as the OTLP specification asks).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{self as scripted, Provider, Step};
use super::until;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExportRequest {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<WrittenSpan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    name: String,
    version: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenSpan {
    trace_id: String,
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    code: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyValue {
    key: String,
    value: AnyValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum AnyValue {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue")]
    Whole(String),
    #[serde(rename = "doubleValue")]
    Number(f64),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

/// A span as it came in.
#[derive(Clone, Debug)]
pub struct Span {
    pub trace: String,
    pub id: String,
    /// Empty at the root of a trace.
    pub parent: String,
    pub name: String,
    /// 2: of a server, 3: of a client.
    pub kind: u8,
    /// Nanoseconds since the epoch.
    pub start: u64,
    pub end: u64,
    pub failed: bool,
    pub attributes: BTreeMap<String, Value>,
    pub resource: BTreeMap<String, Value>,
}

/// Reads an export request; panics where it is not of the published shape.
pub fn spans(body: &[u8]) -> Vec<Span> {
    let request: ExportRequest = serde_json::from_slice(body).expect("an export request");
    let mut found = Vec::new();
    for of_resource in request.resource_spans {
        let resource = attributes(of_resource.resource.attributes);
        for ScopeSpans { scope, spans } in of_resource.scope_spans {
            assert!(scope.name == "rerouter" && !scope.version.is_empty());
            found.extend(spans.into_iter().map(|span| read(span, &resource)));
        }
    }
    found
}

fn read(span: WrittenSpan, resource: &BTreeMap<String, Value>) -> Span {
    let is_id = |id: &str, digits| {
        id.len() == digits
            && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && id.bytes().any(|b| b != b'0')
    };
    assert!(is_id(&span.trace_id, 32) && is_id(&span.span_id, 16));
    assert!(span.parent_span_id.is_empty() || is_id(&span.parent_span_id, 16));
    let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    let (start, end) = (start.parse().unwrap(), end.parse().unwrap());
    assert!(start <= end, "{start} {end}");
    Span {
        trace: span.trace_id,
        id: span.span_id,
        parent: span.parent_span_id,
        name: span.name,
        kind: span.kind,
        start,
        end,
        failed: span.status.is_some_and(|status| status.code == 2),
        attributes: attributes(span.attributes),
        resource: resource.clone(),
    }
}

fn attributes(written: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let count = written.len();
    let value = |value| match value {
        AnyValue::Text(text) => json!(text),
        AnyValue::Whole(digits) => json!(digits.parse::<i64>().expect("a whole number")),
        AnyValue::Number(number) => json!(number),
        AnyValue::Flag(flag) => json!(flag),
    };
    let read: BTreeMap<_, _> = written.into_iter().map(|kv| (kv.key, value(kv.value))).collect();
    assert_eq!(read.len(), count, "each key once");
    read
}

/// A listening collector.
pub struct Collector(pub Provider);

impl Collector {
    /// One that takes everything.
    pub async fn start() -> Self {
        Collector::answering(scripted::json_answer(200, &json!({}))).await
    }

    /// One that answers so.
    pub async fn answering(steps: Vec<Step>) -> Self {
        Collector(Provider::always(steps).await)
    }

    /// The lines of a server document that export to it.
    pub fn settings(&self, more: &str) -> String {
        format!("telemetry: {{ otlp: {{ endpoint: \"http://{}\"{more} }} }}", self.0.address())
    }

    /// All spans that came in so far.
    pub fn came(&self) -> Vec<Span> {
        (0..self.0.count()).flat_map(|number| spans(&self.0.request(number).body)).collect()
    }

    /// The spans of a trace, in the order of their beginning, once there are so many.
    pub async fn trace(&self, trace: &str, count: usize) -> Vec<Span> {
        let mut found = until("the spans of a trace", async || {
            let of_trace = |span: &Span| span.trace == trace;
            let found: Vec<Span> = self.came().into_iter().filter(of_trace).collect();
            (found.len() >= count).then_some(found)
        })
        .await;
        assert_eq!(found.len(), count, "{found:?}");
        // The span of the request begins before or with its first attempt.
        found.sort_by_key(|span| (span.start, span.kind));
        found
    }
}
