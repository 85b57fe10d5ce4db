//! Credentials in headers and in answers.

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::*;
use crate::capture::names;
use crate::capture::raw_capture::RawCapture;
use crate::capture::record::tests::capture;
use crate::capture::scrub::tests::Written;
use crate::id::{Random, UserId};

const JWT: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl";
const OURS: &str = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";

#[test]
fn no_header_is_kept_that_is_a_credential_by_name_or_value() {
    let mut one = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    let names = [
        "x-amzn-oidc-accesstoken",
        "cf-access-jwt-assertion",
        "x-amzn-oidc-data",
        "x-authentication",
        "AuthToken",
        "x-jwt",
    ];
    let named = names.map(|name| (name, "canary".to_owned()));
    let valued =
        ["Bearer sk-canary", JWT, OURS, &format!("a={OURS};"), "Basic Y2FuYXJ5OmNhbmFyeQ=="]
            .map(|value| ("x-upstream", value.to_owned()));
    let kept = [
        ("x-tier", "Basic plan"),
        ("x-team", "core"),
        ("x-tokens-left", "7"),
        ("x-plan", "Basic enterprise"),
    ];
    let all: Vec<(String, String)> = named
        .into_iter()
        .chain(valued)
        .chain(kept.map(|(name, value)| (name, value.to_owned())))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    for (name, value) in all {
        (one.head.request_headers, one.head.response_headers) =
            (vec![(name.clone(), value.clone())], vec![(name.clone(), value.clone())]);
        one.head.inputs.as_mut().unwrap().request.headers = [(name.clone(), value.clone())].into();
        one.head.client_request_id = Some(value.clone());
        let head: Head =
            serde_json::from_slice(&ready(&one, &Redactor::default()).unwrap().head).unwrap();
        let expected = usize::from(kept.iter().any(|(kept, _)| *kept == name));
        assert_eq!(
            [head.request_headers.len(), head.response_headers.len()],
            [expected; 2],
            "{name}: {value}"
        );
        assert_eq!(head.client_request_id.is_none(), name == "x-upstream", "{name}: {value}");
        assert_eq!((head.redacted, names::are_in_part(&head)), (false, expected == 0));
        let decided_on = &head.inputs.unwrap().request.headers[&name];
        assert_eq!(
            *decided_on,
            if expected == 1 { value } else { "[redacted]".to_owned() },
            "{name}"
        );
    }
}

#[test]
fn only_a_provider_s_challenge_may_name_a_scheme() {
    for (name, of_answer) in
        [("www-authenticate", true), ("Proxy-Authenticate", true), ("x-authenticate", false)]
    {
        let mut one = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
        let header = (name.to_owned(), "Bearer sk-live-0123".to_owned());
        (one.head.request_headers, one.head.response_headers) =
            (vec![header.clone()], vec![header.clone()]);
        one.head.inputs.as_mut().unwrap().request.headers = [header].into();
        let head: Head =
            serde_json::from_slice(&ready(&one, &Redactor::default()).unwrap().head).unwrap();
        assert_eq!(
            (head.request_headers.len(), head.response_headers.len()),
            (0, usize::from(of_answer)),
            "{name}"
        );
        assert_eq!(head.inputs.unwrap().request.headers[name], "[redacted]");
    }
}

#[test]
fn a_header_that_quotes_a_credential_of_the_request_is_known_to_be_gone() {
    let request =
        json!({"model": "m", "tools": [{"type": "mcp", "authorization": "canary-12345"}]})
            .to_string();
    let headers = [
        ("x-plan".to_owned(), "it is canary-12345".to_owned()),
        ("x-tier".to_owned(), "gold".to_owned()),
    ];
    let written = Written::of(request.as_bytes(), b"", |head| {
        head.inputs.as_mut().unwrap().request.headers = headers.into()
    });
    assert!(names::are_in_part(&written.head));
    let left = written.head.inputs.unwrap().request.headers;
    assert_eq!((left["x-plan"].as_str(), left["x-tier"].as_str()), ("[redacted]", "gold"));
}

#[test]
fn of_a_request_that_is_cut_within_its_tools_no_answer_is_kept() {
    let tool = json!({"type": "mcp", "server_label": "s", "headers": {"X-Team": "core", "Authorization": "Bearer canary-12345"}});
    for request in [
        json!({"input": "what is it?", "tools": [tool.clone(), tool.clone()]}).to_string(),
        json!({"input": "what is it?", "mcp_servers": {"a": tool.clone()}, "x": 1}).to_string(),
        json!({"input": "what is it?", "tools": tool, "x": 1}).to_string(),
        json!({"x": {"tools": [{"tools": [tool.clone()]}]}}).to_string(),
    ] {
        let (first, last) = (
            request.find("tools\":").or(request.find("servers\":")).unwrap(),
            request.rfind("canary").unwrap(),
        );
        let begins = request[first..].find(':').unwrap() + first + 1;
        for cut in begins..last + 11 {
            let written = Written::of(&request.as_bytes()[..cut], b"it is canary-12345", |head| {
                head.request_truncated = true
            });
            assert!(
                written.head.redacted
                    && written.bodies.response.is_empty()
                    && !written.says("canary"),
                "{}",
                &request[..cut]
            );
            assert_eq!(
                Capture { head: written.head, bodies: written.bodies }.whole()["response"]["body"],
                Value::Null
            );
        }
    }
    for kept in [r#"{"tools":[{"name":"f"}],"input":"what is"#, r#"{"input":"what is"#] {
        let written =
            Written::of(kept.as_bytes(), b"an answer", |head| head.request_truncated = true);
        assert_eq!(
            (&written.bodies.response[..], written.head.redacted),
            (&b"an answer"[..], false),
            "{kept}"
        );
    }
}

#[test]
fn headers_of_a_raw_capture_are_looked_at_as_well() {
    let mut raw = RawCapture::from(capture(0, &UserId::known("usr_1"), &Random::seeded(1)));
    raw.request_headers = HeaderMap::from_iter([(
        http::header::REFERER,
        HeaderValue::from_static("Bearer sk-canary"),
    )]);
    let ready = ready(&raw.finish(), &Redactor::default()).unwrap();
    assert!(!String::from_utf8_lossy(&ready.head).contains("canary"));
}

#[test]
fn what_a_function_takes_is_no_tool_whatever_it_is_called() {
    let token = json!({"token": {"type": "string", "description": "The token"}, "authorization": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"tools": {"type": "object", "properties": token}, "mcp_servers": token}});
    let server = json!({"type": "mcp", "server_label": "s"});
    for request in [
        json!({"tools": [server, {"type": "function", "name": "f", "parameters": schema}]}),
        json!({"tools": [server, {"type": "function", "function": {"name": "f", "parameters": schema}}]}),
        json!({"tools": [server, {"name": "f", "input_schema": schema}]}),
        json!({"tools": [server], "text": {"format": {"type": "json_schema", "schema": schema}}}),
        json!({"tools": [server], "messages": [{"content": [{"type": "tool_use", "input": {"tools": token}}]}]}),
    ] {
        let request = request.to_string();
        let written = Written::of(request.as_bytes(), request.as_bytes(), |_| {});
        assert_eq!(
            (written.bodies.request, written.bodies.response),
            (request.clone().into(), request.into())
        );
        assert!(written.head.not_replayable().is_none() && !written.head.redacted);
    }
    let tool = json!({"type": "mcp", "authorization": "canary-12345"});
    for text in [
        json!({"response": {"tools": tool}}),
        json!({"response": {"mcp_servers": {"a": tool}}}),
        json!({"tools": {"a": {"tools": tool}}}),
        json!({"mcp": {"tools": [tool]}}),
    ] {
        assert!(
            !Written::of(text.to_string().as_bytes(), text.to_string().as_bytes(), |_| {})
                .says("canary"),
            "{text}"
        );
    }
}

#[test]
fn a_header_of_a_tool_that_is_cut_off_is_not_kept() {
    for said in ["rtr_AbCdEfGhIj", "sk-live-012345", "ey", "Bear", "a word"] {
        let request = format!(r#"{{"tools":[{{"headers":{{"X-Custom":"{said}"#);
        let written = Written::of(request.as_bytes(), b"", |head| head.request_truncated = true);
        assert_eq!(written.bodies.request, r#"{"tools":[{"headers":{"X-Custom":"[redacted]""#);
    }
}
