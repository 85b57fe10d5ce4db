//! Keys of the server document and their effects, seen from outside: over sockets, in the log, in
//! the file system.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::client::{self, Connection, H2, Tls, find};
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{PATIENCE, until};

/// Every key of the server document. A new key comes with a test of its effect, here or beside the
/// tests of what it bounds.
const KEYS: &[&str] = &[
    "access_log.format",
    "agent.call_untrusted",
    "audit.retention.age",
    "audit.retention.rows",
    "capture.bodies",
    "capture.client_opt_out",
    "capture.enabled",
    "capture.encrypt",
    "capture.max_body",
    "capture.objects",
    "capture.redact",
    "capture.retention.age",
    "capture.retention.size",
    "console",
    "data_dir",
    "egress.deny",
    "hosts",
    "isolate_threads",
    "limits.body_memory",
    "limits.body_min_rate",
    "limits.connections",
    "limits.connections_per_address",
    "limits.header_timeout",
    "limits.request_body",
    "listeners[].address",
    "listeners[].interfaces",
    "listeners[].tls.cert",
    "listeners[].tls.key",
    "log.format",
    "metrics.address",
    "metrics.hosts",
    "metrics.label",
    "nodes.ca",
    "pin.registration",
    "public_url",
    "routing.env_allow",
    "routing.file",
    "routing.signal_headers",
    "routing.store",
    "session.absolute",
    "session.idle",
    "store.direct_url",
    "store.lease",
    "store.on_lease_lost",
    "store.url",
    "telemetry.otlp.endpoint",
    "telemetry.otlp.headers.NAME",
    "telemetry.otlp.sample",
    "threads",
    "trusted_proxies",
];

#[test]
fn the_reader_knows_these_keys() {
    let keys = rerouter::internals::config::server_keys();
    let mut known: Vec<String> = keys.into_iter().map(|key| key.path).collect();
    known.sort();
    assert_eq!(known, KEYS);
}

#[test]
fn an_object_store_is_for_gateways_that_share_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let check = |line: &str| {
        std::fs::write(dir.path().join("s.yaml"), line).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        let output =
            command.args(["check", "--config", "s.yaml"]).current_dir(dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let taken = check("capture: { objects: null }");
    assert_eq!(taken.0, Some(0), "{}", taken.1);
    let (code, said) = check("capture: { objects: s3://bucket }");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("capture.objects: has no use with SQLite"), "{said}");
}

/// A gateway in front of a provider that says "well".
async fn start(setup: impl FnOnce(Setup) -> Setup) -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = setup(Setup::new(&in_order(&[("a", &provider.url())], ""))).start().await;
    (gateway, provider)
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn account() -> Vec<u8> {
    json!({"email": "settings@example.org", "password": "correct horse"}).to_string().into_bytes()
}

/// The answer to the login of a new user.
async fn login(gateway: &Gateway) -> client::Answer {
    let registered = gateway.send("POST", "/v1/auth/register", &[JSON], Some(&account())).await;
    assert_eq!(registered.status, 201, "{}", registered.text());
    let login = gateway.send("POST", "/v1/auth/login", &[JSON], Some(&account())).await;
    assert_eq!(login.status, 200, "{}", login.text());
    login
}

#[tokio::test]
async fn a_certificate_is_shown_and_read_again() {
    let (gateway, _provider) = start(Setup::tls).await;
    let (address, old) = gateway.tls();
    let mut kept = H2::open((address, old)).await;
    let new = Tls::make(gateway.dir());
    let mut fresh =
        until("the new certificate", async || H2::try_open((address, &new)).await).await;
    for connection in [&mut kept, &mut fresh] {
        assert_eq!(connection.send("GET", "/health", &[], b"", false).await.status, 200);
    }
    assert!(H2::try_open((address, old)).await.is_none(), "the old certificate is shown no more");
}

#[tokio::test]
async fn metrics_are_at_their_address_only() {
    let (gateway, _provider) = start(|setup| setup).await;
    let metrics = gateway.metrics_address();
    for (path, expected) in
        [("/metrics", "rerouter_routing_info{"), ("/livez", "ok"), ("/readyz", "ok")]
    {
        for name in [
            metrics.to_string(),
            format!("localhost:{}", metrics.port()),
            "metrics.test".to_owned(),
        ] {
            let mut connection = Connection::try_open(metrics).await.expect("the metrics listener");
            let answer = connection.exchange(&client::request("GET", path, &name, &[], None)).await;
            assert!(
                answer.status == 200 && answer.text().contains(expected),
                "{path} of {name}: {}",
                answer.text()
            );
        }
        // The same without a body: what follows on the connection is the next answer.
        let mut connection = Connection::try_open(metrics).await.expect("the metrics listener");
        for _ in 0..2 {
            let head = connection
                .exchange(&client::request("HEAD", path, &metrics.to_string(), &[], None))
                .await;
            assert_eq!((head.status, head.body.len()), (200, 0), "{path}: {head:?}");
            assert!(
                head.header("content-length").unwrap().parse::<usize>().unwrap() > 0,
                "{path}: {head:?}"
            );
            let answer = connection
                .exchange(&client::request("GET", path, &metrics.to_string(), &[], None))
                .await;
            assert!(
                answer.status == 200 && answer.text().contains(expected),
                "{path}: {}",
                answer.text()
            );
            assert_eq!(head.header("content-type"), answer.header("content-type"));
        }
        assert_eq!(
            gateway.send("GET", path, &[], None).await.status,
            404,
            "{path} where clients are"
        );
        // As a page does whose name leads to loopback.
        let mut connection = Connection::try_open(metrics).await.expect("the metrics listener");
        let evil = format!("evil.example:{}", metrics.port());
        let answer = connection.exchange(&client::request("GET", path, &evil, &[], None)).await;
        assert!(
            answer.status == 421 && !answer.text().contains("rerouter"),
            "{path}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn there_are_as_many_workers_as_asked_for() {
    // Workers have the name of the service, as the process and its first thread have; so have
    // threads that come and go.
    let workers = |gateway: &Gateway| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.process())).unwrap();
        let names = tasks.map(|task| {
            std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
        });
        names.filter(|name| name.trim() == "rerouter").count()
    };
    // A line of the kernel's table has the port and the state in hexadecimal digits.
    let sockets = |gateway: &Gateway| {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let own = format!(":{:04X} ", gateway.address().port());
        table.lines().filter(|line| line.contains(&own) && line.contains(" 0A ")).count()
    };
    let (one, five) = (start(|setup| setup).await.0, start(|setup| setup.threads(5)).await.0);
    until("four workers more", async || (workers(&five) == workers(&one) + 4).then_some(())).await;
    let together = |setup: Setup| setup.threads(5).server("isolate_threads: false");
    let together = start(together).await.0;
    until("as many", async || (workers(&together) == workers(&five)).then_some(())).await;
    assert_eq!([&one, &five, &together].map(sockets), [1, 5, 1]);
}

#[tokio::test]
async fn the_public_url_makes_cookies_secure_and_hosts_are_known_beside_its_own() {
    let lines = "public_url: https://gw.example.com\nhosts: [Also.example.com]";
    let (gateway, _provider) = start(|setup| setup.server(lines)).await;
    let login = login(&gateway).await;
    let cookie = login.header("set-cookie").expect("a cookie");
    assert!(
        cookie.starts_with("__Host-rerouter_session=") && cookie.contains("Secure"),
        "{cookie}"
    );
    let local = format!("localhost:{}", gateway.address().port());
    for (host, status) in [
        (gateway.host().as_str(), 200),
        (&local, 200),
        ("gw.example.com", 200),
        ("GW.example.com", 200),
        ("also.example.com", 200),
        ("other.example.com", 421),
        ("gw.example.com.rebound.example", 421),
    ] {
        let ask = client::request("GET", "/health", host, &[], None);
        let answer = gateway.connect().await.exchange(&ask).await;
        assert_eq!(answer.status, status, "{host}");
        assert_eq!(answer.text().contains("`hosts`"), status == 421, "{}", answer.text());
    }
}

#[tokio::test]
async fn registration_is_open_or_closed() {
    for (word, status) in [("open", 201), ("closed", 403)] {
        let (gateway, _provider) =
            start(|setup| setup.server(&format!("pin: {{ registration: {word} }}"))).await;
        let answer = gateway.send("POST", "/v1/auth/register", &[JSON], Some(&account())).await;
        assert_eq!(answer.status, status, "{word}: {}", answer.text());
        // Where nobody may register, nobody is told what would be wrong with it.
        let text = ("content-type", "text/plain");
        for (headers, body, when_open) in [
            (&[text][..], account(), 415),
            (&[JSON, ("content-encoding", "gzip")], account(), 415),
            (&[JSON], vec![b' '; 300 << 10], 413),
            (&[JSON], b"{".to_vec(), 400),
        ] {
            let answer = gateway.send("POST", "/v1/auth/register", headers, Some(&body)).await;
            match word {
                "open" => assert_eq!(answer.status, when_open, "{}", answer.text()),
                _ => envelope::management(&answer, 403, "registration_closed"),
            }
        }
    }
}

/// Asks who one is by a session until it is over.
async fn until_over(gateway: &Gateway, login: &client::Answer) {
    let token = login.json()["token"].as_str().expect("a token").to_owned();
    until("the session to be over", async || {
        let answer = gateway.manage("GET", "/v1/auth/me", &token, None).await;
        assert!([200, 401].contains(&answer.status), "{}", answer.text());
        (answer.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_silent_ends() {
    // Shorter than the time between two questions, each of which would keep it alive.
    let (gateway, _provider) = start(|setup| setup.server("session: { idle: 2ms }")).await;
    until_over(&gateway, &login(&gateway).await).await;
}

#[tokio::test]
async fn a_session_in_use_ends_all_the_same() {
    let (gateway, _provider) =
        start(|setup| setup.server("session: { idle: 1s, absolute: 1s }")).await;
    let login = login(&gateway).await;
    assert!(login.header("set-cookie").unwrap().contains("Max-Age=1;"), "{login:?}");
    until_over(&gateway, &login).await;
}

#[tokio::test]
async fn a_body_slower_than_the_rate_is_408() {
    for (rate, status) in [("1MiB/s", 408), ("0", 200)] {
        let lines = format!("limits: {{ header_timeout: 200ms, body_min_rate: {rate} }}");
        let (gateway, _provider) = start(|setup| setup.server(&lines)).await;
        let (key, body) = (gateway.create_key().await, chat_body("auto", false));
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (host, length) = (gateway.host(), body.len());
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-length: {length}\r\n\r\n",
            key.secret
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A byte at a time, as a slow client does, until there is an answer.
        let (mut rest, mut answer, began) = (body.bytes(), Vec::new(), Instant::now());
        while find(&answer, b"\r\n\r\n").is_none() {
            assert!(began.elapsed() < PATIENCE, "no answer");
            if let Some(byte) = rest.next() {
                let _too_late = stream.write_all(&[byte]).await;
            }
            let mut piece = [0; 4096];
            if let Ok(Ok(n)) = timeout(Duration::from_millis(15), stream.read(&mut piece)).await {
                answer.extend_from_slice(&piece[..n]);
            }
        }
        let line = String::from_utf8_lossy(&answer).into_owned();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{rate}: {line}");
    }
}

#[tokio::test]
async fn a_denied_network_is_not_connected_to() {
    for (deny, status) in [("[]", 200), ("[127.0.0.0/8]", 502)] {
        let (gateway, provider) =
            start(|setup| setup.server(&format!("egress: {{ deny: {deny} }}"))).await;
        let key = gateway.create_key().await;
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(
            (answer.status, provider.count()),
            (status, usize::from(status == 200)),
            "{deny}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn only_trusted_proxies_say_who_the_client_is() {
    for (networks, client) in
        [("[10.0.0.0/8]", "127.0.0.1"), ("[10.0.0.0/8, 127.0.0.1/32]", "203.0.113.9")]
    {
        let (gateway, _provider) =
            start(|setup| setup.server(&format!("trusted_proxies: {networks}"))).await;
        let id = gateway
            .send("GET", "/health", &[("x-forwarded-for", "203.0.113.9")], None)
            .await
            .request_id();
        let line = until("the access line", async || {
            gateway.log().lines().find(|line| line.contains(&id)).map(str::to_owned)
        })
        .await;
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["client"], client, "{networks}");
    }
}

#[tokio::test]
async fn only_allowed_variables_get_into_the_routing_document() {
    let provider = Provider::always(scripted::completion("well")).await;
    let document = |variable: &str| {
        in_order(&[("a", &provider.url())], "")
            .replace("${UPSTREAM_API_KEY:-sk-upstream}", variable)
    };
    let setup = Setup::new(&document("${ALLOWED_ONE}"))
        .routing("env_allow: [ALLOWED_*]")
        .env("ALLOWED_ONE", "sk-one");
    let gateway = setup.env("OTHER_API_KEY", "sk-other").start().await;
    let key = gateway.create_key().await;
    let ask = async || {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        provider.last().header("authorization").unwrap()
    };
    assert_eq!(ask().await, "Bearer sk-one");
    gateway.replace_routing(&document("${OTHER_API_KEY}"));
    until("the refusal", async || {
        gateway
            .log()
            .contains("`OTHER_API_KEY` matches no pattern of `routing.env_allow`")
            .then_some(())
    })
    .await;
    assert_eq!(ask().await, "Bearer sk-one", "a refused document changes nothing");
}

#[tokio::test]
async fn expressions_see_listed_headers_only() {
    let provider = Provider::always(scripted::completion("well")).await;
    let document = |header: &str| {
        let gold = format!(
            "{{ name: gold, when: \"headers['{header}'] == 'gold'\", \
             targets: [ {{ target: a/gold }} ] }}"
        );
        let rules = format!("rules:\n      - {gold}\n      - name: default");
        in_order(&[("a", &provider.url())], "").replace("rules:\n      - name: default", &rules)
    };
    let gateway = Setup::new(&document("x-tier")).routing("signal_headers: [X-Tier]").start().await;
    let bearer = format!("Bearer {}", gateway.create_key().await.secret);
    for (header, model) in [("x-tier", "gold"), ("x-other", "model")] {
        let headers = [("authorization", bearer.as_str()), (header, "gold"), JSON];
        let answer = gateway
            .send(
                "POST",
                "/v1/chat/completions",
                &headers,
                Some(chat_body("auto", false).as_bytes()),
            )
            .await;
        assert_eq!(answer.header("x-rerouter-model"), Some(model), "{header}: {}", answer.text());
        let inputs = &gateway.capture(&answer.request_id()).await["inputs"]["request"]["headers"];
        assert_eq!(inputs.to_string().contains("gold"), header == "x-tier", "{header}: {inputs}");
    }
    gateway.replace_routing(&document("x-other"));
    until("the refusal", async || {
        gateway.log().contains("`x-other` is not in `routing.signal_headers`").then_some(())
    })
    .await;
}

#[tokio::test]
async fn captures_that_are_off_leave_nothing() {
    for enabled in [true, false] {
        let (gateway, _provider) =
            start(|setup| setup.server(&format!("capture: {{ enabled: {enabled} }}"))).await;
        let key = gateway.create_key().await;
        assert_eq!(gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status, 200);
        // The list waits for what is on its way.
        let list = gateway.manage("GET", "/v1/router/replay", &key.secret, None).await.json();
        assert_eq!(list["data"].as_array().map(Vec::len), Some(usize::from(enabled)), "{list}");
    }
}

#[tokio::test]
async fn without_bodies_a_capture_is_its_head() {
    let (gateway, _provider) = start(|setup| setup.server("capture: { bodies: false }")).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    let capture = gateway.capture(&id).await;
    assert_eq!(
        (&capture["status"], &capture["replayable"]),
        (&json!(200), &json!(false)),
        "{capture}"
    );
    assert!(!capture.to_string().contains("Say a word."), "{capture}");
    let reroute = gateway.reroute(&id, &key.secret).await;
    envelope::management(&reroute, 409, "not_captured");
}

#[tokio::test]
async fn a_client_keeps_its_bodies_out_where_it_may() {
    for may in [true, false] {
        let (gateway, _provider) =
            start(|setup| setup.server(&format!("capture: {{ client_opt_out: {may} }}"))).await;
        let bearer = format!("Bearer {}", gateway.create_key().await.secret);
        for (lines, says) in [
            (&["off"][..], true),
            (&["Off "], true),
            (&["on", "OFF"], true),
            (&["on, off"], true),
            (&["offer"], false),
        ] {
            let mut headers = vec![("authorization", bearer.as_str()), JSON];
            headers.extend(lines.iter().map(|line| ("x-rerouter-capture", *line)));
            let answer = gateway
                .send(
                    "POST",
                    "/v1/chat/completions",
                    &headers,
                    Some(chat_body("auto", false).as_bytes()),
                )
                .await;
            let capture = gateway.capture(&answer.request_id()).await;
            assert_eq!(
                capture.to_string().contains("Say a word."),
                !(may && says),
                "client_opt_out: {may}, {lines:?}: {capture}"
            );
        }
    }
}

#[tokio::test]
async fn of_a_key_as_much_is_captured_as_its_label_says() {
    let (gateway, _provider) = start(|setup| setup).await;
    for (word, captures, bodies) in [("on", 1, true), ("heads", 1, false), ("off", 0, false)] {
        let asked = json!({ "labels": { "capture": word }, "scopes": ["inference", "keys"] });
        let made = gateway
            .manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&asked))
            .await
            .json();
        let (secret, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
        // What it makes is captured no more than itself.
        let child = gateway.manage("POST", "/v1/router/keys", secret, None).await.json();
        for (key, id) in
            [(secret, id), (child["key"].as_str().unwrap(), child["id"].as_str().unwrap())]
        {
            let headers = [("authorization", format!("Bearer {key}"))];
            let headers = [(headers[0].0, headers[0].1.as_str()), JSON];
            let answer = gateway
                .send(
                    "POST",
                    "/v1/chat/completions",
                    &headers,
                    Some(chat_body("auto", false).as_bytes()),
                )
                .await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let list = gateway
                .manage("GET", &format!("/v1/router/replay?key={id}"), &gateway.admin_key, None)
                .await
                .json();
            assert_eq!(list["data"].as_array().map(Vec::len), Some(captures), "{word}: {list}");
            if captures > 0 {
                let capture = gateway.capture(&answer.request_id()).await;
                assert_eq!(
                    (capture["replayable"].as_bool(), capture.to_string().contains("Say a word.")),
                    (Some(bodies), bodies),
                    "{capture}"
                );
            }
        }
    }
    let wrong = json!({ "labels": { "capture": "never" } });
    let refused = gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&wrong)).await;
    assert_eq!((refused.status, refused.json()["field"].as_str()), (400, Some("labels")));
}

#[tokio::test]
async fn of_a_replay_no_more_is_captured_than_of_its_caller_and_of_its_original_s_key() {
    let (gateway, _provider) = start(|setup| setup).await;
    let admin = gateway.admin_key.as_str();
    let labels = |word: &str| json!({ "labels": { "capture": word } });
    let mut keys = Vec::new();
    for word in ["on", "heads", "off"] {
        let mut body = labels(word);
        body["scopes"] = json!(["inference", "replay:all"]);
        keys.push(gateway.manage("POST", "/v1/router/keys", admin, Some(&body)).await.json());
    }
    let secret = |at: usize| keys[at]["key"].as_str().unwrap();
    let bearer = format!("Bearer {}", secret(0));
    let headers = [("authorization", bearer.as_str()), JSON];
    let answer = gateway
        .send("POST", "/v1/chat/completions", &headers, Some(chat_body("auto", false).as_bytes()))
        .await;
    let id = answer.request_id();
    gateway.capture(&id).await;
    // Whether the replay may be run again; none where it was not captured.
    let reroute = async |key: &str| {
        let answer = gateway
            .answers(200, "POST", &format!("/v1/router/replay/{id}/reroute"), key, None)
            .await;
        let new = answer.json()["new_id"].as_str().unwrap().to_owned();
        let capture = gateway.manage("GET", &format!("/v1/router/replay/{new}"), admin, None).await;
        (capture.status == 200).then(|| capture.json()["replayable"] == true)
    };
    assert_eq!(reroute(secret(0)).await, Some(true));
    assert_eq!(reroute(secret(1)).await, Some(false));
    assert_eq!(reroute(secret(2)).await, None);
    let path = format!("/v1/router/keys/{}", keys[0]["id"].as_str().unwrap());
    for (word, kept) in [("heads", Some(false)), ("off", None), ("on", Some(true))] {
        gateway.answers(200, "PATCH", &path, admin, Some(&labels(word))).await;
        assert_eq!(reroute(admin).await, kept, "{word}");
    }
}

#[tokio::test]
async fn bodies_are_on_disk_in_clear_only_when_asked() {
    for (encrypt, clear) in [(true, false), (false, true)] {
        let (mut gateway, _provider) =
            start(|setup| setup.server(&format!("capture: {{ encrypt: {encrypt} }}"))).await;
        let key = gateway.create_key().await;
        let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
        assert_eq!(gateway.capture(&id).await["request"]["body"], chat_body("auto", false));
        let in_clear = |bytes: &[u8]| {
            find(bytes, b"Say a word.").is_some()
                || crate::captures::on_disk::zstd_frames(bytes)
                    .iter()
                    .any(|frame| find(frame, b"Say a word.").is_some())
        };
        // Compressed in the clear it could still be read; also after an orderly stop.
        for _ in 0..2 {
            let files = crate::captures::on_disk::files(&gateway.dir().join("data"));
            assert!(files.iter().any(|path| path.extension().is_some_and(|end| end == "seg")));
            assert_eq!(
                files.iter().any(|path| in_clear(&std::fs::read(path).unwrap())),
                clear,
                "encrypt: {encrypt}"
            );
            gateway.restart().await;
        }
    }
}

#[tokio::test]
async fn captures_beyond_their_retention_go() {
    for (wide, narrow) in [("age: 1h", "age: 1ms"), ("size: 1MiB", "size: 1B")] {
        let lines = |retention: &str| format!("capture: {{ retention: {{ {retention} }} }}\n");
        let (mut gateway, _provider) = start(|setup| setup.server(&lines(wide))).await;
        let key = gateway.create_key().await;
        let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
        gateway.capture(&id).await;
        // It is looked at when a gateway starts, and then every minute.
        gateway.restart().await;
        gateway.capture(&id).await;
        let document = gateway.dir().join("rerouter.yaml");
        let text =
            std::fs::read_to_string(&document).unwrap().replace(&lines(wide), &lines(narrow));
        std::fs::write(&document, text).unwrap();
        gateway.restart().await;
        until("the capture to go", async || {
            let answer =
                gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
            (answer.status == 404).then_some(())
        })
        .await;
    }
}
