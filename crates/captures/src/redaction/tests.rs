//! Credentials and matches of expressions in every part of a call.

mod heads;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::capture::fixtures::capture;
use crate::capture::packed_capture::PackedCapture;
use crate::capture::raw_capture::RawCapture;
use crate::capture::record::{CaptureState, Served};
use rerouter_base::id::{Random, UserId};
use rerouter_base::secret::Secret;
use rerouter_routing::{
    Abilities, AgentRef, NodeFacts, PlanEntry, RefusedFeature, TargetHealth, Trace,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const SECRET: &str = "zQ7/8xW+cKJ9==";
const MATCH: &str = "canary-0123456789";
const OURS: &str = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
const JWT: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl";

fn plain() -> Capture {
    capture(0, &UserId::known("usr_1"), &Random::seeded(1))
}

fn of(request: &[u8], response: &[u8]) -> Capture {
    let bodies = Bodies {
        request: Bytes::copy_from_slice(request),
        response: Bytes::copy_from_slice(response),
    };
    Capture { bodies, ..plain() }
}

fn redact(capture: &Capture) -> RedactedCapture {
    Redactor::default().redact(capture).unwrap()
}

fn matching() -> Redactor {
    Redactor::new(vec![Expression::new("canary-[0-9]{10}").unwrap()])
}

/// All parts that are kept, as one text.
fn text(kept: &RedactedCapture) -> String {
    let head = serde_json::to_vec(&kept.head).unwrap();
    let parts = [&head[..], &kept.bodies.request, &kept.bodies.response];
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).concat()
}

fn with_tool(tool: &Value) -> String {
    json!({"model": "m", "input": "what is it?", "tools": [{"type": "function"}, tool]}).to_string()
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn delta(text: &str) -> String {
    event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

#[test]
fn credentials_beside_tools_leave_too() {
    for body in [
        json!({"model": "m", "api_key": "canary-1"}),
        json!({
            "data_sources": [{
                "type": "azure_search", "parameters": {"authentication": {"key": "canary-1"}}
            }]
        }),
        json!({
            "tools": [{
                "container": {"network_policy": {"domain_secrets": [{"value": "canary-1"}]}}
            }]
        }),
    ] {
        let kept = redact(&of(body.to_string().as_bytes(), b"{}"));
        assert!(!text(&kept).contains("canary-1") && kept.head.redacted, "{body}");
    }
    // A function may have a parameter with this name.
    let body = json!({
        "tools": [{"function": {"parameters": {"properties": {"api_key": {"type": "string"}}}}}]
    });
    assert!(!redact(&of(body.to_string().as_bytes(), b"{}")).head.redacted);
}

#[test]
fn credentials_of_tools_leave_and_every_other_byte_stays() {
    let body = r#"{"model":"m","tools":[
        {"type":"mcp", "auth\u006frization" : "canary-1","headers":{"X-Team":"core"}},
        {"type":"function","function":{"authorization":"a word"}},{"authorization":null}],
        "authorization":"not a tool's"}"#;
    let kept = redact(&of(body.as_bytes(), b""));
    let expected = body
        .replace("\"canary-1\"", "\"[redacted]\"")
        .replace("{\"X-Team\":\"core\"}", "\"[redacted]\"");
    assert_eq!(kept.bodies.request, expected);
    assert_eq!(kept.head.not_replayable().map(|kind| kind.row().word), Some("redacted"));
    for (field, found) in [
        (json!({"authorization": "canary"}), true),
        (json!({"Authorization_Token": "canary"}), true),
        (json!({"api_key": ["canary"]}), true),
        (json!({"authorization": {"kind": "oauth", "value": "canary"}}), true),
        (json!({"headers": [["authorization", "canary"]]}), true),
        (json!({"server_url": "https://mcp.example/x?token=canary"}), true),
        (json!({"server_url": "https://mcp.example/x?page=2"}), false),
        (json!({"url": "https://user:canary@mcp.example/x"}), true),
        (json!({"tools": [{"authorization": "canary"}]}), true),
        (json!({"parameters": {"token": "a", "max_tokens": 9}}), false),
        (json!({"allowed_tools": ["a"], "require_approval": "never"}), false),
    ] {
        let mut expected = field.clone();
        if found {
            let (_, value) = expected.as_object_mut().unwrap().iter_mut().next().unwrap();
            match value {
                Value::Array(items) if items[0].is_object() => {
                    items[0]["authorization"] = "[redacted]".into()
                }
                value => *value = "[redacted]".into(),
            }
        }
        let kept = redact(&of(with_tool(&field).as_bytes(), b""));
        assert_eq!(kept.bodies.request, with_tool(&expected));
        assert_eq!(kept.head.not_replayable().is_some(), found, "{field}");
    }
    for servers in [
        json!({"mcp_servers": [{"type": "url", "authorization_token": "canary"}]}),
        json!({"mcp_servers": {"wiki": {"authorization_token": "canary"}}}),
        json!({"x": {"tools": [{"type": "mcp", "authorization": "canary"}]}}),
    ] {
        let kept = redact(&of(servers.to_string().as_bytes(), b""));
        assert_eq!(kept.bodies.request, servers.to_string().replace("canary", "[redacted]"));
    }
}

#[test]
fn what_a_function_takes_is_no_tool_whatever_it_is_called() {
    let token = json!({"token": {"type": "string"}, "authorization": {"type": "string"}});
    let schema = json!({
        "type": "object", "properties": {
            "tools": {"type": "object", "properties": token}, "mcp_servers": token
        }
    });
    for request in [
        with_tool(&json!({"type": "function", "name": "f", "parameters": schema})),
        with_tool(&json!({"type": "function", "function": {"name": "f", "parameters": schema}})),
        with_tool(&json!({"name": "f", "input_schema": schema})),
        json!({"messages": [{"content": [{"type": "tool_use", "input": {"tools": token}}]}]})
            .to_string(),
    ] {
        let kept = redact(&of(request.as_bytes(), request.as_bytes()));
        assert_eq!(
            (kept.bodies.request, kept.bodies.response),
            (request.clone().into(), request.into())
        );
        assert!(kept.head.not_replayable().is_none() && !kept.head.redacted);
    }
}

#[test]
fn a_credential_of_the_request_leaves_its_answer_and_its_head() {
    let tool = json!({"type": "mcp", "authorization": format!("Bearer {SECRET}")});
    let request = with_tool(&tool);
    let quoted = json!({"tools": [tool]}).to_string();
    let split =
        [delta("it is "), delta(&SECRET[..5]), delta(&SECRET[5..]), delta(", I think")].concat();
    for (response, status, stream) in [
        (json!({"object": "response", "tools": [tool]}).to_string(), 200, false),
        (json!({"error": {"message": format!("unknown: {quoted}")}}).to_string(), 400, false),
        (format!("Bad request: {{'authorization': '{SECRET}'}}"), 400, false),
        (
            format!(r#"{{"text":"{}"}}"#, SECRET.replace('/', "\\/").replace('=', "\\u003d")),
            200,
            false,
        ),
        (event(&json!({"type": "response.created", "response": {"tools": [tool]}})), 200, true),
        (delta(&format!("it is {SECRET}, I think")), 200, true),
        (split, 200, true),
    ] {
        let mut one = of(request.as_bytes(), response.as_bytes());
        (one.head.status, one.head.response_stream) = (status, stream);
        one.head.request_headers = vec![("x-note".into(), format!("it is {SECRET}"))];
        let kept = redact(&one);
        assert!(
            kept.head.redacted && !text(&kept).contains("zQ7") && !text(&kept).contains("cKJ9"),
            "{}",
            text(&kept)
        );
        assert_eq!(kept.head.request_headers[0].1, "it is [redacted]");
        if stream {
            let answer = kept.head.assembled(&kept.bodies.response);
            assert!(kept.head.response_assembled, "{answer}");
            let said = &answer["choices"][0]["message"]["content"];
            assert!(said.is_null() || said == "it is [redacted], I think", "{answer}");
        }
    }
    let mut own =
        of(with_tool(&tool).replace("what is it?", &format!("is it {SECRET}?")).as_bytes(), b"no");
    own.head.error = Some(format!("{SECRET} is wrong"));
    let kept = redact(&own);
    assert!(std::str::from_utf8(&kept.bodies.request).unwrap().contains("is it [redacted]?"));
    assert_eq!(kept.head.error.unwrap(), "[redacted] is wrong");
}

#[test]
fn a_key_of_the_gateway_leaves_the_bodies() {
    let environment = Secret::new("admin-key-0123456789abcdef");
    let redactor = Redactor::default().veiling(KeyRedactor::new([&environment]));
    for (key, shown) in [(OURS, "rtr_AbCd…iBxe"), (environment.expose(), &*"*".repeat(26))] {
        let asked = |said: &str| json!({"model": "m", "input": format!("why not {said}?")});
        let split = [delta(&key[..9]), delta(&key[9..])].concat();
        for (response, stream) in [(format!("no key {key}"), false), (split, true)] {
            let mut one = of(asked(key).to_string().as_bytes(), response.as_bytes());
            one.head.response_stream = stream;
            let kept = redactor.redact(&one).unwrap();
            assert_eq!(kept.bodies.request, asked(shown).to_string());
            assert!(!text(&kept).contains(&key[9..]), "{}", text(&kept));
            assert!(kept.head.not_replayable().is_some());
        }
        let kept = redactor.redact(&of(b"{}", key.as_bytes())).unwrap();
        assert_eq!(
            (&kept.bodies.response[..], kept.head.not_replayable()),
            (shown.as_bytes(), None)
        );
    }
}

#[test]
fn the_tools_that_an_answer_lists_have_no_credentials_either() {
    let tools = json!({"tools": [{"type": "mcp", "authorization": SECRET, "headers": {"a": "b"}}]});
    let created = event(&json!({"type": "response.created", "response": tools}));
    for (response, stream) in [(tools.to_string(), false), (created, true)] {
        let mut one = of(br#"{"model":"m"}"#, response.as_bytes());
        one.head.response_stream = stream;
        let kept = redact(&one);
        assert!(!text(&kept).contains(SECRET) && kept.head.redacted, "{}", text(&kept));
        assert_eq!(kept.head.not_replayable(), None, "the request lost nothing");
    }
}

#[test]
fn what_holds_no_credential_is_kept_as_it_came() {
    let request = with_tool(&json!({"type": "mcp", "authorization": SECRET}));
    for (response, status, stream) in [
        ("<html>Bad gateway: no Authorization header</html>".to_owned(), 502, false),
        (r#"{"n":12345678, "a" : "\u0061\/", "a":[1.50]}"#.to_owned(), 200, false),
        (delta("the tools") + "data: [DONE]\n\n", 200, true),
    ] {
        let mut one = of(request.as_bytes(), response.as_bytes());
        (one.head.status, one.head.response_stream) = (status, stream);
        assert_eq!(redact(&one).bodies.response, response);
    }
    let coded = Bytes::from_static(b"\x1f\x8b\x08 compressed");
    assert_eq!(redact(&of(b"{}", &coded)).bodies.response, coded);
    let unread = redact(&of(request.as_bytes(), &coded));
    assert_eq!(unread.bodies.response, Bytes::new(), "nobody can say what is in it");
}

#[test]
fn a_word_that_people_use_is_not_searched_for() {
    let answer = r#"{"password":"undefined","content":"https://x is an undefined password"}"#;
    for tool in [
        json!({"authorization": "Bearer undefined"}),
        json!({"server_url": "https://u:password@h"}),
        json!({"authorization": "password"}),
        json!({"authorization": 1_700_000_000}),
        json!({"headers": {"accept": "application/json"}}),
    ] {
        let kept = redact(&of(with_tool(&tool).as_bytes(), answer.as_bytes()));
        assert_eq!(kept.bodies.response, answer, "{tool}");
    }
}

#[test]
fn a_body_that_was_cut_off_is_not_kept_beside_a_secret() {
    let tool = json!({"type": "mcp", "authorization": SECRET});
    let request = json!({"tools": [tool], "input": "what is it?"}).to_string();
    let mut cut = of(&request.as_bytes()[..request.len() - 5], b"{\"text\":\"it is zQ7/8x");
    (cut.head.request_truncated, cut.head.response_truncated) = (true, true);
    let kept = redact(&cut);
    assert_eq!((kept.bodies, kept.head.redacted), (Bodies::default(), true));
    let at = request.find("8xW").unwrap();
    let mut within = of(&request.as_bytes()[..at], b"");
    within.head.request_truncated = true;
    assert!(!text(&redact(&within)).contains("zQ7"));
    let mut free = of(br#"{"model":"auto","messages":[{"content":"so mu"#, b"so mu");
    (free.head.request_truncated, free.head.response_truncated) = (true, true);
    let kept = redact(&free);
    assert_eq!((kept.bodies, kept.head.redacted), (free.bodies, false));
}

#[test]
fn of_too_many_secrets_no_body_is_kept() {
    let servers = |count: usize| {
        let server =
            |at| json!({"authorization_token": format!("secret-{at:05}-{}", "x".repeat(1_000))});
        let servers: Vec<Value> = (0..count).map(server).collect();
        redact(&of(json!({"mcp_servers": servers}).to_string().as_bytes(), b"an answer"))
    };
    assert_eq!(servers(200).bodies.response, "an answer");
    let kept = servers(300);
    assert_eq!((kept.bodies, kept.head.redacted), (Bodies::default(), true));
}

#[test]
fn matches_leave_every_string_and_name_of_json_and_every_other_byte_stays() {
    for body in [
        r#"{"metadata":{"a":"canary-0123456789","a":"x"},"model":"m"}"#,
        r#"{"model":"c\u0061nary-0123456789","model":"m"}"#,
        r#"{"canary-0123456789":{"a":1},"b":[{"a":["canary-0123456789"],"a":2}]}"#,
    ] {
        let kept = matching().redact(&of(body.as_bytes(), body.as_bytes())).unwrap();
        assert!(!text(&kept).contains("nary-0") && kept.head.redacted, "{}", text(&kept));
        assert_eq!(kept.head.not_replayable().map(|kind| kind.row().word), Some("redacted"));
    }
    let body = br#"{"a": 1, "a":"\u0061", "model":"m"}"#;
    assert_eq!(matching().redact(&of(body, body)).unwrap().bodies, of(body, body).bodies);
    let answered = matching().redact(&of(b"{}", b"said canary-0123456789 and left")).unwrap();
    assert_eq!(answered.bodies.response, "said [redacted] and left");
    assert_eq!(answered.head.not_replayable(), None);
}

#[test]
fn beside_expressions_a_stream_is_kept_as_what_it_amounts_to_and_nothing_that_was_cut_off() {
    let mut one = of(b"{}", (delta("a can") + &delta("ary-0123456789 b")).as_bytes());
    one.head.response_stream = true;
    let kept = matching().redact(&one).unwrap();
    let answer = kept.head.assembled(&kept.bodies.response);
    assert_eq!(answer["choices"][0]["message"]["content"], "a [redacted] b");
    assert_eq!((kept.head.response_assembled, kept.head.version), (true, Head::ASSEMBLED));
    for (response, stream) in [(delta("canary-01234"), true), ("canary-01234".into(), false)] {
        let mut one = of(b"{}", response.as_bytes());
        (one.head.response_stream, one.head.state) = (stream, CaptureState::Aborted);
        let kept = matching().redact(&one).unwrap();
        assert!(kept.bodies.response.is_empty() && kept.head.redacted);
    }
    let mut cut = of(br#"{"model":"auto","messages":[{"content":"canary-01234"#, b"");
    cut.head.request_truncated = true;
    let kept = matching().redact(&cut).unwrap();
    assert!(kept.bodies.request.is_empty() && kept.head.redacted);
    assert_eq!(json!(kept.head.summary())["not_replayable"], "truncated");
    let mut failed = of(b"{}", br#"{"error":"no more of it"}"#);
    failed.head.state = CaptureState::Failed;
    let kept = matching().redact(&failed).unwrap();
    assert_eq!((kept.bodies, kept.head.redacted), (failed.bodies, false));
}

#[test]
fn what_was_redacted_is_the_same_when_it_is_imported() {
    let tool = json!({"type": "mcp", "authorization": SECRET, "headers": {"a": "b"}});
    let refused = json!({"error": {"message": format!("not {SECRET}")}}).to_string();
    let first = redact(&of(with_tool(&tool).as_bytes(), refused.as_bytes()));
    let shown = json!(Capture { head: first.head, bodies: first.bodies }.whole()).to_string();
    let read = Capture::read_whole(shown.as_bytes()).unwrap();
    let again = redact(&read);
    assert_eq!((&again.bodies, &again.head.redacted), (&read.bodies, &true));
    assert_eq!(again.head.not_replayable(), read.head.not_replayable());
}
