//! Documents as operators write them: defaults, mistakes, variables, revisions.

mod decisions;
mod estimate_correction;
mod health;
mod names;
mod nodes;
mod routing_document;

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use rerouter_base::bounds;
use rerouter_routing::{Protocol, RetryPolicy};

fn env(name: &str) -> Option<String> {
    match name {
        "OPENAI_API_KEY" => Some("sk-canary".to_owned()),
        "BAD_API_KEY" => Some("sk canary\n".to_owned()),
        "X_BASE_URL" => Some("https://canary.example/v1/".to_owned()),
        "PORT" => Some("9000".to_owned()),
        "ADMIN_API_KEY" | "REROUTER_MASTER_KEY" | "HOME" => Some("canary".to_owned()),
        _ => None,
    }
}

fn server(text: &str) -> Server {
    read_server("conf/rerouter.yaml", text, &env)
        .unwrap_or_else(|problems| panic!("{}", shown(&problems)))
}

fn server_problems(text: &str) -> String {
    shown(&read_server("s.yaml", text, &env).unwrap_err())
}

fn routing(text: &str) -> Result<Routing, Vec<Problem>> {
    let server = server("routing: { signal_headers: [X-Tier] }");
    read_routing("r.yaml", text, &server, &env, Some(SocketAddr::from(([127, 0, 0, 1], 4000))))
}

fn routing_problems(text: &str) -> String {
    shown(&routing(text).unwrap_err())
}

/// Renders problems, and checks that each one has a hint.
fn shown(problems: &[Problem]) -> String {
    assert!(problems.iter().all(|problem| problem.hint.is_some()), "no hint: {problems:?}");
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

#[test]
fn an_empty_server_document_is_the_defaults() {
    let server = server("");
    assert_eq!(server.listeners.len(), 1);
    assert_eq!(server.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!(server.listeners[0].interfaces.len(), 3);
    assert_eq!(server.metrics.address.to_string(), "127.0.0.1:9090");
    assert!(
        server.registration_is_open()
            && server.capture.encrypt
            && server.access_log.format.is_some()
    );
    assert_eq!(
        (server.capture.max_body, server.limits.request_body, server.limits.body_min_rate),
        (8 << 20, 32 << 20, 1024)
    );
    assert_eq!(server.session.absolute, Duration::from_secs(43_200));
    assert!(server.egress.deny.iter().any(|net| net.contains("169.254.169.254".parse().unwrap())));
}

#[test]
fn every_key_of_the_server_document_is_read() {
    let text = r#"
listeners:
  - address: 0.0.0.0:${PORT}
    tls: { cert: a.crt, key: a.key }
    interfaces: [router]
public_url: https://GW.example.com/
hosts: [Other.example.com]
metrics: { address: "127.0.0.1:${NOPE:-9191}" }
threads: ${THREADS:-4}
data_dir: /var/lib/rerouter
store: { url: sqlite }
routing: { file: r.yaml, env_allow: ["A_*"], signal_headers: [X-Tier] }
capture: { enabled: true, bodies: false, encrypt: false, client_opt_out: false,
  max_body: 1MiB, redact: [] }
pin: { registration: closed }
agent: { call_untrusted: false }
session: { idle: 5m, absolute: 7d }
limits: { header_timeout: 500ms, body_min_rate: 2KiB/s, request_body: 1GiB,
  connections: 5, connections_per_address: 2 }
egress: { deny: [] }
trusted_proxies: [10.0.0.0/8]
access_log: { format: off }
"#;
    let server = server(text);
    assert_eq!(server.listeners[0].address.to_string(), "0.0.0.0:9000");
    assert_eq!(server.listeners[0].interfaces, [rerouter_base::interface::Interface::Router]);
    assert_eq!(server.public_url.as_deref(), Some("https://gw.example.com"));
    assert_eq!(
        (server.hosts[0].as_str(), server.metrics.address.port(), server.threads),
        ("other.example.com", 9191, 4)
    );
    assert_eq!(server.routing.signal_headers, ["x-tier"]);
    assert!(
        !server.capture.bodies
            && !server.capture.encrypt
            && !server.capture.client_opt_out
            && !server.registration_is_open()
    );
    assert_eq!(server.limits.header_timeout, Duration::from_millis(500));
    assert_eq!((server.limits.connections, server.limits.connections_per_address), (5, Some(2)));
    assert!(server.egress.deny.is_empty() && server.access_log.format.is_none());
    assert!(!self::server("listeners: [{ address: '0.0.0.0:80' }]").registration_is_open());
}

#[test]
fn every_mistake_of_a_server_document_is_found_at_once() {
    let text = "\
listeners:
  - addres: 127.0.0.1:8080
  - { address: localhost, tls: { cert: x }, interfaces: [rooter] }
public_url: https://u:p@x
threads: many
data_dir: [x]
store: { url: postgres://u:canary@h/db?sslmode=canary, lease: 0s, on_lease_lost: serve }
capture: { retention: { ages: 7d }, max_body: 8MB, redact: [a, '(', 'b*'], objects: x }
session: { idle: 2h, absolute: 1h }
limits: { request_body: 2GiB, header_timeout: 0s, connections: 0 }
egress: { deny: [10.0.0.0/99] }
nodes: { ca: /nonexistent }
routing: { file: x.yaml, store: true, signal_headers: [Authorization], env_allow: '*' }
access_log: { format: jsn }
hosts: ${HOSTS}
agents: {}
pin: { registration: opened }
audit: { retention: { age: a week } }
";
    let wanted = "\
s.yaml:2:5: listeners[0]: `address` is missing (add `address: …` here)
s.yaml:2:5: listeners[0].addres: unknown key (did you mean `address`?)
s.yaml:3:16: listeners[1].address: must be an address and a port (for example `127.0.0.1:8080` or \
    `[::]:8080`)
s.yaml:3:32: listeners[1].tls: `key` is missing (add `key: …` here)
s.yaml:3:58: listeners[1].interfaces[0]: must be one of `pin`, `agent`, \
    `router` (did you mean `router`?)
s.yaml:4:13: public_url: the URL must not hold credentials; \
    use `api_key` (for example `https://gw.example.com`)
s.yaml:5:10: threads: must be a whole number, not text (digits without quotes and without a unit)
s.yaml:6:11: data_dir: must be text, not a list (for example `\"text\"`)
s.yaml:7:15: store.url: `sslmode` must be `disable`, `prefer`, `require`, `verify-ca` or \
    `verify-full` (see docs/reference/server-document.md)
s.yaml:7:63: store.lease: must be from 500ms to 10m (for example `30s`)
s.yaml:7:82: store.on_lease_lost: must be one of `refuse`, `serve_stale` (for example `refuse`)
s.yaml:8:25: capture.retention.ages: unknown key (did you mean `age`?)
s.yaml:8:47: capture.max_body: must be a size (for example `8KiB`, `64MiB`, \
    `1GiB` or a number of bytes)
s.yaml:8:64: capture.redact[1]: invalid pattern: unclosed group (for example `\\b\\d{16}\\b`)
s.yaml:8:69: capture.redact[2]: invalid pattern: it matches the empty text (for example \
    `\\b\\d{16}\\b`)
s.yaml:8:85: capture.objects: must be a URL like `s3://bucket/folder` (for example \
    `s3://bucket/folder`)
s.yaml:9:18: session.idle: longer than `absolute` (shorten it, or lengthen `absolute`)
s.yaml:10:25: limits.request_body: must be from 1B to 1GiB (for example `32MiB`)
s.yaml:10:47: limits.header_timeout: must be positive (for example `30s`)
s.yaml:10:64: limits.connections: must be from 1 to 1000000 (leave it out for the default)
s.yaml:11:18: egress.deny[0]: must be a network (for example `10.0.0.0/8`)
s.yaml:12:14: nodes.ca: the file cannot be read: No such file or directory (os error 2) (the path \
    of a PEM file of certificates)
s.yaml:13:33: routing.store: conflicts with `routing.file` (remove one of them)
s.yaml:13:56: routing.signal_headers[0]: holds credentials: conditions must not see it (name a \
    header that holds no secret)
s.yaml:13:83: routing.env_allow: must be a list, not text (for example `[one, two]`)
s.yaml:14:23: access_log.format: must be one of `auto`, `text`, `json`, `off` (did you mean `json`?)
s.yaml:15:8: hosts: the variable `HOSTS` is not set and has no default (`${NAME}` must be set and \
    allowed; `${NAME:-default}` may be unset)
s.yaml:16:1: agents: unknown key (did you mean `agent`?)
s.yaml:17:22: pin.registration: must be one of `open`, `closed` (did you mean `open`?)
s.yaml:18:28: audit.retention.age: must be a duration (for example `20ms`, `30s`, `5m`, \
    `12h` or `7d`)
";
    similar(&server_problems(text), wanted);
    let endless = "session: { idle: 36501d, absolute: 106751991167d }";
    assert_eq!(server_problems(endless).matches("must be at most 36500d").count(), 2);
    assert!(server_problems("data_dir: ''").contains("must be the path of a file or directory"));
}

/// Compares two texts line by line, so that a failure shows the line.
fn similar(found: &str, wanted: &str) {
    let (found, wanted): (Vec<&str>, Vec<&str>) =
        (found.lines().collect(), wanted.lines().collect());
    for (at, line) in wanted.iter().enumerate() {
        assert_eq!(found.get(at), Some(line), "problem {at} of:\n{}", found.join("\n"));
    }
    assert_eq!(found.len(), wanted.len(), "{}", found.join("\n"));
}

#[test]
fn variables_are_used_and_never_shown() {
    let document = |key: &str| {
        format!(
            "providers:\n  o:\n    protocol: openai\n    base_url: ${{X_BASE_URL}}\n    \
             api_key: '{key}'\n    headers: {{ x-org: '${{OPENAI_API_KEY}}' }}\nrecipes: {{}}\n\
             aliases: {{}}\n"
        )
    };
    let routing = routing(&document("${OPENAI_API_KEY}"))
        .unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    let provider = routing.provider("o").unwrap();
    assert_eq!(provider.api_keys.first().map(|key| key.expose()), Some("sk-canary"));
    assert_eq!(
        (provider.base.host.as_str(), provider.base.path.as_str()),
        ("canary.example", "/v1")
    );
    assert!(routing.text().contains("${OPENAI_API_KEY}"));
    let debug = format!("{routing:?} {provider:?} {:?}", server("data_dir: ${HOME}"));
    assert!(!debug.contains("canary"), "{debug}");
    for (key, wanted) in [
        ("${ADMIN_API_KEY}", "a routing document must not use the variable"),
        ("${REROUTER_API_KEY}", "a routing document must not use the variable"),
        ("${HOME}", "matches no pattern"),
        ("${MISSING_API_KEY}", "is not set"),
        ("${BAD_API_KEY}", "must be visible ASCII"),
    ] {
        let found = routing_problems(&document(key));
        assert!(found.contains(wanted) && !found.contains("canary"), "{key}: {found}");
    }
    let refused = server_problems(
        "threads: ${OPENAI_API_KEY}\nmetrics: { address: '${OPENAI_API_KEY}' }\n\
         access_log: { format: '${OPENAI_API_KEY}' }",
    );
    assert_eq!(refused.lines().count(), 3, "{refused}");
    assert!(!refused.contains("canary"), "{refused}");
}

#[test]
fn the_query_of_a_base_url_holds_no_credential() {
    let document = |url: &str| {
        format!(
            "providers:\n  o: {{ protocol: openai, base_url: '{url}', api_key: sk-a }}\n\
             recipes: {{}}\naliases: {{}}\n"
        )
    };
    let taken = routing(&document("${X_BASE_URL}?api-version=1"))
        .unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    let base = &taken.provider("o").unwrap().base;
    assert_eq!((base.path.as_str(), base.query.as_str()), ("/v1", "api-version=1"));
    for (url, wanted) in [
        (
            "https://x/v1?key=canary",
            "the query of the URL must not hold a credential (use `api_key` or `headers`)",
        ),
        (
            "https://x/v1?a=1&api%5Fkey=${OPENAI_API_KEY}",
            "the query of the URL must not hold a credential",
        ),
        ("https://x/v1?a=1#b", "the URL must not have a fragment"),
    ] {
        let found = routing_problems(&document(url));
        assert!(found.contains(wanted) && !found.contains("canary"), "{url}: {found}");
    }
}

#[test]
fn one_document_has_one_revision() {
    let yaml = "# a comment\nproviders:\n  \
        o: { protocol: openai, base_url: 'http://x', api_key: \"${OPENAI_API_KEY}\" } # another\n\
        models:\n  o/m: { input_per_mtok: 1.5 }\nrecipes: {}\naliases: {}\n";
    let json = concat!(
        r#"{"aliases":{},"recipes":{},"models":{"o/m":{"input_per_mtok":1.5}},"#,
        r#""providers":{"o":{"api_key":"${OPENAI_API_KEY}","base_url":"http://x","#,
        r#""protocol":"openai"}}}"#,
    );
    let revision = |text: &str| {
        routing(text)
            .unwrap_or_else(|problems| panic!("{}", shown(&problems)))
            .revision()
            .to_owned()
    };
    assert_eq!(revision(yaml), revision(json));
    assert_eq!(revision(yaml).len(), 12);
    assert_ne!(revision(yaml), revision(&yaml.replace("1.5", "2")));
    assert_ne!(revision(yaml), revision(&yaml.replace("${OPENAI_API_KEY}", "sk-canary")));
    // The revision is the hash of the bytes {"aliases":{},"recipes":{}}.
    assert_eq!(revision("recipes: {}\naliases: {}"), "50a826dd9d92");
}

#[test]
fn files_are_read_or_the_reason_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.yaml");
    assert!(shown(&load(&path).unwrap_err()).contains("cannot be read"));
    std::fs::write(&path, "a: \u{e4}").unwrap();
    assert_eq!(load(&path).unwrap().text, "a: \u{e4}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(shown(&load(&path).unwrap_err()).contains("UTF-8"));
    std::fs::write(&path, " ".repeat(bounds::DOCUMENT_BYTES + 9)).unwrap();
    let source = load(&path).unwrap();
    assert!(
        shown(&read_server(&source.file, &source.text, &env).unwrap_err()).contains("longer than")
    );
}

proptest::proptest! {
    #[test]
    fn no_document_panics(at in 0usize..2000, with in "\\PC{0,3}|[\\[\\]{}:,'\"#&*!|>\n ]{0,3}") {
        let text = demo_routing();
        let at = text.floor_char_boundary(at.min(text.len()));
        let bent = format!("{}{with}{}", &text[..at], text.get(at + 1..).unwrap_or(""));
        let _ = routing(&bent);
        let _ = read_server("s.yaml", &bent, &env);
    }
}
