use super::*;
use crate::sql::params;

pub(crate) async fn a_text_opens_under_its_key_and_for_its_revision(bed: &impl Bed) {
    let store = bed.open().await;
    store.keep_document("0123456789ab", "one", at(1)).await.unwrap();
    let mut other = store.clone();
    other.documents = SecretBytes::new([6; 32]);
    let names = |read: Result<Option<String>>, revision: &str| match read {
        Err(StoreError::Damaged(why)) => why.contains(revision),
        _ => false,
    };
    assert!(names(other.document("0123456789ab").await, "0123456789ab"));
    let rename = |transaction: &Transaction<'_>| {
        transaction.execute("UPDATE documents SET revision = ?1", &params!["ba9876543210"])
    };
    store.write(rename).await.unwrap();
    assert!(names(store.document("ba9876543210").await, "ba9876543210"));
    assert!(names(store.live_document().await, "ba9876543210"));
    assert_eq!(store.document("0123456789ab").await.unwrap(), None);
}

pub(crate) async fn the_document_that_was_made_live_last_is_live(bed: &impl Bed) {
    let store = bed.open().await;
    assert_eq!(store.live_document().await.unwrap(), None);
    // The times are those of a clock that stands still, and of a clock that was set back.
    for (revision, second) in [("a", 5), ("b", 5), ("c", 1), ("a", 5)] {
        store.keep_document(revision, &format!("text of {revision}"), at(second)).await.unwrap();
        let live = store.live_document().await.unwrap();
        assert_eq!(live, Some(format!("text of {revision}")));
    }
    let list = async |limit: usize, after: Option<&str>| {
        store.documents(limit, after.map(str::to_owned)).await.unwrap()
    };
    let rows = list(9, None).await;
    let revisions: Vec<&str> = rows.iter().map(|row| row.revision.as_str()).collect();
    assert_eq!(revisions, ["a", "c", "b"]);
    assert!(rows.is_sorted_by(|a, b| a.live_at > b.live_at) && rows[0].created_at == at(5));
    assert_eq!(list(2, None).await, rows[..2]);
    assert_eq!(list(1, Some("a")).await, rows[1..2]);
    assert_eq!(list(9, Some("b")).await, []);
    assert_eq!(list(9, Some("unknown")).await, []);
}
