//! Agents as models: what providers get of them in each dialect, who may call which, what is
//! captured, and what a replay makes of it.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, provider};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::until;

pub const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
pub const CHAT: &str = "/v1/chat/completions";
const COUNT: &str = "/v1/messages/count_tokens";

/// `oa` and `an` are one place that speaks each endpoint as it is asked.
pub fn speak(request: &Received) -> Vec<Step> {
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    match request.target.as_str() {
        "/v1/messages" => scripted::json_answer(
            200,
            &json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "well"}], "stop_reason": "end_turn",
                "stop_sequence": null, "usage": usage
            }),
        ),
        COUNT => scripted::json_answer(200, &json!({"input_tokens": 3})),
        "/v1/responses" => scripted::json_answer(
            200,
            &json!({
                "id": "resp_1", "object": "response", "status": "completed", "output": [],
                "usage": usage
            }),
        ),
        _ if request.json()["stream"] == true => scripted::stream("well"),
        _ => scripted::completion("well"),
    }
}

pub fn document(url: &str) -> String {
    let an = provider("an", url, "k2").replace("protocol: openai", "protocol: anthropic");
    format!(
        "providers:\n{}{an}keywords: {{ code: [refactor] }}\nrecipes:\n  main:\n    rules:\n      \
         - {{ name: long, when: \"agent == 'talker' && prompt_tokens > 4000\", \
         targets: [ {{ target: oa/long }} ] }}\n      \
         - {{ name: code, when: \"'code' in keywords && language != 'xx'\", \
         targets: [ {{ target: oa/code }} ] }}\n      \
         - {{ name: messages, when: \"endpoint.startsWith('messages')\", \
         targets: [ {{ target: an/m }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: oa/m }}, {{ target: an/m }} ] }}\n\
         aliases: {{ auto: main, other: main }}\n",
        provider("oa", url, "k1")
    )
}

pub struct Scene {
    pub gateway: Gateway,
    pub key: Key,
    pub provider: Provider,
}

async fn scene(setup: impl FnOnce(Setup) -> Setup) -> Scene {
    let provider = Provider::start(|request, _| speak(request)).await;
    let gateway = setup(Setup::new(&document(&provider.url()))).start().await;
    let key = gateway.create_key().await;
    Scene { gateway, key, provider }
}

/// One who says a lot, and one who has a tool and a temperature.
pub fn reviewer() -> Value {
    json!({
        "name": "reviewer", "model": "auto", "instructions": "Be \"brief\".",
        "defaults": {"temperature": 0.25, "max_tokens": 50},
        "tools": [{
            "type": "function", "function": {"name": "look", "parameters": {"type": "object"}}
        }],
    })
}

impl Scene {
    /// A call of AGENT without a credential.
    pub async fn agents(&self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.gateway
            .send(method, &format!("/v1/agents{path}"), &headers, Some(body.to_string().as_bytes()))
            .await
    }

    pub async fn make(&self, agent: &Value) -> Value {
        let made = self.agents("POST", "", agent).await;
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()
    }

    pub async fn post_as(&self, key: &Key, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {}", key.secret);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.gateway.send("POST", path, &headers, Some(body.as_bytes())).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.post_as(&self.key, path, body).await
    }

    /// What the provider got last.
    pub fn got(&self) -> String {
        String::from_utf8(self.provider.last().body.clone()).unwrap()
    }

    pub async fn reroute(&self, id: &str, query: &str) -> Answer {
        self.gateway
            .manage(
                "POST",
                &format!("/v1/router/replay/{id}/reroute{query}"),
                &self.key.secret,
                None,
            )
            .await
    }

    pub async fn ids(&self, key: &Key) -> Vec<String> {
        let list = self.gateway.manage("GET", "/v1/models", &key.secret, None).await.json();
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test]
async fn each_dialect_has_the_client_s_bytes_and_the_agent_s() {
    let scene = scene(|setup| setup).await;
    scene.make(&reviewer()).await;
    let text = r#"Be \"brief\"."#;
    let chat_tool =
        r#"{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}"#;
    let tool = r#"{"name":"look","input_schema":{"type":"object"}}"#;
    let flat = r#"{"type":"function","name":"look","parameters":{"type":"object"},"strict":false}"#;
    // The client's words, with a place for the model and one for each of the agent's; blanks,
    // escapes, repetitions and depths are theirs.
    for (path, pattern, model, first, second, members) in [
        (
            CHAT,
            " {\"x\" : 1.0e2,\"x\":[ ] , \"model\": <M>,\n\
             \"messages\":[<1> {\"role\":\"user\",\"content\":\"\\u00fc \\\"messages\\\":[] ü 😀\"}\
             ] }\n",
            "m",
            format!(r#"{{"role":"system","content":"{text}"}},"#),
            String::new(),
            format!(r#","tools":[{chat_tool}],"temperature":0.25,"max_tokens":50"#),
        ),
        (
            CHAT,
            concat!(
                r#"{"tools":[<2> ],"messages":[<1>],"temperature":1,"model":<M>,"#,
                r#""max_completion_tokens":7}"#,
            ),
            "m",
            format!(r#"{{"role":"system","content":"{text}"}}"#),
            chat_tool.to_owned(),
            String::new(),
        ),
        (
            "/v1/messages",
            concat!(
                r#"{"model":<M>,"max_tokens":5,"system":"<1>\u0041","tools":[<2>{"name":"other","#,
                r#""input_schema":{}}],"messages":[]}"#,
            ),
            "m",
            format!(r"{text}\n\n"),
            format!("{tool},"),
            r#","temperature":0.25"#.to_owned(),
        ),
        (
            COUNT,
            r#"{"system":[<1>{"type":"text","text":"a"}],"model":<M>,"messages":[]}"#,
            "m",
            format!(r#"{{"type":"text","text":"{text}"}},"#),
            String::new(),
            format!(r#","tools":[{tool}]"#),
        ),
        (
            "/v1/responses",
            r#"{"input":"instructions","model":<M>,"tools":[<2>]}"#,
            "m",
            String::new(),
            flat.to_owned(),
            format!(r#","instructions":"{text}","temperature":0.25,"max_output_tokens":50"#),
        ),
    ] {
        let fill = |asked: &str, first: &str, second: &str| {
            pattern.replace("<M>", asked).replace("<1>", first).replace("<2>", second)
        };
        let direct = scene.post(path, &fill("\"auto\"", "", "")).await;
        assert_eq!(direct.status, 200, "{}", direct.text());
        assert_eq!(scene.got(), fill(&format!("\"{model}\""), "", ""));
        let through = scene.post(path, &fill("\"agent/reviewer\"", "", "")).await;
        assert_eq!(through.status, 200, "{}", through.text());
        assert_eq!(scene.got(), fill(&format!("\"{model}\"{members}"), &first, &second), "{path}");
    }
    // Streams and the names of models in other letters are as they are without.
    let stream = scene.post(CHAT, &chat_body("agent\\u002freviewer", true)).await;
    assert!(
        stream.status == 200 && stream.text().ends_with("data: [DONE]\n\n"),
        "{}",
        stream.text()
    );
    assert!(
        scene.got().contains(r#"[{"role":"system","#) && scene.got().ends_with(r#""stream":true}"#),
        "{}",
        scene.got()
    );
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_before_anybody_is_asked() {
    let scene = scene(|setup| setup.server("limits: { request_body: 4KiB }")).await;
    scene.make(&reviewer()).await;
    scene
        .make(&json!({"name": "talker", "model": "auto", "instructions": "word ".repeat(1000)}))
        .await;
    scene.make(&json!({"name": "lost", "model": "other"})).await;
    let same = concat!(
        r#"{"model":"agent/reviewer","messages":[],"tools":[{"type":"function","#,
        r#""function":{"name":"look"}}]}"#,
    );
    let refused = scene.post(CHAT, same).await;
    envelope::openai(&refused, 400, "invalid_request_error", None);
    assert!(
        refused.json()["error"]["param"] == "tools" && refused.text().contains("`look`"),
        "{}",
        refused.text()
    );
    let refused = scene
        .post(
            "/v1/messages",
            r#"{"model":"agent/reviewer","messages":[],"tools":[{"name":"look"}]}"#,
        )
        .await;
    assert!(refused.status == 400 && refused.text().contains("`look`"), "{}", refused.text());
    let refused = scene.post("/v1/embeddings", r#"{"model":"agent/reviewer","input":"x"}"#).await;
    envelope::openai(&refused, 400, "invalid_request_error", Some("unsupported_feature"));
    envelope::openai(
        &scene.post(CHAT, &chat_body("agent/talker", false)).await,
        413,
        "invalid_request_error",
        Some("payload_too_large"),
    );
    for unknown in
        ["agent/none", "agent/", "agent", "agent/reviewer/x", "Agent/reviewer", "agent/REVIEWER"]
    {
        let refused = scene.post(CHAT, &chat_body(unknown, false)).await;
        envelope::openai(&refused, 404, "invalid_request_error", Some("model_not_found"));
        envelope::management(
            &scene
                .gateway
                .manage(
                    "POST",
                    "/v1/router/decide",
                    &scene.key.secret,
                    Some(&json!({"model": unknown, "messages": []})),
                )
                .await,
            404,
            "not_found",
        );
    }
    let id = scene.post(CHAT, same).await.request_id();
    let captured = scene.gateway.capture(&id).await;
    assert_eq!(
        (&captured["state"], &captured["request"]["body"], &captured["decision"]),
        (&json!("refused"), &json!(same), &Value::Null)
    );
    // An agent outlives its alias, and is nobody's model meanwhile.
    let text = document(&scene.provider.url());
    scene.gateway.write_routing(&text.replace(", other: main", "")).await;
    envelope::openai(
        &scene.post(CHAT, &chat_body("agent/lost", false)).await,
        404,
        "invalid_request_error",
        Some("model_not_found"),
    );
    assert_eq!(scene.ids(&scene.key).await[..3], ["auto", "agent/reviewer", "agent/talker"]);
    assert_eq!(
        scene.agents("PATCH", "/lost", &json!({"description": "still there"})).await.status,
        200
    );
    assert_eq!(scene.provider.count(), 0);
}

#[tokio::test]
async fn an_agent_s_part_counts_for_the_decision_and_a_key_s_limits_name_agents() {
    let scene = scene(|setup| setup).await;
    scene
        .make(&json!({"name": "talker", "model": "auto", "instructions": "word ".repeat(5000)}))
        .await;
    scene.make(&reviewer()).await;
    let decide = async |model: &str, endpoint: &str| {
        let path = format!("/v1/router/decide?endpoint={endpoint}");
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let decided =
            scene.gateway.answers(200, "POST", &path, &scene.key.secret, Some(&body)).await;
        decided.json()
    };
    let decided = decide("agent/talker", "chat.completions").await;
    assert_eq!((&decided["rule"], &decided["alias"]), (&json!("long"), &json!("auto")));
    assert_eq!(decide("auto", "chat.completions").await["rule"], "default");
    let answer = scene.post(CHAT, &chat_body("agent/talker", false)).await;
    assert_eq!(answer.header("x-rerouter-model"), Some("long"));
    let inputs = scene.gateway.capture(&answer.request_id()).await["inputs"]["request"].clone();
    assert!(
        inputs["prompt_tokens"].as_u64().unwrap() > 4000 && inputs["messages"] == 2,
        "{inputs}"
    );
    let inputs = scene
        .gateway
        .capture(&scene.post(CHAT, &chat_body("agent/reviewer", false)).await.request_id())
        .await["inputs"]["request"]
        .clone();
    assert_eq!(
        (&inputs["tools"], &inputs["max_tokens"], &inputs["needs"]),
        (&json!(1), &json!(50), &json!(["tools"]))
    );

    let key = scene.gateway.limited_key(json!({"models": ["agent/rev*", "other"]})).await;
    for (model, status) in
        [("agent/reviewer", 200), ("agent/talker", 404), ("auto", 404), ("other", 200)]
    {
        assert_eq!(
            scene.post_as(&key, CHAT, &chat_body(model, false)).await.status,
            status,
            "{model}"
        );
    }
    assert_eq!(scene.ids(&key).await, ["other", "agent/reviewer"]);
    assert_eq!(
        scene.ids(&scene.key).await[..4],
        ["auto", "other", "agent/reviewer", "agent/talker"]
    );
    let one = scene.gateway.manage("GET", "/v1/models/agent/reviewer", &key.secret, None).await;
    assert_eq!((one.status, &one.json()["owned_by"]), (200, &json!("rerouter")), "{}", one.text());
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("anthropic-version", "2023-06-01")];
    let one = scene.gateway.send("GET", "/v1/models/agent%2Freviewer", &headers, None).await;
    assert_eq!(
        (one.status, &one.json()["display_name"]),
        (200, &json!("agent/reviewer")),
        "{}",
        one.text()
    );
    envelope::openai(
        &scene.gateway.manage("GET", "/v1/models/agent/talker", &key.secret, None).await,
        404,
        "invalid_request_error",
        Some("model_not_found"),
    );
    // Labels are of the configuration only, and what was used is of whom it was used at.
    assert!(!scene.gateway.metrics().await.contains("reviewer"));
    let usage = until("usage", async || {
        let usage = scene
            .gateway
            .manage("GET", "/v1/router/usage?group_by=model", &scene.key.secret, None)
            .await
            .json();
        (usage["data"].as_array().unwrap().len() >= 2).then_some(usage)
    })
    .await;
    assert!(!usage.to_string().contains("agent"), "{usage}");
}

#[tokio::test]
async fn untrusted_agents_are_called_where_the_document_says_so() {
    let scene = scene(|setup| setup.public().server("agent: { call_untrusted: true }")).await;
    assert_eq!(scene.make(&reviewer()).await["trusted"], false);
    assert_eq!(scene.post(CHAT, &chat_body("agent/reviewer", false)).await.status, 200);
    assert!(scene.ids(&scene.key).await.contains(&"agent/reviewer".to_owned()));
}

#[tokio::test]
async fn a_capture_is_the_client_s_and_a_reroute_goes_through_the_same_agent() {
    let scene = scene(|setup| setup).await;
    let made = scene.make(&reviewer()).await;
    let tag = scene
        .gateway
        .send("GET", "/v1/agents/reviewer", &[], None)
        .await
        .header("etag")
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let body = chat_body("agent/reviewer", true);
    let id = scene.post(CHAT, &body).await.request_id();
    let sent = scene.got();
    let captured = scene.gateway.capture(&id).await;
    assert_eq!(
        (&captured["request"]["body"], &captured["agent"], &captured["model"]),
        (&json!(body), &made["id"], &json!("agent/reviewer"))
    );
    let request = &captured["inputs"]["request"];
    assert_eq!(request["agent"], json!({"id": made["id"], "name": "reviewer", "etag": tag}));
    assert_eq!((&request["model"], &request["name"]), (&json!("agent/reviewer"), &json!("auto")));

    let rerouted = scene.reroute(&id, "").await;
    assert_eq!(rerouted.status, 200, "{}", rerouted.text());
    assert_eq!(
        scene.got(),
        sent.replace(r#","stream":true"#, ""),
        "the agent's part is there again, once"
    );
    let new_id = rerouted.json()["new_id"].as_str().unwrap().to_owned();
    let replay = scene.gateway.capture(&new_id).await;
    assert_eq!((&replay["agent"], &replay["inputs"]["request"]), (&made["id"], request));
    assert_eq!(replay["request"]["body"], body.replace(r#","stream":true"#, ""));
    assert_eq!(scene.reroute(&new_id, "").await.status, 200);
    assert_eq!(scene.got(), sent.replace(r#","stream":true"#, ""));

    // Rules see the instructions of the agent again.
    let ruled = document(&scene.provider.url()).replace(
        "- { name: messages,",
        "- { name: brief, when: \"system_prompt.matches('(?i)brief')\", \
         targets: [ { target: oa/code } ] }\n      - { name: messages,",
    );
    let before = document(&scene.provider.url());
    scene.gateway.write_routing(&ruled).await;
    let dry = scene.reroute(&id, "?dry_run=true").await;
    assert_eq!(dry.json()["decision"]["rule"], "brief", "{}", dry.text());
    scene.gateway.write_routing(&before).await;

    // Restarted, the agent is what it was; changed or gone it is another.
    let asked = scene.provider.count();
    let gone = async |scene: &Scene| {
        let refused = scene.reroute(&id, "").await;
        envelope::management(&refused, 409, "agent_gone");
        let dry = scene.reroute(&id, "?dry_run=true").await;
        assert_eq!(
            (dry.status, &dry.json()["decision"]["model"]),
            (200, &json!("m")),
            "{}",
            dry.text()
        );
        assert_eq!(scene.provider.count(), asked);
    };
    assert_eq!(
        scene.agents("PATCH", "/reviewer", &json!({"instructions": "Be long."})).await.status,
        200
    );
    gone(&scene).await;
    assert_eq!(
        scene
            .agents("PATCH", "/reviewer", &json!({"instructions": reviewer()["instructions"]}))
            .await
            .status,
        200
    );
    gone(&scene).await;
    assert_eq!(scene.agents("DELETE", "/reviewer", &json!({})).await.status, 204);
    gone(&scene).await;
    scene.make(&reviewer()).await;
    gone(&scene).await;
    // A key whose limits do not name the agent may not run it again either.
    let limited =
        json!({"limits": {"models": ["auto"]}, "scopes": ["admin", "replay", "inference"]});
    let made = scene
        .gateway
        .manage("POST", "/v1/router/keys", &scene.gateway.admin_key, Some(&limited))
        .await
        .json();
    let path = format!("/v1/router/replay/{id}/reroute?dry_run=true");
    envelope::management(
        &scene.gateway.manage("POST", &path, made["key"].as_str().unwrap(), None).await,
        403,
        "forbidden",
    );
}

#[tokio::test]
async fn traffic_through_agents_is_evaluated_as_it_was_decided() {
    let scene = scene(|setup| setup.env("ANY_API_KEY", "k")).await;
    scene
        .make(&json!({"name": "talker", "model": "auto", "instructions": "refactor ".repeat(3000)}))
        .await;
    scene.make(&reviewer()).await;
    for (model, words) in [
        ("talker", "Please refactor this."),
        ("talker", "Hello."),
        ("reviewer", "Please refactor this."),
        ("reviewer", "Hello."),
    ] {
        let messages = json!([{"role": "user", "content": words}]);
        assert_eq!(
            scene
                .post(
                    CHAT,
                    &json!({"model": format!("agent/{model}"), "messages": messages}).to_string()
                )
                .await
                .status,
            200
        );
        let system =
            json!({"model": format!("agent/{model}"), "max_tokens": 9, "messages": messages})
                .to_string();
        assert!([200, 400].contains(&scene.post("/v1/messages", &system).await.status));
    }
    let evaluate = async |document: Option<String>| {
        let body = document.map_or_else(|| json!({}), |document| json!({ "document": document }));
        let told = scene
            .gateway
            .answers(
                200,
                "POST",
                "/v1/router/replay/evaluate",
                &scene.gateway.admin_key,
                Some(&body),
            )
            .await;
        told.json()
    };
    let same = until("the captures", async || {
        Some(evaluate(None).await).filter(|told| told["evaluated"].as_u64() >= Some(5))
    })
    .await;
    assert_eq!(
        (&same["changed"], &same["inexact"], &same["rule_changed"]),
        (&json!(0), &json!(0), &json!(0)),
        "{same}"
    );
    // Another set of words is looked for in what the client said last, not in what the agent says.
    let given = document(&scene.provider.url())
        .replace("\"k1\"", "\"${ANY_API_KEY}\"")
        .replace("\"k2\"", "\"${ANY_API_KEY}\"");
    let other = given
        .replace("code: [refactor]", "code: [hello]")
        .replace("agent == 'talker' && ", "false && ");
    let told = evaluate(Some(other)).await;
    assert_eq!(told["inexact"], 0, "{told}");
    let by_change = told["by_change"].to_string();
    assert!(by_change.contains("oa/code") && by_change.contains("oa/m"), "{told}");
    // The agents that are gone are no reason to know less.
    assert_eq!(scene.agents("DELETE", "/talker", &json!({})).await.status, 204);
    assert_eq!(evaluate(None).await, same);
}

#[tokio::test]
async fn a_shadow_has_the_agent_s_part_and_its_capture_the_client_s() {
    let provider = Provider::start(|request, _| speak(request)).await;
    let text = document(&provider.url());
    let text =
        text.replace("  main:\n", "  main:\n    shadow: { target: oa/copy, percent: 100 }\n");
    let gateway = Gateway::start(&text).await;
    let key = gateway.create_key().await;
    let scene = Scene { gateway, key, provider };
    let made = scene.make(&reviewer()).await;
    let body = chat_body("agent/reviewer", true);
    let id = scene.post(CHAT, &body).await.request_id();
    let path = format!("/v1/router/replay?shadow_of={id}");
    let shadow = until("the shadow", async || {
        scene.gateway.manage("GET", &path, &scene.key.secret, None).await.json()["data"]
            .as_array()
            .unwrap()
            .first()
            .cloned()
    })
    .await;
    let shadow = scene.gateway.capture(shadow["id"].as_str().unwrap()).await;
    let bodies: Vec<String> = (0..scene.provider.count())
        .map(|n| String::from_utf8(scene.provider.request(n).body.clone()).unwrap())
        .collect();
    let [copy, live] = ["\"copy\"", "\"m\""]
        .map(|model| bodies.iter().find(|body| body.contains(model)).expect("both were sent"));
    assert_eq!(*copy, live.replace("\"m\"", "\"copy\"").replace(r#","stream":true"#, ""));
    assert!(copy.contains(r#"Be \"brief\"."#), "{copy}");
    assert_eq!(
        (&shadow["request"]["body"], &shadow["agent"]),
        (&json!(body.replace(r#","stream":true"#, "")), &made["id"])
    );
    let rerouted = scene.reroute(shadow["id"].as_str().unwrap(), "").await;
    assert_eq!(rerouted.status, 200, "{}", rerouted.text());
    assert_eq!(scene.got().matches("brief").count(), 1);
}
