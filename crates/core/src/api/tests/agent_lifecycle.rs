//! AGENT's agents, as plain calls.

use super::identity::{OPEN, of};
use super::*;

pub(super) async fn agent(world: &TestApi, who: &Principal, body: Value) -> Result<Value> {
    let answer = agents::create(&world.app, who, &request("/v1/agents", Some(body))).await?;
    let body = read(&answer);
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.headers()[LOCATION], format!("/v1/agents/{}", text(&body["id"])));
    Ok(body)
}

#[tokio::test]
async fn an_agent_lives_from_creation_to_deletion() {
    let mut world = world().await;
    let tool =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    let whole = json!({
        "name": "code-reviewer", "description": "reviews", "model": "auto",
        "instructions": "Be brief.",
        "defaults": {"temperature": 0.2, "stop": ["END"], "max_tokens": 100}, "tools": [tool],
        "metadata": {"team": "core"},
    });
    let made = agent(&world, &OPEN, whole.clone()).await.unwrap();
    let mut expected = whole.clone();
    expected["object"] = json!("agent");
    expected["id"] = made["id"].clone();
    expected["trusted"] = json!(false);
    expected["created_at"] = json!("2025-11-24T16:00:00.000000Z");
    expected["updated_at"] = expected["created_at"].clone();
    assert_eq!(made, expected);
    assert_eq!(kind(agent(&world, &OPEN, whole).await), (Kind::Conflict, None));

    world.start_again(Some("cloud")).await;
    let cloud = world.bearer(Surface::Agent, "cloud").unwrap();
    let get = async |world: &TestApi, id: &str| {
        agents::get(&world.app, &cloud, &of("/v1/agents", id, None)).await.map(|a| read(&a))
    };
    for id in ["code-reviewer", text(&made["id"])] {
        assert_eq!(
            get(&world, id).await.unwrap(),
            made,
            "an agent made while AGENT was open stays untrusted"
        );
    }
    world.app.clock.advance(Duration::from_millis(2));
    let bare = agent(&world, &cloud, json!({"name": "b", "model": "auto"})).await.unwrap();
    assert_eq!(
        (&bare["trusted"], &bare["instructions"], &bare["tools"]),
        (&json!(true), &Value::Null, &json!([]))
    );
    world.start_again(Some("cloud")).await;
    let list = async |world: &TestApi, query: &str| {
        agents::list(&world.app, &cloud, &request(&format!("/v1/agents{query}"), None)).await
    };
    let first = read(&list(&world, "?limit=1").await.unwrap());
    assert_eq!(
        (&first["data"], &first["has_more"], &first["next"]),
        (&json!([bare]), &json!(true), &bare["id"])
    );
    let rest = read(&list(&world, &format!("?after={}", text(&bare["id"]))).await.unwrap());
    assert_eq!((&rest["data"], &rest["has_more"]), (&json!([made]), &json!(false)));
    assert_eq!(
        kind(list(&world, "?after=b").await),
        (Kind::InvalidRequest, Some("after".to_owned()))
    );

    let gone =
        agents::delete(&world.app, &cloud, &of("/v1/agents", "code-reviewer", None)).await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    world.start_again(Some("cloud")).await;
    for id in ["code-reviewer", text(&made["id"]), "", "nonsense"] {
        assert_eq!(kind(get(&world, id).await).0, Kind::NotFound);
    }
}

#[tokio::test]
async fn what_is_no_agent_is_refused_by_field() {
    let world = world().await;
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (field, at, value) in [
        ("name", "name", json!("Code")),
        ("name", "name", json!("")),
        ("name", "name", json!("a_b")),
        ("name", "name", json!("a".repeat(64))),
        ("model", "model", json!("demo/echo")),
        ("model", "model", Value::Null),
        ("description", "description", json!("d".repeat(1025))),
        ("instructions", "instructions", json!("i".repeat((32 << 10) + 1))),
        ("instructions", "instructions", json!(["x"])),
        ("defaults.model", "defaults", json!({"model": "auto"})),
        ("defaults.stream", "defaults", json!({"stream": true})),
        ("defaults.temperature", "defaults", json!({"temperature": 2.1})),
        ("defaults.top_p", "defaults", json!({"top_p": "1"})),
        ("defaults.max_tokens", "defaults", json!({"max_tokens": 0})),
        ("defaults.stop", "defaults", json!({"stop": ["a", "b", "c", "d", "e"]})),
        ("tools", "tools", json!({})),
        ("tools", "tools", json!([{"type": "web_search"}])),
        ("tools", "tools", json!([function("a"), function("a")])),
        ("tools", "tools", json!((0..129).map(|n| function(&n.to_string())).collect::<Vec<_>>())),
        ("tools", "tools", json!([function(&"x".repeat(64 << 10))])),
        ("metadata", "metadata", json!({"a": 1})),
        ("trusted", "trusted", json!(true)),
    ] {
        let mut body = json!({"name": "a", "model": "auto"});
        body[at] = value;
        let shown = body.to_string().chars().take(100).collect::<String>();
        assert_eq!(
            kind(agent(&world, &OPEN, body).await),
            (Kind::InvalidRequest, Some(field.to_owned())),
            "{shown}"
        );
    }
}
