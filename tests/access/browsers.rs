//! A page of another origin achieves nothing with a browser that is logged in. The tests go through
//! every route by hand, and use a real browser, which `./test` installs.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rerouter::internals::api::{ROUTES, Route};
use rerouter::internals::console::PAGES;
use rerouter::internals::interface::Surface;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access::identity::{NO_KEY, fill};
use crate::access::routes::state;
use crate::support::client::{self, Answer};
use crate::support::documents::in_order;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::{free_port, until};

const JSON: (&str, &str) = ("content-type", "application/json");
const PASSWORD: &str = "correct horse";
/// Time limit for a browser on a busy machine.
const BROWSING: Duration = Duration::from_secs(240);

async fn start() -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    (Setup::new(&in_order(&[("a", &provider.url())], "")).start().await, provider)
}

/// Logs in as a new admin, and returns the session cookie.
async fn admin_cookie(gateway: &Gateway) -> String {
    let account = json!({"email": "admin@example.com", "password": PASSWORD, "role": "admin"});
    gateway.answers(201, "POST", "/v1/users", &gateway.admin_key, Some(&account)).await;
    let body = json!({"email": "admin@example.com", "password": PASSWORD}).to_string();
    let login = gateway.send("POST", "/v1/auth/login", &[JSON], Some(body.as_bytes())).await;
    login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// Every route, and every page of the console.
fn everything() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(PAGES)
}

fn check(surface: Surface, answer: &Answer, (status, word, phrase): (u16, &str, &str)) {
    match surface {
        Surface::Agent => envelope::agent(answer, status, phrase),
        Surface::DataPlane => envelope::openai(
            answer,
            status,
            answer.json()["error"]["type"].as_str().unwrap(),
            Some(word),
        ),
        Surface::Messages => {
            envelope::anthropic(answer, status, answer.json()["error"]["type"].as_str().unwrap())
        }
        Surface::Pin | Surface::NodeCallback | Surface::RouterManagement => {
            envelope::management(answer, status, word)
        }
        Surface::Console => {
            assert_eq!(answer.status, status, "{}", answer.text());
            assert!(
                answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"))
            );
            assert!(answer.header("content-security-policy").is_some());
        }
    }
}

#[tokio::test]
async fn every_unsafe_route_refuses_what_a_browser_sends_for_another_site() {
    let (gateway, provider) = start().await;
    let cookie = admin_cookie(&gateway).await;
    let before = state(&gateway).await;
    let neighbour = format!("http://{}", provider.address());
    let foreign: &[&[(&str, &str)]] = &[
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-site"), ("origin", &neighbour)],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "https://evil.example")],
        &[("origin", &neighbour)],
        &[("origin", "null")],
    ];
    let mut seen = 0;
    // Calls from nodes are signed, which a browser cannot do for a page. Without a signature, the
    // answer is 401 before any other check.
    let signed = |route: &&Route| Surface::of(route.path) == Surface::NodeCallback;
    for route in everything().filter(|route| !route.method.is_safe() && !signed(route)) {
        let (surface, method, target) =
            (Surface::of(route.path), route.method.as_str(), fill(route.path, NO_KEY));
        for headers in foreign {
            let headers: Vec<(&str, &str)> =
                headers.iter().copied().chain([("cookie", cookie.as_str()), JSON]).collect();
            let answer = gateway.send(method, &target, &headers, Some(b"{}")).await;
            check(surface, &answer, (403, "csrf_rejected", "Forbidden"));
            assert!(answer.header_lines("access-control-allow-origin").is_empty());
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
    assert_eq!(state(&gateway).await, before);
    assert_eq!(provider.count(), 0);
    // Credentials that browsers add by themselves do not help where no credential is read.
    for route in everything().filter(|route| !route.method.is_safe()) {
        let (surface, target) = (Surface::of(route.path), fill(route.path, NO_KEY));
        for scheme in
            ["Basic dTpw", "basic", "Digest username=\"u\"", "NTLM TlRMTVNTUAAB", "Negotiate YII="]
        {
            let headers = [
                ("sec-fetch-site", "cross-site"),
                ("authorization", scheme),
                ("cookie", cookie.as_str()),
            ];
            let answer = gateway.send(route.method.as_str(), &target, &headers, None).await;
            if route.policy.is_open() || matches!(surface, Surface::Agent | Surface::Console) {
                check(surface, &answer, (403, "csrf_rejected", "Forbidden"));
            } else {
                assert_eq!(answer.status, 401, "{} {target}: {}", route.method, answer.text());
            }
        }
    }
    assert_eq!(state(&gateway).await, before);
    // A credential that no browser adds by itself makes the origin irrelevant. The console is the
    // exception, as it takes only the cookie.
    for route in everything().filter(|route| !route.method.is_safe()) {
        let (method, target) = (route.method.as_str(), fill(route.path, NO_KEY));
        let answer = gateway
            .send(
                method,
                &target,
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("authorization", "Bearer x"),
                    ("cookie", &cookie),
                ],
                None,
            )
            .await;
        if Surface::of(route.path) == Surface::Console {
            check(Surface::Console, &answer, (403, "csrf_rejected", "Forbidden"));
            continue;
        }
        assert!(!answer.text().contains("another site"), "{method} {target}: {}", answer.text());
    }
}

/// Preflight requests: browsers send them before a request that no form could send, and before a
/// request from a public network to a private one.
#[tokio::test]
async fn nobody_who_asks_beforehand_is_told_to_come() {
    let (gateway, _provider) = start().await;
    let cookie = admin_cookie(&gateway).await;
    let neighbour = format!("http://localhost:{}", free_port());
    for route in everything() {
        let target = fill(route.path, NO_KEY);
        for origin in ["https://evil.example", "null", &neighbour] {
            let preflight = [
                ("origin", origin),
                ("access-control-request-method", route.method.as_str()),
                ("access-control-request-headers", "authorization,content-type,x-api-key"),
                ("access-control-request-private-network", "true"),
                ("access-control-request-local-network", "true"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "cors"),
            ];
            for credential in [None, Some(("cookie", cookie.as_str()))] {
                let headers: Vec<(&str, &str)> = preflight.into_iter().chain(credential).collect();
                let asked = gateway.send("OPTIONS", &target, &headers, None).await;
                assert!(
                    matches!(asked.status, 401 | 405),
                    "OPTIONS {target}: {} {}",
                    asked.status,
                    asked.text()
                );
                // Answers to requests without a preflight cannot be read by the page either.
                let plain = [
                    ("origin", origin),
                    ("sec-fetch-mode", "cors"),
                    ("sec-fetch-site", "cross-site"),
                ];
                let headers: Vec<(&str, &str)> = plain.into_iter().chain(credential).collect();
                let read = gateway.send("GET", &target, &headers, None).await;
                for answer in [asked, read] {
                    let told = answer.headers.iter().find(|(name, _)| {
                        name.starts_with("access-control-") || name == "timing-allow-origin"
                    });
                    assert!(told.is_none(), "{target}: {told:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn every_route_is_served_to_our_own_names_only() {
    let (gateway, provider) = start().await;
    let cookie = admin_cookie(&gateway).await;
    let before = state(&gateway).await;
    let bearer = format!("Bearer {}", gateway.admin_key);
    let port = gateway.address().port();
    for route in everything() {
        let (surface, target) = (Surface::of(route.path), fill(route.path, NO_KEY));
        for host in [
            format!("evil.example:{port}"),
            "evil.example".to_owned(),
            format!("127.0.0.1.evil.example:{port}"),
        ] {
            for credential in [("cookie", cookie.as_str()), ("authorization", bearer.as_str())] {
                let ask = client::request(
                    route.method.as_str(),
                    &target,
                    &host,
                    &[credential, JSON],
                    Some(b"{}"),
                );
                let answer = gateway.connect().await.exchange(&ask).await;
                check(surface, &answer, (421, "misdirected_request", "Misdirected Request"));
            }
        }
    }
    assert_eq!(state(&gateway).await, before);
    assert_eq!(provider.count(), 0);
}

/// A public listener without a list of names takes any `Host`. A listener on loopback beside it
/// takes only its own names.
#[tokio::test]
async fn a_listener_on_loopback_takes_no_name_that_a_public_one_beside_it_takes() {
    let (mut gateway, _provider) = start().await;
    let public = free_port();
    gateway.add_listener(&format!("0.0.0.0:{public}\n    interfaces: [router]"));
    gateway.restart().await;
    let agent = json!({"name": "sly", "model": "auto", "instructions": "Whatever."}).to_string();
    for (port, host, status) in [
        (gateway.address().port(), "evil.example", 421),
        (gateway.address().port(), "localhost", 201),
        (public, "evil.example", 200),
        (public, "localhost", 200),
    ] {
        let own = port == gateway.address().port();
        let host = format!("{host}:{port}");
        // A browser writes this origin after DNS rebinding: to the page, the gateway is its own
        // origin.
        let origin = format!("http://{host}");
        let headers = [JSON, ("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
        let ask = match own {
            true => client::request("POST", "/v1/agents", &host, &headers, Some(agent.as_bytes())),
            false => client::request("GET", "/health", &host, &headers, None),
        };
        let answer = until("the listener", async || {
            client::Connection::try_open(([127, 0, 0, 1], port).into()).await
        })
        .await
        .exchange(&ask)
        .await;
        assert_eq!(answer.status, status, "{host}: {}", answer.text());
    }
    let agents = gateway.send("GET", "/v1/agents", &[], None).await.json();
    assert_eq!(agents["data"].as_array().map(Vec::len), Some(1), "{agents}");
}

/// A browser that shows a page. Dropping the value ends the process.
struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    fn open(url: &str) -> Browser {
        let profile = tempfile::Builder::new().prefix("rerouter-browser-").tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-sync",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
        ]);
        // Newer protections of browsers are switched off: the gateway must be safe by the rules of
        // origins and cookies alone.
        command.arg(
            "--disable-features=HttpsUpgrades,LocalNetworkAccessChecks,\
            BlockInsecurePrivateNetworkRequests",
        );
        command.arg("--host-resolver-rules=MAP evil.example 127.0.0.1");
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child =
            command.spawn().expect("chromium is not installed: run ./test, which installs it");
        Browser { child, _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The server of the attacking page. It passes all other requests to the gateway unchanged, so to a
/// browser under DNS rebinding this server is the gateway.
async fn evil(page: String, gateway: std::net::SocketAddr, cookie: String) -> Provider {
    Provider::start(move |request: &Received, _| match request.target.as_str() {
        // Cookies do not depend on the port, so this cookie is like one that the gateway set.
        target if target.starts_with("/enter/") => {
            let (name, host) =
                (target.trim_start_matches("/enter/"), request.header("host").unwrap());
            let location = format!("http://{name}:{}/page", host.rsplit(':').next().unwrap());
            let cookie = format!("{cookie}; Path=/; HttpOnly; SameSite=Lax");
            scripted::answer(302, &[("location", &location), ("set-cookie", &cookie)], b"")
        }
        "/enter-frame" => {
            let frame = "<!doctype html><iframe sandbox=\"allow-scripts allow-forms\" \
                src=\"/page\"></iframe>";
            let cookie = format!("{cookie}; Path=/; HttpOnly; SameSite=Lax");
            scripted::answer(
                200,
                &[("content-type", "text/html"), ("set-cookie", &cookie)],
                frame.as_bytes(),
            )
        }
        "/page" => scripted::answer(200, &[("content-type", "text/html")], page.as_bytes()),
        "/report" => scripted::answer(204, &[], b""),
        target if ["/v1/", "/console"].iter().any(|ours| target.starts_with(ours)) => {
            hand_on(request, gateway)
        }
        _ => scripted::answer(404, &[], b""),
    })
    .await
}

fn hand_on(request: &Received, gateway: std::net::SocketAddr) -> Vec<Step> {
    use std::io::{Read, Write};
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    for (name, value) in request.headers.iter().filter(|(name, _)| name != "connection") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("connection: close\r\n\r\n");
    let mut stream = std::net::TcpStream::connect(gateway).unwrap();
    stream.write_all(&[head.as_bytes(), &request.body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    vec![Step::Write(answer), Step::Cut]
}

/// Waits for the page's report on what it could read.
async fn report(evil: &Provider) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let found = (0..evil.count())
            .map(|number| evil.request(number))
            .find(|request| request.target == "/report");
        if let Some(request) = found {
            return request.json().as_array().unwrap().clone();
        }
        assert!(
            began.elapsed() < BROWSING,
            "the page did not come to its end; its server was asked {} times",
            evil.count()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Number of lines in the gateway's log so far. Log lines follow their requests with a delay, in
/// the same order.
async fn lines(gateway: &Gateway) -> usize {
    let id = gateway.send("GET", "/version", &[], None).await.request_id();
    until("the log", async || gateway.log().contains(&id).then_some(())).await;
    gateway.log().lines().count()
}

/// Method, path and status of each request in the log from line `from` on.
fn logged(gateway: &Gateway, from: usize) -> Vec<(String, String, u64)> {
    let log = gateway.log();
    let lines = log.lines().skip(from).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = |line: Value| {
        Some((
            line["method"].as_str()?.to_owned(),
            line["path"].as_str()?.to_owned(),
            line["status"].as_u64()?,
        ))
    };
    lines.filter_map(line).collect()
}

/// Requests for the page: some are attacked in every way, and every other route that changes
/// something in one brief way.
fn attacks(revision: &str) -> Vec<Value> {
    let account = json!({"email": "mallory@example.com", "password": "correct horse"});
    let document = json!({"providers": {"m": {"protocol": "mock"}}, "recipes": {}, "aliases": {}});
    let chat = json!({"model": "auto", "messages": [{"role": "user", "content": "hello"}]});
    let whole = [
        ("POST", "/v1/auth/login", json!({"email": "admin@example.com", "password": PASSWORD})),
        ("POST", "/v1/auth/register", account.clone()),
        ("POST", "/v1/users", account),
        ("POST", "/v1/apikeys", json!({})),
        ("POST", "/v1/router/keys", json!({})),
        ("PUT", "/v1/router/config", document),
        ("POST", "/v1/router/config/rollback", json!({ "revision": revision })),
        ("POST", "/v1/agents", json!({"name": "mallory", "model": "auto"})),
        ("POST", "/v1/api-keys", json!({})),
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/v1/auth/logout", json!({})),
    ];
    let known = |route: &&Route| {
        whole
            .iter()
            .any(|(method, path, _)| *method == route.method.as_str() && *path == route.path)
    };
    let others = everything().filter(|route| !route.method.is_safe() && !known(route));
    let others = others.map(|route| {
        json!({
            "method": route.method.as_str(), "path": fill(route.path, NO_KEY),
            "body": "{}", "brief": true
        })
    });
    let whole = whole.iter().map(
        |(method, path, body)| json!({"method": method, "path": path, "body": body.to_string()}),
    );
    whole.chain(others).collect()
}

/// The attacking page for the gateway at `gateway`. It sends its findings to `report`, and finally
/// navigates to `last`.
fn page(attacks: &[Value], gateway: &str, report: &str, last: &str) -> String {
    let looks = [
        "/v1/router/usage",
        "/v1/audit?limit=100",
        "/v1/router/replay?limit=100",
        "/openapi.json",
        "/v1/agents",
    ];
    let page = include_str!("../data/attack.html").replace("ATTACKS", &json!(attacks).to_string());
    page.replace("LOOKS", &json!(looks).to_string())
        .replace("GATEWAY", gateway)
        .replace("REPORT", report)
        .replace("LAST", last)
}

/// Asserts that no logged request changed anything, and that each attacked path was requested at
/// least as often as the page tried.
fn check_logged(logged: &[(String, String, u64)], attacks: &[Value], from: &str) {
    for (method, path, status) in
        logged.iter().filter(|(method, ..)| !matches!(method.as_str(), "GET" | "OPTIONS"))
    {
        assert!(matches!(status, 303 | 401 | 403 | 405), "{method} {path} from {from}: {status}");
    }
    for attack in attacks.iter().filter(|attack| attack["method"] == "POST") {
        let (path, least) =
            (attack["path"].as_str().unwrap(), if attack["brief"] == true { 2 } else { 5 });
        let count =
            logged.iter().filter(|(method, found, _)| method == "POST" && found == path).count();
        assert!(count >= least, "{path} was attacked from {from}, {count} times: {logged:?}");
    }
}

#[tokio::test]
async fn a_real_browser_achieves_nothing_for_a_page_of_another_origin() {
    let (gateway, provider) = start().await;
    let cookie = admin_cookie(&gateway).await;
    let before = state(&gateway).await;
    let attacks = attacks(before[0].as_str().unwrap());
    let port = gateway.address().port();
    // Another port on the same name is another origin, but the same site, so the browser sends the
    // cookie. Another name is another site.
    for (name, host, logged_in) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("localhost", "localhost", true),
        ("evil.example", "127.0.0.1", false),
    ] {
        let from = lines(&gateway).await;
        let path = "/v1/api-keys/key_11111111111111111111111111/rotate";
        let last = format!("http://somebody:secret@{host}:{port}{path}");
        let at_gateway = page(&attacks, &format!("http://{host}:{port}"), "/report", &last);
        let evil = evil(at_gateway, gateway.address(), cookie.clone()).await;
        // The cookie is for the name under which the browser calls the gateway.
        let browser =
            Browser::open(&format!("http://{host}:{}/enter/{name}", evil.address().port()));
        assert_eq!(report(&evil).await, Vec::<Value>::new(), "nothing is readable from {name}");
        let gone = until("the page to go there itself", async || {
            logged(&gateway, from).into_iter().find(|(_, found, _)| found == path)
        })
        .await;
        assert_eq!((gone.0.as_str(), gone.2), ("POST", 403), "from {name}");
        drop(browser);
        lines(&gateway).await;
        let logged = logged(&gateway, from);
        check_logged(&logged, &attacks, name);
        let signed = |path: &str| path.starts_with("/v1/agent/");
        let came = logged
            .iter()
            .filter(|(method, path, _)| method == "POST" && !signed(path) && found(path));
        assert!(
            !logged_in || came.into_iter().all(|(.., status)| *status == 403),
            "from {name}: {logged:?}"
        );
        let seen = |path: &str| {
            logged
                .iter()
                .any(|(method, found, status)| method == "GET" && found == path && *status == 200)
        };
        assert_eq!(seen("/v1/users"), logged_in, "the cookie was in play from {name}: {logged:?}");
        assert_eq!(state(&gateway).await, before, "from {name}");
    }
    // DNS rebinding: the page's own name now leads to the gateway. For the browser that is one
    // origin, so the page can read every answer.
    let from = lines(&gateway).await;
    let evil = evil(page(&attacks, "", "/report", ""), gateway.address(), cookie).await;
    let browser = Browser::open(&format!("http://{}/enter/evil.example", evil.address()));
    let read = report(&evil).await;
    drop(browser);
    lines(&gateway).await;
    assert!(read.len() > attacks.len(), "{read:?}");
    assert!(read.iter().all(|one| one["status"] == 421), "{read:?}");
    let unsafe_ones = logged(&gateway, from)
        .into_iter()
        .filter(|(method, ..)| !matches!(method.as_str(), "GET" | "OPTIONS"));
    let statuses: Vec<u64> = unsafe_ones.map(|(.., status)| status).collect();
    assert!(
        statuses.len() >= 3 * attacks.len() && statuses.iter().all(|status| *status == 421),
        "{} {statuses:?}",
        attacks.len()
    );
    assert_eq!(state(&gateway).await, before);
    assert_eq!(provider.count(), 0);
}

/// Whether some route takes a POST to this path. Other paths are refused because of the method.
fn found(path: &str) -> bool {
    everything().any(|route| route.method == http::Method::POST && fill(route.path, NO_KEY) == path)
}

/// A page in a sandboxed frame and a page from a file. Both have the origin `null`.
#[tokio::test]
async fn a_real_browser_achieves_nothing_for_a_page_of_no_origin() {
    let (gateway, provider) = start().await;
    let cookie = admin_cookie(&gateway).await;
    let before = state(&gateway).await;
    let attacks = attacks(before[0].as_str().unwrap());
    let at = format!("http://{}", gateway.host());
    let evil = evil(page(&attacks, &at, "/report", ""), gateway.address(), cookie.clone()).await;
    let file = gateway.dir().join("page.html");
    let frame = format!("http://{}/enter-frame", evil.address());
    for (from_file, url) in [(false, frame), (true, format!("file://{}", file.display()))] {
        let from = lines(&gateway).await;
        let other = if from_file {
            Some(
                crate::access::browsers::evil(String::new(), gateway.address(), cookie.clone())
                    .await,
            )
        } else {
            None
        };
        let server = other.as_ref().unwrap_or(&evil);
        std::fs::write(
            &file,
            page(&attacks, &at, &format!("http://{}/report", server.address()), ""),
        )
        .unwrap();
        let browser = Browser::open(&url);
        assert_eq!(report(server).await, Vec::<Value>::new(), "nothing is readable from {url}");
        drop(browser);
        lines(&gateway).await;
        let logged = logged(&gateway, from);
        check_logged(&logged, &attacks, &url);
        // Where no credential is read, the origin decides.
        let open = ["/v1/auth/login", "/v1/auth/register", "/v1/agents", "/v1/api-keys"];
        let came = logged
            .iter()
            .filter(|(method, path, _)| method == "POST" && open.contains(&path.as_str()));
        assert!(came.into_iter().all(|(.., status)| *status == 403), "{url}: {logged:?}");
        assert_eq!(state(&gateway).await, before, "from {url}");
    }
    assert_eq!(provider.count(), 0);
}
