//! The routing document by the API: what is live, another in its place, a look at one, the
//! revisions so far, and back.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::client::{Answer, Connection, request};
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, free_port, full, until};

const CONFIG: &str = "/v1/router/config";

async fn send(
    gateway: &Gateway,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {}", gateway.admin_key);
    let headers: Vec<(&str, &str)> =
        [("authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
    gateway.send(method, target, &headers, (!body.is_empty()).then_some(body.as_bytes())).await
}

async fn validate(gateway: &Gateway, document: &str) -> Answer {
    let headers = [("content-type", "application/yaml")];
    send(gateway, "POST", &format!("{CONFIG}/validate"), &headers, document).await
}

async fn put(gateway: &Gateway, document: &str, headers: &[(&str, &str)]) -> Answer {
    let headers: Vec<(&str, &str)> =
        [("content-type", "application/yaml")].into_iter().chain(headers.iter().copied()).collect();
    send(gateway, "PUT", CONFIG, &headers, document).await
}

/// A document whose credential stands in the environment, told apart by the model.
fn document(url: &str, model: &str) -> String {
    in_order(&[("a", url)], "")
        .replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}")
        .replace("a/model", &format!("a/{model}"))
}

async fn start(setup: impl FnOnce(Setup) -> Setup) -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    let setup = setup(
        Setup::new(&document(&provider.url(), "one"))
            .env("UPSTREAM_API_KEY", "sk-of-the-environment"),
    );
    (setup.start().await, provider)
}

async fn served(gateway: &Gateway) -> String {
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-rerouter-model").unwrap().to_owned()
}

#[tokio::test]
async fn a_document_is_read_replaced_and_rolled_back() {
    let (gateway, provider) = start(|setup| setup).await;
    let shown = send(&gateway, "GET", CONFIG, &[], "").await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    let first = shown.json()["revision"].as_str().unwrap().to_owned();
    assert_eq!(shown.header("etag"), Some(format!("\"{first}\"").as_str()));
    assert_eq!(shown.json()["source"], "file");
    let rule = json!({
        "name": "default", "when": null, "strategy": "priority",
        "targets": [{ "target": "a/one", "weight": 1.0 }],
    });
    let outline = json!({
        "aliases": [{ "name": "auto", "recipe": "main" }],
        "recipes": [{ "name": "main", "rules": [rule], "shadow": null }],
    });
    assert_eq!(shown.json()["outline"], outline);
    assert_eq!(shown.json()["document"], document(&provider.url(), "one").as_str());
    let yaml = send(&gateway, "GET", CONFIG, &[("accept", "application/yaml")], "").await;
    assert_eq!(
        (yaml.header("content-type"), yaml.text()),
        (Some("application/yaml"), document(&provider.url(), "one"))
    );

    let taken =
        put(&gateway, &document(&provider.url(), "two"), &[("if-match", &format!("\"{first}\""))])
            .await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let second = taken.json()["revision"].as_str().unwrap().to_owned();
    assert_eq!(taken.json()["previous"], first.as_str());
    let warnings = taken.json()["warnings"].clone();
    assert_eq!(warnings[0], "`a/one` is gone: requests for it by that name get 404");
    assert!(
        warnings[1].as_str().unwrap().contains("no price is known for `a/two`")
            && warnings.as_array().unwrap().len() == 2,
        "{warnings}"
    );
    assert_eq!(
        (gateway.revision().await, served(&gateway).await),
        (second.clone(), "two".to_owned())
    );
    let file = std::fs::read_to_string(gateway.dir().join("routing.yaml")).unwrap();
    assert_eq!(file, document(&provider.url(), "two"), "the file says what is live");

    let stale = put(
        &gateway,
        &document(&provider.url(), "three"),
        &[("if-match", &format!("\"{first}\""))],
    )
    .await;
    envelope::management(&stale, 412, "precondition_failed");
    for (tags, status, word) in [
        ("abc", 400, "invalid_request"),
        ("\"a\", \"b\"", 412, "precondition_failed"),
        (&format!("W/\"{second}\""), 412, "precondition_failed"),
    ] {
        let refused =
            put(&gateway, &document(&provider.url(), "three"), &[("if-match", tags)]).await;
        envelope::management(&refused, status, word);
    }
    let either = format!("\"{first}\", \"{second}\"");
    let same = put(&gateway, &document(&provider.url(), "two"), &[("if-match", &either)]).await;
    assert_eq!(same.status, 200, "{}", same.text());
    assert_eq!(gateway.revision().await, second);

    let list = send(&gateway, "GET", &format!("{CONFIG}/revisions"), &[], "").await.json();
    let revisions: Vec<(&str, bool)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["revision"].as_str().unwrap(), row["live"].as_bool().unwrap()))
        .collect();
    assert_eq!(revisions, [(second.as_str(), true), (first.as_str(), false)]);
    let page = send(&gateway, "GET", &format!("{CONFIG}/revisions?limit=1"), &[], "").await.json();
    assert_eq!((&page["has_more"], &page["next"]), (&json!(true), &json!(second)));
    let rest =
        send(&gateway, "GET", &format!("{CONFIG}/revisions?after={second}"), &[], "").await.json();
    assert_eq!(rest["data"][0]["revision"], first.as_str());
    for (revision, model, live) in [(&first, "one", false), (&second, "two", true)] {
        let one =
            send(&gateway, "GET", &format!("{CONFIG}/revisions/{revision}"), &[], "").await.json();
        assert_eq!(
            (&one["document"], &one["live"]),
            (&json!(document(&provider.url(), model)), &json!(live))
        );
    }
    let none = send(&gateway, "GET", &format!("{CONFIG}/revisions/000000000000"), &[], "").await;
    envelope::management(&none, 404, "not_found");

    let json_type = [("content-type", "application/json")];
    let unknown = send(
        &gateway,
        "POST",
        &format!("{CONFIG}/rollback"),
        &json_type,
        r#"{"revision":"000000000000"}"#,
    )
    .await;
    envelope::management(&unknown, 404, "not_found");
    let back = send(
        &gateway,
        "POST",
        &format!("{CONFIG}/rollback"),
        &json_type,
        &json!({ "revision": first }).to_string(),
    )
    .await;
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(
        (gateway.revision().await, served(&gateway).await),
        (first.clone(), "one".to_owned())
    );
    let list = send(&gateway, "GET", &format!("{CONFIG}/revisions"), &[], "").await.json();
    assert_eq!(
        list["data"][0]["revision"],
        first.as_str(),
        "the last that was made live comes first"
    );

    // JSON is the same document by the same revision.
    let as_json = json!({
        "providers": { "a": { "protocol": "openai", "base_url": provider.url(),
                "api_key": "${UPSTREAM_API_KEY}",
            "timeouts": { "connect": "2s", "first_byte": "20s", "idle": "20s", "total": "60s" } } },
        "recipes": { "main": { "rules": [ { "name": "default", "strategy": "priority",
                        "targets": [ { "target": "a/one" } ] } ],
            "retry": { "attempts": 1, "on": ["connect", "timeout", 429, "5xx"] } } },
        "aliases": { "auto": "main" },
    });
    let same = send(&gateway, "PUT", CONFIG, &json_type, &as_json.to_string()).await;
    assert_eq!((same.status, &same.json()["revision"]), (200, &json!(first)), "{}", same.text());
}

#[tokio::test]
async fn a_bad_document_changes_nothing_and_every_problem_is_told() {
    let (gateway, provider) = start(|setup| setup).await;
    let before = gateway.revision().await;
    let bad = document(&provider.url(), "one")
        .replace("strategy: priority", "stragety: priority")
        .replace("target: a/one", "target: b/one");
    let refused = put(&gateway, &bad, &[]).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (400, &json!("invalid_request")),
        "{}",
        refused.text()
    );
    let problems = refused.json()["problems"].as_array().unwrap().clone();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem["line"].as_u64() > Some(1) && problem["hint"].is_string()),
        "{problems:?}"
    );
    let looked = validate(&gateway, &bad).await;
    assert_eq!(
        (&looked.json()["valid"], &looked.json()["problems"]),
        (&json!(false), &json!(problems))
    );
    assert_eq!(gateway.revision().await, before);
    assert_eq!(
        std::fs::read_to_string(gateway.dir().join("routing.yaml")).unwrap(),
        document(&provider.url(), "one")
    );
    assert_eq!(
        gateway.metric("rerouter_reloads_total", &["result=\"failure\""]).await,
        1.0,
        "a look is no offer"
    );

    envelope::management(&put(&gateway, "", &[]).await, 400, "invalid_request");
    envelope::management(
        &send(&gateway, "PUT", CONFIG, &[("content-type", "text/plain")], "a: 1").await,
        415,
        "unsupported_media_type",
    );
    let large = format!("# {}\n{}", "x".repeat(1 << 20), document(&provider.url(), "one"));
    envelope::management(&put(&gateway, &large, &[]).await, 413, "payload_too_large");
    let big = format!("# {}\n{}", "x".repeat(512 << 10), document(&provider.url(), "two"));
    assert_eq!(
        put(&gateway, &big, &[]).await.status,
        200,
        "larger than other management bodies may be"
    );
}

#[tokio::test]
async fn credentials_come_by_name_and_are_never_shown() {
    let provider = Provider::always(scripted::completion("well")).await;
    let literal = in_order(&[("a", &provider.url())], "")
        .replace("${UPSTREAM_API_KEY:-sk-upstream}", "sk-canary-in-the-file");
    let gateway =
        Setup::new(&literal).env("UPSTREAM_API_KEY", "sk-canary-of-the-environment").start().await;
    let shown = send(&gateway, "GET", CONFIG, &[], "").await;
    assert!(
        !shown.text().contains("canary") && shown.text().contains("[redacted]"),
        "{}",
        shown.text()
    );

    for written in [
        "sk-canary",
        "${UPSTREAM_API_KEY:-sk-canary}",
        "sk-canary-${UPSTREAM_API_KEY}",
        "[redacted]",
    ] {
        let text = document(&provider.url(), "one").replace("${UPSTREAM_API_KEY}", written);
        let refused = put(&gateway, &text, &[]).await;
        assert_eq!(
            (refused.status, refused.json()["problems"][0]["path"].clone()),
            (400, json!("providers.a.api_key")),
            "{}",
            refused.text()
        );
        assert!(!refused.text().contains("canary"), "{}", refused.text());
    }
    let named = document(&provider.url(), "one")
        .replace("    timeouts", "    headers: { x-api-key: \"sk-canary\" }\n    timeouts");
    assert_eq!(
        put(&gateway, &named, &[]).await.json()["problems"][0]["path"],
        "providers.a.headers.x-api-key"
    );

    // A look reads no variable: neither whether it is set nor what it holds can be asked.
    let ask = async |name: &str| {
        let text =
            document(&provider.url(), "one").replace(&provider.url(), &format!("${{{name}}}"));
        validate(&gateway, &text).await.json()
    };
    let looked = ask("UPSTREAM_API_KEY").await;
    assert_eq!((&looked["valid"], &looked["problems"]), (&json!(true), &json!([])));
    assert_eq!(ask("UNSET_BASE_URL").await, ask("UPSTREAM_API_KEY").await);
    for forbidden in ["ADMIN_API_KEY", "REROUTER_MASTER_KEY", "HOME"] {
        assert_eq!(ask(forbidden).await["valid"], false, "{forbidden}");
    }

    // Nor does it blame a variable for what it may well hold.
    for (address, valid) in [
        ("https://${HOST_BASE_URL}/v1", true),
        ("http://127.0.0.1:${PORT_BASE_URL}/v1", true),
        ("http://${HOST_BASE_URL}:${PORT_BASE_URL}", true),
        ("${SCHEME_BASE_URL}://example.com", true),
        ("${ALL_BASE_URL}/v1", true),
        ("ftp://${HOST_BASE_URL}", false),
        ("https://${HOST_BASE_URL}?a=b", true),
        ("https://${HOST_BASE_URL}?key=${PASSWORD_BASE_URL}", false),
        ("https://me:${PASSWORD_BASE_URL}@example.com", false),
    ] {
        let text = document(&provider.url(), "one").replace(&provider.url(), address);
        let looked = validate(&gateway, &text).await;
        assert_eq!(looked.json()["valid"], valid, "{address}: {}", looked.text());
    }
    for (second, valid) in [("OTHER_API_KEY", true), ("UPSTREAM_API_KEY", false)] {
        let several = format!("api_keys: [ \"${{UPSTREAM_API_KEY}}\", \"${{{second}}}\" ]");
        let text =
            document(&provider.url(), "one").replace("api_key: \"${UPSTREAM_API_KEY}\"", &several);
        assert!(text.contains("api_keys"), "{text}");
        let looked = validate(&gateway, &text).await;
        assert_eq!(looked.json()["valid"], valid, "{second}: {}", looked.text());
    }

    assert_eq!(put(&gateway, &document(&provider.url(), "one"), &[]).await.status, 200);
    assert_eq!(served(&gateway).await, "one");
    assert_eq!(
        provider.last().header("authorization").as_deref(),
        Some("Bearer sk-canary-of-the-environment")
    );
    let shown = send(&gateway, "GET", CONFIG, &[], "").await;
    assert!(
        shown.text().contains("${UPSTREAM_API_KEY}") && !shown.text().contains("canary"),
        "{}",
        shown.text()
    );
}

#[tokio::test]
async fn only_scopes_of_the_configuration_may() {
    let (gateway, provider) = start(|setup| setup).await;
    let key = async |scopes: Value| {
        let made = gateway
            .answers(
                201,
                "POST",
                "/v1/router/keys",
                &gateway.admin_key,
                Some(&json!({ "scopes": scopes })),
            )
            .await;
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let (usual, evaluate, config) = (
        gateway.create_key().await.secret,
        key(json!(["evaluate"])).await,
        key(json!(["config"])).await,
    );
    let text = document(&provider.url(), "two");
    let call = async |key: &str, method: &str, target: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        gateway
            .send(method, target, &headers, (method != "GET").then_some(text.as_bytes()))
            .await
            .status
    };
    let validate = format!("{CONFIG}/validate");
    for (key, statuses) in
        [(&usual, [403, 403, 403]), (&evaluate, [403, 200, 403]), (&config, [200, 403, 200])]
    {
        let found = [
            call(key, "GET", CONFIG).await,
            call(key, "POST", &validate).await,
            call(key, "PUT", CONFIG).await,
        ];
        assert_eq!(found, statuses);
    }
}

#[tokio::test]
async fn in_the_store_the_document_comes_by_the_api_only_and_outlives_a_restart() {
    let (mut gateway, provider) = start(Setup::stored).await;
    let shown = send(&gateway, "GET", CONFIG, &[], "").await.json();
    assert_eq!((&shown["source"], &shown["file"]), (&json!("store"), &json!(null)));
    assert!(
        shown["document"].as_str().unwrap().contains("protocol: mock"),
        "the demo, until there is another"
    );
    assert_eq!(put(&gateway, &document(&provider.url(), "one"), &[]).await.status, 200);
    assert_eq!(served(&gateway).await, "one");
    let revision = gateway.revision().await;
    gateway.kill_9();
    gateway.start_again().await;
    assert_eq!((gateway.revision().await, served(&gateway).await), (revision, "one".to_owned()));
}

/// A process that is killed at the end of its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// The gateway has never read such a file, so it does not write over it.
#[tokio::test]
async fn a_file_that_comes_after_the_start_is_nobodys_document() {
    let dir = tempfile::tempdir().unwrap();
    let (port, metrics) = (free_port(), free_port());
    let server = format!(
        "listeners: [ {{ address: \"127.0.0.1:{port}\" }} ]\n\
         metrics: {{ address: \"127.0.0.1:{metrics}\" }}\nthreads: 1\ndata_dir: ./data\n"
    );
    std::fs::write(dir.path().join("server.yaml"), server).unwrap();
    let started = Command::new(env!("CARGO_BIN_EXE_rerouter"))
        .args(["serve", "--config", "server.yaml"])
        .current_dir(dir.path())
        .env_clear()
        .env("ADMIN_API_KEY", "admin-key-0123456789abcdef")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _running = Running(started.unwrap());
    let host = format!("127.0.0.1:{port}");
    let call = async |method: &str, body: Option<&str>| {
        let headers = [
            ("authorization", "Bearer admin-key-0123456789abcdef"),
            ("content-type", "application/yaml"),
        ];
        let sent = request(method, CONFIG, &host, &headers, body.map(str::as_bytes));
        let mut connection = Connection::try_open(([127, 0, 0, 1], port).into()).await?;
        connection.try_exchange(&sent).await
    };
    until("the gateway", async || call("GET", None).await).await;
    std::fs::create_dir(dir.path().join("conf")).unwrap();
    let file = dir.path().join("conf/routing.yaml");
    std::fs::write(&file, "# of somebody\n").unwrap();
    assert_eq!(call("GET", None).await.unwrap().json()["source"], "built_in");
    let document = "providers: { demo: { protocol: mock } }\nrecipes: { main: { rules: [ { name: \
                    default, targets: [ { target: demo/m } ] } ] } }\naliases: { auto: main }\n";
    envelope::management(&call("PUT", Some(document)).await.unwrap(), 409, "read_only");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "# of somebody\n");
}

#[tokio::test]
async fn what_cannot_be_written_stays_as_it_is() {
    let (gateway, provider) = start(|setup| setup).await;
    let before = gateway.revision().await;
    // A directory where the draft would lie; as root, permissions stop nobody.
    let process = gateway.process();
    std::fs::create_dir(gateway.dir().join(format!("routing.yaml.{process}.part"))).unwrap();
    let refused = put(&gateway, &document(&provider.url(), "two"), &[]).await;
    envelope::management(&refused, 409, "read_only");
    assert_eq!(
        (gateway.revision().await, served(&gateway).await),
        (before.clone(), "one".to_owned())
    );
    let list = send(&gateway, "GET", &format!("{CONFIG}/revisions"), &[], "").await.json();
    assert_eq!(
        (&list["data"][0]["revision"], &list["data"][0]["live"]),
        (&json!(before), &json!(true))
    );
}

#[tokio::test]
async fn a_file_keeps_its_links_its_permissions_and_its_group() {
    let (gateway, provider) = start(|setup| setup).await;
    let (link, file) = (gateway.dir().join("routing.yaml"), gateway.dir().join("elsewhere.yaml"));
    std::fs::rename(&link, &file).unwrap();
    std::os::unix::fs::symlink("elsewhere.yaml", &link).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    // Root may give it to anybody; others have at least the group that they gave it.
    let _as_root = std::os::unix::fs::chown(&file, Some(1), Some(1));
    let kept = || {
        std::fs::metadata(&file).map(|file| (file.mode() & 0o7777, file.uid(), file.gid())).unwrap()
    };
    let (before, inode) = (kept(), file.metadata().unwrap().ino());
    assert_eq!(put(&gateway, &document(&provider.url(), "two"), &[]).await.status, 200);
    assert_eq!(
        (kept(), std::fs::read_to_string(&file).unwrap()),
        (before, document(&provider.url(), "two"))
    );
    assert!(
        link.is_symlink() && file.metadata().unwrap().ino() != inode,
        "written aside, then put in its place"
    );
}

#[tokio::test]
async fn if_match_spares_what_somebody_has_just_written_into_the_file() {
    let (gateway, provider) = start(|setup| setup).await;
    let (revision, file) = (gateway.revision().await, gateway.dir().join("routing.yaml"));
    // Never live: what is live stays what the caller has seen, however soon the file is looked at.
    let begun = document(&provider.url(), "two").replace("aliases", "alaises");
    std::fs::write(&file, &begun).unwrap();
    let tag = format!("\"{revision}\"");
    let refused = put(&gateway, &document(&provider.url(), "three"), &[("if-match", &tag)]).await;
    envelope::management(&refused, 412, "precondition_failed");
    assert_eq!(
        (gateway.revision().await, std::fs::read_to_string(&file).unwrap()),
        (revision, begun)
    );
    assert_eq!(
        put(&gateway, &document(&provider.url(), "three"), &[]).await.status,
        200,
        "who names nothing means it"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), document(&provider.url(), "three"));
}

/// [`document`] with a second provider, which fails, behind a name of its own; its breaker stays
/// open for long.
fn with_a_failing_one(url: &str, failing: &str, model: &str) -> String {
    let bad = format!(
        "  b: {{ protocol: openai, base_url: \"{failing}\", breaker: {{ consecutive: 3, \
         open: 10m }} }}\n"
    );
    let recipe = "  bad: { rules: [ { name: default, targets: [ { target: b/model } ] } ] }\n\
        aliases: { auto: main, bad: bad }";
    document(url, model)
        .replacen("providers:\n", &format!("providers:\n{bad}"), 1)
        .replace("aliases: { auto: main }", recipe)
}

/// Documents one after another, a third of them wrong, under requests that never stop, while a
/// breaker is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_fail_no_request() {
    let rounds = count("REROUTER_ROUNDS", if full() { 200 } else { 30 });
    let (gateway, provider) = start(|setup| setup).await;
    let failing = Provider::always(scripted::failure(500, "broken")).await;
    let text = |model: &str| with_a_failing_one(&provider.url(), &failing.url(), model);
    assert_eq!(put(&gateway, &text("first"), &[]).await.status, 200);
    let key = gateway.create_key().await;
    let bad = async || gateway.chat(&key, chat_body("bad", false).as_bytes()).await.status;
    assert_eq!(
        [bad().await, bad().await, bad().await, bad().await],
        [500, 500, 500, 503],
        "then its breaker is open"
    );
    let done = AtomicBool::new(false);
    let live = Mutex::new(vec![gateway.revision().await]);
    let so_far = || live.lock().unwrap().len();
    let asking = async {
        let mut named = Vec::new();
        while !done.load(Ordering::Acquire) {
            let before = so_far();
            let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            named.push((
                before,
                answer.header("x-rerouter-revision").unwrap().to_owned(),
                so_far(),
            ));
        }
        named
    };
    let changing = async {
        for round in 0..rounds {
            let text = text(&format!("m{round}"));
            if round % 3 == 2 {
                assert_eq!(
                    put(&gateway, &text.replace("aliases", "alaises"), &[]).await.status,
                    400
                );
                continue;
            }
            let taken = put(&gateway, &text, &[]).await;
            assert_eq!(taken.status, 200, "{}", taken.text());
            assert_eq!(bad().await, 503, "the breaker is as it was");
            live.lock().unwrap().push(taken.json()["revision"].as_str().unwrap().to_owned());
        }
        done.store(true, Ordering::Release);
    };
    let (one, two, ()) = tokio::join!(asking, async { served(&gateway).await }, changing);
    assert!(!one.is_empty() && two.starts_with(['f', 'm']));
    assert_eq!(failing.count(), 3, "nobody has asked it since");
    let live = live.into_inner().unwrap();
    for (before, revision, after) in one {
        let at =
            live.iter().position(|known| *known == revision).expect("a revision that was live");
        // The one that was live when the request began, one of those that came, or one whose PUT
        // was not answered yet.
        assert!(
            (before - 1..=after).contains(&at),
            "{revision} is number {at}, live were {before} to {after}"
        );
    }
}
