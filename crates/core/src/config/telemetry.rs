//! Reads `telemetry` and the form of the logs.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue};

use super::diagnostics::Diagnostics;
use super::read::{Field, Section};
use rerouter_base::log::LogFormat;
use rerouter_captures::telemetry::OtlpSettings;
use rerouter_routing::BaseUrl;

/// Path of the traces below an endpoint, as OpenTelemetry has it.
const TRACES: &str = "/v1/traces";

/// `telemetry.otlp`; `None` without an endpoint.
pub(super) fn telemetry(top: &mut Section<'_>, faults: &mut Diagnostics) -> Option<OtlpSettings> {
    let mut telemetry = top.below("telemetry", faults);
    let mut section = telemetry.below("otlp", faults);
    let url = section.read("endpoint", faults, endpoint);
    let headers = section.read("headers", faults, headers).unwrap_or_default();
    let sample = section.read("sample", faults, share).unwrap_or(1.0);
    if section.take("headers").is_some() {
        section.require("endpoint", faults);
    }
    section.finish(faults);
    telemetry.finish(faults);
    url.map(|url| OtlpSettings { url, headers, sample })
}

fn endpoint(field: &Field<'_>, faults: &mut Diagnostics) -> Option<String> {
    let base = BaseUrl::parse(field.text(faults)?);
    match base {
        Ok(base) => {
            let scheme = if base.tls { "https" } else { "http" };
            let root = base.path.strip_suffix(TRACES).unwrap_or(&base.path);
            Some(format!("{scheme}://{}{root}{TRACES}", base.authority()))
        }
        Err(wrong) => {
            let wrong = wrong.replace("`api_key`", "`headers`");
            field.reject(faults, format!("the URL {wrong}"), "for example `http://127.0.0.1:4318`");
            None
        }
    }
}

/// Headers of requests to the collector. Their values may be credentials: none is ever shown.
fn headers(field: &Field<'_>, faults: &mut Diagnostics) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let section = field.section(faults)?;
    let mut found = Vec::new();
    for (name, field) in section.named() {
        let key = HeaderName::try_from(name.value.as_str()).ok();
        let key = key.filter(|key| ![CONTENT_LENGTH, CONTENT_TYPE, HOST].contains(key));
        let Some(key) = key else {
            let fault = name.fault("must be the name of a header that the export does not set");
            faults.push(fault.hint(Some("for example `authorization`")));
            continue;
        };
        let Some(text) = field.text(faults) else { continue };
        match HeaderValue::try_from(text) {
            Ok(mut value) => {
                value.set_sensitive(true);
                found.push((key, value));
            }
            Err(_) => field.reject(faults, "cannot be sent in a header", "one line of ASCII"),
        }
    }
    Some(found)
}

fn share(field: &Field<'_>, faults: &mut Diagnostics) -> Option<f64> {
    let share = field.number(faults)?;
    if !(0.0..=1.0).contains(&share) {
        field.reject(faults, "must be from 0 to 1", "for example `0.1` for a tenth");
        return None;
    }
    Some(share)
}

/// `log.format`.
pub(super) fn log(top: &mut Section<'_>, faults: &mut Diagnostics) -> LogFormat {
    let mut section = top.below("log", faults);
    let found = section.read("format", faults, |f, p| f.word(p, &LogFormat::WORDS));
    section.finish(faults);
    found.unwrap_or_default()
}

/// `access_log.format`; `None` where it is off.
pub(super) fn access_log(top: &mut Section<'_>, faults: &mut Diagnostics) -> Option<LogFormat> {
    let mut section = top.below("access_log", faults);
    // `off` is text in YAML 1.2, unlike in YAML 1.1.
    let words: Vec<(&str, Option<LogFormat>)> = LogFormat::WORDS
        .into_iter()
        .map(|(word, format)| (word, Some(format)))
        .chain([("off", None)])
        .collect();
    let found = section.read("format", faults, |f, p| f.word(p, &words));
    section.finish(faults);
    found.unwrap_or_else(|| Some(LogFormat::default()))
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
            let found = server.unwrap().telemetry.unwrap();
            assert_eq!((found.url.as_str(), found.sample), (url, 1.0));
            assert_eq!(found.headers[0].0, "x-token");
            assert_eq!(format!("{:?}", found.headers[0].1), "Sensitive");
            assert_eq!(found.headers[0].1, "collector-canary");
        }
        assert!(read("threads: 1").unwrap().telemetry.is_none());
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
        let both = |text: &str| read(text).map(|server| (server.log, server.access_log)).unwrap();
        assert_eq!(both("threads: 1"), (LogFormat::Auto, Some(LogFormat::Auto)));
        let written = "log: { format: json }\naccess_log: { format: text }";
        assert_eq!(both(written), (LogFormat::Json, Some(LogFormat::Text)));
        assert_eq!(both("access_log: { format: off }").1, None);
        assert!(read("log: { format: off }").is_err());
    }
}
