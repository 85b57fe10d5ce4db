//! The console: sign-in, the first admin, what each page keeps to, and what it lets through.

use rerouter::internals::console::PAGES;
use serde_json::json;

use crate::support::browser::{EMAIL, PASSWORD, account, drive};
use crate::support::client::Answer;
use crate::support::console_pages::Page;
use crate::support::documents::in_order;
use crate::support::fleet::ROUTING;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A gateway whose one model is a mock, with an admin.
async fn start() -> (Gateway, serde_json::Value) {
    let gateway = Gateway::start(ROUTING).await;
    let given = account(&gateway, EMAIL, "admin").await;
    (gateway, given)
}

/// The pages that can be looked at without naming anything in particular.
fn plain_pages() -> Vec<&'static str> {
    let plain = PAGES.iter().filter(|page| page.method == "GET" && !page.path.contains('{'));
    plain.map(|page| page.path).filter(|path| path.starts_with("/console/")).collect()
}

/// Signs in by the form; the cookie.
async fn cookie(gateway: &Gateway, email: &str) -> String {
    let form = format!("email={}&password={}", email.replace('@', "%40"), "correct+horse");
    let answer = gateway.send("POST", "/console/sign-in", &[FORM], Some(form.as_bytes())).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// The headers that protect every answer, and the HTML that needs no others.
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
            // Keys are for programs: no page takes one.
            let key = format!("Bearer {}", gateway.admin_key);
            let answer = gateway.send(method, &path, &[("authorization", &key)], body).await;
            assert_eq!(answer.status, 303, "{method} {path}");
        }
        if method == "GET" {
            let answer = gateway.send(method, &path, &[("cookie", &cookie)], None).await;
            check_protected(&path, &answer);
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
        // What a page of another version asks for is answered, and not kept.
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

/// The link in the log of a start.
async fn link(gateway: &Gateway) -> String {
    until("the link", async || {
        let log = gateway.log();
        let at = log.rfind("/console/first-admin?token=")?;
        let rest = &log[at..];
        let end = rest.find(|c: char| c == '"' || c == '\\' || c.is_whitespace())?;
        Some(rest[..end].to_owned())
    })
    .await
}

#[tokio::test]
async fn the_link_of_a_start_makes_one_admin() {
    let mut gateway = Gateway::start(ROUTING).await;
    let old = link(&gateway).await;
    gateway.restart().await;
    let new = until("another link", async || {
        let found = link(&gateway).await;
        (found != old).then_some(found)
    })
    .await;
    assert_eq!(gateway.send("GET", &old, &[], None).await.status, 403, "of an earlier start");
    let sign_in = gateway.send("GET", "/console/sign-in", &[], None).await.text();
    assert!(sign_in.contains("a link in the log"), "{sign_in}");
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
    let both = tokio::join!(
        make(body("a%40example.com", "correct+horse", "correct+horse")),
        make(body("b%40example.com", "correct+horse", "correct+horse"))
    );
    let mut statuses = [both.0.status, both.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 303, "{} {}", both.0.text(), both.1.text());
    assert!([403, 409].contains(&statuses[1]), "{statuses:?}");
    let sign_in = gateway.send("GET", "/console/sign-in", &[], None).await.text();
    assert!(!sign_in.contains("a link in the log"), "{sign_in}");
    let users = gateway.manage("GET", "/v1/users", &gateway.admin_key, None).await.json();
    let users = users["data"].as_array().unwrap();
    assert_eq!((users.len(), &users[0]["role"]), (1, &json!("admin")));
    assert_eq!(gateway.send("GET", &new, &[], None).await.status, 403, "used");
    assert_eq!(gateway.log().matches(token).count(), 1, "requests leave it out of the log");
    // Nor is there another link.
    let links = gateway.log().matches("first-admin?token=").count();
    gateway.restart().await;
    assert_eq!(gateway.log().matches("first-admin?token=").count(), links);
}

#[tokio::test]
async fn an_agent_key_is_asked_for_where_agent_is_enforced() {
    let cloud = "an AGENT key; with odd=characters";
    let gateway = Setup::new(ROUTING).env("AGENT_CLOUD_API_KEY", cloud).start().await;
    account(&gateway, EMAIL, "admin").await;
    let session = cookie(&gateway, EMAIL).await;
    let send = async |key: &str| {
        let form = format!("next=%2Fconsole%2Fagents&key={key}");
        let headers = [("cookie", session.as_str()), FORM];
        gateway.send("POST", "/console/agent-key", &headers, Some(form.as_bytes())).await
    };
    let wrong = send("agt_wrong").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    let right = send(&cloud.replace(' ', "+").replace('=', "%3D").replace(';', "%3B")).await;
    assert_eq!((right.status, right.header("location")), (303, Some("/console/agents")));
    let kept = right.header("set-cookie").unwrap();
    assert!(kept.starts_with("rerouter_agent_key=an%20AGENT"), "{kept}");
    assert!(kept.contains("; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict"), "{kept}");
    let both = format!("{session}; {}", kept.split(';').next().unwrap());
    let out = gateway.send("POST", "/console/sign-out", &[("cookie", &both)], None).await;
    let gone = out.header_lines("set-cookie");
    assert!(gone.len() == 2 && gone.iter().all(|line| line.contains("=; ")), "{gone:?}");
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
    let gateway = Gateway::start(ROUTING).await;
    let url = format!("http://{}", gateway.address());
    let given = json!({"url": url, "link": link(&gateway).await, "email": EMAIL,
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
        // A body is a file, and no page.
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

/// What the API does not show, the console does not either.
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
