//! `response` of a reroute has the shape of the access specification, whatever a provider leaves
//! out or writes in another way.

use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// Asserts that every field of the shape is there with its type.
pub fn check_shape(response: &Value) {
    let fields = response.as_object().unwrap_or_else(|| panic!("no object: {response}"));
    for name in ["id", "object", "model"] {
        assert!(fields.get(name).is_some_and(Value::is_string), "{name} of {response}");
    }
    assert_eq!(response["object"], "chat.completion");
    for choice in response["choices"].as_array().unwrap_or_else(|| panic!("choices of {response}"))
    {
        assert!(choice["index"].is_u64() && choice["finish_reason"].is_string(), "{response}");
        assert!(
            choice["message"]["role"].is_string() && choice["message"]["content"].is_string(),
            "{response}"
        );
    }
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"]
        .map(|name| response["usage"][name].as_u64());
    let [Some(prompt), Some(completion), Some(total)] = counts else {
        panic!("usage of {response}")
    };
    assert!(total >= prompt.max(completion), "{response}");
}

/// A document that sends chat to `open` and messages to `claude`.
fn document(open: &Provider, claude: &Provider) -> String {
    let claude = provider("claude", &claude.url(), "sk-ant-upstream")
        .replace("protocol: openai", "protocol: anthropic");
    format!(
        "providers:\n{}{claude}recipes:\n  main:\n    \
         rules: [ {{ name: messages, when: \"endpoint.startsWith('messages')\", \
         targets: [ {{ target: claude/opus }} ] }}, \
         {{ name: default, targets: [ {{ target: open/gpt }}, \
         {{ target: claude/opus }} ] }} ]\naliases: {{ auto: main }}\n",
        provider("open", &open.url(), "sk-open-upstream"),
    )
}

/// Sends a request to this path, with a plain answer. Returns the id of its capture.
async fn captured(gateway: &Gateway, key: &Key, path: &str) -> String {
    let body =
        r#"{"model":"auto","max_tokens":64,"messages":[{"role":"user","content":"Say a word."}]}"#;
    let answer = post(gateway, key, path, &[], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await;
    answer.request_id()
}

async fn reroute(gateway: &Gateway, key: &Key, id: &str) -> Value {
    let answer = gateway.reroute(id, &key.secret).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

const CHAT: [&str; 14] = [
    "{}",
    r#"{"choices":null,"usage":null,"id":null,"model":null}"#,
    r#"{"choices":{},"usage":[],"id":7,"object":"completion"}"#,
    r#"{"choices":[{}]}"#,
    r#"{"choices":[null,"x",{"index":"1","message":null,"finish_reason":null}]}"#,
    r#"{"choices":[{"message":{"role":"assistant","content":"twelve bytes"}}]}"#,
    concat!(
        r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","type":"function","#,
        r#""function":{"name":"f","arguments":"{}"}}]}}]}"#,
    ),
    concat!(
        r#"{"choices":[{"index":-1,"message":{"role":null,"content":[{"type":"text","text":"a"},"#,
        r#""b",{"type":"x"}]},"finish_reason":7}]}"#,
    ),
    r#"{"choices":[{"message":{"content":{"value":42}},"finish_reason":"stop"}],"usage":{}}"#,
    r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5}}"#,
    concat!(
        r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,"#,
        r#""completion_tokens":2}}"#,
    ),
    concat!(
        r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5.0,"#,
        r#""completion_tokens":2.0,"total_tokens":7.0}}"#,
    ),
    concat!(
        r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":-5,"#,
        r#""completion_tokens":"2","total_tokens":1e300}}"#,
    ),
    concat!(
        r#"{"choices":[{"text":"hi","finish_reason":"length"}],"usage":{"input_tokens":5,"#,
        r#""output_tokens":2}}"#,
    ),
];

const MESSAGES: [&str; 6] = [
    "{}",
    r#"{"id":null,"content":null,"usage":null,"stop_reason":null}"#,
    concat!(
        r#"{"id":"msg_1","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"#,
        r#""stop_reason":null}"#,
    ),
    r#"{"id":"msg_1","content":"plain","usage":{"output_tokens":3}}"#,
    concat!(
        r#"{"id":"msg_1","model":"opus","content":[{"type":"text"},7],"usage":{"input_tokens":4,"#,
        r#""output_tokens":"x"},"stop_reason":"end_turn"}"#,
    ),
    concat!(
        r#"{"id":"msg_1","model":"opus","content":[{"type":"text","text":"hi"}],"#,
        r#""usage":{"input_tokens":4,"output_tokens":1},"stop_reason":"end_turn"}"#,
    ),
];

/// A provider that answers the captured request with `first`, and then each reroute with the next
/// body of `then`.
async fn odd(first: &'static str, then: &'static [&'static str]) -> Provider {
    let answer = |body: &str| {
        scripted::answer(200, &[("content-type", "application/json")], body.as_bytes())
    };
    Provider::start(move |_: &Received, number| {
        answer(number.checked_sub(1).map_or(first, |at| then[at]))
    })
    .await
}

#[tokio::test]
async fn a_reroute_has_its_shape_whatever_the_provider_left_out() {
    let open = odd(r#"{"choices":[]}"#, &CHAT).await;
    let claude = odd(MESSAGES[5], &MESSAGES).await;
    let gateway = Gateway::start(&document(&open, &claude)).await;
    let key = gateway.create_key().await;
    let mut said = Vec::new();
    for (path, answers) in [("/v1/chat/completions", CHAT.len()), ("/v1/messages", MESSAGES.len())]
    {
        let id = captured(&gateway, &key, path).await;
        for _ in 0..answers {
            let rerouted = reroute(&gateway, &key, &id).await;
            check_shape(&rerouted["response"]);
            if rerouted["response"]["id"] == rerouted["new_id"] {
                said.push(json!("ours"));
            }
            said.push(rerouted["response"].clone());
        }
    }
    let ours = said.iter().filter(|said| **said == "ours").count();
    assert_eq!(ours, CHAT.len() + 2, "an id of ours where the provider gave none");
    said.retain(Value::is_object);
    let choice = |at: usize| &said[at]["choices"][0];
    assert_eq!(
        (&choice(5)["message"]["content"], &said[5]["model"]),
        (&json!("twelve bytes"), &json!("gpt"))
    );
    assert_eq!(
        (&said[5]["usage"]["completion_tokens"], &said[5]["usage"]["estimated"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(
        (&choice(6)["message"]["content"], &choice(6)["finish_reason"]),
        (&json!(""), &json!("tool_calls"))
    );
    assert_eq!(choice(6)["message"]["tool_calls"][0]["function"]["name"], "f");
    assert_eq!(
        (&choice(7)["message"]["content"], &choice(7)["finish_reason"]),
        (&json!("ab"), &json!("stop"))
    );
    assert_eq!(choice(8)["message"]["content"], "{\"value\":42}");
    assert_eq!(
        (&said[9]["usage"]["prompt_tokens"], &said[9]["usage"]["estimated"]),
        (&json!(5), &json!(true))
    );
    for at in [10, 11, 13] {
        let usage = &said[at]["usage"];
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]),
            (&json!(5), &json!(2), &json!(7))
        );
        assert_eq!(usage.get("estimated"), None, "it was told: {usage}");
    }
    assert_eq!(
        (&choice(13)["message"]["content"], &choice(13)["finish_reason"]),
        (&json!("hi"), &json!("length"))
    );
    let messages = &said[CHAT.len()..];
    assert_eq!(messages[2]["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        (
            &messages[3]["choices"][0]["message"]["content"],
            &messages[3]["usage"]["completion_tokens"]
        ),
        (&json!("plain"), &json!(3))
    );
    assert_eq!(
        (&messages[5]["usage"]["total_tokens"], messages[5]["usage"].get("estimated")),
        (&json!(5), None)
    );
}

/// Some providers stream even if the request does not ask for it.
#[tokio::test]
async fn a_reroute_that_was_answered_by_a_stream_has_its_shape_too() {
    let chunks = |texts: &[&str]| -> Vec<Step> {
        let texts = texts.iter().map(|text| Step::Chunk(format!("data: {text}\n\n").into_bytes()));
        std::iter::once(scripted::stream_head())
            .chain(texts)
            .chain([Step::Chunk(Vec::new())])
            .collect()
    };
    let streams = [
        chunks(&[
            r#"{"choices":[{"delta":{"content":"twelve bytes"}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ]),
        chunks(&[
            concat!(
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"#,
                r#""function":{"name":"f","arguments":"{}"}}]}}]}"#,
            ),
            "[DONE]",
        ]),
        chunks(&["[DONE]"]),
    ];
    let open = Provider::start(move |_, number| match number.checked_sub(1) {
        None => scripted::completion("well"),
        Some(at) => streams[at].clone(),
    })
    .await;
    let events = [
        r#"{"type":"message_start","message":{"type":"message","role":"assistant","content":[]}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        concat!(
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","#,
            r#""text":"twelve bytes"}}"#,
        ),
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let message = chunks(&events);
    let claude = Provider::start(move |_, number| match number {
        0 => scripted::answer(200, &[("content-type", "application/json")], MESSAGES[5].as_bytes()),
        _ => message.clone(),
    })
    .await;
    let gateway = Gateway::start(&document(&open, &claude)).await;
    let key = gateway.create_key().await;
    let mut said = Vec::new();
    for (path, times) in [("/v1/chat/completions", 3), ("/v1/messages", 1)] {
        let id = captured(&gateway, &key, path).await;
        for _ in 0..times {
            let rerouted = reroute(&gateway, &key, &id).await;
            check_shape(&rerouted["response"]);
            assert_eq!(
                (&rerouted["response"]["id"], &rerouted["response"]["usage"]["estimated"]),
                (&rerouted["new_id"], &json!(true))
            );
            let replay = gateway.capture(rerouted["new_id"].as_str().unwrap()).await;
            for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
                assert_eq!(
                    rerouted["response"]["usage"][count], replay["usage"][count],
                    "as its capture has it: {rerouted}"
                );
            }
            said.push(rerouted["response"]["choices"][0].clone());
        }
    }
    let content = |at: usize| (&said[at]["message"]["content"], &said[at]["finish_reason"]);
    assert_eq!(content(0), (&json!("twelve bytes"), &json!("stop")));
    assert_eq!(content(1), (&json!(""), &json!("tool_calls")));
    assert_eq!(content(3), (&json!("twelve bytes"), &json!("stop")));
}

/// The provider's last status is shown, even if its answer is not for the client.
#[tokio::test]
async fn a_reroute_that_was_refused_says_with_which_status() {
    for status in [401, 403] {
        let provider = Provider::start(move |_, number| match number {
            0 => scripted::completion("well"),
            _ => scripted::failure(status, "not with this key"),
        })
        .await;
        let gateway =
            Gateway::start(&crate::support::documents::in_order(&[("a", &provider.url())], ""))
                .await;
        let key = gateway.create_key().await;
        let id = captured(&gateway, &key, "/v1/chat/completions").await;
        let answer = gateway.reroute(&id, &key.secret).await;
        let told = answer.json();
        assert_eq!((answer.status, &told["error"]), (502, &json!("provider_failed")), "{told}");
        assert_eq!(
            (&told["upstream_status"], &told["response"]),
            (&json!(status), &Value::Null),
            "{told}"
        );
    }
}
