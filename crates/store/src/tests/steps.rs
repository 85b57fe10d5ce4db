//! Steps between versions of the tables, and rows that name the columns of their tables.

use super::*;
use crate::audit::AuditRow;
use crate::captures::capture_columns;
use crate::columns::Columns;
use crate::rows::Stored;
use crate::sql::ToValue;
use crate::steps::tests::{LAST, first_step};

const ANN: &str =
    "INSERT INTO users VALUES ('usr_1', 'a@b.c', NULL, 'user', 'hash', 0, '{}', '{}', 0)";

async fn emails(store: &Store) -> Vec<String> {
    store.load().await.unwrap().users.into_iter().map(|user| user.email).collect()
}

async fn refusal(bed: &impl Bed) -> StoreError {
    match bed.unlock(|_| Ok((SecretBytes::new([5; 32]), ()))).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

/// A store of the first step, with a user.
async fn make_old<B: Bed>(bed: &B) {
    bed.batch(&first_step(B::BASE)).await;
    bed.batch(ANN).await;
}

pub(crate) async fn an_earlier_store_comes_forward_with_what_it_has(bed: &impl Bed) {
    make_old(bed).await;
    assert!(matches!(bed.check_takeover().await, Err(StoreError::StopFirst)));
    for email in ["d@e.f", "g@h.i"] {
        let store = bed.open().await;
        assert_eq!(emails(&store).await[0], "a@b.c");
        store.create_user(user(email, &Random::System)).await.unwrap();
        store.create_node(NodeRow { name: email.into(), ..node(&Random::System) }).await.unwrap();
        drop(store);
        bed.check_takeover().await.unwrap();
    }
    assert_eq!(emails(&bed.open().await).await, ["a@b.c", "d@e.f", "g@h.i"]);
}

pub(crate) async fn a_step_that_fails_leaves_the_store_as_it_was(bed: &impl Bed) {
    make_old(bed).await;
    bed.batch("DROP TABLE reroutes").await;
    for _ in 0..2 {
        let why = refusal(bed).await.to_string();
        assert!(why.contains("reroutes"), "{why}");
    }
    // The tables that the failed step had dropped are there again, and another try succeeds.
    bed.batch("DELETE FROM creations; CREATE TABLE reroutes (id BIGINT)").await;
    assert_eq!(emails(&bed.open().await).await, ["a@b.c"]);
}

pub(crate) async fn a_later_store_is_refused_unless_this_build_can_work_beside_it(bed: &impl Bed) {
    drop(bed.open().await);
    bed.batch(ANN).await;
    bed.batch("INSERT INTO schema_steps VALUES (77, 70)").await;
    let why = refusal(bed).await;
    assert!(matches!(why, StoreError::OtherSchema { found: 77, .. }), "{why}");
    assert!(matches!(bed.check_takeover().await, Err(StoreError::OtherSchema { .. })));
    bed.batch(&format!("UPDATE schema_steps SET compatible = {LAST} WHERE number = 77")).await;
    bed.batch("ALTER TABLE users ADD COLUMN later INTEGER NOT NULL DEFAULT 0").await;
    bed.check_takeover().await.unwrap();
    let store = bed.open().await;
    store.create_user(user("d@e.f", &Random::System)).await.unwrap();
    assert_eq!(emails(&store).await, ["a@b.c", "d@e.f"]);
}

/// The columns of a table, in its order.
pub(crate) fn columns_of(transaction: &Transaction<'_>, table: &str) -> Result<Vec<String>> {
    let columns = match transaction.is_shared() {
        true => {
            "SELECT column_name FROM information_schema.columns
             WHERE table_schema = current_schema() AND table_name = ?1 ORDER BY ordinal_position"
        }
        false => "SELECT name FROM pragma_table_info(?1) ORDER BY cid",
    };
    transaction.rows(columns, &[table.value()], |row| Columns::new(row).get())
}

fn check(transaction: &Transaction<'_>, table: &str, named: &str) -> Result<()> {
    let named: Vec<&str> = named.split(", ").map(|name| name.trim_matches('"')).collect();
    assert_eq!(columns_of(transaction, table)?, named, "{table}");
    Ok(())
}

/// Checks a row type that has all columns but those in `first`.
fn check_row<T: Stored>(transaction: &Transaction<'_>, first: &str) -> Result<()> {
    check(transaction, T::TABLE, &format!("{first}{}", T::COLUMNS.join(", ")))
}

pub(crate) async fn rows_name_the_columns_of_their_tables_in_their_order(bed: &impl Bed) {
    let store = bed.open().await;
    let check_all = |transaction: &Transaction<'_>| {
        check_row::<UserRow>(transaction, "")?;
        check_row::<KeyRow>(transaction, "")?;
        check_row::<SessionRow>(transaction, "")?;
        check_row::<AgentRow>(transaction, "")?;
        check_row::<NodeRow>(transaction, "")?;
        check_row::<AuditRow>(transaction, "seq, ")?;
        let documents = DocumentRow::COLUMNS.join(", ").replace("revision", "revision, sealed");
        check(transaction, DocumentRow::TABLE, &documents)
    };
    store.read(check_all).await.unwrap();
    let check_captures = |transaction: &Transaction<'_>| {
        check(transaction, "captures", &capture_columns(transaction.is_shared()))
    };
    match store.is_shared() {
        true => store.read(check_captures).await.unwrap(),
        false => store.databases.captures.read(check_captures).await.unwrap(),
    }
}
