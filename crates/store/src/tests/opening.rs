//! The root key, and the transaction of a start.

use super::*;

fn wrapped(generation: u32, wrapped: &[u8]) -> WrappedRootKey {
    WrappedRootKey { generation, wrapped: wrapped.to_vec() }
}

pub(crate) async fn a_rewrap_is_durable_or_has_not_happened(bed: &impl Bed) {
    let open = async |put: Option<WrappedRootKey>, fails: bool| {
        let unlock = move |opening: &Opening<'_>| {
            let before = opening.root_key()?;
            if let Some(key) = put {
                opening.put_root_key(&key)?;
                let actor = Actor { kind: "operator".into(), id: "start".into() };
                let id = key.generation.to_string();
                let event = Event::new(at(0), actor, Action::MasterKeyChange, "master_key", &id);
                opening.note(&event)?;
            }
            match fails {
                true => Err(StoreError::unavailable("killed")),
                false => Ok((SecretBytes::new([5; 32]), before)),
            }
        };
        bed.unlock(unlock).await
    };
    assert_eq!(open(Some(wrapped(1, b"one")), false).await.unwrap().1, None);
    assert!(open(Some(wrapped(2, b"two")), true).await.is_err());
    assert_eq!(open(None, false).await.unwrap().1, Some(wrapped(1, b"one")));
    assert_eq!(open(Some(wrapped(2, b"two")), false).await.unwrap().1, Some(wrapped(1, b"one")));
    let (store, known) = open(None, false).await.unwrap();
    assert_eq!(known, Some(wrapped(2, b"two")));
    let rows = store.audit(AuditFilter::default(), 9, None).await.unwrap().unwrap();
    let targets: Vec<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    assert_eq!(targets, ["2", "1"]);
}

pub(crate) async fn a_start_reads_the_live_document(bed: &impl Bed) {
    let key = || SecretBytes::new([5; 32]);
    let live = async || {
        let unlock = move |opening: &Opening<'_>| Ok((key(), opening.live_document(&key())?));
        bed.unlock(unlock).await.unwrap()
    };
    let (store, document) = live().await;
    assert_eq!(document, None);
    store.keep_document("0123456789ab", "a: 1", at(1)).await.unwrap();
    drop(store);
    assert_eq!(live().await.1.as_deref(), Some("a: 1"));
}
