//! A routing document from the API is made live and audited, or neither.

use super::*;
use crate::api::routing;
use rerouter_store::AuditFilter;

#[tokio::test]
async fn a_document_is_live_exactly_when_the_audit_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let before = config::demo_routing();
    std::fs::write(file.path(), before).unwrap();
    let world = world_with(&format!("routing: {{ file: {:?} }}", file.path())).await;
    let document = before.replace("latency: 20ms", "latency: 30ms");
    let put = async || {
        let mut asked = request("/v1/router/config", None);
        *asked.body_mut() = Bytes::from(document.clone());
        routing::put(&world.app, &Principal::Admin, &asked).await
    };
    let rows =
        async || world.app.store.audit(AuditFilter::default(), 10, None).await.unwrap().unwrap();
    let revision = world.app.revision();
    // First the document cannot be stored. Then it is stored and written to its file, but the audit
    // row cannot be written.
    for spared in [0, 1] {
        world.faults.fail_write_after(spared);
        assert_eq!(kind(put().await).0, Kind::Unavailable);
        assert_eq!(
            (world.app.revision(), std::fs::read_to_string(file.path()).unwrap().as_str()),
            (revision.clone(), before)
        );
        assert!(rows().await.is_empty());
    }
    assert_eq!(
        world.app.store.live_document().await.unwrap().as_deref(),
        Some(before),
        "what a start would take"
    );
    let taken = read(&put().await.unwrap());
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), document);
    assert_eq!(world.app.store.live_document().await.unwrap(), Some(document));
    let rows = rows().await;
    assert_eq!(
        rows.iter().map(|row| (row.action.as_str(), row.target.as_str())).collect::<Vec<_>>(),
        [("config.put", text(&taken["revision"]))]
    );
}
