//! Credentials and matches in every part of a call.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::capture::fixtures::capture;
use crate::capture::packed_capture::PackedCapture;
use crate::capture::raw_capture::RawCapture;
use crate::capture::record::{CaptureState, Served};
use crate::id::{Random, UserId};
use crate::routing::{Abilities, AgentRef, NodeFacts, PlanEntry, TargetHealth, Trace};
use crate::secret::Secret;
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

/// All that is kept, as text.
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
    // A parameter of a function may be called so.
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
    assert_eq!(kept.head.summary()["not_replayable"], "redacted");
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
fn no_header_is_kept_that_is_a_credential_by_name_or_value() {
    let names = ["x-api-key", "cf-access-jwt-assertion", "x-amzn-oidc-data", "AuthToken", "x-jwt"];
    let named = names.map(|name| (name, "canary".to_owned(), false));
    let basic = "Basic Y2FuYXJ5OmNhbmFyeQ==".to_owned();
    let values = ["Bearer sk-canary-1".to_owned(), JWT.to_owned(), format!("a={OURS};"), basic];
    let valued = values.map(|value| ("x-upstream", value, false));
    let kept = [("x-tier", "Basic plan"), ("x-tokens-left", "7"), ("x-plan", "Basic enterprise")];
    let kept = kept.map(|(name, value)| (name, value.to_owned(), true));
    for (name, value, stays) in named.into_iter().chain(valued).chain(kept) {
        let mut one = plain();
        let header = (name.to_owned(), value.clone());
        one.head.request_headers = vec![header.clone()];
        one.head.response_headers = vec![header.clone()];
        one.head.inputs.as_mut().unwrap().request.headers = [header].into();
        one.head.client_request_id = Some(value.clone());
        let head = redact(&one).head;
        let count = usize::from(stays);
        assert_eq!(
            [head.request_headers.len(), head.response_headers.len()],
            [count; 2],
            "{value}"
        );
        assert_eq!(head.client_request_id.is_none(), name == "x-upstream", "{value}");
        assert_eq!((head.redacted, lost_signals(&head)), (false, !stays), "{value}");
        let decided_on = &head.inputs.unwrap().request.headers[name];
        assert_eq!(*decided_on, if stays { value } else { "[redacted]".to_owned() });
    }
    let mut one = plain();
    let header = ("WWW-Authenticate".to_owned(), "Bearer sk-live-0123".to_owned());
    one.head.request_headers = vec![header.clone()];
    one.head.response_headers = vec![header];
    let head = redact(&one).head;
    assert_eq!((head.request_headers.len(), head.response_headers.len()), (0, 1), "a challenge");
}

#[test]
fn a_header_with_a_credential_does_not_even_join_the_capture() {
    let mut draft = RawCapture::from(plain());
    let mut sensitive = http::HeaderValue::from_static("canary");
    sensitive.set_sensitive(true);
    draft.request_headers.insert("x-note", sensitive);
    for name in ["authorization", "api-key", "cookie", "x_api_key", "access_token"] {
        draft.request_headers.insert(name, http::HeaderValue::from_static("canary"));
    }
    draft.request_headers.insert("user-agent", http::HeaderValue::from_bytes(b"\xff").unwrap());
    let packed = PackedCapture::new(draft).unwrap();
    let kept = redact(&packed.unpack().unwrap()).head.request_headers;
    assert!(!format!("{kept:?}").contains("canary") && kept.last().unwrap().0 == "user-agent");
}

#[test]
fn a_key_of_ours_in_the_place_of_a_name_is_hidden() {
    let environment = Secret::new("admin-key-0123456789abcdef");
    let redactor = Redactor::default().veiling(KeyRedactor::new([&environment]));
    for key in [OURS, environment.expose()] {
        let mut one = plain();
        one.head.inputs.as_mut().unwrap().request.name = key.into();
        let kept = redactor.redact(&one).unwrap();
        assert!(!text(&kept).contains(key));
    }
}

#[test]
fn no_text_of_a_head_holds_what_an_expression_matches() {
    let said = || MATCH.to_owned();
    type Put = Box<dyn Fn(&mut Head)>;
    fn inputs(put: impl Fn(&mut crate::routing::Inputs) + 'static) -> Put {
        Box::new(move |head| put(head.inputs.as_mut().unwrap()))
    }
    fn decision(put: impl Fn(&mut crate::routing::Decision) + 'static) -> Put {
        Box::new(move |head| put(Arc::make_mut(head.decision.as_mut().unwrap())))
    }
    let node = |node: NodeFacts| {
        inputs(move |inputs| {
            let health = TargetHealth { node: Some(node.clone()), ..TargetHealth::default() };
            _ = inputs.health.insert("n".into(), health);
        })
    };
    let agent = AgentRef { id: "agent_1".into(), name: said(), etag: "e".into() };
    let able = BTreeMap::from([(said().into(), Arc::new(Abilities::default()))]);
    let places: Vec<Put> = vec![
        inputs(move |inputs| inputs.request.model = said().into()),
        inputs(move |inputs| inputs.request.name = said().into()),
        inputs(move |inputs| inputs.request.agent = Some(agent.clone())),
        inputs(move |inputs| _ = inputs.request.headers.insert("x-a".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert("team".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert(said(), "core".into())),
        inputs(move |inputs| _ = inputs.principal.user_labels.insert("team".into(), said())),
        inputs(move |inputs| inputs.principal.models = Some(vec![said()])),
        inputs(move |inputs| _ = inputs.health.insert(said(), TargetHealth::default())),
        node(NodeFacts { models: vec![said().into()], ..NodeFacts::default() }),
        node(NodeFacts { abilities: able, ..NodeFacts::default() }),
        decision(move |decision| {
            (decision.model, decision.plan[0].model) = (said().into(), said().into())
        }),
        decision(move |decision| {
            decision.plan.push(PlanEntry { provider: "p".into(), model: said().into() })
        }),
        decision(move |decision| decision.candidates[0].model = said().into()),
        decision(move |decision| decision.alias = Some(said().into())),
        decision(move |decision| decision.recipe = said().into()),
        decision(move |decision| decision.rule = Some(said().into())),
        decision(move |decision| decision.trace.push(Trace { rule: "r".into(), error: said() })),
        Box::new(move |head| {
            head.served = Some(Served { provider: "p".into(), model: said().into(), node: None })
        }),
        Box::new(move |head| head.attempts[0].model = said().into()),
        Box::new(move |head| head.attempts[0].error = Some(said())),
        Box::new(move |head| head.error = Some(said())),
        Box::new(move |head| head.client_request_id = Some(said())),
        Box::new(move |head| head.query = Some(said())),
        Box::new(move |head| head.request_headers.push(("x-a".into(), said()))),
        Box::new(move |head| head.response_headers.push((said(), "a".into()))),
    ];
    let redactor = matching();
    for (number, put) in places.into_iter().enumerate() {
        let mut one = plain();
        put(&mut one.head);
        let before = one.head.decision.clone();
        let kept = redactor.redact(&one).unwrap();
        assert!(
            !text(&kept).contains("canary-0") && kept.head.redacted,
            "{number}: {}",
            text(&kept)
        );
        assert_eq!(one.head.decision, before, "what serves the request stays");
        assert!(!lost_names(&one.head));
    }
    assert_eq!(redactor.redact(&plain()).unwrap().head, plain().head, "and nothing else changes");
    let digits = Redactor::new(vec![Expression::new("[0-9a-z_]").unwrap()]);
    let head = digits.redact(&plain()).unwrap().head;
    assert_eq!((head.id, head.created_at), (plain().head.id, plain().head.created_at));
    assert_eq!(head.inputs.unwrap().at, plain().head.inputs.unwrap().at);
}

#[test]
fn what_a_head_lost_is_known() {
    let redactor = matching();
    let lost = |put: &dyn Fn(&mut Head)| {
        let mut one = plain();
        put(&mut one.head);
        let head = redactor.redact(&one).unwrap().head;
        (lost_names(&head), lost_signals(&head))
    };
    let inputs = |head: &mut Head, at: &str| match at {
        "name" => head.inputs.as_mut().unwrap().request.name = MATCH.into(),
        "label" => {
            _ = head.inputs.as_mut().unwrap().principal.labels.insert("a".into(), MATCH.into())
        }
        _ => head.query = Some(MATCH.into()),
    };
    assert_eq!(lost(&|head| inputs(head, "name")), (true, false));
    assert_eq!(lost(&|head| inputs(head, "label")), (false, true));
    assert_eq!(lost(&|head| inputs(head, "query")), (false, false));
    let recipe = |head: &mut Head| {
        Arc::make_mut(head.decision.as_mut().unwrap()).recipe = MATCH.into();
    };
    assert_eq!(lost(&recipe), (true, false));
    assert!(lost_text(&json!({"a": ["it is [redacted]"]})) && !lost_text(&json!({"a": [1]})));
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
        assert_eq!(kept.head.summary()["not_replayable"], "redacted");
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
    let shown = Capture { head: first.head, bodies: first.bodies }.whole().to_string();
    let read = Capture::read_whole(shown.as_bytes()).unwrap();
    let again = redact(&read);
    assert_eq!((&again.bodies, &again.head.redacted), (&read.bodies, &true));
    assert_eq!(again.head.not_replayable(), read.head.not_replayable());
}

#[test]
fn credentials_leave_a_query_and_the_rest_stays_as_it_was() {
    for (query, kept) in [
        ("", None),
        ("beta=true", Some("beta=true")),
        ("b=%2f&&a=+&d;e=%zz", Some("b=%2f&&a=+&d;e=%zz")),
        ("key=1", None),
        ("a=1&API_KEY=2&b=3", Some("a=1&b=3")),
        ("%6B%65%79=1&b", Some("b")),
        ("a=1;token=2&b=3", Some("b=3")),
        ("keys=1&max_tokens=2&monkey=3", Some("keys=1&max_tokens=2&monkey=3")),
        ("a=Bearer+sk-12345&b=eyJ0.e30.c2ln&c=4", Some("c=4")),
    ] {
        assert_eq!(without_credentials(query).as_deref(), kept, "{query}");
        assert_eq!(is_in_query(query), kept.unwrap_or_default() != query, "{query}");
    }
    for query in
        [OURS.to_owned(), format!("a={OURS}"), format!("a=%zz{}", OURS.replace('_', "%5F"))]
    {
        assert_eq!(without_credentials(&format!("x=1&{query}&y")).as_deref(), Some("x=1&y"));
    }
}
