//! The section `telemetry` of the server document.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue};
use serde_json::json;

use rerouter_captures::telemetry::OtlpSettings;
use rerouter_document::kinds::{number_in, reader, text_as};
use rerouter_document::{Diagnostics, Section, ValueKind, section};
use rerouter_routing::BaseUrl;

/// The path of traces below an endpoint, as OpenTelemetry defines it.
const TRACES: &str = "/v1/traces";

section! {
    #[derive(Clone)]
    pub struct TelemetrySettings {
        /// Traces by OTLP over HTTP.
        pub(super) otlp: OtlpSection, section;
    }
}

section! {
    #[derive(Clone)]
    pub(super) struct OtlpSection {
        /// An OpenTelemetry collector for [traces](../operate/traces.md), such as
        /// `http://127.0.0.1:4318`; `/v1/traces` is added.
        pub(super) endpoint: Option<String> = collector();
        /// Headers for it, by name; never shown.
        pub(super) headers: Vec<(HeaderName, HeaderValue)> = collector_headers(), or Vec::new();
        /// Share of the traces that begin here which is exported, from 0 to 1.
        pub(super) sample: f64 = number_in(0, 1, "for example `0.1` for a tenth"), or 1.0;
    }
    check needs_an_endpoint
}

impl OtlpSection {
    fn needs_an_endpoint(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        if section.take("headers").is_some() {
            section.require("endpoint", faults);
        }
    }
}

impl TelemetrySettings {
    /// The destination of traces; `None` if they are not exported.
    pub fn otlp(&self) -> Option<OtlpSettings> {
        let OtlpSection { endpoint, headers, sample } = self.otlp.clone();
        endpoint.map(|url| OtlpSettings { url, headers, sample })
    }
}

fn collector() -> impl ValueKind<Value = String> {
    text_as("^[Hh][Tt][Tt][Pp][Ss]?://", |field, faults| {
        match BaseUrl::parse(field.text(faults)?) {
            Ok(base) => {
                let scheme = if base.tls { "https" } else { "http" };
                let root = base.path.strip_suffix(TRACES).unwrap_or(&base.path);
                Some(format!("{scheme}://{}{root}{TRACES}", base.authority()))
            }
            Err(wrong) => {
                let wrong = wrong.replace("`api_key`", "`headers`");
                let hint = "for example `http://127.0.0.1:4318`";
                field.reject(faults, format!("the URL {wrong}"), hint);
                None
            }
        }
    })
}

/// Headers of requests to the collector. Their values may be credentials and are never shown.
fn collector_headers() -> impl ValueKind<Value = Vec<(HeaderName, HeaderValue)>> {
    let schema = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    reader(schema, |field, faults| {
        let mut found = Vec::new();
        for field in field.section(faults)?.values() {
            let key = field.key();
            let name = HeaderName::try_from(key.value.as_str()).ok();
            let name = name.filter(|name| ![CONTENT_LENGTH, CONTENT_TYPE, HOST].contains(name));
            let Some(name) = name else {
                let fault = key.fault("must be the name of a header that the export does not set");
                faults.push(fault.hint(Some("for example `authorization`")));
                continue;
            };
            let Some(text) = field.text(faults) else { continue };
            match HeaderValue::try_from(text) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    found.push((name, value));
                }
                Err(_) => field.reject(faults, "cannot be sent in a header", "one line of ASCII"),
            }
        }
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Problem, Server, read_server};
    use rerouter_base::log::LogFormat;

    fn read(text: &str) -> Result<Server, Vec<Problem>> {
        let env = |name: &str| (name == "TOKEN").then(|| "collector-canary".to_owned());
        read_server("s.yaml", text, &env)
    }

    #[test]
    fn an_endpoint_is_a_root_or_the_whole_url() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otlp.example.com/", "https://otlp.example.com/v1/traces"),
            ("https://h.example/api/otel", "https://h.example/api/otel/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ] {
            let server = read(&format!(
                "telemetry: {{ otlp: {{ endpoint: \"{endpoint}\", headers: {{ X-Token: \
                 \"${{TOKEN}}\" }} }} }}"
            ));
            let found = server.unwrap().telemetry.otlp().unwrap();
            assert_eq!((found.url.as_str(), found.sample), (url, 1.0));
            assert_eq!(found.headers[0].0, "x-token");
            assert_eq!(format!("{:?}", found.headers[0].1), "Sensitive");
            assert_eq!(found.headers[0].1, "collector-canary");
        }
        assert!(read("threads: 1").unwrap().telemetry.otlp().is_none());
    }

    #[test]
    fn what_cannot_be_exported_to_is_a_problem() {
        for (wrong, path) in [
            ("endpoint: collector", "telemetry.otlp.endpoint"),
            ("endpoint: \"http://u:p@h\"", "telemetry.otlp.endpoint"),
            ("endpoint: \"http://h\", sample: 1.5", "telemetry.otlp.sample"),
            ("endpoint: \"http://h\", headers: { host: x }", "telemetry.otlp.headers.host"),
            ("endpoint: \"http://h\", headers: { a: \"x\\ny\" }", "telemetry.otlp.headers.a"),
            ("headers: { a: x }", "telemetry.otlp"),
        ] {
            let problems = read(&format!("telemetry: {{ otlp: {{ {wrong} }} }}")).err().unwrap();
            assert_eq!(problems.len(), 1, "{wrong}: {problems:?}");
            assert_eq!(problems[0].path, path, "{wrong}: {problems:?}");
        }
    }

    #[test]
    fn logs_have_one_form_each() {
        let both = |text: &str| {
            read(text).map(|server| (server.log.format, server.access_log.format)).unwrap()
        };
        assert_eq!(both("threads: 1"), (LogFormat::Auto, Some(LogFormat::Auto)));
        let written = "log: { format: json }\naccess_log: { format: text }";
        assert_eq!(both(written), (LogFormat::Json, Some(LogFormat::Text)));
        assert_eq!(both("access_log: { format: off }").1, None);
        assert!(read("log: { format: off }").is_err());
    }
}
