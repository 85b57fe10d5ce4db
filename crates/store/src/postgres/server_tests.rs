//! What a server cannot do, and what it must end.

use std::time::{Duration, Instant};

use super::schema::DATABASE_JOIN;
use super::servers;
use super::session::Session;
use super::tests::{PATIENCE, PostgresBed, session};
use super::url::PostgresUrl;
use crate::tests::Bed;
use rerouter_base::secret::SecretBytes;

#[tokio::test]
async fn databases_that_only_speak_like_postgresql_are_refused_by_name() {
    let bed = PostgresBed::new().await;
    // A server that tells another name of itself.
    for statement in [
        "CREATE FUNCTION public.version() RETURNS text LANGUAGE sql
           AS $$ SELECT 'PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64' $$",
        "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database())
           || ' SET search_path = public, pg_catalog'; END $$",
    ] {
        bed.batch(statement).await;
    }
    let began = Instant::now();
    for refused in [
        bed.unlock(|_| Ok((SecretBytes::new([5; 32]), ()))).await.map(|_| ()),
        bed.check_takeover().await.map(|_| ()),
    ] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("needs PostgreSQL: YugabyteDB lacks LISTEN"), "{why}");
    }
    assert!(began.elapsed() < DATABASE_JOIN, "nobody waits for it");
}

#[tokio::test]
async fn the_server_ends_a_statement_for_which_nobody_waits_any_more() {
    let url = servers::Cluster::shared().database().await;
    let why = session(&url, |session| {
        session.patience.answer = Duration::from_secs(1);
        session.one(|transaction| transaction.exists("SELECT pg_sleep(60)", &[])).unwrap_err()
    })
    .await;
    assert!(why.to_string().contains("statement timeout"), "{why}");
    // The connection of a pooler has other sessions too.
    let limit = "SELECT CAST(current_setting('statement_timeout') AS BIGINT)";
    let mut pooled = PostgresUrl::parse(&url).unwrap();
    pooled.is_pooled = true;
    let unlimited = tokio::task::spawn_blocking(move || {
        let mut session = Session::new(&pooled, PATIENCE, None).unwrap();
        session.one(|transaction| transaction.int(limit, &[])).unwrap()
    });
    assert_eq!(unlimited.await.unwrap(), Some(0));
}
