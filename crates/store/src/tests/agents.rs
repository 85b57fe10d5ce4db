use super::*;
use crate::agents::AGENTS;
use rerouter_base::id::AgentId;

pub(crate) async fn agents_have_one_name_each_and_there_are_not_too_many(bed: &impl Bed) {
    let random = Random::seeded(9);
    let agent = |name: &str| agent(name, &random);
    let first = agent("first");
    {
        let store = bed.open().await;
        store.create_agent(first.clone()).await.unwrap();
        assert!(matches!(store.create_agent(agent("first")).await, Err(StoreError::Conflict)));
        let surplus = (1..AGENTS).map(|n| store.create_agent(agent(&format!("a-{n}"))));
        assert!(futures::future::join_all(surplus).await.iter().all(Result::is_ok));
        assert!(matches!(store.create_agent(agent("last")).await, Err(StoreError::LimitReached)));
    }
    let store = bed.open().await;
    assert!(store.load().await.unwrap().agents.contains(&first));
    let renamed = AgentRow { name: "renamed".into(), updated_at: at(3), ..first.clone() };
    assert_eq!(
        store.update_agent(renamed.clone(), first.etag()).await.unwrap().changes,
        [Change::Agent(renamed.clone().into())]
    );
    assert!(matches!(
        store.update_agent(first.clone(), first.etag()).await,
        Err(StoreError::Stale)
    ));
    let taken = AgentRow { name: "a-1".into(), ..renamed.clone() };
    assert!(matches!(store.update_agent(taken, renamed.etag()).await, Err(StoreError::Conflict)));
    let absent = AgentRow { id: AgentId::new(at(9), &random), ..renamed.clone() };
    assert!(matches!(store.update_agent(absent, renamed.etag()).await, Err(StoreError::NotFound)));
    assert!(store.load().await.unwrap().agents.contains(&renamed));
    assert!(matches!(
        store.delete_agent(&first.id, Some(first.etag())).await,
        Err(StoreError::Stale)
    ));
    assert_eq!(
        store.delete_agent(&first.id, None).await.unwrap().changes,
        [Change::AgentDeleted(first.id.clone())]
    );
    assert_eq!(store.delete_agent(&first.id, None).await.unwrap().changes, []);
    store.create_agent(agent("last")).await.unwrap();
}
