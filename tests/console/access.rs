//! The console's pages on keys, users, agents, nodes, gateways, the audit and the playground, in a
//! browser with a real gateway. The test also tries their results outside the browser.

use serde_json::{Value, json};

use crate::support::browser::{EMAIL, account, drive};
use crate::support::client::{self, Connection};
use crate::support::documents::provider;
use crate::support::fleet::Member;
use crate::support::gateway::{Gateway, Setup};
use crate::support::postgres::Cluster;
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{free_port, until};

/// A provider whose behaviour depends on the last message.
async fn provider_of_scenes() -> Provider {
    Provider::start(|request, _| {
        let body = request.json();
        let last = body["messages"].as_array().and_then(|all| all.last()).cloned();
        let said = last.map(|last| last["content"].as_str().unwrap_or_default().to_owned());
        let markup = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>";
        match (said.as_deref(), body["stream"] == true) {
            (Some("markup"), _) => scripted::stream(markup),
            (Some("slow"), _) => {
                let first = scripted::content_event("the beginning").into_bytes();
                vec![scripted::stream_head(), Step::Chunk(first), Step::Hang]
            }
            (Some("broken"), _) => scripted::failure(500, "the provider <b>broke</b>"),
            (_, true) => scripted::stream("well"),
            (_, false) => scripted::completion("well"),
        }
    })
    .await
}

fn document(provider_url: &str) -> String {
    format!(
        "providers:\n{}models:\n  a/model: {{ input_per_mtok: 1000.0, output_per_mtok: 1000.0 }}\n\
         recipes: {{ main: {{ rules: [ \
         {{ name: default, targets: [ {{ target: a/model }} ] }} ] }} \
         }}\naliases: {{ auto: main }}\n",
        provider("a", provider_url, "sk-upstream")
    )
}

async fn start() -> (Gateway, Provider, Value) {
    let provider = provider_of_scenes().await;
    let gateway = Gateway::start(&document(&provider.url())).await;
    let given = account(&gateway, EMAIL, "admin").await;
    (gateway, provider, given)
}

async fn play(scene: &str, mut given: Value) -> Value {
    given["scene"] = scene.into();
    drive("access", given).await
}

#[tokio::test]
async fn a_key_is_made_used_rotated_and_revoked_in_a_browser() {
    let (gateway, _provider, given) = start().await;
    for _ in 0..25 {
        gateway.create_key().await;
    }
    play("keys", given).await;
    let log = gateway.log();
    for prefix in ["rtr_", "pin_"] {
        let whole = log
            .split(prefix)
            .skip(1)
            .any(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).count() == 36);
        assert!(!whole, "a secret is in the log:\n{log}");
    }
}

#[tokio::test]
async fn a_user_signs_in_is_shut_out_and_the_audit_has_it() {
    let (gateway, _provider, mut given) = start().await;
    let key = gateway.create_key().await;
    given["key"] = key.id.clone().into();
    play("people", given).await;
    let path = format!("/v1/router/keys/{}", key.id);
    let key = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
    assert_eq!(key["status"], "active");
    let users = gateway.manage("GET", "/v1/users", &gateway.admin_key, None).await.json();
    assert_eq!(users["data"].as_array().unwrap().len(), 2, "{users}");
}

#[tokio::test]
async fn an_agent_is_made_and_tried_where_agent_asks_for_a_key() {
    let provider = provider_of_scenes().await;
    let gateway = Setup::new(&document(&provider.url()))
        .env("AGENT_CLOUD_API_KEY", "an AGENT key; with odd=characters")
        .start()
        .await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    given["agent"] = "an AGENT key; with odd=characters".into();
    play("agents", given).await;
    let sent = provider.last().json();
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!((&sent["temperature"], &sent["seed"]), (&json!(0.5), &json!(7)));
    assert!(!gateway.log().contains("odd=characters"));
}

/// The console lets sessions use AGENT only on listeners that serve it.
#[tokio::test]
async fn the_console_opens_agent_nowhere_else() {
    let (mut gateway, _provider, given) = start().await;
    let other = free_port();
    gateway.add_listener(&format!("127.0.0.1:{other}\n    interfaces: [pin, router]"));
    gateway.restart().await;
    let login = json!({"email": given["email"], "password": given["password"]}).to_string();
    let json = [("content-type", "application/json")];
    let login = gateway.send("POST", "/v1/auth/login", &json, Some(login.as_bytes())).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let form = [("cookie", cookie.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let own = gateway.address().port();
    for (port, seen, made) in [(other, 404, 404), (own, 200, 303)] {
        let host = format!("127.0.0.1:{port}");
        let send = async |ask: Vec<u8>| {
            let mut connection = until("the listener", async || {
                Connection::try_open(([127, 0, 0, 1], port).into()).await
            })
            .await;
            connection.exchange(&ask).await.status
        };
        for path in ["/console/agents", "/console/keys?interface=agent"] {
            let ask = client::request("GET", path, &host, &form[..1], None);
            assert_eq!(send(ask).await, seen, "{port} {path}");
        }
        let body = Some(&b"name=sly&model=auto"[..]);
        let ask = client::request("POST", "/console/agents", &host, &form, body);
        assert_eq!(send(ask).await, made, "{port}");
    }
}

#[tokio::test]
async fn a_node_is_enrolled_started_by_the_page_s_command_and_seen_live() {
    let server = Provider::start(|request, _| match request.target.as_str() {
        "/v1/models" => scripted::json_answer(
            200,
            &json!({"object": "list", "data": [{"id": "qwen3", "object": "model"}]}),
        ),
        "/v1/chat/completions" => scripted::completion("from the rack"),
        _ => scripted::failure(404, "no such page"),
    })
    .await;
    let nodes = "recipes: { own: { rules: [ { name: default, targets: \
                 [ { target: nodes/qwen3 } ] } ] } }\naliases: { own: own }\n";
    let gateway = Gateway::start(&format!("providers: {{}}\n{nodes}")).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    given["upstream"] = format!("http://{}", server.address()).into();
    given["rerouter"] = env!("CARGO_BIN_EXE_rerouter").into();
    given["secret"] = gateway.create_key().await.secret.into();
    play("nodes", given).await;
}

#[tokio::test]
async fn a_dead_gateway_is_seen_and_forgotten_in_a_browser() {
    let cluster = Cluster::shared();
    let (url, lease) = (cluster.database().await, "3s, on_lease_lost: serve_stale");
    let alive = Member::start(cluster, &url, lease, "").await;
    let mut dead = Member::start(cluster, &url, lease, "").await;
    let given = account(&alive.gateway, EMAIL, "admin").await;
    dead.gateway.kill_9();
    play("gateways", given).await;
}

#[tokio::test]
async fn the_playground_shows_the_routing_of_each_message() {
    let (gateway, provider, given) = start().await;
    let told = play("playground", given).await;
    let capture = gateway.capture(told["capture"].as_str().unwrap()).await;
    assert_eq!(capture["decision"]["alias"], "auto", "{capture}");
    let sent = provider.request(0).json();
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Be brief."}));
    // A failed turn is not part of the conversation, but a stopped one is.
    let all = (0..provider.count()).map(|at| provider.request(at).json());
    let mut broken = all.filter(|body| body["messages"].to_string().contains("broken"));
    let said = broken.next_back().unwrap()["messages"].as_array().unwrap().len();
    assert_eq!(said, 6, "system, two turns, and the message");
    provider.abandoned(1).await;
}

#[tokio::test]
async fn names_full_of_markup_are_text() {
    let (gateway, _provider, mut given) = start().await;
    let admin = gateway.admin_key.clone();
    let words = "<img src=x onerror=\"window.hacked=1\"><b>'&amp;</b>\u{202e}";
    let make = async |path: &str, body: Value| {
        let made = gateway.manage("POST", path, &admin, Some(&body)).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let labels = json!({"evil": words});
    let mut pages = Vec::new();
    for (interface, path) in [("router", "/v1/router/keys"), ("pin", "/v1/apikeys")] {
        let id = make(path, json!({"name": words, "labels": labels})).await;
        pages.push(format!("/console/keys?interface={interface}"));
        pages.push(format!("/console/keys/{id}?interface={interface}"));
    }
    let user = json!({"email": "b@example.com", "password": "correct horse", "name": words});
    let user = make("/v1/users", user).await;
    let node = make("/v1/nodes", json!({"name": words})).await;
    let agent = json!({"name": "evil", "model": "auto", "description": words,
        "instructions": words, "metadata": {"a": words}});
    let agent = make("/v1/agents", agent).await;
    for (folder, id) in [("users", user), ("nodes", node), ("agents", agent)] {
        pages.push(format!("/console/{folder}"));
        pages.push(format!("/console/{folder}/{id}"));
    }
    // The audit page shows the filter of its query.
    let target = "%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E";
    let mut given_pages: Vec<Value> =
        pages.iter().map(|path| json!({"path": path, "words": words})).collect();
    given_pages.push(json!({
        "path": format!("/console/audit?target={target}"),
        "words": "<img src=x onerror=\"window.hacked=1\">"
    }));
    given["pages"] = given_pages.into();
    play("hostile", given).await;
}
