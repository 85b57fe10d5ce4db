//! Agents that are changed and read with entity tags, as plain calls.

use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};

use super::agent_lifecycle::agent;
use super::identity::of;
use super::*;
use rerouter_dialect::wire::json::JSON_WORD_BYTES;

/// A caller with an AGENT credential.
const SHOWN: Principal =
    Principal::AgentTenant { via: rerouter_access::auth::AgentCredential::CloudKey };

fn tag(answer: &Response<Bytes>) -> HeaderValue {
    answer.headers()[ETAG].clone()
}

impl TestApi {
    async fn change(
        &self,
        who: &Principal,
        id: &str,
        body: Value,
        if_match: Option<&HeaderValue>,
    ) -> Result<Response<Bytes>> {
        let mut request = of("/v1/agents", id, Some(body));
        request.headers_mut().extend(if_match.map(|tag| (IF_MATCH, tag.clone())));
        agents::patch(&self.app, who, &request).await
    }

    async fn read_agent(
        &self,
        id: &str,
        if_none_match: Option<&HeaderValue>,
    ) -> Result<Response<Bytes>> {
        let mut request = of("/v1/agents", id, None);
        request.headers_mut().extend(if_none_match.map(|tag| (IF_NONE_MATCH, tag.clone())));
        agents::get(&self.app, &SHOWN, &request).await
    }
}

#[tokio::test]
async fn a_merge_patch_changes_what_it_names() {
    let world = world().await;
    let look = json!({"type": "function", "function": {"name": "look"}});
    let whole = json!({
        "name": "a", "description": "d", "model": "auto", "instructions": "i",
        "defaults": {"temperature": 0.2, "seed": 1}, "tools": [look],
        "metadata": {"x": "1", "y": "2"},
    });
    let made = agent(&world, &SHOWN, whole).await.unwrap();
    let id = text(&made["id"]).to_owned();
    world.app.clock.advance(Duration::from_secs(1));
    for (patch, field, value) in [
        (json!({"description": "e"}), "description", json!("e")),
        (json!({"description": null}), "description", Value::Null),
        (json!({"instructions": null}), "instructions", Value::Null),
        (
            json!({"defaults": {"seed": null, "top_p": 0.5}}),
            "defaults",
            json!({"temperature": 0.2, "top_p": 0.5}),
        ),
        (json!({"defaults": null}), "defaults", json!({})),
        (json!({"defaults": {"seed": 7, "top_p": null}}), "defaults", json!({"seed": 7})),
        (json!({"tools": []}), "tools", json!([])),
        (json!({"tools": [look]}), "tools", json!([look])),
        (json!({"tools": null}), "tools", json!([])),
        (json!({"metadata": {"x": null, "z": "3"}}), "metadata", json!({"y": "2", "z": "3"})),
        (json!({"name": "b"}), "name", json!("b")),
    ] {
        let before = read(&world.read_agent(&id, None).await.unwrap());
        let answer = world.change(&SHOWN, &id, patch.clone(), None).await.unwrap();
        let after = read(&answer);
        let mut expected = before.clone();
        expected[field] = value;
        expected["updated_at"] = json!("2025-11-24T16:00:01.000000Z");
        assert_eq!(after, expected, "{patch}");
        let got = world.read_agent(&id, None).await.unwrap();
        assert_eq!((read(&got), tag(&got)), (after, tag(&answer)));
    }
    // A patch without changes writes nothing.
    let before = world.read_agent("b", None).await.unwrap();
    world.app.clock.advance(Duration::from_secs(1));
    for nothing in
        [json!({}), json!({"name": "b", "description": null, "metadata": {"none": null}})]
    {
        let answer = world.change(&SHOWN, "b", nothing, None).await.unwrap();
        assert_eq!((read(&answer), tag(&answer)), (read(&before), tag(&before)));
    }
    assert_eq!(
        kind(world.read_agent("a", None).await).0,
        Kind::NotFound,
        "its former name is nobody's"
    );
}

#[tokio::test]
async fn a_patch_that_leaves_no_agent_is_refused_and_changes_nothing() {
    let world = world().await;
    let made = agent(&world, &SHOWN, json!({"name": "a", "model": "auto"})).await.unwrap();
    agent(&world, &SHOWN, json!({"name": "b", "model": "auto"})).await.unwrap();
    for (field, patch) in [
        ("name", json!({"name": null})),
        ("name", json!({"name": "A"})),
        ("model", json!({"model": null})),
        ("model", json!({"model": "none"})),
        ("model", json!({"model": "demo/echo"})),
        ("defaults.stream", json!({"defaults": {"stream": true}})),
        ("defaults", json!({"defaults": 3})),
        ("tools", json!({"tools": [{}]})),
        ("metadata", json!({"metadata": {"a": {"b": null}}})),
        ("trusted", json!({"trusted": true})),
        ("id", json!({"id": "agent_1"})),
    ] {
        assert_eq!(
            kind(world.change(&SHOWN, "a", patch.clone(), None).await),
            (Kind::InvalidRequest, Some(field.to_owned())),
            "{patch}"
        );
    }
    assert_eq!(
        kind(world.change(&SHOWN, "a", json!({"name": "b"}), None).await),
        (Kind::Conflict, None)
    );
    assert_eq!(kind(world.change(&SHOWN, "c", json!({"name": "d"}), None).await).0, Kind::NotFound);
    assert_eq!(
        kind(world.change(&SHOWN, "c", json!({"colour": "red"}), None).await).0,
        Kind::InvalidRequest
    );
    let long = json!({
        "type": "function", "function": {
            "name": "x", "parameters": {("p".repeat(JSON_WORD_BYTES)): 1}
        }
    });
    let refused = world.change(&SHOWN, "a", json!({"tools": [long]}), None).await;
    assert_eq!(
        kind(refused),
        (Kind::InvalidRequest, Some("tools".to_owned())),
        "no request could hold it"
    );
    assert_eq!(read(&world.read_agent("a", None).await.unwrap()), made);
    world.faults.fail_every_write();
    assert_eq!(
        kind(world.change(&SHOWN, "a", json!({"description": "x"}), None).await).0,
        Kind::Unavailable
    );
    world.faults.clear();
    assert_eq!(read(&world.read_agent("a", None).await.unwrap()), made);
}

#[tokio::test]
async fn changes_and_reads_go_by_entity_tags() {
    let mut world = world().await;
    let created = agents::create(
        &world.app,
        &SHOWN,
        &request("/v1/agents", Some(json!({"name": "a", "model": "auto"}))),
    )
    .await
    .unwrap();
    let first = tag(&created);
    let got = world.read_agent("a", None).await.unwrap();
    assert_eq!((got.status(), tag(&got)), (StatusCode::OK, first.clone()));
    let spared = world.read_agent("a", Some(&first)).await.unwrap();
    assert_eq!(
        (spared.status(), tag(&spared), spared.body().len()),
        (StatusCode::NOT_MODIFIED, first.clone(), 0)
    );
    assert!(!spared.headers().contains_key(CONTENT_TYPE));

    let changed =
        world.change(&SHOWN, "a", json!({"description": "x"}), Some(&first)).await.unwrap();
    let second = tag(&changed);
    assert_ne!(first, second);
    assert_eq!(world.read_agent("a", Some(&first)).await.unwrap().status(), StatusCode::OK);
    let stale = world.change(&SHOWN, "a", json!({"description": "y"}), Some(&first)).await;
    assert_eq!(kind(stale).0, Kind::PreconditionFailed);
    // The stale tag is refused even if the patch changes nothing.
    assert_eq!(
        kind(world.change(&SHOWN, "a", json!({}), Some(&first)).await).0,
        Kind::PreconditionFailed
    );
    let any = HeaderValue::from_static("*");
    world.change(&SHOWN, "a", json!({"metadata": {"n": "1"}}), Some(&any)).await.unwrap();
    assert_eq!(kind(world.change(&SHOWN, "none", json!({}), Some(&any)).await).0, Kind::NotFound);

    world.start_again(Some("cloud")).await;
    let third = tag(&world.read_agent("a", None).await.unwrap());
    assert_ne!(second, third);
    let delete = async |world: &TestApi, tag: &HeaderValue| {
        let mut request = of("/v1/agents", "a", None);
        request.headers_mut().insert(IF_MATCH, tag.clone());
        agents::delete(&world.app, &SHOWN, &request).await.map(|answer| answer.status())
    };
    assert_eq!(kind(delete(&world, &second).await).0, Kind::PreconditionFailed);
    assert_eq!(
        kind(delete(&world, &HeaderValue::from_static("a")).await),
        (Kind::InvalidRequest, Some("If-Match".to_owned()))
    );
    assert_eq!(delete(&world, &third).await.unwrap(), StatusCode::NO_CONTENT);
    world.start_again(Some("cloud")).await;
    assert_eq!(kind(delete(&world, &third).await).0, Kind::NotFound);
}

/// Of concurrent changes none is lost: changes without a tag are made one after another, and of
/// changes with the same tag only one succeeds.
#[tokio::test]
async fn changes_at_once_lose_nothing() {
    let world = world().await;
    let made = agent(&world, &SHOWN, json!({"name": "a", "model": "auto"})).await.unwrap();
    let tag = tag(&world.read_agent("a", None).await.unwrap());
    let changes = (0..3)
        .map(|n| world.change(&SHOWN, "a", json!({"metadata": {(n.to_string()): "x"}}), None));
    assert!(futures::future::join_all(changes).await.iter().all(Result::is_ok));
    let after = read(&world.read_agent("a", None).await.unwrap());
    assert_eq!(after["metadata"], json!({"0": "x", "1": "x", "2": "x"}));
    assert_eq!(after["created_at"], made["created_at"]);
    let tag_now = super::presets::tag(&world.read_agent("a", None).await.unwrap());
    assert_ne!(tag, tag_now);
    let changes = (0..8)
        .map(|n| world.change(&SHOWN, "a", json!({"description": n.to_string()}), Some(&tag_now)));
    let outcomes = futures::future::join_all(changes).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(
        outcomes
            .into_iter()
            .filter_map(Result::err)
            .all(|error| error.kind() == Kind::PreconditionFailed)
    );
}
