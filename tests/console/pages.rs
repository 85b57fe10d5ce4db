//! The console: sign-in, the first admin, the security of each page, and who may see what.

use std::os::unix::fs::PermissionsExt;

use rerouter::internals::console::PAGES;
use serde_json::json;

use crate::support::browser::{EMAIL, PASSWORD, account, drive};
use crate::support::client::Answer;
use crate::support::console_pages::Page;
use crate::support::documents::in_order;
use crate::support::fleet::ROUTING;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A gateway with a mock as its only model, and an admin.
async fn start() -> (Gateway, serde_json::Value) {
    let gateway = Gateway::start(ROUTING).await;
    let given = account(&gateway, EMAIL, "admin").await;
    (gateway, given)
}

/// The pages without a variable in their path.
fn plain_pages() -> Vec<&'static str> {
    let plain = PAGES.iter().filter(|page| page.method == "GET" && !page.path.contains('{'));
    plain.map(|page| page.path).filter(|path| path.starts_with("/console/")).collect()
}

/// Signs in with the form. Returns the cookie.
async fn cookie(gateway: &Gateway, email: &str) -> String {
    let form = format!("email={}&password={}", email.replace('@', "%40"), "correct+horse");
    let answer = gateway.send("POST", "/console/sign-in", &[FORM], Some(form.as_bytes())).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// Asserts that an answer has the security headers, and that its HTML works under them.
fn check_protected(path: &str, answer: &Answer) {
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("{path}: no {name}"));
    let policy = header("content-security-policy");
    for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'"] {
        assert!(policy.contains(&format!("{part};")), "{path}: {policy}");
    }
    assert!(policy.ends_with("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
    assert_eq!(header("cross-origin-resource-policy"), "same-origin", "{path}");
    if !answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
        return;
    }
    assert_eq!(header("cache-control"), "no-store", "{path}");
    let text = answer.text();
    let tags = text.split('<').skip(1).map(|rest| rest.split('>').next().unwrap());
    for tag in tags {
        let name = tag.split_whitespace().next().unwrap_or_default();
        let inline = name == "style"
            || (name == "script" && !tag.contains(" src=\"/console/assets/"))
            || [" style=", "hx-on", "javascript:"].iter().any(|word| tag.contains(word))
            || tag.split(" on").skip(1).any(|rest| {
                rest.trim_start_matches(|one: char| one.is_ascii_alphabetic()).starts_with('=')
            });
        assert!(!inline, "{path}: <{tag}>");
    }
}

#[tokio::test]
async fn every_page_is_protected_and_needs_a_session() {
    let (gateway, _) = start().await;
    let cookie = cookie(&gateway, EMAIL).await;
    for page in PAGES.iter().filter(|page| page.path.starts_with("/console/")) {
        let (method, path) = (page.method.as_str(), page.path.replace(['{', '}'], ""));
        let body = (method != "GET").then_some(&b""[..]);
        let answer = gateway.send(method, &path, &[HTML], body).await;
        check_protected(&path, &answer);
        if !page.policy.is_open() {
            assert_eq!(answer.status, 303, "{method} {path}");
            let to = answer.header("location").unwrap();
            assert!(to.starts_with("/console/sign-in?next=%2Fconsole%2F"), "{path}: {to}");
            let asked = [("hx-request", "true"), ("hx-current-url", "http://x/console/audit?a=b")];
            let answer = gateway.send(method, &path, &asked, body).await;
            let to = answer.header("hx-redirect").unwrap();
            assert_eq!(to, "/console/sign-in?next=%2Fconsole%2Faudit%3Fa%3Db", "{path}");
            // Keys are for programs, so no page accepts one.
            let key = format!("Bearer {}", gateway.admin_key);
            let answer = gateway.send(method, &path, &[("authorization", &key)], body).await;
            assert_eq!(answer.status, 303, "{method} {path}");
        }
        if method == "GET" {
            let answer = gateway.send(method, &path, &[("cookie", &cookie)], None).await;
            check_protected(&path, &answer);
        } else {
            // Some browsers send only this header to say where a form came from.
            let foreign = [("cookie", cookie.as_str()), ("referer", "http://evil.test/"), FORM];
            let answer = gateway.send(method, &path, &foreign, body).await;
            assert_eq!(answer.status, 403, "{method} {path}");
        }
    }
    for path in plain_pages() {
        let answer = gateway.send("GET", path, &[("cookie", &cookie)], None).await;
        let open = path == "/console/first-admin";
        assert_eq!(answer.status, if open { 403 } else { 200 }, "{path}: {}", answer.text());
    }
    let unknown = gateway.send("GET", "/console/nowhere", &[HTML], None).await;
    assert_eq!((unknown.status, unknown.text().contains("<h1>Not Found</h1>")), (404, true));
    check_protected("/console/nowhere", &unknown);
    let wrong = gateway.send("DELETE", "/console/sign-in", &[], None).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, POST")));
}

#[tokio::test]
async fn the_root_leads_browsers_to_the_console_and_tells_others_where_things_are() {
    let (gateway, _) = start().await;
    for path in ["/", "/console"] {
        let answer = gateway.send("GET", path, &[HTML], None).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/console/")), "{path}");
    }
    let answer = gateway.send("GET", "/", &[("accept", "*/*")], None).await;
    assert_eq!(answer.json()["openapi"], "/openapi.json");
}

#[tokio::test]
async fn files_are_kept_by_browsers_for_ever_and_checked_again() {
    let gateway = Gateway::start(ROUTING).await;
    let page = gateway.send("GET", "/console/sign-in", &[], None).await.text();
    let files: Vec<&str> =
        page.split('"').filter(|word| word.starts_with("/console/assets/")).collect();
    assert_eq!(files.len(), 4, "{page}");
    for file in files {
        let plain = gateway.send("GET", file, &[], None).await;
        check_protected(file, &plain);
        assert!(plain.header("cache-control").unwrap().contains("immutable"));
        let coded = gateway.send("GET", file, &[("accept-encoding", "gzip, br")], None).await;
        assert_eq!(coded.header("content-encoding"), Some("gzip"));
        assert!(coded.body.len() < plain.body.len() && coded.body.starts_with(&[0x1f, 0x8b]));
        let tag = plain.header("etag").unwrap();
        let again = gateway.send("GET", file, &[("if-none-match", tag)], None).await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        // An asset of another version is answered, but may not be cached.
        let name = file.rsplit('/').next().unwrap();
        let other = format!("/console/assets/0000000000000000/{name}");
        let other = gateway.send("GET", &other, &[], None).await;
        assert_eq!((&other.body, other.header("cache-control")), (&plain.body, Some("no-store")));
    }
    let none = gateway.send("GET", "/console/assets/0/none.js", &[], None).await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn the_console_can_be_turned_off() {
    let gateway = Setup::new(ROUTING).server("console: false").start().await;
    assert!(!gateway.log().contains("/console/"), "{}", gateway.log());
    for path in ["/", "/console", "/console/", "/console/sign-in", "/console/first-admin"] {
        assert_eq!(gateway.send("GET", path, &[HTML], None).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn it_is_served_where_pin_is() {
    let gateway = Gateway::start(ROUTING).await;
    let mut gateway = gateway;
    let port = crate::support::free_port();
    gateway.add_listener(&format!("127.0.0.1:{port}\n    interfaces: [router]"));
    gateway.restart().await;
    for (port, status) in [(gateway.address().port(), 200), (port, 404)] {
        let host = format!("127.0.0.1:{port}");
        let ask = crate::support::client::request("GET", "/console/sign-in", &host, &[], None);
        let mut connection = until("the listener", async || {
            crate::support::client::Connection::try_open(([127, 0, 0, 1], port).into()).await
        })
        .await;
        assert_eq!(connection.exchange(&ask).await.status, status, "{port}");
    }
}

/// A gateway without `ADMIN_API_KEY`, which therefore has a link for the first admin.
async fn without_admin_key() -> Gateway {
    let mut gateway = Gateway::start(ROUTING).await;
    gateway.admin_key.clear();
    gateway.restart().await;
    gateway
}

/// The path of the link that the gateway made at start.
fn link(gateway: &Gateway) -> String {
    let file = gateway.dir().join("data/first-admin");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let link = std::fs::read_to_string(file).unwrap();
    let origin = format!("http://{}", gateway.address());
    link.trim().strip_prefix(&origin).unwrap_or_else(|| panic!("{link}")).to_owned()
}

#[tokio::test]
async fn the_link_of_a_start_makes_one_admin() {
    let mut gateway = without_admin_key().await;
    let file = gateway.dir().join("data/first-admin");
    let old = link(&gateway);
    gateway.restart().await;
    let new = link(&gateway);
    assert_eq!(gateway.send("GET", &old, &[], None).await.status, 403, "of an earlier start");
    let token = new.split_once('=').unwrap().1;
    let body = |email: &str, password: &str, again: &str| {
        format!("token={token}&email={email}&password={password}&again={again}")
    };
    let make = async |body: String| {
        let path = "/console/first-admin";
        gateway.send("POST", path, &[FORM], Some(body.as_bytes())).await
    };
    for (bad, status) in [
        (body("a%40example.com", "correct+horse", "other+horse"), 400),
        (body("a%40example.com", "short", "short"), 400),
        (body("nobody", "correct+horse", "correct+horse"), 400),
        (body("a%40example.com", "correct+horse", "correct+horse").replace("token=", "x="), 403),
    ] {
        let answer = make(bad).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert!(file.exists());
    let both = tokio::join!(
        make(body("a%40example.com", "correct+horse", "correct+horse")),
        make(body("b%40example.com", "correct+horse", "correct+horse"))
    );
    let mut statuses = [both.0.status, both.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 303, "{} {}", both.0.text(), both.1.text());
    assert!([403, 409].contains(&statuses[1]), "{statuses:?}");
    assert!(!file.exists(), "the link is used");
    let used = gateway.send("GET", &new, &[], None).await;
    assert_eq!(used.status, 403);
    assert!(used.text().contains("If there is an admin, sign in"), "{}", used.text());
    assert!(!gateway.log().contains(token), "no link is in the log");
    // There is no second link.
    gateway.restart().await;
    assert!(!file.exists());
    gateway.admin_key = "admin-canary-0123456789abcdef0123456789".to_owned();
    gateway.restart().await;
    let users = gateway.manage("GET", "/v1/users", &gateway.admin_key, None).await.json();
    let users = users["data"].as_array().unwrap();
    assert_eq!((users.len(), &users[0]["role"]), (1, &json!("admin")));
}

#[tokio::test]
async fn with_an_admin_key_there_is_no_link() {
    let mut gateway = without_admin_key().await;
    let old = link(&gateway);
    gateway.admin_key = "admin-canary-0123456789abcdef0123456789".to_owned();
    gateway.restart().await;
    assert!(!gateway.dir().join("data/first-admin").exists(), "that of the earlier start");
    assert_eq!(gateway.log().matches("makes the first admin").count(), 1, "{}", gateway.log());
    assert!(!gateway.log().contains("token="), "{}", gateway.log());
    assert_eq!(gateway.send("GET", &old, &[], None).await.status, 403);
}

/// The API's interface of a page, by the first segment of its path after `/console/`.
fn interface_of(page: &str) -> &'static str {
    match page.split('/').nth(2).unwrap_or_default() {
        "captures" | "routing" | "playground" | "clients" => "router",
        "agents" | "agent-key" => "agent",
        _ => "pin",
    }
}

#[tokio::test]
async fn a_page_is_served_where_its_interface_is() {
    let mut gateway = Gateway::start(ROUTING).await;
    account(&gateway, EMAIL, "admin").await;
    let sets = [&["pin"][..], &["pin", "router"], &["pin", "agent"], &["pin", "agent", "router"]];
    let listeners = sets.map(|set| (crate::support::free_port(), set));
    for (port, set) in listeners {
        let interfaces = set.join(", ");
        gateway.add_listener(&format!("127.0.0.1:{port}\n    interfaces: [{interfaces}]"));
    }
    gateway.restart().await;
    let session = cookie(&gateway, EMAIL).await;
    let admin = gateway.admin_key.clone();
    let json_body = [("content-type", "application/json")];
    let agents = gateway.send("POST", "/v1/api-keys", &json_body, Some(b"{}")).await.json();
    let body = json!({ "name": "reviewer", "model": "auto" }).to_string();
    let agent = gateway.send("POST", "/v1/agents", &json_body, Some(body.as_bytes())).await.json();
    let agent = agent["id"].as_str().unwrap();
    let users = gateway.manage("GET", "/v1/users", &admin, None).await.json();
    let user = users["data"][0]["id"].as_str().unwrap();
    let keys = [
        ("pin", gateway.make_key("/v1/apikeys", &admin, &json!({})).await.id),
        ("agent", agents["id"].as_str().unwrap().to_owned()),
        ("router", gateway.make_key("/v1/router/keys", &admin, &json!({})).await.id),
    ];
    for (port, set) in listeners {
        let send = async |method: &str, path: &str, session: Option<&str>, form: &str| {
            let mut headers = vec![FORM];
            headers.extend(session.map(|session| ("cookie", session)));
            let body = (method != "GET").then_some(form.as_bytes());
            let host = format!("127.0.0.1:{port}");
            let ask = crate::support::client::request(method, path, &host, &headers, body);
            let mut connection = until("the listener", async || {
                crate::support::client::Connection::try_open(([127, 0, 0, 1], port).into()).await
            })
            .await;
            connection.exchange(&ask).await
        };
        for page in PAGES.iter().filter(|page| !page.policy.is_open()) {
            let (method, path) = (page.method.as_str(), page.path.replace(['{', '}'], ""));
            let expected = if set.contains(&interface_of(&path)) { 303 } else { 404 };
            let answer = send(method, &path, None, "").await;
            assert_eq!(answer.status, expected, "{method} {path} at {set:?}");
            if expected == 404 {
                let answer = send(method, &path, Some(&session), "").await;
                assert_eq!(answer.status, 404, "{method} {path} at {set:?}");
            }
        }
        // Pages on several interfaces show those that the listener serves.
        for (interface, key) in &keys {
            let status = if set.contains(interface) { 200 } else { 404 };
            for page in ["", "/new", &format!("/{key}")] {
                let path = format!("/console/keys{page}?interface={interface}");
                let answer = send("GET", &path, Some(&session), "").await;
                assert_eq!(answer.status, status, "{path} at {set:?}");
            }
            let path = format!("/console/keys?interface={interface}");
            let scope = match *interface {
                "pin" => "user",
                "agent" => "agents",
                _ => "inference",
            };
            let form = format!("name=made&scopes={scope}");
            let made = send("POST", &path, Some(&session), &form).await;
            assert_eq!(made.status, status, "{path} at {set:?}: {}", made.text());
        }
        let overview = send("GET", "/console/", Some(&session), "").await;
        assert_eq!(overview.status, 200, "{set:?}: {}", overview.text());
        assert!(!overview.text().contains("role=\"alert\""), "{set:?}: {}", overview.text());
        let user = send("GET", &format!("/console/users/{user}"), Some(&session), "").await.text();
        assert_eq!(user.contains("ROUTER keys"), set.contains(&"router"), "{set:?}: {user}");
        if set.contains(&"agent") {
            let path = format!("/console/agents/{agent}");
            let shown = send("GET", &path, Some(&session), "").await.text();
            assert_eq!(shown.contains("Try it"), set.contains(&"router"), "{set:?}: {shown}");
        }
        let keys = send("GET", "/console/keys", Some(&session), "").await;
        assert_eq!(keys.status, 200, "{set:?}: {}", keys.text());
        for (text, what) in [(overview.text(), "overview"), (keys.text(), "keys")] {
            for (path, interface) in [
                ("/console/captures", "router"),
                ("/console/routing", "router"),
                ("/console/playground", "router"),
                ("/console/agents", "agent"),
                ("/console/users", "pin"),
            ] {
                let shown = text.contains(&format!("href=\"{path}\""));
                assert_eq!(shown, set.contains(&interface), "{path} on {what} at {set:?}");
            }
            assert!(!text.contains("cannot be read"), "{text}");
        }
        for interface in ["pin", "agent", "router"] {
            let tab = format!("href=\"/console/keys?interface={interface}\"");
            assert_eq!(keys.text().contains(&tab), set.contains(&interface), "{tab} at {set:?}");
        }
        assert_eq!(overview.text().contains("Traffic"), set.contains(&"router"), "{set:?}");
    }
}

#[tokio::test]
async fn an_agent_key_is_of_one_session_and_ends_with_it() {
    let cloud = "an AGENT key; with odd=characters";
    let mut gateway = Setup::new(ROUTING).env("AGENT_CLOUD_API_KEY", cloud).start().await;
    account(&gateway, EMAIL, "admin").await;
    account(&gateway, "b@example.com", "admin").await;
    let session = cookie(&gateway, EMAIL).await;
    let send = async |gateway: &Gateway, key: &str, session: &str| {
        let form = format!("next=%2Fconsole%2Fagents&key={key}");
        let headers = [("cookie", session), FORM];
        gateway.send("POST", "/console/agent-key", &headers, Some(form.as_bytes())).await
    };
    let agents = async |gateway: &Gateway, session: &str| {
        let answer = gateway.send("GET", "/console/agents", &[("cookie", session)], None).await;
        answer.status
    };
    let encoded = cloud.replace(' ', "+").replace('=', "%3D").replace(';', "%3B");
    let wrong = send(&gateway, "agt_wrong", &session).await;
    assert_eq!((wrong.status, agents(&gateway, &session).await), (401, 303));
    let right = send(&gateway, &encoded, &session).await;
    assert_eq!((right.status, right.header("location")), (303, Some("/console/agents")));
    assert_eq!(right.header("set-cookie"), None, "the browser does not keep it");
    assert_eq!(agents(&gateway, &session).await, 200);

    // Other sessions in the same browser do not have the key.
    let mine = cookie(&gateway, EMAIL).await;
    let other = cookie(&gateway, "b@example.com").await;
    assert_eq!((agents(&gateway, &mine).await, agents(&gateway, &other).await), (303, 303));
    let create = async |session: &str| {
        let headers = [("cookie", session), FORM];
        let form = b"name=reviewer&model=auto";
        gateway.send("POST", "/console/agents", &headers, Some(form)).await
    };
    assert!(create(&other).await.header("location").unwrap().starts_with("/console/agent-key?"));
    assert!(create(&session).await.header("location").unwrap().starts_with("/console/agents/"));

    // The key ends with the session, even if the same user signs in again.
    let out = gateway.send("POST", "/console/sign-out", &[("cookie", &session)], None).await;
    assert_eq!(out.header_lines("set-cookie").len(), 1);
    let again = cookie(&gateway, EMAIL).await;
    assert_eq!(agents(&gateway, &again).await, 303);

    // An AGENT key that was created by the API is valid until it is revoked.
    let bearer = format!("Bearer {cloud}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let made = gateway.send("POST", "/v1/api-keys", &headers, Some(b"{\"name\": \"mine\"}")).await;
    let key = Key::of(&made);
    assert_eq!(send(&gateway, &key.secret, &again).await.status, 303);
    assert_eq!(agents(&gateway, &again).await, 200);
    let path = format!("/v1/api-keys/{}", key.id);
    assert_eq!(gateway.send("DELETE", &path, &headers, None).await.status, 204);
    assert_eq!(agents(&gateway, &again).await, 303);

    // A restart of the gateway forgets the key.
    assert_eq!(send(&gateway, &encoded, &again).await.status, 303);
    assert_eq!(agents(&gateway, &again).await, 200);
    gateway.restart().await;
    assert_eq!(agents(&gateway, &again).await, 303);
    assert!(!gateway.log().contains("odd=characters"));
}

#[tokio::test]
async fn people_sign_in_and_out() {
    let (gateway, given) = start().await;
    drive("sign_in", given).await;
    let log = gateway.log();
    assert!(log.contains("/console/sign-in") && !log.contains("correct"), "{log}");
}

#[tokio::test]
async fn the_first_admin_is_made_in_a_browser() {
    let gateway = without_admin_key().await;
    let url = format!("http://{}", gateway.address());
    let given = json!({"url": url, "link": link(&gateway), "email": EMAIL,
        "password": PASSWORD});
    drive("first_admin", given).await;
}

#[tokio::test]
async fn every_page_is_readable_for_everybody_at_any_width() {
    let (gateway, mut given) = start().await;
    let someone = account(&gateway, "someone@example.com", "user").await;
    let key = gateway.create_key().await;
    let mut ids = Vec::new();
    for words in ["short".to_owned(), "long ".repeat(20_000)] {
        let body = json!({"model": "auto", "messages": [{"role": "user", "content": words}]});
        ids.push(gateway.chat(&key, body.to_string().as_bytes()).await.request_id());
        gateway.capture(ids.last().unwrap()).await;
    }
    let mut pages = Vec::new();
    for page in Page::all(&gateway, &ids[1], &ids[0]).await {
        // A body is a file, not a page.
        if !page.path.ends_with("/raw/{side}") {
            pages.push(page.address);
        }
    }
    given["pages"] = json!(pages);
    given["someone"] = someone["email"].clone();
    let statuses = drive("looks", given).await;
    for address in &pages {
        let expected = if address == "/console/first-admin" { 403 } else { 200 };
        assert_eq!(statuses[address], expected, "{address}");
    }
}

#[tokio::test]
async fn pages_say_what_failed_and_can_be_asked_for_again() {
    let (_gateway, given) = start().await;
    drive("faults", given).await;
}

/// The console does not show what the API does not show.
#[tokio::test]
async fn nobody_sees_more_than_the_api_shows() {
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    account(&gateway, EMAIL, "admin").await;
    account(&gateway, "someone@example.com", "user").await;
    let key = gateway.create_key().await;
    let secret = br#"{"model":"auto","messages":[{"role":"user","content":"canary-4711"}]}"#;
    let answer = gateway.chat(&key, secret).await;
    gateway.capture(&answer.request_id()).await;
    let [admin, someone] =
        [cookie(&gateway, EMAIL).await, cookie(&gateway, "someone@example.com").await];
    for page in PAGES.iter().filter(|page| page.method == "GET") {
        let path = page.path.replace("{id}", &answer.request_id());
        let shown = gateway.send("GET", &path, &[("cookie", &someone)], None).await;
        let text = shown.text();
        for hidden in ["canary-4711", EMAIL, &key.id, &answer.request_id()[6..]] {
            assert!(!text.contains(hidden) || path.contains(hidden), "{path} shows {hidden}");
        }
        let _seen = gateway.send("GET", &path, &[("cookie", &admin)], None).await;
    }
}

#[tokio::test]
async fn forms_that_were_refused_can_be_sent_again() {
    let gateway = Gateway::start(ROUTING).await;
    account(&gateway, EMAIL, "admin").await;
    let session = cookie(&gateway, EMAIL).await;
    let post = async |path: &str, form: &str| {
        let headers = [FORM, ("cookie", session.as_str())];
        gateway.send("POST", path, &headers, Some(form.as_bytes())).await
    };
    let json_body = [("content-type", "application/json")];
    let body = json!({ "name": "reviewer", "model": "auto" }).to_string();
    let made = gateway.send("POST", "/v1/agents", &json_body, Some(body.as_bytes())).await;
    let page = format!("/console/agents/{}", made.json()["id"].as_str().unwrap());
    let etag = |html: &str| {
        let rest = html.split("name=\"etag\" value=\"").nth(1).expect("an etag");
        rest.split("\">").next().unwrap().replace("&quot;", "%22")
    };
    let shown = gateway.send("GET", &page, &[("cookie", session.as_str())], None).await;
    let form = |text: &str, etag: &str| format!("model=auto&description={text}&etag={etag}");
    let first = etag(&shown.text());
    assert_eq!(post(&page, &form("one", &first)).await.status, 303);
    let late = post(&page, &form("two", &first)).await;
    assert_eq!(late.status, 412, "{}", late.text());
    assert_eq!(post(&page, &form("two", &etag(&late.text()))).await.status, 303);
    // A throttled login says when the next may come.
    let wrong = format!("email={}&password=wrong+horse", EMAIL.replace('@', "%40"));
    let mut answer = post("/console/sign-in", &wrong).await;
    for _ in 0..12 {
        answer = post("/console/sign-in", &wrong).await;
    }
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    // The next page of the audit has the filter of this one.
    let since = "/console/audit?since=2026-11-21T10%3A00%3A00Z";
    let audit = gateway.send("GET", since, &[("cookie", session.as_str())], None).await.text();
    assert!(audit.contains("value=\"2026-11-21T10:00:00\""), "{audit}");
}
