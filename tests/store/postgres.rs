//! The gateway on PostgreSQL: what it promises on SQLite it promises there, behind a pooler too; a
//! store that moves there; what TLS checks; what is told of a database that cannot be used.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::captures::on_disk::{answering, body, listed};
use crate::support::client::Tls;
use crate::support::documents::in_order;
use crate::support::free_port;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::postgres::{self, Cluster};

/// Tests of other modules that have no SQLite in their promise.
const SHARED: &[&str] = &[
    "routing::agent_surface::what_a_stranger_left_behind_is_good_when_somebody_vouches_for_it",
    "access::audit::every_route_that_is_noted_leaves_its_row",
    "access::audit::what_an_admin_sees_of_others_is_noted_and_what_it_sees_of_its_own_is_not",
    "limits::budgets::of_many_at_once_one_has_what_remains",
    "limits::budgets::what_remains_is_shown_of_live_keys_to_those_who_may_see_them",
    "routing::configuration::in_the_store_the_document_comes_by_the_api_only_and_outlives_\
     a_restart",
    "access::keys::a_budget_that_is_changed_keeps_what_was_spent",
    "access::keys::a_descent_ends_with_its_root_and_a_creation_is_told_once_more",
    "access::keys::a_patch_holds_for_the_next_request_of_an_open_connection",
    "access::keys::what_was_acknowledged_survives_a_kill_and_nothing_that_ended_revives",
    "limits::rates::a_crash_makes_no_budget_larger_and_a_restart_none_smaller",
    "access::lines::a_key_reaches_the_captures_of_its_line_and_none_of_another",
    "access::lines::a_key_reaches_the_keys_of_its_line_and_ends_none_that_may_do_more",
    "access::logins::a_login_gives_a_cookie_and_a_token_of_one_session_and_says_who_one_is",
    "nodes::enrolment::an_event_is_told_once",
    "nodes::signatures::a_nonce_is_good_once_whatever_became_of_the_process",
    "nodes::enrolment::the_secret_before_ends_with_the_first_use_of_the_next",
    "access::users::two_admins_who_end_each_other_at_once_are_one_then",
    "access::users::users_are_made_listed_and_changed",
    "access::users::who_is_disabled_is_out_at_once_and_for_as_long",
];

/// This test binary runs them again, with a database for each gateway that they start.
#[test]
fn what_holds_on_sqlite_holds_on_postgresql() {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--test-threads=2"])
        .args(SHARED)
        .env("REROUTER_TEST_STORE", "postgres")
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(out.status.success(), "{}", said.concat());
    assert!(said[0].contains(&format!("{} passed", SHARED.len())), "{}", said.concat());
}

/// A gateway with this line as `store`.
async fn gateway(provider: &str, store: &str) -> Gateway {
    Setup::new(&in_order(&[("a", provider)], "")).server(&format!("store: {store}")).start().await
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.manage("GET", path, &gateway.admin_key, None).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

async fn revoke(gateway: &Gateway, key: &Key) {
    let path = format!("/v1/router/keys/{}", key.id);
    gateway.answers(204, "DELETE", &path, &gateway.admin_key, None).await;
}

async fn asks(gateway: &Gateway, key: &Key) -> u16 {
    gateway.chat(key, &body(1)).await.status
}

/// `rerouter` with these arguments in a directory: its exit code and all that it wrote.
pub(super) fn rerouter(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    let out = command.args(arguments).env_clear().current_dir(dir).output().unwrap();
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (out.status.code(), said.concat())
}

/// A pooler that lends a connection for each transaction. It has two for each database.
struct Pooler {
    child: Child,
    port: u16,
}

impl Pooler {
    async fn start(cluster: &Cluster) -> Pooler {
        let port = free_port();
        let ini = cluster.dir().join(format!("pgbouncer-{port}.ini"));
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nauth_type=any\n\
             pool_mode=transaction\ndefault_pool_size=2\n",
            cluster.port()
        );
        std::fs::write(&ini, settings).unwrap();
        let run = "pgbouncer -q \"$0\" & pooler=$!; cat >/dev/null; kill $pooler; wait $pooler";
        let child = postgres::as_its_user("sh")
            .args(["-c", run, ini.to_str().unwrap()])
            .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()))
            .current_dir("/")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        crate::support::until("the pooler", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        Pooler { child, port }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

#[tokio::test]
async fn behind_a_transaction_pooler_everything_works() {
    let (provider, cluster) = (answering().await, Cluster::shared());
    let pooler = Pooler::start(cluster).await;
    let direct = cluster.database().await;
    let pooled = direct.replace(&cluster.port().to_string(), &pooler.port.to_string());
    let store = format!("{{ url: '{pooled}', direct_url: '{direct}' }}");
    let mut gateway = gateway(&provider.url(), &store).await;
    let keys = futures::future::join_all((0..10).map(|_| gateway.create_key())).await;
    futures::future::join_all(keys[..5].iter().map(|key| revoke(&gateway, key))).await;
    let audit = get(&gateway, "/v1/audit?limit=50").await;
    assert_eq!(audit["data"].as_array().unwrap().len(), 15);
    gateway.restart().await;
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(asks(&gateway, key).await, if at < 5 { 401 } else { 200 });
    }
    assert!(!gateway.log().contains("tells of no change"), "{}", gateway.log());
}

#[tokio::test]
async fn a_pooler_alone_tells_of_no_change_and_a_line_of_the_log_says_so() {
    let (provider, cluster) = (answering().await, Cluster::shared());
    let pooler = Pooler::start(cluster).await;
    let direct = cluster.database().await;
    let pooled = direct.replace(&cluster.port().to_string(), &pooler.port.to_string());
    let store = format!("{{ url: '{pooled}', lease: 3s }}");
    let gateway = gateway(&provider.url(), &store).await;
    for _ in 0..6 {
        gateway.create_key().await;
    }
    let log = gateway.log();
    assert_eq!(log.matches("tells of no change").count(), 1, "{log}");
    assert!(log.contains("store.direct_url"), "{log}");
}

#[tokio::test]
async fn a_store_moves_with_all_that_it_holds() {
    let (provider, cluster) = (answering().await, Cluster::shared());
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let dir = gateway.dir().to_owned();
    let session = gateway.session("ann@example.org").await;
    let (lives, dies) = (gateway.create_key().await, gateway.create_key().await);
    revoke(&gateway, &dies).await;
    let agent = json!({"name": "helper", "model": "auto", "instructions": "zero \0 byte"});
    gateway.answers(201, "POST", "/v1/agents", &gateway.admin_key, Some(&agent)).await;
    let capture = gateway.chat(&lives, &body(7)).await.request_id();
    gateway.capture(&capture).await;
    let url = cluster.database().await;
    let arguments = ["migrate", "--data-dir", "data", "--to", &url];
    let (code, told) = rerouter(&dir, &arguments);
    assert_eq!(code, Some(1), "it runs");
    assert!(told.contains("another process uses the data directory"), "{told}");
    gateway.stop().await;
    let elsewhere = ["migrate", "--data-dir", "none", "--to", &url];
    assert!(rerouter(&dir, &elsewhere).1.contains("there is no store in none"));
    gateway.start_again().await;
    let seen = ["/v1/router/keys", "/v1/users", "/v1/audit", "/v1/router/usage"];
    let mut before = Vec::new();
    for path in seen {
        before.push(get(&gateway, path).await);
    }
    gateway.stop().await;

    let (code, told) = rerouter(&dir, &arguments);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("           2  keys ") && told.contains("Captures are in"), "{told}");
    assert!(!told.contains("canary"), "{told}");
    let (code, told) = rerouter(&dir, &arguments);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("has a store already"), "{told}");

    std::fs::rename(dir.join("data/accounts.db"), dir.join("accounts.db")).unwrap();
    gateway.add_to_server(&format!("store: {{ url: '{url}' }}"));
    gateway.start_again().await;
    for (path, before) in seen.iter().zip(before) {
        assert_eq!(get(&gateway, path).await, before, "{path}");
    }
    assert_eq!((asks(&gateway, &lives).await, asks(&gateway, &dies).await), (200, 401));
    gateway.answers(200, "GET", "/v1/auth/me", &session, None).await;
    assert_eq!(gateway.capture(&capture).await["id"], capture.as_str());
    // Numbers of audit rows go on.
    revoke(&gateway, &lives).await;
    let audit = get(&gateway, "/v1/audit?limit=1").await;
    assert_eq!(audit["data"][0]["action"], "key.revoke");
    assert!(!dir.join("data/accounts.db").exists(), "nothing makes it again");
    assert!(!gateway.log().contains("password-canary"), "{}", gateway.log());
}

#[tokio::test]
async fn backups_of_a_shared_store_have_the_captures_and_say_where_the_rest_is() {
    let (provider, cluster) = (answering().await, Cluster::shared());
    let store = format!("{{ url: '{}' }}", cluster.database().await);
    let gateway = gateway(&provider.url(), &store).await;
    let key = gateway.create_key().await;
    let capture = gateway.chat(&key, &body(1)).await.request_id();
    gateway.capture(&capture).await;
    assert_eq!(listed(&gateway, &key).await, [capture]);
    let backup = ["backup", "--config", "rerouter.yaml", "--out", "backup"];
    let (code, told) = rerouter(gateway.dir(), &backup);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("pg_dump"), "{told}");
    let copy = gateway.dir().join("backup");
    assert!(copy.join("captures.db").exists() && !copy.join("accounts.db").exists());
}

/// What `rerouter check` says of a store with this URL.
fn check(dir: &Path, url: &str) -> (Option<i32>, String) {
    let server = format!("store: {{ url: '{url}' }}\ndata_dir: data\n");
    std::fs::write(dir.join("s.yaml"), server).unwrap();
    rerouter(dir, &["check", "--config", "s.yaml"])
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_told_without_its_password() {
    let (cluster, dir) = (Cluster::shared(), tempfile::tempdir().unwrap());
    let url = cluster.database().await;
    let (code, told) = check(dir.path(), &url);
    assert_eq!(code, Some(0), "{told}");
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'state'";
    assert_eq!(postgres::run(&url, tables).await, ["0"], "a check makes nothing");
    let closed = format!("postgres://u:password-canary@127.0.0.1:{}/db", free_port());
    let later = cluster.database().await;
    postgres::run(
        &later,
        "CREATE TABLE schema_versions (number BIGINT, migrated_at TIMESTAMPTZ);
         INSERT INTO schema_versions VALUES (99)",
    )
    .await;
    for (url, said) in [
        (closed, "refused"),
        (format!("{url}_missing"), "does not exist"),
        (later, "schema 99, and this build reads schema"),
    ] {
        let (code, told) = check(dir.path(), &url);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("s.yaml:1:15: store.url: ") && told.contains(said), "{told}");
        assert!(!told.contains("canary"), "{told}");
        let (code, told) = rerouter(dir.path(), &["serve", "--config", "s.yaml"]);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(said) && !told.contains("canary"), "{told}");
    }
}

/// A server that is not ready: it ends two connections, then it refuses with this code, twice or
/// for ever, and then it is the one at this port. Returns its port.
async fn server_that_starts(to: u16, code: &'static str, times: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut client, _) = listener.accept().await.unwrap();
            if number < 2 {
                continue;
            }
            tokio::spawn(async move {
                if number - 2 >= times {
                    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    return drop(copy_bidirectional(&mut client, &mut server).await);
                }
                // It has no TLS, which the client asks for first.
                let mut asked = [0; 1024];
                if client.read(&mut asked).await.is_ok_and(|read| read == 8) {
                    client.write_all(b"N").await.unwrap();
                    let _read = client.read(&mut asked).await;
                }
                let fields = format!("SFATAL\0VFATAL\0C{code}\0Mnot now\0\0");
                let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
                let _gone =
                    client.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_start_waits_for_a_database_that_starts_and_not_for_a_right_or_a_name() {
    let cluster = Cluster::shared();
    let url = cluster.database().await;
    let (_, name) = url.rsplit_once('/').unwrap();
    let starts = server_that_starts(cluster.port(), "57P03", 2).await;
    let setup = Setup::new(&in_order(&[("a", "http://127.0.0.1:9")], ""))
        .server("store: { url: 'postgres://postgres:canary@127.0.0.1:${PORT}/${NAME}' }")
        .env("PORT", &starts.to_string())
        .env("NAME", name);
    let mut gateway = setup.start().await;
    assert_eq!(gateway.log().matches("waiting for the database: ").count(), 1);
    gateway.stop().await;
    // For these it does not wait.
    let wrong = server_that_starts(cluster.port(), "28P01", usize::MAX).await;
    for (port, name, said, waits) in
        [(wrong, name, "(28P01)", 1), (cluster.port(), "missing", "(3D000)", 0)]
    {
        gateway.set_env("PORT", &port.to_string());
        gateway.set_env("NAME", name);
        let told = gateway.try_start_again().await.unwrap_err();
        assert!(told.contains(said) && !told.contains("canary"), "{told}");
        // The first two connections of that server end without an answer.
        assert_eq!(told.matches("waiting for the database: ").count(), waits, "{told}");
    }
}

#[test]
fn a_check_warns_of_a_database_whose_certificate_is_not_checked() {
    let dir = tempfile::tempdir().unwrap();
    for (url, warned) in [
        ("postgres://u:password-canary@db.example.com/r?sslmode=require", true),
        ("postgres://u:password-canary@db.example.com/r", true),
        ("postgres://u:password-canary@localhost/r", false),
        ("sqlite", false),
    ] {
        let server = format!("store: {{ url: '{url}' }}\n");
        std::fs::write(dir.path().join("s.yaml"), server).unwrap();
        let (code, told) = rerouter(dir.path(), &["check", "--no-env", "--config", "s.yaml"]);
        assert_eq!(code, Some(0), "{told}");
        let warning = "store.url: the database's certificate and name are not checked";
        assert_eq!(told.contains(warning), warned, "{url}: {told}");
        assert!(!told.contains("canary"), "{told}");
    }
}

#[tokio::test]
async fn a_store_opens_with_its_master_key_only() {
    let (provider, cluster) = (answering().await, Cluster::shared());
    let url = cluster.database().await;
    let store = format!("{{ url: '{url}' }}");
    let first = gateway(&provider.url(), &store).await;
    let key = first.create_key().await;
    let dir = tempfile::tempdir().unwrap();
    let (code, told) = check(dir.path(), &url);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("data_dir: ") && told.contains("master key"), "{told}");
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let key_file = first.dir().join("data/master.key");
    std::fs::copy(&key_file, dir.path().join("data/master.key")).unwrap();
    assert_eq!(check(dir.path(), &url).0, Some(0));
    let master = std::fs::read_to_string(key_file).unwrap();
    let second = Setup::new(&in_order(&[("a", &provider.url())], ""))
        .server(&format!("store: {store}"))
        .env("REROUTER_MASTER_KEY", master.trim())
        .start()
        .await;
    assert_eq!(asks(&second, &key).await, 200);
}

#[tokio::test]
async fn tls_checks_what_sslmode_says() {
    let dir = tempfile::tempdir().unwrap();
    Tls::make(dir.path());
    let plain = Cluster::shared();
    let cluster = Cluster::start(&["listen_addresses=127.0.0.1,127.0.0.2"]);
    for (file, name) in [("cert.pem", "server.crt"), ("key.pem", "server.key")] {
        let copied = postgres::as_its_user("sh")
            .args([
                "-c",
                "umask 077; cat >\"$0\"",
                cluster.dir().join("data").join(name).to_str().unwrap(),
            ])
            .stdin(std::fs::File::open(dir.path().join(file)).unwrap())
            .status()
            .unwrap();
        assert!(copied.success());
    }
    cluster.run("postgres", "ALTER SYSTEM SET ssl = on").await;
    cluster.run("postgres", "SELECT pg_reload_conf()").await;
    let ca = |name: &str| format!("&sslrootcert={}", dir.path().join(name).display());
    std::fs::create_dir(dir.path().join("other")).unwrap();
    Tls::make(&dir.path().join("other"));
    let (ca, other) = (ca("ca.pem"), ca("other/ca.pem"));
    for (port, host, mode, good) in [
        (cluster.port(), "localhost", "disable".to_owned(), true),
        (cluster.port(), "localhost", "prefer".to_owned(), true),
        (cluster.port(), "localhost", "require".to_owned(), true),
        (cluster.port(), "localhost", format!("require{ca}"), true),
        (cluster.port(), "localhost", format!("require{other}"), false),
        (cluster.port(), "127.0.0.2", format!("verify-ca{ca}"), true),
        (cluster.port(), "localhost", format!("verify-ca{other}"), false),
        (cluster.port(), "localhost", format!("verify-full{ca}"), true),
        (cluster.port(), "127.0.0.1", format!("verify-full{ca}"), true),
        (cluster.port(), "127.0.0.2", format!("verify-full{ca}"), false),
        (cluster.port(), "localhost", format!("verify-full{other}"), false),
        (plain.port(), "localhost", "prefer".to_owned(), true),
        (plain.port(), "localhost", "require".to_owned(), false),
        (plain.port(), "localhost", format!("verify-full{ca}"), false),
    ] {
        let url = format!("postgres://postgres@{host}:{port}/postgres?sslmode={mode}");
        let (code, told) = check(dir.path(), &url);
        assert_eq!(code, Some(i32::from(!good)), "{url}: {told}");
    }
}
