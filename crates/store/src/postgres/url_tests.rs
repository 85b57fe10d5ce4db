use super::*;

fn refusal(url: &str) -> StoreUrlError {
    match PostgresUrl::parse(url) {
        Ok(_) => panic!("{url} is accepted"),
        Err(why) => why,
    }
}

#[test]
fn a_url_is_read_as_by_libpq() {
    let url = "postgresql://us%40er:p%40ss%2F@[::1]:6000,db.example.com/na%20me?\
               sslmode=require&application_name=mine&connect_timeout=1";
    let url = PostgresUrl::parse(url).unwrap();
    let config = &url.config;
    assert_eq!(config.get_user(), Some("us@er"));
    assert_eq!(config.get_password(), Some(&b"p@ss/"[..]));
    assert_eq!(config.get_dbname(), Some("na me"));
    assert_eq!(config.get_hosts().len(), 2);
    assert_eq!(config.get_ports(), [6000, 5432]);
    assert_eq!(config.get_application_name(), Some("mine"));
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(1)));
    assert_eq!(config.get_ssl_mode(), SslMode::Require);
    // Each server is tried alone.
    assert_eq!(url.servers(), 2);
    let timeout = |ms| *url.server(0, Duration::from_millis(ms)).get_connect_timeout().unwrap();
    assert_eq!(timeout(9_000), Duration::from_secs(1));
    assert_eq!(timeout(400), Duration::from_millis(400));
    let second = url.server(1, Duration::from_secs(9));
    assert_eq!(second.get_hosts(), [Host::Tcp("db.example.com".into())]);
    assert_eq!(second.get_ports(), [5432]);
    assert_eq!(second.get_password(), Some(&b"p@ss/"[..]));
    assert_eq!(second.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert_eq!(second.get_ssl_mode(), SslMode::Require);
    for (words, good) in [("read-write", true), ("primary", true), ("any", false)] {
        let url = format!("postgres://u:p@a,b/r?target_session_attrs={words}");
        assert_eq!(PostgresUrl::parse(&url).is_ok(), good, "{words}");
    }
    let lenient = PostgresUrl::parse("postgres://u:a/b?c@host/db").unwrap();
    assert_eq!(lenient.config.get_password(), Some(&b"a/b?c"[..]));
    let socket = PostgresUrl::parse("postgres://%2Frun%2Fpostgresql/rerouter").unwrap();
    assert_eq!(socket.config.get_hosts(), [Host::Unix("/run/postgresql".into())]);
    assert_eq!(socket.config.get_application_name(), Some("rerouter"));
}

#[test]
fn each_word_of_sslmode_says_what_is_checked() {
    use Verification::{Authority, Full, Nothing};
    for (words, mode, verification) in [
        ("", SslMode::Prefer, Nothing),
        ("?sslmode=prefer", SslMode::Prefer, Nothing),
        ("?sslmode=disable", SslMode::Disable, Nothing),
        ("?sslmode=require", SslMode::Require, Nothing),
        ("?sslmode=verify-ca", SslMode::Require, Authority),
        ("?sslmode=verify-full", SslMode::Require, Full),
        ("?sslrootcert=system&sslmode=verify-full", SslMode::Require, Full),
        ("?sslrootcert=system", SslMode::Require, Full),
    ] {
        let parsed = PostgresUrl::parse(&format!("postgres://u:p@db.example.com/r{words}"));
        let url = match parsed {
            // This machine may have no certificate authorities installed.
            Err(StoreUrlError::Machine(why)) if verification != Nothing => {
                assert!(why.contains("sslrootcert"), "{why}");
                continue;
            }
            other => other.unwrap(),
        };
        assert_eq!(url.config.get_ssl_mode(), mode, "{words}");
        assert_eq!(url.verification, verification, "{words}");
        assert_eq!(url.is_exposed(), verification != Full, "{words}");
    }
    let weak = PostgresUrl::parse("postgres://u:p@h/r?sslrootcert=system&sslmode=require");
    assert!(matches!(weak, Err(StoreUrlError::Url(_))));
    for host in ["localhost", "127.0.0.1", "[::1]", "%2Frun"] {
        assert!(!PostgresUrl::parse(&format!("postgres://u:p@{host}/r")).unwrap().is_exposed());
    }
}

#[test]
fn a_url_that_cannot_be_used_is_refused_without_being_quoted() {
    let canary = "canary-9bf31c7ff062936a";
    for url in [
        format!("postgres://u:a@{canary}@host/db"),
        format!("postgres://u:{canary}@/db"),
        format!("postgres://u:{canary}@host:none/db"),
        format!("postgres://u:{canary}@host/db?sslmode={canary}"),
        format!("postgres://u:{canary}@host/db?{canary}=1"),
        format!("postgres://u:{canary}@host/db?sslrootcert=/{canary}&sslmode=verify-full"),
    ] {
        let why = refusal(&url);
        assert!(!format!("{why:?}").contains(canary), "{url}: {why:?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let wanted =
        format!("postgres://u:p@host/db?sslmode=verify-full&sslrootcert={}", file.path().display());
    assert!(matches!(refusal(&wanted), StoreUrlError::Machine(_)), "an empty file");
}

#[test]
fn debug_shows_nothing() {
    let url = PostgresUrl::parse("postgres://u:canary@canary-host/canary").unwrap();
    assert!(!format!("{url:?}").contains("canary"));
}
