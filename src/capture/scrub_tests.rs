//! Secrets placed everywhere, cut anywhere, quoted in any way.

use bytes::Bytes;
use http::header::HeaderValue;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::capture::prepare;
use crate::capture::record::tests::capture;
use crate::capture::record::{Bodies, Capture};
use crate::capture::redact::Redactor;
use crate::capture::sift::unescaped;
use crate::id::{Random, UserId};

#[test]
fn no_header_with_a_credential_is_kept() {
    let mut headers = HeaderMap::new();
    for name in [
        "authorization",
        "x-api-key",
        "api-key",
        "cookie",
        "set-cookie",
        "proxy-authorization",
        "x-goog-api-key",
        "x-amz-security-token",
        "x-client-secret",
        "token",
        "secret",
        "password",
        "api_key",
        "x_api_key",
        "access_token",
    ] {
        headers.append(name, HeaderValue::from_static("canary"));
    }
    for name in ["content-type", "idempotency-key", "x-ratelimit-remaining-tokens", "user-agent"] {
        headers.append(name, HeaderValue::from_static("kept"));
    }
    headers.append("user-agent", HeaderValue::from_bytes(b"\xff").unwrap());
    let kept = keep_headers(&headers);
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert!(!format!("{kept:?}").contains("canary"));
}

#[test]
fn credentials_of_tools_leave_and_nothing_else() {
    let body = r#"{"model":"m","tools":[{"type":"mcp", "auth\u006frization" : "canary-1","headers":{"Authorization":"canary-2","X-Api-Key":["canary-3"],"X-Team":"core"}},
        {"type":"function","function":{"authorization":"a word"}},{"authorization":null}],"authorization":"not a tool's"}"#;
    let out = scrub_body(&Bytes::from(body));
    assert!(out.redacted);
    let mut expected = body.to_owned();
    for canary in ["\"canary-1\"", "\"canary-2\"", "[\"canary-3\"]"] {
        expected = expected.replace(canary, "\"[redacted]\"");
    }
    assert_eq!(std::str::from_utf8(&out.body).unwrap(), expected);
    let servers = r#"{"mcp_servers":[{"type":"url","authorization_token":"canary-4"},{"name":"x"}],"model":"m"}"#;
    assert_eq!(scrub_body(&Bytes::from(servers)).body, servers.replace("canary-4", "[redacted]"));
    let plain = Bytes::from(r#"{"tools":[{"type":"function"}]}"#);
    assert_eq!(scrub_body(&plain), Scrubbed { body: plain, redacted: false });
}

/// What is written of a call.
pub(in crate::capture) struct Written {
    pub(in crate::capture) head: Head,
    pub(in crate::capture) bodies: Bodies,
}

impl Written {
    /// Of this request, cut, and this answer.
    pub(in crate::capture) fn of(
        request: &[u8],
        response: &[u8],
        change: impl FnOnce(&mut Head),
    ) -> Written {
        let mut capture = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
        capture.bodies = Bodies {
            request: Bytes::copy_from_slice(request),
            response: Bytes::copy_from_slice(response),
        };
        change(&mut capture.head);
        let ready = prepare::ready(&capture, &Redactor::default()).unwrap();
        Written { head: serde_json::from_slice(&ready.head).unwrap(), bodies: ready.bodies }
    }

    /// All that it says, in the ways that JSON may write it, and JSON within JSON.
    pub(in crate::capture) fn says(&self, word: &str) -> bool {
        let head = serde_json::to_vec(&self.head).unwrap();
        let assembled = if self.head.response_stream {
            self.head.assembled(&self.bodies.response).to_string()
        } else {
            String::new()
        };
        [&head[..], &self.bodies.request, &self.bodies.response, assembled.as_bytes()]
            .into_iter()
            .any(|text| {
                let mut text = String::from_utf8_lossy(text).into_owned();
                (0..4).any(|_| {
                    let found = text.contains(word);
                    text = unescaped(text.as_bytes());
                    found
                })
            })
    }
}

const SECRET: &str = "zQ7/8xW+cKJ9==";
/// As much of it as must not be left.
const HEAD: &str = "zQ7/";

fn request_with(secret: &str) -> Value {
    json!({"model": "m", "input": "what is it?", "tools": [{"type": "mcp", "server_label": "s", "authorization": secret}]})
}

#[test]
fn what_cannot_be_read_is_not_stored() {
    let cut = scrub_body(&Bytes::from(r#"{"tools":[{"Authorization":"canary"#));
    assert_eq!(
        cut,
        Scrubbed {
            body: Bytes::from(r#"{"tools":[{"Authorization":"[redacted]""#),
            redacted: true
        }
    );
    for (body, kept) in [
        (r#"{"model":"#, r#"{"model":"#),
        (
            r#"{"model":"auto","messages":[{"content":"so mu"#,
            r#"{"model":"auto","messages":[{"content":"so mu"#,
        ),
        (r#"{"stream":tr"#, r#"{"stream":tr"#),
        ("", ""),
    ] {
        assert_eq!(
            scrub_body(&Bytes::from(body)),
            Scrubbed { body: Bytes::from(kept), redacted: false },
            "{body}"
        );
    }
    for (body, kept) in [
        (r#"{"model":"m"} {"tools":[{"authorization":"canary"}]}"#, r#"{"model":"m"} "#),
        (r#"{'tools':[{'authorization':'canary'}]}"#, "{"),
        ("authorization: canary", ""),
        (r#"{"a":1,,"tools":[{"authorization":"canary"}]}"#, r#"{"a":1,"#),
    ] {
        assert_eq!(
            scrub_body(&Bytes::from(body)),
            Scrubbed { body: Bytes::from(kept), redacted: true },
            "{body}"
        );
    }
}

#[test]
fn an_address_or_a_header_of_a_tool_may_be_a_credential() {
    for (tool, kept) in [
        (
            json!({"server_url": "https://mcp.example/x?token=canary-12345"}),
            json!({"server_url": "[redacted]"}),
        ),
        (json!({"url": "https://user:canary-12345@mcp.example/x"}), json!({"url": "[redacted]"})),
        (
            json!({"headers": {"X-Trace": "Bearer canary-12345", "X-Team": "core"}}),
            json!({"headers": {"X-Trace": "[redacted]", "X-Team": "core"}}),
        ),
        (json!({"headers": ["Authorization: canary-12345"]}), json!({"headers": "[redacted]"})),
        (json!({"api_key": "canary-12345"}), json!({"api_key": "[redacted]"})),
        (
            json!({"headers": {"api_key": "a", "token": "b", "max_tokens": "9"}}),
            json!({"headers": {"api_key": "[redacted]", "token": "[redacted]", "max_tokens": "9"}}),
        ),
        (
            json!({"parameters": {"token": "a", "max_tokens": 9}}),
            json!({"parameters": {"token": "a", "max_tokens": 9}}),
        ),
        (
            json!({"server_url": "https://mcp.example/x?page=2"}),
            json!({"server_url": "https://mcp.example/x?page=2"}),
        ),
        (
            json!({"tools": [{"authorization": "canary-12345"}]}),
            json!({"tools": [{"authorization": "[redacted]"}]}),
        ),
        (
            json!({"tools": {"authorization": "canary-12345"}}),
            json!({"tools": {"authorization": "[redacted]"}}),
        ),
        (
            json!({"tools": {"a": {"authorization": "canary-12345"}}}),
            json!({"tools": {"a": {"authorization": "[redacted]"}}}),
        ),
        (json!([[{"authorization": "canary-12345"}]]), json!([[{"authorization": "[redacted]"}]])),
        (
            json!({"headers": {"X-Custom": ["Bearer canary-12345", "x"], "X-B": {"c": "Token canary-12345"}}}),
            json!({"headers": {"X-Custom": ["[redacted]", "x"], "X-B": {"c": "[redacted]"}}}),
        ),
        (
            json!({"headers": {"X-Custom": "eyJhbGciOiJ9.e30.c2ln"}}),
            json!({"headers": {"X-Custom": "[redacted]"}}),
        ),
        (json!({"url": ["https://h?token=canary-12345"]}), json!({"url": ["[redacted]"]})),
    ] {
        let body = |tool: &Value| Bytes::from(json!({"model": "m", "tools": [tool]}).to_string());
        let out = scrub_body(&body(&tool));
        assert_eq!((&out.body, out.redacted), (&body(&kept), kept != tool), "{tool}");
    }
    let single = request_with(SECRET).to_string().replace("[{", "{").replace("}]", "}");
    let written = Written::of(single.as_bytes(), format!("it is {SECRET}").as_bytes(), |_| {});
    assert!(written.says(r#""authorization":"[redacted]""#) && !written.says(HEAD));
    // Each of several values of a name is known, and looked for elsewhere.
    let repeated = br#"{"model":"m","tools":[{"authorization":{"a":"canary-12345","a":"x"}}],"input":"canary-12345"}"#;
    assert!(!Written::of(repeated, b"canary-12345", |_| {}).says("canary"));
    let twice = json!({"mcp_servers": {"a": {"authorization_token": SECRET}}, "messages": [{"content": format!("it is {SECRET}.")}]});
    let written = Written::of(twice.to_string().as_bytes(), b"", |_| {});
    assert!(
        !written.says(HEAD)
            && std::str::from_utf8(&written.bodies.request).unwrap().contains("it is [redacted]")
    );
}

#[test]
fn an_answer_may_quote_its_request() {
    let request = request_with(SECRET).to_string();
    let tools =
        json!([{"type": "mcp", "authorization": SECRET, "headers": {"Authorization": SECRET}}]);
    let quoted = json!({"tools": tools}).to_string();
    let event = |data: &Value| format!("data: {data}\n\n");
    let split = |at: usize| {
        let delta =
            |text: &str| event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
        [
            delta("it is "),
            delta(&SECRET[..at]),
            delta(&SECRET[at..]),
            delta(", I think"),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat()
    };
    let mut coded = flate(&quoted);
    let mut cases: Vec<(&str, Vec<u8>, u16, bool)> = vec![
        ("echoed", json!({"object": "response", "tools": tools}).to_string().into(), 200, false),
        (
            "quoted",
            json!({"error": {"message": format!("unknown: {quoted}")}}).to_string().into(),
            400,
            false,
        ),
        (
            "quoted twice",
            json!({"error": {"message": json!({"body": quoted}).to_string()}}).to_string().into(),
            400,
            false,
        ),
        (
            "by python",
            format!("Bad request: {{'tools': [{{'authorization': '{SECRET}'}}]}}").into(),
            400,
            false,
        ),
        (
            "escaped",
            format!(
                r#"{{"error":{{"message":"{}"}}}}"#,
                SECRET.replace('/', "\\u002f").replace('=', "\\u003d")
            )
            .into(),
            400,
            false,
        ),
        ("slashes", format!(r#"{{"text":"{}"}}"#, SECRET.replace('/', "\\/")).into(), 200, false),
        (
            "an event",
            event(&json!({"type": "response.created", "response": {"tools": tools}})).into(),
            200,
            true,
        ),
        (
            "lines",
            format!("data: {{\"response\":{{\"tools\":\ndata: {tools}}}}}\n\ndata: {{}}\n\n")
                .into(),
            200,
            true,
        ),
        ("compressed", std::mem::take(&mut coded), 200, false),
    ];
    cases.extend((1..SECRET.len()).map(|at| ("split", split(at).into(), 200, true)));
    for (name, response, status, stream) in cases {
        let written = Written::of(request.as_bytes(), &response, |head| {
            (head.status, head.response_stream) = (status, stream);
            if name == "compressed" {
                head.response_headers.push(("content-encoding".into(), "gzip".into()));
            }
        });
        assert!(written.head.redacted && !written.says(HEAD), "{name}: {:?}", written.bodies);
        if name == "split" {
            let assembled = written.head.assembled(&written.bodies.response);
            assert_eq!(assembled["choices"][0]["message"]["content"], "it is [redacted], I think");
        }
    }
}

pub(in crate::capture) fn flate(text: &str) -> Vec<u8> {
    // A gzip of stored blocks, as no crate for it enters here.
    let (length, mut out) =
        (u16::try_from(text.len()).unwrap(), vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1]);
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
    out.extend(u32::from(length).to_le_bytes());
    out
}

#[test]
fn what_quotes_a_tool_is_no_credential_s_even_where_the_request_is_not_known() {
    let detail = json!({"detail": [{"loc": ["body", "tools", 0], "input": {"type": "mcp", "authorization": SECRET}}]}).to_string();
    let event = format!(
        "event: response.created\ndata: {}\n\n",
        json!({"response": {"tools": [{"authorization": SECRET}]}})
    );
    let quoted =
        json!({"error": {"message": json!({"authorization": SECRET}).to_string()}}).to_string();
    let page = format!("<html>{{\"authorization\": \"{SECRET}\"}}</html>");
    for (response, status, stream) in
        [(&detail, 422, false), (&event, 200, true), (&quoted, 400, false), (&page, 502, false)]
    {
        for cut in 0..=response.len() {
            let written = Written::of(b"{\"model\":\"m\"}", &response.as_bytes()[..cut], |head| {
                (head.status, head.response_stream, head.response_truncated) =
                    (status, stream, cut < response.len());
            });
            assert!(!written.says(HEAD), "{cut}: {:?}", written.bodies);
        }
    }
}

#[test]
fn what_quotes_nothing_is_kept_as_it_came() {
    let request = request_with(SECRET).to_string();
    for (response, status, stream) in [
        ("<html>Bad gateway: no Authorization header</html>", 502, false),
        (
            r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            401,
            false,
        ),
        (
            r#"{"object":"response","tools":[{"type":"function","name":"f","parameters":{"properties":{"authorization":{"type":"string"}}}}]}"#,
            200,
            false,
        ),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"the tools\"}}]}\n\ndata: [DONE]\n\n",
            200,
            true,
        ),
        ("\u{1}\u{2}not text", 200, false),
        (r#"{"error":{"message":"x","details":[{"key":"model","token":7}]}}"#, 400, false),
        (r#"{"error":"Authorization header is correct, but the token seems invalid"}"#, 401, false),
        (r#"{"error":{"code":"api_key_invalid","message":"headers: none"}}"#, 401, false),
        (r#"{"detail":[{"loc":["header","authorization"],"msg":"field required"}]}"#, 422, false),
    ] {
        for request in [request.as_str(), r#"{"model":"m"}"#] {
            let written = Written::of(request.as_bytes(), response.as_bytes(), |head| {
                (head.status, head.response_stream) = (status, stream)
            });
            assert_eq!(
                (&written.bodies.response[..], written.head.redacted),
                (response.as_bytes(), request.contains("tools")),
                "{response}"
            );
        }
    }
}

#[test]
fn only_what_is_taken_out_of_a_request_keeps_it_from_being_run_again() {
    let quoted = json!({"error": {"authorization": SECRET}}).to_string();
    let answered = Written::of(br#"{"model":"m"}"#, quoted.as_bytes(), |head| head.status = 400);
    assert!(answered.head.redacted && !answered.says(HEAD));
    assert_eq!(
        (answered.head.not_replayable(), &answered.bodies.request[..]),
        (None, &br#"{"model":"m"}"#[..])
    );
    let asked =
        Written::of(request_with(SECRET).to_string().as_bytes(), quoted.as_bytes(), |head| {
            head.status = 400
        });
    assert_eq!(asked.head.summary()["not_replayable"], "redacted");
    // An answer of success whose client went away refuses nothing.
    let gone = |head: &mut Head| head.error = Some("client_gone".into());
    assert_eq!(Written::of(b"{}", quoted.as_bytes(), gone).bodies.response, quoted);
    let in_band = |head: &mut Head| head.error = Some("in_band_error".into());
    assert!(!Written::of(b"{}", quoted.as_bytes(), in_band).says(HEAD));
}

#[test]
fn what_was_taken_out_is_no_credential_when_it_is_read_in_again() {
    let quoted =
        json!({"error": {"message": format!("not {SECRET}"), "authorization": SECRET}}).to_string();
    let first =
        Written::of(request_with(SECRET).to_string().as_bytes(), quoted.as_bytes(), |head| {
            head.status = 400
        });
    assert_eq!(first.bodies.request, request_with("[redacted]").to_string());
    let shown = Capture { head: first.head, bodies: first.bodies }.whole().to_string();
    let read = Capture::read_whole(shown.as_bytes()).unwrap();
    let again = prepare::ready(&read, &Redactor::default()).unwrap();
    let head: Head = serde_json::from_slice(&again.head).unwrap();
    assert_eq!(
        (&again.bodies, head.redacted, head.not_replayable()),
        (&read.bodies, true, read.head.not_replayable())
    );
    for word in ["[redacted]", "redacted", "Bearer [redacted]"] {
        let request =
            json!({"input": "it was redacted", "tools": [{"authorization": word}]}).to_string();
        let written = Written::of(request.as_bytes(), b"redacted", |_| {});
        let kept = std::str::from_utf8(&written.bodies.request).unwrap();
        assert!(
            kept.contains("it was redacted") && written.bodies.response == "redacted",
            "{word}: {kept}"
        );
    }
}

#[test]
fn a_secret_that_is_repeated_all_through_is_found_once() {
    let request =
        json!({"tools": [{"authorization": "AAAAAAAA"}], "input": "A".repeat(4 << 20)}).to_string();
    let began = std::time::Instant::now();
    let written = Written::of(request.as_bytes(), b"", |_| {});
    assert_eq!(
        written.bodies.request,
        json!({"tools": [{"authorization": "[redacted]"}], "input": "[redacted]"}).to_string()
    );
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    // Of overlapping ones nothing stays, also where they are no words.
    let text = json!({"tools": [{"authorization": "ab ab ab"}], "input": "ab ab ab ab, and ab"})
        .to_string();
    assert_eq!(
        Written::of(text.as_bytes(), b"", |_| {}).bodies.request,
        json!({"tools": [{"authorization": "[redacted]"}], "input": "[redacted] ab, and ab"})
            .to_string()
    );
    // So many that looking for them would take minutes.
    let tools: Vec<Value> =
        (0..40).map(|at| json!({"authorization": format!("secret-{at}")})).collect();
    let many = |input: &str| Bytes::from(json!({"tools": tools, "input": input}).to_string());
    assert_eq!(scrub_body(&many(&"B".repeat(8 << 20))).body, Bytes::new());
    assert!(!scrub_body(&many("B")).body.is_empty());
}

#[test]
fn all_that_are_looked_for_are_different() {
    let server = |at: usize| json!({"headers": {"Authorization": format!("Bearer tok-{at:05}"), "X-Token": "same-12345"}});
    let servers: Vec<Value> = (0..63).map(server).collect();
    let request =
        json!({"mcp_servers": servers, "metadata": {"note": "it is tok-00062, not same-12345"}})
            .to_string();
    let kept = scrub_body(&Bytes::from(request)).body;
    let kept = std::str::from_utf8(&kept).unwrap();
    assert!(kept.contains("it is [redacted], not [redacted]") && !kept.contains("tok-"), "{kept}");
    let more: Vec<Value> = (0..64).map(server).collect();
    assert_eq!(
        scrub_body(&Bytes::from(json!({"mcp_servers": more}).to_string())).body,
        Bytes::new()
    );
}

#[test]
fn words_and_numbers_are_not_taken_for_a_secret() {
    let answer = r#"{"created":1700000000,"password":"undefined","content":"https://x is an undefined password"}"#;
    for tool in [
        json!({"headers": {"Authorization": "Bearer undefined"}}),
        json!({"server_url": "https://u:password@h"}),
        json!({"server_url": "https://h?token=undefined"}),
        json!({"authorization": "1700000000"}),
        json!({"authorization": 1_700_000_000}),
    ] {
        let request = json!({"tools": [tool], "created": 1_700_000_000}).to_string();
        let written = Written::of(request.as_bytes(), answer.as_bytes(), |_| {});
        assert_eq!(written.bodies.response, answer, "{tool}");
        assert!(
            serde_json::from_slice::<Value>(&written.bodies.request)
                .is_ok_and(|body| body["created"] == 1_700_000_000)
        );
    }
    for cut in ["https://", "https://h.exam", "https://h.example/"] {
        let request = format!(r#"{{"tools":[{{"server_url":"{cut}"#);
        let answer = r#"{"content":"https://h.example/a"}"#;
        assert_eq!(
            Written::of(request.as_bytes(), answer.as_bytes(), |_| {}).bodies.response,
            answer
        );
    }
}

#[test]
fn the_head_of_a_secret_is_one_only_where_something_was_cut() {
    let request = request_with("user_2ab4567").to_string();
    let answer = r#"{"role":"user","content":"a\/b: user_"}"#;
    assert_eq!(Written::of(request.as_bytes(), answer.as_bytes(), |_| {}).bodies.response, answer);
    let event = |text: &str| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
    };
    let stream = event("it is user_") + &event("2ab");
    let cut = |cut: bool| {
        Written::of(request.as_bytes(), stream.as_bytes(), |head| {
            (head.response_stream, head.response_truncated) = (true, cut)
        })
    };
    assert_eq!(cut(false).bodies.response, stream);
    assert!(!cut(true).says("user_2"));
    for at in 0..answer.len() {
        let written = Written::of(request.as_bytes(), &answer.as_bytes()[..at], |head| {
            head.response_truncated = true
        });
        assert!(written.bodies.response.starts_with(&answer.as_bytes()[..at.min(6)]), "{at}");
    }
    let escaped = r#"{"a":"it is user\u005f2ab4\u00"#;
    let written =
        Written::of(request.as_bytes(), escaped.as_bytes(), |head| head.response_truncated = true);
    assert_eq!(written.bodies.response, r#"{"a":"it is [redacted]""#);
    let name = Written::of(request.as_bytes(), br#"{"a":1,"user_2ab"#, |head| {
        head.response_truncated = true
    });
    assert_eq!(name.bodies.response, r#"{"a":1,"[redacted]""#);
}

#[test]
fn of_json_only_the_strings_that_hold_a_secret_change() {
    let answer = r#"{"n":12345678, "a" : "\u0061\/", "a":"x 12345678a", "b":{"12345678a":[1.50]}}"#;
    let written =
        Written::of(request_with("12345678a").to_string().as_bytes(), answer.as_bytes(), |_| {});
    assert_eq!(
        written.bodies.response,
        r#"{"n":12345678, "a" : "\u0061\/", "a":"x [redacted]", "b":{"[redacted]":[1.50]}}"#
    );
}

#[test]
fn tools_that_are_cut_off_are_told() {
    let body = json!({"input": "0123456789", "tools": [{"authorization": SECRET}]}).to_string();
    let (tools, ends) = (body.find("\"tools").unwrap(), body.find("ation\"").unwrap());
    for most in 0..=body.len() {
        let told = offers_tools_past(body.as_bytes(), most);
        assert!(told || most > tools, "{most}");
        assert!(told || most > ends, "{most}");
        assert!(!told || most < body.len());
    }
    assert!(!offers_tools_past(br#"{"model":"m","input":"of tools and such"}"#, 5));
    for body in [
        r#"{"model":"m","Tools":[]}"#,
        r#"{"model":"m","t\u006fols":[]}"#,
        r#"{"model":"m","x":{"AUTHORIZATION_TOKEN":1}}"#,
    ] {
        assert!(offers_tools_past(body.as_bytes(), 12), "{body}");
    }
    assert!(offers_tools_past(
        br#"{"model":"m","x":["","\u004dCP_servers"],"\u0041uthorization":"",}"#,
        5
    ));
    assert!(!offers_tools_past(br#"{"model":"m","input":"{\"tools\":[]}"}"#, 5));
}

/// A body with a secret somewhere among other things, and whether escapes are spelled out.
fn places() -> impl Strategy<Value = Value> {
    let secret = "[a-zA-Z0-9+/=_.\"\\\\é-]{8,30}".prop_map(|rest| format!("{HEAD}{rest}"));
    let tool = (secret, 0..9_usize).prop_map(|(secret, place)| match place {
        0 => json!({"type": "mcp", "authorization": secret}),
        1 => json!({"headers": {"X-Team": "core", "Authorization": format!("Bearer {secret}")}}),
        2 => json!({"headers": {"x_api_key": [secret]}}),
        3 => json!({"headers": {"X-Custom": format!("Basic {secret}")}}),
        4 => json!({"server_url": format!("https://h.example/p?a=b&access_token={secret}")}),
        5 => json!({"authorization": {"kind": "oauth", "value": secret}}),
        6 => json!({"name": "a", "AUTHORIZATION_TOKEN": secret}),
        7 => json!({"tools": [{"headers": {"Cookie": secret}}]}),
        _ => json!({"headers": [["authorization", secret]]}),
    });
    (tool, "[a-y \"\\\\{}\\[\\]:,]{0,20}", any::<bool>(), 0..3_usize).prop_map(
        |(tool, text, first, list)| {
            let tools = match list {
                0 => json!({"tools": [{"type": "function"}, tool]}),
                1 => json!({"mcp_servers": [tool]}),
                _ => json!({"mcp_servers": {"mcp": tool}}),
            };
            let text = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
            let (before, after) = if first { (tools, text) } else { (text, tools) };
            let mut all = before;
            all.as_object_mut().unwrap().extend(after.as_object().unwrap().clone());
            all
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_panic(body in "(\\{|\\}|\\[|\\]|\"tools\":|\"headers\":|\"authorization\":|\"x\"|,|1){0,20}") {
        scrub_body(&Bytes::from(body));
    }

    #[test]
    fn no_secret_survives_wherever_it_stands_and_wherever_it_is_cut(
        body in places(), pretty: bool, at: prop::sample::Index, other in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut text = if pretty { serde_json::to_vec_pretty(&body).unwrap() } else { serde_json::to_vec(&body).unwrap() };
        let cut = at.index(text.len() + 1);
        text.truncate(cut);
        if let Some((at, byte)) = other
            && let Some(bent) = (!text.is_empty()).then(|| at.index(text.len()))
            && !contains_place(&text, bent)
        {
            text[bent] = byte;
        }
        let written = Written::of(&text, &text, |head| {
            (head.request_truncated, head.response_truncated, head.status) = (true, true, 400);
        });
        prop_assert!(!written.says(HEAD), "{:?}", written.bodies);
    }
}

/// Whether a byte is one of a name that says what a value is, or of what leads to it: bent, it says so no more.
fn contains_place(text: &[u8], at: usize) -> bool {
    let value = memmem::find(text, HEAD.as_bytes()).unwrap_or(text.len());
    at < value
}
