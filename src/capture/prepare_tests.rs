//! Credentials in headers and in answers, of clients and of providers.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::*;
use crate::capture::draft::Draft;
use crate::capture::names;
use crate::capture::record::State;
use crate::capture::record::tests::capture;
use crate::capture::scrub::tests::Written;
use crate::id::{Random, UserId};
use crate::routing::provider::{Base, Provider};
use crate::secret::Secret;

const JWT: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl";
const OURS: &str = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";

#[test]
fn no_header_is_kept_that_is_a_credential_by_name_or_value() {
    let mut one = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    let names = ["x-amzn-oidc-accesstoken", "cf-access-jwt-assertion", "x-amzn-oidc-data", "x-authentication", "AuthToken", "x-jwt"];
    let named = names.map(|name| (name, "canary".to_owned()));
    let valued =
        ["Bearer sk-canary", JWT, OURS, &format!("a={OURS};"), "Basic Y2FuYXJ5OmNhbmFyeQ=="].map(|value| ("x-upstream", value.to_owned()));
    let kept = [("x-tier", "Basic plan"), ("x-team", "core"), ("x-tokens-left", "7"), ("x-plan", "Basic enterprise")];
    let all: Vec<(String, String)> = named
        .into_iter()
        .chain(valued)
        .chain(kept.map(|(name, value)| (name, value.to_owned())))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    for (name, value) in all {
        (one.head.request_headers, one.head.response_headers) = (vec![(name.clone(), value.clone())], vec![(name.clone(), value.clone())]);
        one.head.inputs.as_mut().unwrap().request.headers = [(name.clone(), value.clone())].into();
        one.head.client_request_id = Some(value.clone());
        let head: Head = serde_json::from_slice(&ready(&one, &Redactor::default()).unwrap().head).unwrap();
        let expected = usize::from(kept.iter().any(|(kept, _)| *kept == name));
        assert_eq!([head.request_headers.len(), head.response_headers.len()], [expected; 2], "{name}: {value}");
        assert_eq!(head.client_request_id.is_none(), name == "x-upstream", "{name}: {value}");
        assert_eq!((head.redacted, names::are_in_part(&head)), (false, expected == 0));
        let decided_on = &head.inputs.unwrap().request.headers[&name];
        assert_eq!(*decided_on, if expected == 1 { value } else { "[redacted]".to_owned() }, "{name}");
    }
}

#[test]
fn only_a_provider_s_challenge_may_name_a_scheme() {
    for (name, of_answer) in [("www-authenticate", true), ("Proxy-Authenticate", true), ("x-authenticate", false)] {
        let mut one = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
        let header = (name.to_owned(), "Bearer sk-live-0123".to_owned());
        (one.head.request_headers, one.head.response_headers) = (vec![header.clone()], vec![header.clone()]);
        one.head.inputs.as_mut().unwrap().request.headers = [header].into();
        let head: Head = serde_json::from_slice(&ready(&one, &Redactor::default()).unwrap().head).unwrap();
        assert_eq!((head.request_headers.len(), head.response_headers.len()), (0, usize::from(of_answer)), "{name}");
        assert_eq!(head.inputs.unwrap().request.headers[name], "[redacted]");
    }
}

#[test]
fn a_header_that_quotes_a_credential_of_the_request_is_known_to_be_gone() {
    let request = json!({"model": "m", "tools": [{"type": "mcp", "authorization": "canary-12345"}]}).to_string();
    let headers = [("x-plan".to_owned(), "it is canary-12345".to_owned()), ("x-tier".to_owned(), "gold".to_owned())];
    let written = Written::of(request.as_bytes(), b"", |head| head.inputs.as_mut().unwrap().request.headers = headers.into());
    assert!(names::are_in_part(&written.head));
    let left = written.head.inputs.unwrap().request.headers;
    assert_eq!((left["x-plan"].as_str(), left["x-tier"].as_str()), ("[redacted]", "gold"));
}

/// What is kept of what a provider answers whose key this is.
fn kept(key: &str, response: Vec<u8>, change: impl FnOnce(&mut Head)) -> Written {
    let mut draft = Draft::from(capture(0, &UserId::known("usr_1"), &Random::seeded(1)));
    let base = Base { host: "h".into(), port: 1, ..Base::default() };
    draft.provider = Some(Arc::new(Provider::of_node(base, Some(Secret::new(key.to_owned())), None, Arc::default())));
    draft.bodies.response = response.into();
    change(&mut draft.head);
    let Capture { head, bodies } = draft.finish();
    Written::of(&bodies.request, &bodies.response, |other| *other = head)
}

const KEY: &str = "ab/cd+0123456789";

fn events(pieces: &[&str]) -> Vec<u8> {
    let event = |piece: &&str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": piece}}]}));
    pieces.iter().map(event).collect::<String>().into_bytes()
}

#[test]
fn a_provider_s_key_is_not_kept_in_whatever_spelling() {
    for said in [KEY, r"ab\/cd+0123456789", r"ab\u002fcd\u002b0123456789", r"\\\u0061b\\/cd+0123456789"] {
        let text = format!(r#"{{"you":"sent","me":"{said}"}}"#);
        let written = kept(KEY, text.clone().into(), |_| {});
        assert!(written.head.redacted && !written.says(KEY) && written.says("sent"), "{said}: {:?}", written.bodies);
        let stream = format!("data: {text}\n\n");
        assert!(!kept(KEY, stream.into(), |head| head.response_stream = true).says(KEY), "{said}");
    }
    let other = br#"{"you":"sent ab\ncd+0123456789 \/ \u0061"}"#;
    let written = kept(KEY, other.to_vec(), |_| {});
    assert_eq!((&written.bodies.response[..], written.head.redacted), (&other[..], false));
}

#[test]
fn a_provider_s_key_is_not_kept_in_pieces_nor_in_part() {
    let stream = |head: &mut Head| head.response_stream = true;
    for at in 1..KEY.len() {
        let written = kept(KEY, events(&["it is ", &KEY[..at], &KEY[at..], "!"]), stream);
        let assembled = written.head.assembled(&written.bodies.response);
        assert_eq!(assembled["choices"][0]["message"]["content"], "it is [redacted]!");
        let each: Vec<String> = KEY.chars().map(String::from).collect();
        assert!(!kept(KEY, events(&each.iter().map(String::as_str).collect::<Vec<_>>()), stream).says(KEY));
    }
    let broken_off = |head: &mut Head| head.state = State::Failed;
    for (text, left) in
        [(r#"{"you":"sent ab/cd+01"#, "ab/c"), (r#"{"you":"sent ab\/cd+01"#, "ab\\/c"), (r#"{"you":"sent ab/cd\u002b\u00"#, "ab/c")]
    {
        let written = kept(KEY, text.into(), broken_off);
        assert!(written.head.redacted && !written.says(left) && written.says("sent"), "{text}: {:?}", written.bodies);
        assert_eq!(kept(KEY, text.into(), |_| {}).bodies.response, text, "it is no key where nothing was cut");
    }
    let written = kept(KEY, events(&["it is ", "ab/cd", "+01"]), |head| (head.response_stream, head.state) = (true, State::Aborted));
    assert!(written.head.redacted && !written.says("ab/c"));
    let plain = events(&["it is ", "a", "b", "out to end, a", "b/", "!"]);
    let written = kept(KEY, plain.clone(), stream);
    assert_eq!((&written.bodies.response[..], written.head.redacted), (&plain[..], false));
}

#[test]
fn a_provider_s_key_is_not_kept_in_an_answer_that_is_compressed() {
    let coded = |coding: &'static str| move |head: &mut Head| head.response_headers.push(("content-encoding".into(), coding.into()));
    let said = crate::capture::scrub::tests::flate(&json!({"you": format!("sent {KEY}")}).to_string());
    let written = kept(KEY, said, coded("gzip"));
    assert!(written.head.redacted && written.bodies.response.is_empty());
    let other = crate::capture::scrub::tests::flate(&json!({"you": "sent it"}).to_string());
    let written = kept(KEY, other.clone(), coded("gzip"));
    assert_eq!((&written.bodies.response[..], written.head.redacted), (&other[..], false));
    // Nobody could say what is in it.
    let written = kept(KEY, other, coded("compress"));
    assert!(written.head.redacted && written.bodies.response.is_empty());
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
        let (first, last) = (request.find("tools\":").or(request.find("servers\":")).unwrap(), request.rfind("canary").unwrap());
        let begins = request[first..].find(':').unwrap() + first + 1;
        for cut in begins..last + 11 {
            let written = Written::of(&request.as_bytes()[..cut], b"it is canary-12345", |head| head.request_truncated = true);
            assert!(written.head.redacted && written.bodies.response.is_empty() && !written.says("canary"), "{}", &request[..cut]);
            assert_eq!(Capture { head: written.head, bodies: written.bodies }.whole()["response"]["body"], Value::Null);
        }
    }
    for kept in [r#"{"tools":[{"name":"f"}],"input":"what is"#, r#"{"input":"what is"#] {
        let written = Written::of(kept.as_bytes(), b"an answer", |head| head.request_truncated = true);
        assert_eq!((&written.bodies.response[..], written.head.redacted), (&b"an answer"[..], false), "{kept}");
    }
}

#[test]
fn headers_of_a_draft_are_looked_at_as_well() {
    let mut draft = Draft::from(capture(0, &UserId::known("usr_1"), &Random::seeded(1)));
    draft.request_headers = HeaderMap::from_iter([(http::header::REFERER, HeaderValue::from_static("Bearer sk-canary"))]);
    let ready = ready(&draft.finish(), &Redactor::default()).unwrap();
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
        assert_eq!((written.bodies.request, written.bodies.response), (request.clone().into(), request.into()));
        assert!(written.head.not_replayable().is_none() && !written.head.redacted);
    }
    let tool = json!({"type": "mcp", "authorization": "canary-12345"});
    for text in [
        json!({"response": {"tools": tool}}),
        json!({"response": {"mcp_servers": {"a": tool}}}),
        json!({"tools": {"a": {"tools": tool}}}),
        json!({"mcp": {"tools": [tool]}}),
    ] {
        assert!(!Written::of(text.to_string().as_bytes(), text.to_string().as_bytes(), |_| {}).says("canary"), "{text}");
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
