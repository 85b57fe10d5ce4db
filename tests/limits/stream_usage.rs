//! The gateway asks for a stream's usage if a limit or the document needs it. A client that did not
//! ask for it does not see it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{in_order, provider};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Received, Step};

const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
const USAGE: &str = "data: {\"id\":\"chatcmpl-scripted\",\"choices\":[],\
    \"usage\":{\"prompt_tokens\":300,\"completion_tokens\":200,\"total_tokens\":500}}";

/// A stream without usage, with any line ends: a comment, content, a comment, the end.
fn events(line_end: &str) -> [String; 3] {
    let first = [
        ": keep-alive\n\n",
        &scripted::role_event(),
        &scripted::content_event("well"),
        ": keep-alive\n\n",
    ]
    .concat();
    [first, scripted::last_events().replace("data: [DONE]\n\n", ""), "data: [DONE]\n\n".to_owned()]
        .map(|text| text.replace('\n', line_end))
}

/// Answers with usage if the request asks for it, as OpenAI does. The body is cut into pieces of
/// `size` bytes.
fn telling(request: &Received, line_end: &str, size: usize) -> Vec<Step> {
    let [first, finish, done] = events(line_end);
    let asked = request.json()["stream_options"]["include_usage"] == true;
    let usage = if asked {
        [USAGE, "\n\n: after\n\n"].concat().replace('\n', line_end)
    } else {
        ": after\n\n".replace('\n', line_end)
    };
    let body = [first, finish, usage, done].concat();
    let chunks = body.as_bytes().chunks(size).map(|chunk| Step::Chunk(chunk.to_vec()));
    std::iter::once(scripted::stream_head())
        .chain(chunks)
        .chain([Step::Chunk(Vec::new())])
        .collect()
}

fn untold(line_end: &str) -> String {
    let [first, finish, done] = events(line_end);
    [first, finish, ": after\n\n".replace('\n', line_end), done].concat()
}

fn body(options: &str) -> String {
    format!(
        "{{\"model\":\"auto\", \"stream\":true{options},\"messages\":[{{\"role\":\"user\",\
         \"content\":\"Say a word.\"}}],\"max_tokens\":3}}"
    )
}

fn told(usage: &Value) -> bool {
    usage["total_tokens"] == 500 && usage["estimated"] == false
}

/// Every form of `stream_options`, with different line ends and pieces of the stream.
#[tokio::test]
async fn the_client_sees_the_stream_of_a_provider_that_was_not_asked() {
    for (line_end, size) in [("\n", 10_000), ("\r\n", 1), ("\n", 61), ("\r\n", 300)] {
        let provider = Provider::start(move |request, _| telling(request, line_end, size)).await;
        let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
        let (free, limited) =
            (gateway.create_key().await, gateway.limited_key(json!({"tpm": 1_000_000})).await);
        let plain = gateway.chat(&free, body("").as_bytes()).await;
        assert_eq!((plain.status, plain.text()), (200, untold(line_end)));
        assert_eq!(
            provider.last().body,
            body("").replace("auto", "model").as_bytes(),
            "nothing is asked for nobody"
        );
        assert_eq!(gateway.capture(&plain.request_id()).await["usage"]["estimated"], true);
        for (written, sent) in [
            ("", r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":null"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{}"#, r#","stream_options":{"include_usage":true}"#),
            (
                r#","stream_options":{"include_usage":false}"#,
                r#","stream_options":{"include_usage":true}"#,
            ),
            (
                r#","stream_options":{"x":1.0}"#,
                r#","stream_options":{"include_usage":true,"x":1.0}"#,
            ),
        ] {
            let answer = gateway.chat(&limited, body(written).as_bytes()).await;
            assert_eq!((answer.status, answer.text()), (200, plain.text()), "{written}, {size}");
            assert_eq!(
                String::from_utf8_lossy(&provider.last().body),
                body(sent).replace("auto", "model"),
                "{written}"
            );
            let capture = gateway.capture(&answer.request_id()).await;
            assert!(told(&capture["usage"]), "{written}: {}", capture["usage"]);
            assert_eq!(capture["cost_usd"], 0.5, "{written}");
            assert_eq!(capture["request"]["body"], body(written), "the client's words are kept");
        }
        let asked = gateway
            .chat(&limited, body(r#","stream_options":{"include_usage":true}"#).as_bytes())
            .await;
        assert!(asked.text().contains(&USAGE.replace('\n', line_end)), "who asks is told");
        assert_eq!(
            asked.text().replace(&[USAGE, "\n\n"].concat().replace('\n', line_end), ""),
            plain.text()
        );
    }
}

#[tokio::test]
async fn limits_of_every_kind_and_place_are_settled_with_what_the_provider_told() {
    let provider = Provider::start(|request, _| telling(request, "\n", 50)).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let money = gateway.limited_key(json!({"budget": {"usd": 10.0, "per": "month"}})).await;
    let above = gateway.limited_key(json!({"tpm": 10_000})).await;
    let wanted = json!({"name": "below"});
    let below = gateway.make_key("/v1/router/keys", &above.secret, &wanted).await;
    let begun = Instant::now();
    for (key, asks) in [
        (&money, true),
        (&below, true),
        (&gateway.limited_key(json!({"rpm": 10, "concurrency": 5})).await, false),
    ] {
        let answer = gateway.chat(key, body("").as_bytes()).await;
        assert_eq!(answer.text(), untold("\n"));
        assert_eq!(provider.last().json()["stream_options"].is_object(), asks);
        assert_eq!(told(&gateway.capture(&answer.request_id()).await["usage"]), asks);
    }
    // About fifteen tokens were reserved, but five hundred were used. Little comes back within a
    // moment.
    let next = gateway.chat(&below, body("").as_bytes()).await;
    let left: u64 = next.header("x-ratelimit-remaining-tokens").unwrap().parse().unwrap();
    let refilled = begun.elapsed().as_millis() as u64 * 10 / 60;
    assert!((9_000..9_900 + refilled).contains(&left), "{left}");
    let used =
        gateway.manage("GET", "/v1/router/usage?group_by=key", &money.secret, None).await.json();
    assert!((used["data"][0]["cost_usd"].as_f64().unwrap() - 0.5).abs() < 1e-9, "{used}");
}

#[tokio::test]
async fn the_document_says_of_a_provider_that_it_is_always_asked_or_never() {
    let start = async || Provider::start(|request, _| telling(request, "\n", 40)).await;
    let (always, never) = (start().await, start().await);
    let document = format!(
        "providers:\n{}    stream_usage: inject\n{}    stream_usage: never\nrecipes:\n  \
         one: {{ rules: [ {{ name: d, targets: [ {{ target: always/model }} ] }} ] }}\n  \
         two: {{ rules: [ {{ name: d, targets: [ {{ target: never/model }} ] }} ] }}\n\
         aliases: {{ one: one, two: two }}\n",
        provider("always", &always.url(), "sk-x"),
        provider("never", &never.url(), "sk-x"),
    );
    let gateway = Gateway::start(&document).await;
    let (free, limited) =
        (gateway.create_key().await, gateway.limited_key(json!({"tpm": 1_000_000})).await);
    let ask = async |key: &Key, model: &str| -> Answer {
        gateway.chat(key, body("").replace("auto", model).as_bytes()).await
    };
    for (model, told_by) in [("one", true), ("two", false)] {
        for key in [&free, &limited] {
            let answer = ask(key, model).await;
            assert_eq!((answer.status, answer.text()), (200, untold("\n")), "{model}");
            assert_eq!(
                told(&gateway.capture(&answer.request_id()).await["usage"]),
                told_by,
                "{model}"
            );
        }
    }
    // A request without a stream is never changed.
    let whole = body("").replace("\"stream\":true", "\"stream\":false").replace("auto", "one");
    gateway.chat(&free, whole.as_bytes()).await;
    assert_eq!(always.last().body, whole.replace("\"one\"", "\"model\"").as_bytes());
}

/// Each provider gets its own form of the request. The form for the provider that answers decides
/// what is kept from the client.
#[tokio::test]
async fn a_failover_asks_each_provider_in_its_own_way() {
    let failing = Provider::always(scripted::failure(500, "not now")).await;
    let telling_anyway = Provider::start(|_, _| {
        let chunks = [
            scripted::role_event(),
            scripted::content_event("x"),
            scripted::last_events().replace("data: [DONE]", &format!("{USAGE}\n\ndata: [DONE]")),
        ];
        let chunks = chunks.into_iter().map(|event| Step::Chunk(event.into_bytes()));
        std::iter::once(scripted::stream_head())
            .chain(chunks)
            .chain([Step::Chunk(Vec::new())])
            .collect()
    })
    .await;
    let document = in_order(&[("a", &failing.url()), ("b", &telling_anyway.url())], "");
    let document = document.replacen("  b:\n", "  b:\n    stream_usage: never\n", 1);
    let gateway = Gateway::start(&document).await;
    let limited = gateway.limited_key(json!({"tpm": 1_000_000})).await;
    let answer = gateway.chat(&limited, body("").as_bytes()).await;
    assert_eq!(answer.header("x-rerouter-attempts"), Some("2"));
    assert_eq!(failing.last().json()["stream_options"], json!({"include_usage": true}));
    assert_eq!(telling_anyway.last().body, body("").replace("auto", "model").as_bytes());
    assert!(answer.text().contains(USAGE), "what it tells of its own is the client's");
    assert!(told(&gateway.capture(&answer.request_id()).await["usage"]));
}

/// A usage next to content is not the extra chunk, and members that are null stay.
#[tokio::test]
async fn chunks_with_content_pass_as_they_are() {
    let last = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\
        \"usage\":{\"prompt_tokens\":300,\"completion_tokens\":200,\"total_tokens\":500}}\n\n";
    let stream = [
        &scripted::content_event("x").replace("\"created\"", "\"usage\":null,\"created\""),
        last,
        "data: [DONE]\n\n",
    ]
    .concat();
    let chunks = vec![
        scripted::stream_head(),
        Step::Chunk(stream.clone().into_bytes()),
        Step::Chunk(Vec::new()),
    ];
    let provider = Provider::always(chunks).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let limited = gateway.limited_key(json!({"tpm": 1_000_000})).await;
    let answer = gateway.chat(&limited, body("").as_bytes()).await;
    assert_eq!(answer.text(), stream);
    assert!(told(&gateway.capture(&answer.request_id()).await["usage"]));
}
