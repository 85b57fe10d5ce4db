//! The replay API over captures that are already there.

use std::sync::Arc;

use super::*;
use rerouter_base::id::Random;
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::SecretBytes;
use rerouter_captures::capture::fixtures::capture;
use rerouter_captures::capture::record::CaptureState;
use rerouter_store::Store;
use serde_json::Value;

struct TestReplays {
    archive: Archive,
    captures: Vec<Capture>,
    _dir: tempfile::TempDir,
}

/// Creates four captures of Ann and one of Bob, in this order.
async fn world() -> TestReplays {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let archive = Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true);
    let random = Random::seeded(1);
    let mut captures: Vec<Capture> = (0..5)
        .map(|second| {
            capture(
                second,
                &UserId::known(if second == 4 { "usr_bob" } else { "usr_ann" }),
                &random,
            )
        })
        .collect();
    captures[1].head.status = 429;
    captures[1].head.state = CaptureState::Failed;
    captures[2].head.status = 503;
    captures[2].head.stream = true;
    captures[3].head.replay_of = Some(captures[0].head.id.clone());
    archive.append(Arc::new(captures.clone())).await.unwrap();
    TestReplays { archive, captures, _dir: dir }
}

async fn listed(archive: &Archive, reach: &Reach, query: Option<&str>) -> Result<Value> {
    Ok(serde_json::json!(summaries(archive, reach, &page::read(query)?).await?))
}

fn user(id: &str) -> Reach {
    Reach::Owner(UserId::known(id))
}

impl TestReplays {
    /// The captures in a list, by number.
    async fn list(&self, who: &Reach, query: &str) -> Vec<usize> {
        let body = listed(&self.archive, who, Some(query)).await.unwrap();
        let number = |entry: &Value| {
            self.captures
                .iter()
                .position(|capture| capture.head.id.as_str() == entry["id"])
                .unwrap()
        };
        body["data"].as_array().unwrap().iter().map(number).collect()
    }
}

#[tokio::test]
async fn a_list_has_one_s_own_and_what_is_asked_for() {
    let world = world().await;
    let ann = user("usr_ann");
    let replay_of = format!("replay_of={}", world.captures[0].head.id);
    for (query, expected) in [
        ("", &[3, 2, 1, 0][..]),
        ("owner=usr_ann&limit=2", &[3, 2]),
        ("status=429", &[1]),
        ("status=4xx,503", &[2, 1]),
        ("state=failed", &[1]),
        ("since=2025-11-24T16:00:01Z&until=2025-11-24T16:00:03Z", &[2, 1]),
        ("since=2025-11-24T17:00:02%2B01:00", &[3, 2]),
        (
            "provider=demo&model=echo&decided_provider=openai&decided_model=gpt-5&alias=auto&\
             recipe=balanced&limit=1",
            &[3],
        ),
        ("provider=openai", &[]),
        (&replay_of, &[3]),
        ("replay=true", &[3]),
        ("replay=false&limit=2", &[2, 1]),
        ("stream=true&limit=1", &[2]),
        ("stream=true&replay=true", &[]),
    ] {
        assert_eq!(world.list(&ann, query).await, expected, "{query}");
    }
    assert_eq!(world.list(&Reach::All, "").await, [4, 3, 2, 1, 0]);
    assert_eq!(world.list(&Reach::All, "owner=usr_bob").await, [4]);
}

#[tokio::test]
async fn pages_by_what_heads_say_have_each_capture_once() {
    let world = world().await;
    let ann = user("usr_ann");
    for (query, expected) in [
        ("stream=false&limit=1", vec![3, 1, 0]),
        ("stream=false&limit=2", vec![3, 1, 0]),
        ("stream=true&limit=1", vec![2]),
        ("replay=true&limit=3", vec![3]),
    ] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let asked = format!("{query}{after}");
            let page = listed(&world.archive, &ann, Some(&asked)).await.unwrap();
            found.extend(world.list(&ann, &asked).await);
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn shadows_are_listed_apart_and_go_with_what_they_copy() {
    let mut world = world().await;
    let (ann, bob) = (user("usr_ann"), user("usr_bob"));
    let mut shadow = capture(5, &UserId::known("usr_ann"), &Random::seeded(3));
    shadow.head.shadow_of = Some(world.captures[0].head.id.clone());
    let mut replay = capture(6, &UserId::known("usr_ann"), &Random::seeded(4));
    replay.head.replay_of = Some(shadow.head.id.clone());
    world.captures.extend([shadow, replay]);
    world.archive.append(Arc::new(world.captures[5..].to_vec())).await.unwrap();
    let (of, other) = (
        format!("shadow_of={}", world.captures[0].head.id),
        format!("shadow_of={}", world.captures[1].head.id),
    );
    for (query, expected) in [
        ("", &[6, 3, 2, 1, 0][..]),
        ("shadow=false", &[6, 3, 2, 1, 0]),
        ("shadow=true", &[5]),
        ("shadow=true&status=429", &[]),
        (&of, &[5]),
        (&other, &[]),
        (&format!("shadow=false&{of}"), &[]),
    ] {
        assert_eq!(world.list(&ann, query).await, expected, "{query}");
    }
    assert!(world.list(&bob, "shadow=true").await.is_empty());
    let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
    tokio::spawn(writer.run(world.archive.clone()));
    remove(&queue, &world.archive, &ann, world.captures[0].head.id.as_str(), true).await.unwrap();
    assert_eq!(
        (world.list(&ann, "").await, world.list(&ann, "shadow=true").await),
        (vec![2, 1], vec![])
    );
}

#[tokio::test]
async fn pages_follow_each_other() {
    let world = world().await;
    let ann = user("usr_ann");
    let first = listed(&world.archive, &ann, Some("limit=3")).await.unwrap();
    assert_eq!(
        (&first["has_more"], &first["next"]),
        (&Value::from(true), &Value::from(world.captures[1].head.id.as_str()))
    );
    let query = format!("limit=3&after={}", first["next"].as_str().unwrap());
    assert_eq!(world.list(&ann, &query).await, [0]);
    let last = listed(&world.archive, &ann, Some(&query)).await.unwrap();
    assert_eq!((&last["has_more"], &last["next"]), (&Value::from(false), &Value::Null));
}

#[tokio::test]
async fn what_is_asked_wrongly_names_the_parameter() {
    let world = world().await;
    let ann = user("usr_ann");
    for (query, field, status) in [
        ("colour=red", "colour", 400),
        ("status=20", "status", 400),
        ("status=6xx", "status", 400),
        ("status=200,,400", "status", 400),
        ("since=yesterday", "since", 400),
        ("state=done", "state", 400),
        ("key=abc", "key", 400),
        ("after=abc", "after", 400),
        ("shadow=yes", "shadow", 400),
        ("shadow_of=abc", "shadow_of", 400),
        ("limit=101", "limit", 400),
        ("owner=usr_bob", "owner", 403),
    ] {
        let error = listed(&world.archive, &ann, Some(query)).await.unwrap_err();
        assert_eq!((error.field(), error.status().as_u16()), (Some(field), status), "{query}");
    }
}

#[tokio::test]
async fn an_answer_s_capture_is_there_at_once() {
    let world = world().await;
    let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
    tokio::spawn(writer.run(world.archive.clone()));
    let fresh = capture(9, &UserId::known("usr_ann"), &Random::seeded(8));
    assert!(queue.offer(fresh.clone()));
    let id = fresh.head.id.as_str();
    assert_eq!(
        look_up(&world.archive, &queue, &user("usr_bob"), id).await.unwrap_err().kind(),
        Kind::NotFound
    );
    assert!(queue.offer(capture(10, &UserId::known("usr_ann"), &Random::seeded(9))));
    assert_eq!(look_up(&world.archive, &queue, &user("usr_ann"), id).await.unwrap(), fresh);
}

#[tokio::test]
async fn what_is_deleted_is_gone_wherever_it_was() {
    let world = world().await;
    let (ann, bob) = (user("usr_ann"), user("usr_bob"));
    let metrics = Arc::new(rerouter_base::metrics::Metrics::new().unwrap());
    let (queue, writer) = CaptureQueue::new(Arc::clone(&metrics));
    tokio::spawn(writer.run(world.archive.clone()));
    let id = |at: usize| world.captures[at].head.id.as_str();
    let remove = async |who: &Reach, id: &str, replays| {
        remove(&queue, &world.archive, who, id, replays).await
    };
    for (who, id) in [(&bob, id(0)), (&ann, id(4)), (&ann, "x")] {
        let error = remove(who, id, true).await.unwrap_err();
        assert_eq!((error.kind(), error.detail()), (Kind::NotFound, "No such replay."));
    }
    assert_eq!(world.list(&Reach::All, "").await, [4, 3, 2, 1, 0], "a refusal deletes nothing");
    remove(&ann, id(1), false).await.unwrap();
    remove(&Reach::All, id(4), false).await.unwrap();
    assert_eq!(world.list(&Reach::All, "").await, [3, 2, 0]);
    assert_eq!(find(&world.archive, &ann, id(1)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(
        remove(&ann, id(1), false).await.unwrap_err().kind(),
        Kind::NotFound,
        "it is gone already"
    );

    // A replay of the replay is waiting for the writer, and a replay of the first capture is
    // running.
    let mut waiting = capture(10, &UserId::known("usr_ann"), &Random::seeded(10));
    waiting.head.replay_of = Some(world.captures[3].head.id.clone());
    let running = capture(11, &UserId::known("usr_ann"), &Random::seeded(11));
    let announced = queue.announce(&running.head.id, running.head.whose());
    announced.is_replay(running.head.whose(), &world.captures[0].head.id);
    assert!(queue.offer(waiting));
    remove(&ann, id(0), true).await.unwrap();
    assert!(queue.offer_announced(running.into(), announced));
    queue.flush().await;
    let left = world.archive.page(CaptureFilter::default(), 10, None).await.unwrap().heads;
    assert_eq!(left.iter().map(|head| head.id.as_str()).collect::<Vec<_>>(), [id(2)]);
    assert_eq!(metrics.captures_so_far("deleted"), 1);
}

/// Waits, for a limited time, until the store hangs in a write of captures.
async fn hangs(faults: &rerouter_store::Faults) {
    let hanging = async {
        while faults.hanging() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    timeout(CAPTURE_FLUSH, hanging).await.expect("a write that hangs");
}

#[tokio::test]
async fn replays_under_way_go_with_what_they_are_replays_of() {
    let dir = tempfile::tempdir().unwrap();
    let faults = rerouter_store::Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let archive = Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true);
    let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
    tokio::spawn(writer.run(archive.clone()));
    let (ann, random) = (UserId::known("usr_ann"), Random::seeded(1));
    let mut captures: Vec<Capture> = (0..5).map(|second| capture(second, &ann, &random)).collect();
    for at in 1..4 {
        captures[at].head.replay_of = Some(captures[at - 1].head.id.clone());
    }
    let [first, stored, early, late, other] = captures.try_into().unwrap();
    archive.append(Arc::new(vec![first.clone(), stored.clone(), other.clone()])).await.unwrap();
    // A replay of the stored replay is running, and another one begins during the deletion.
    let announce = |of: &Capture| {
        queue.pending().announce(&of.head.id, (&ann, None), of.head.replay_of.as_ref())
    };
    let first_announced = announce(&early);
    faults.stall_appends();
    let who = user("usr_ann");
    let mut deletion = std::pin::pin!(remove(&queue, &archive, &who, first.head.id.as_str(), true));
    tokio::select! {
        biased;
        _ = &mut deletion => panic!("deleted by a store that hangs"),
        () = hangs(&faults) => {}
    }
    let mut late = late;
    late.head.replay_of = Some(stored.head.id.clone());
    let second_announced = announce(&late);
    faults.clear();
    deletion.await.unwrap();
    assert!(first_announced.is_deleted() && second_announced.is_deleted());
    assert!(
        queue.offer_announced(early.into(), first_announced)
            && queue.offer_announced(late.into(), second_announced)
    );
    queue.flush().await;
    let left = archive.page(CaptureFilter::default(), 10, None).await.unwrap().heads;
    assert_eq!(left.iter().map(|head| &head.id).collect::<Vec<_>>(), [&other.head.id]);
}

#[tokio::test]
async fn what_the_writer_has_in_hand_is_deleted_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let faults = rerouter_store::Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let archive = Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true);
    let (queue, writer) =
        CaptureQueue::new(Arc::new(rerouter_base::metrics::Metrics::new().unwrap()));
    tokio::spawn(writer.run(archive.clone()));
    let taken = capture(0, &UserId::known("usr_ann"), &Random::seeded(1));
    let id = taken.head.id.clone();
    faults.stall_appends();
    assert!(queue.offer(taken));
    // The writer takes the capture and hangs in the store. Then the deletion begins, and waits.
    hangs(&faults).await;
    let ann = user("usr_ann");
    let mut deletion = std::pin::pin!(remove(&queue, &archive, &ann, id.as_str(), false));
    assert!(futures::poll!(&mut deletion).is_pending());
    faults.clear();
    deletion.await.unwrap();
    assert_eq!(archive.get(&id).await.unwrap(), None);

    let kept = capture(1, &UserId::known("usr_ann"), &Random::seeded(2));
    archive.append(Arc::new(vec![kept.clone()])).await.unwrap();
    faults.fail_appends(1);
    let refused = remove(&queue, &archive, &ann, kept.head.id.as_str(), false).await.unwrap_err();
    assert_eq!(refused.status().as_u16(), 503);
    assert!(archive.get(&kept.head.id).await.unwrap().is_some());
    remove(&queue, &archive, &ann, kept.head.id.as_str(), false).await.unwrap();
}

#[tokio::test]
async fn what_is_damaged_is_absent_to_everybody_else() {
    let world = world().await;
    world.archive.close().await.unwrap();
    let files = std::fs::read_dir(world._dir.path().join("captures")).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.fill(7);
        std::fs::write(file, bytes).unwrap();
    }
    let listed = listed(&world.archive, &user("usr_ann"), None).await.unwrap();
    assert_eq!(
        (&listed["data"], &listed["unreadable"]),
        (&serde_json::json!([]), &Value::from(4)),
        "they are told of"
    );
    let id = world.captures[4].head.id.as_str();
    assert_eq!(
        find(&world.archive, &user("usr_bob"), id).await.unwrap_err().status().as_u16(),
        503
    );
    assert_eq!(
        find(&world.archive, &user("usr_ann"), id).await.unwrap_err().kind(),
        Kind::NotFound
    );
}

#[tokio::test]
async fn replays_of_others_go_for_an_admin_only() {
    let world = world().await;
    let (first, bob) = (&world.captures[0].head.id, UserId::known("usr_bob"));
    // The original was imported: replays made here belong to its owner.
    let [mut his, mut behind, mut waiting] =
        [10, 11, 12].map(|second| capture(second, &bob, &Random::seeded(second as u64)));
    his.head.replay_of = Some(first.clone());
    behind.head.owner = UserId::known("usr_ann");
    behind.head.replay_of = Some(his.head.id.clone());
    waiting.head.shadow_of = Some(first.clone());
    world.archive.append(Arc::new(vec![his.clone(), behind.clone()])).await.unwrap();
    let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
    tokio::spawn(writer.run(world.archive.clone()));
    assert!(queue.offer(waiting.clone()));
    remove(&queue, &world.archive, &user("usr_ann"), first.as_str(), true).await.unwrap();
    let left = async |id: &RequestId| world.archive.get(id).await.unwrap().is_some();
    assert!(!left(&world.captures[3].head.id).await && !left(first).await);
    assert!(
        left(&his.head.id).await && left(&behind.head.id).await && left(&waiting.head.id).await
    );
    remove(&queue, &world.archive, &Reach::All, his.head.id.as_str(), true).await.unwrap();
    assert!(
        !left(&his.head.id).await && !left(&behind.head.id).await && left(&waiting.head.id).await
    );
}
