//! Nodes: enrolments, registrations, nonces and events.

use super::*;
use crate::nodes::NODE_EVENT_IDS;
use rerouter_base::id::NodeId;

pub(crate) async fn a_generation_ends_the_one_before_with_its_first_use(bed: &impl Bed) {
    let store = bed.open().await;
    let node = node(&Random::seeded(5));
    let id = node.id.clone();
    store.create_node(node.clone()).await.unwrap();
    assert!(matches!(store.create_node(node.clone()).await, Err(StoreError::Conflict)));
    let spend = async |store: &Store, generation: u32, nonce: &str, second: i64| {
        let spent = SpentNonce {
            node: id.clone(),
            generation,
            nonce: nonce.into(),
            created: at(second).as_second(),
            at: at(second),
        };
        match store.spend_nonce(spent).await {
            Ok(committed) => format!("{} change(s)", committed.changes.len()),
            Err(error) => format!("{error:?}"),
        }
    };
    assert_eq!(spend(&store, 1, "a", 0).await, "0 change(s)");
    if store.is_shared() {
        assert_eq!(spend(&store, 1, "a", 0).await, "Conflict", "another gateway took it");
        assert_eq!(spend(&store, 1, "b", 120).await, "0 change(s)");
        assert_eq!(count(&store, "node_nonces").await, 2);
        assert_eq!(spend(&store, 1, "c", 121).await, "0 change(s)");
        assert_eq!(count(&store, "node_nonces").await, 2, "the oldest is no longer timely");
    }
    assert_eq!(spend(&store, 2, "b", 0).await, "NotFound");

    let previous = Some(PreviousNodeSecret { secret: vec![1], expires_at: at(600) });
    let next = NodeRow {
        generation: 2,
        secret: vec![2],
        previous,
        rotated_at: Some(at(0)),
        ..node.clone()
    };
    store.rotate_node(next.clone()).await.unwrap();
    assert!(
        matches!(store.rotate_node(next).await, Err(StoreError::Conflict)),
        "one of two at once"
    );
    assert_eq!(
        (spend(&store, 1, "x", 599).await, spend(&store, 1, "d", 600).await),
        ("0 change(s)".into(), "NotFound".into())
    );
    assert_eq!(
        (spend(&store, 2, "e", 300).await, spend(&store, 1, "f", 300).await),
        ("1 change(s)".into(), "NotFound".into())
    );
    let known = store.load().await.unwrap().nodes;
    assert_eq!(
        (known[0].generation, known[0].previous.is_some(), known[0].secret.clone()),
        (2, false, vec![2])
    );
    store.delete_node(&id).await.unwrap();
    assert!(store.delete_node(&id).await.unwrap().changes.is_empty());
    assert_eq!(spend(&store, 2, "g", 300).await, "NotFound");
}

/// A store with a node.
async fn enrolled(bed: &impl Bed) -> (Store, NodeRow) {
    let (store, node) = (bed.open().await, node(&Random::seeded(1)));
    store.create_node(node.clone()).await.unwrap();
    (store, node)
}

async fn count(store: &Store, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {table}");
    store.read(move |transaction| transaction.int(&count, &[])).await.unwrap().unwrap()
}

pub(crate) async fn the_newest_events_of_each_node_are_remembered(bed: &impl Bed) {
    let (store, node) = enrolled(bed).await;
    let note = async |ids: &[&str]| {
        store.note_events(&node.id, ids.iter().map(|id| (*id).to_owned()).collect()).await
    };
    assert_eq!(note(&["x", "y", "x"]).await.unwrap(), [true, true, false]);
    assert_eq!(note(&["y", "z"]).await.unwrap(), [false, true]);
    let many = (1..NODE_EVENT_IDS).map(|number| number.to_string()).collect();
    assert!(store.note_events(&node.id, many).await.unwrap().iter().all(|new| *new));
    assert_eq!(note(&["z", "x"]).await.unwrap(), [false, true], "x was among the oldest");
    assert_eq!(count(&store, "node_events").await, NODE_EVENT_IDS as i64);
    store.delete_node(&node.id).await.unwrap();
    assert!(matches!(note(&["x"]).await, Err(StoreError::NotFound)));
    assert_eq!(count(&store, "node_events").await, 0);
}

pub(crate) async fn a_node_has_one_epoch_at_a_time(bed: &impl Bed) {
    let (store, node) = enrolled(bed).await;
    let registration = |signed_s: i64| Registration {
        epoch: 99,
        at_us: at(signed_s).as_microsecond(),
        signed_s,
        ended: false,
        version: "1".into(),
        endpoint: "http://10.0.0.1:8000".into(),
        api_key: Some(vec![1, 2]),
        models: Vec::new(),
        max_concurrency: Some(4),
        labels: BTreeMap::from([("gpu".into(), "h100".into())]),
    };
    for epoch in 1..=2 {
        let signed_s = i64::try_from(epoch).unwrap();
        store.register_node(&node.id, registration(signed_s)).await.unwrap();
        let registered = Registration { epoch, ..registration(signed_s) };
        let known = store.load().await.unwrap().nodes.remove(0);
        assert!(known == NodeRow { registration: Some(registered), ..node.clone() });
    }
    let models = vec![NodeModel { id: "m".into(), context: Some(8_192), capabilities: None }];
    let amend = async |epoch: u64, models: Option<Vec<NodeModel>>| {
        store.amend_node(&node.id, epoch, models).await
    };
    assert!(matches!(amend(1, Some(models.clone())).await, Err(StoreError::Conflict)));
    assert_eq!(amend(2, Some(models.clone())).await.unwrap().changes.len(), 1);
    assert!(amend(2, Some(models.clone())).await.unwrap().changes.is_empty(), "as before");
    amend(2, None).await.unwrap();
    let known = store.load().await.unwrap().nodes.remove(0).registration.unwrap();
    assert!(known.ended && known.models == models && known.epoch == 2);
    let absent = NodeId::new(at(0), &Random::seeded(2));
    let refused = store.register_node(&absent, registration(3)).await;
    assert!(matches!(refused, Err(StoreError::NotFound)));
}
