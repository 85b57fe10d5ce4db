//! Imported captures beside live ones.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::archive::service::tests::{archive, captures, ids, ids_of, segments};

const SPAN: Duration = Duration::from_secs(5);

async fn append(archive: &Archive, captures: &[Capture]) {
    archive.append(Arc::new(captures.to_vec())).await.unwrap();
}

fn us(second: i64) -> i64 {
    captures(0..1)[0].head.created_at.as_microsecond() + second * 1_000_000
}

#[tokio::test]
async fn what_is_imported_leaves_at_its_age_beside_live_traffic() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let live = captures(100..102);
    append(&archive, &live[..1]).await;
    let old = captures(0..3);
    let done = archive.import(old.clone(), SPAN).await.unwrap();
    assert_eq!(done, Imported { imported: 3, ..Imported::default() });
    append(&archive, &live[1..]).await;
    assert_eq!(ids(&archive).await, [ids_of(&live), ids_of(&old)].concat());
    assert_eq!(
        archive.import(old, SPAN).await.unwrap(),
        Imported { existing: 3, ..Imported::default() }
    );
    archive.retain(us(50), u64::MAX).await.unwrap();
    assert_eq!(
        ids(&archive).await,
        ids_of(&live),
        "what is past its age has left, and nothing else"
    );
}

#[tokio::test]
async fn those_of_different_times_leave_at_different_times() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    // The captures come in any order.
    let mut all = captures(0..12);
    all.rotate_left(7);
    assert_eq!(archive.import(all, SPAN).await.unwrap().imported, 12);
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&captures(0..12)), 2));
    archive.retain(us(6), u64::MAX).await.unwrap();
    assert_eq!((ids(&archive).await, segments(dir.path()).len()), (ids_of(&captures(6..12)), 1));
}

#[tokio::test]
async fn what_is_imported_has_no_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path()).await;
    let mut one = captures(0..1).remove(0);
    let id = one.head.id.clone();
    for headers in [&mut one.head.request_headers, &mut one.head.response_headers] {
        headers.push(("X-Api-Key".into(), "canary".into()));
        headers.push(("x-note".into(), "kept".into()));
    }
    let seen = &mut one.head.inputs.as_mut().unwrap().request.headers;
    seen.insert("x-service-token".into(), "canary".into());
    seen.insert("x-tier".into(), "kept".into());
    one.bodies.request =
        Bytes::from_static(br#"{"model":"auto","tools":[{"authorization":"canary"}]}"#);
    assert_eq!(archive.import(vec![one], SPAN).await.unwrap().imported, 1);
    let read = serde_json::json!(archive.get(&id).await.unwrap().unwrap().whole()).to_string();
    assert!(!read.contains("canary") && read.matches("kept").count() == 3, "{read}");
}
