//! How providers are reached: authorities of their own, HTTP/2, health checks, and what operators
//! are shown of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::tls_provider::TlsProvider;
use crate::support::{envelope, until};

/// A document with one provider behind TLS; `options` are more keys of it.
fn behind_tls(provider: &TlsProvider, options: &str) -> String {
    let first = format!("base_url: {}\n", provider.url());
    in_order(&[("a", &provider.url())], "").replacen(&first, &format!("{first}    {options}\n"), 1)
}

#[tokio::test]
async fn an_authority_of_its_own_vouches_for_a_provider() {
    let provider = TlsProvider::start().await;
    let ca = provider.ca().display().to_string();
    let gateway = Setup::new(&behind_tls(&provider, "ca: \"${PROVIDER_CA_API_KEY}\""))
        .env("PROVIDER_CA_API_KEY", &ca)
        .start()
        .await;
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.json(), scripted::completion_body("HTTP/1.1 /v1/chat/completions"));
    // A connection that was made under it is not used without it.
    gateway.write_routing(&behind_tls(&provider, "max_concurrency: 5")).await;
    envelope::openai(
        &gateway.chat(&key, chat_body("auto", false).as_bytes()).await,
        502,
        "server_error",
        Some("provider_error"),
    );
    let other = TlsProvider::start().await;
    gateway.write_routing(&behind_tls(&provider, &format!("ca: {}", other.ca().display()))).await;
    envelope::openai(
        &gateway.chat(&key, chat_body("auto", false).as_bytes()).await,
        502,
        "server_error",
        Some("provider_error"),
    );
}

#[tokio::test]
async fn http2_is_spoken_where_both_sides_want_it() {
    let provider = TlsProvider::start().await;
    let ca = provider.ca().display().to_string();
    let gateway =
        Gateway::start(&behind_tls(&provider, &format!("ca: {ca}\n    http2: true"))).await;
    let key = gateway.create_key().await;
    for _ in 0..2 {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.json(), scripted::completion_body("HTTP/2.0 /v1/chat/completions"));
        let streamed = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
        assert_eq!(
            (streamed.whole, streamed.text()),
            (true, scripted::stream_body("HTTP/2.0 /v1/chat/completions"))
        );
    }
    let long = format!("{{\"pad\":\"{}\",{}", "x".repeat(300_000), &chat_body("auto", false)[1..]);
    assert_eq!(gateway.chat(&key, long.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_refused_before_it_is_read_is_answered_with_the_refusal() {
    let provider = TlsProvider::start().await;
    let ca = provider.ca().display().to_string();
    for options in [format!("ca: {ca}\n    http2: true"), format!("ca: {ca}")] {
        let gateway = Gateway::start(&behind_tls(&provider, &options)).await;
        let key = gateway.create_key().await;
        let pad = "x".repeat(4 << 20);
        let long = format!("{{\"pad\":\"{pad}\",{}", &chat_body("auto", false)[1..]);
        for _ in 0..6 {
            let answer = gateway.chat(&key, long.as_bytes()).await;
            assert_eq!(answer.status, 413, "{options}: {}", answer.text());
            assert!(answer.text().contains("the body is too long"), "{}", answer.text());
        }
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{options}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_health_check_opens_the_breaker_and_lets_it_close_again() {
    let health = Arc::new(AtomicU16::new(503));
    let says = health.clone();
    let a = Provider::start(move |request, _| match request.method.as_str() {
        "GET" => scripted::failure(says.load(Ordering::SeqCst), "so it is"),
        _ => scripted::completion("from a"),
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let first = format!("base_url: {}\n", a.url());
    let options = "    health: { path: /well?deep=1, interval: 1s }\n    breaker: { open: 60s }\n";
    let document = in_order(&[("a", &a.url()), ("b", &b.url())], "").replacen(
        &first,
        &format!("{first}{options}"),
        1,
    );
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let provider = async || {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        (answer.status == 200).then(|| answer.header("x-rerouter-provider").unwrap().to_owned())
    };
    until("the check to take it out", async || provider().await.filter(|name| name == "b")).await;
    let check = (0..a.count())
        .map(|number| a.request(number))
        .find(|request| request.method == "GET")
        .unwrap();
    assert_eq!(
        (check.target.as_str(), check.header("authorization").as_deref()),
        ("/well?deep=1", Some("Bearer sk-upstream"))
    );
    assert_eq!(check.header("host"), Some(a.address().to_string()));
    for _ in 0..3 {
        assert_eq!(provider().await.as_deref(), Some("b"), "open for longer than the test runs");
    }
    // A busy provider is neither well nor unwell.
    health.store(429, Ordering::SeqCst);
    let asked = a.count();
    until("two more checks", async || (a.count() >= asked + 2).then_some(())).await;
    assert_eq!(provider().await.as_deref(), Some("b"));
    health.store(200, Ordering::SeqCst);
    until("the check to let it try", async || provider().await.filter(|name| name == "a")).await;
    let log = gateway.log();
    assert!(
        log.contains("provider a is unhealthy: a status of 5xx")
            && log.contains("provider a is healthy again")
    );
    let told = log
        .lines()
        .filter_map(|line| line.split("the breaker of a/model is ").nth(1)?.split('"').next());
    let expected = [
        "open for 60s: its health check failed: a status of 5xx",
        "half-open: one request probes it",
        "closed: it answers again",
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    gateway
        .write_routing(
            &in_order(&[("a", &a.url()), ("b", &b.url())], "")
                .replace("auto: main", "auto: main, more: main"),
        )
        .await;
    assert_eq!(json!(provider().await), json!("a"));
}

#[tokio::test]
async fn a_health_check_of_an_address_that_was_left_says_nothing_of_the_next() {
    let silent = Provider::always(vec![Step::Hang]).await;
    let a = Provider::start(|request, _| match request.method.as_str() {
        "GET" => scripted::answer(200, &[], b""),
        _ => scripted::completion("from a"),
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let text = in_order(&[("a", &silent.url()), ("b", &b.url())], "")
        .replace("connect: 2s, first_byte: 20s", "connect: 1s, first_byte: 5s");
    let first = format!("base_url: {}\n", silent.url());
    let options = "    health: { path: /well, interval: 1s }\n    breaker: { open: 60s }\n";
    let text = text.replacen(&first, &format!("{first}{options}"), 1);
    let gateway = Gateway::start(&text).await;
    let key = gateway.create_key().await;
    until("a check to begin", async || (silent.count() == 1).then_some(())).await;
    gateway.write_routing(&text.replace(&silent.url(), &a.url())).await;
    silent.abandoned(0).await;
    let asked = a.count();
    until("two checks of the next", async || (a.count() >= asked + 2).then_some(())).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(
        (answer.header("x-rerouter-provider"), answer.header("x-rerouter-attempts")),
        (Some("a"), Some("1"))
    );
    assert!(!gateway.log().contains("is unhealthy") && !gateway.log().contains("the breaker of"));
}

#[tokio::test]
async fn operators_are_shown_what_targets_are_doing() {
    let a = Provider::always(scripted::failure(500, "broken")).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let first = format!("base_url: {}\n", a.url());
    let options = "    breaker: { consecutive: 2, open: 60s }\n    max_concurrency: 7\n";
    let document = in_order(&[("a", &a.url()), ("b", &b.url())], "").replacen(
        &first,
        &format!("{first}{options}"),
        1,
    );
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let list = async |query: &str| {
        gateway
            .manage("GET", &format!("/v1/router/providers{query}"), &gateway.admin_key, None)
            .await
    };
    let idle = list("").await.json();
    let target = json!({
        "model": "model", "breaker": "closed", "retry_at": null, "ewma_ms": null, "inflight": 0,
        "max_concurrency": 7, "requests_1m": 0,
        "errors_1m": 0,
    });
    assert_eq!(
        idle["data"][0],
        json!({ "object": "provider", "id": "a", "protocol": "openai", "targets": [target] })
    );
    assert_eq!(
        (&idle["object"], &idle["has_more"], idle["data"].as_array().unwrap().len()),
        (&json!("list"), &json!(false), 2)
    );
    for _ in 0..3 {
        assert_eq!(gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status, 200);
    }
    let busy = list("").await.json();
    let (of_a, of_b) = (&busy["data"][0]["targets"][0], &busy["data"][1]["targets"][0]);
    assert_eq!(
        (&of_a["breaker"], &of_a["requests_1m"], &of_a["errors_1m"]),
        (&json!("open"), &json!(2), &json!(2))
    );
    assert!(of_a["retry_at"].is_string(), "{of_a}");
    assert_eq!(
        (&of_b["breaker"], &of_b["requests_1m"], &of_b["errors_1m"]),
        (&json!("closed"), &json!(3), &json!(0))
    );
    assert!(of_b["ewma_ms"].as_f64().unwrap() > 0.0 && of_b["max_concurrency"].is_null(), "{of_b}");
    assert_eq!(gateway.metric("rerouter_breaker_open", &["provider=\"a\""]).await, 1.0);
    assert_eq!(gateway.metric("rerouter_breaker_open", &["provider=\"b\""]).await, 0.0);
    let page = list("?limit=1").await.json();
    assert_eq!(
        (&page["next"], list("?limit=1&after=a").await.json()["data"][0]["id"].clone()),
        (&json!("a"), json!("b"))
    );
    for query in ["?after=nobody", "?limit=0", "?colour=red"] {
        assert_eq!(list(query).await.status, 400, "{query}");
    }
    // An ordinary key is not enough; one with the scope is.
    gateway.answers(403, "GET", "/v1/router/providers", &key.secret, None).await;
    let scoped = json!({ "scopes": ["config"] });
    let scoped =
        gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&scoped)).await.json();
    gateway
        .answers(200, "GET", "/v1/router/providers", scoped["key"].as_str().unwrap(), None)
        .await;
    gateway.write_routing(&in_order(&[("b", &b.url())], "")).await;
    let metrics = gateway.metrics().await;
    assert!(
        metrics.contains("rerouter_breaker_open{model=\"model\",provider=\"b\"} 0")
            && !metrics.contains("provider=\"a\""),
        "{metrics}"
    );
}

/// What stands behind `?` is for the provider, but for credentials and what its `base_url` sets.
#[tokio::test]
async fn the_query_goes_to_the_provider_without_credentials() {
    let a = Provider::always(scripted::completion("from a")).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let azure = format!("{}/deployments/gpt?api-version=2024-10-21&x=%20y", b.url());
    let document = in_order(&[("a", &a.url()), ("b", &azure)], "models:\n  b/model: {}\n");
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let ask = async |model: &str, query: &str| {
        let answer = gateway
            .send(
                "POST",
                &format!("/v1/chat/completions{query}"),
                &headers,
                Some(chat_body(model, false).as_bytes()),
            )
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.request_id()
    };
    let (hidden, odd) = (
        format!("?a=1&b=x{}y&c=2", key.secret),
        format!("?beta=true&{}", key.secret.replace('_', "%5f")),
    );
    for (query, sent) in [
        ("", ""),
        ("?", ""),
        ("?beta=true", "?beta=true"),
        ("?b=%2F%zz&&a=1;c=2&a=+&d", "?b=%2F%zz&&a=1;c=2&a=+&d"),
        ("?key=sk-1&beta=true&api_key=2", "?beta=true"),
        ("?%6bey=sk-1&X-Api-Key=2&access_token=3", ""),
        ("?a=1;key=sk-1&b=2", "?b=2"),
        (hidden.as_str(), "?a=1&c=2"),
        (odd.as_str(), "?beta=true"),
    ] {
        let id = ask("auto", query).await;
        assert_eq!(a.last().target, format!("/v1/chat/completions{sent}"), "{query}");
        let capture = gateway.capture(&id).await;
        assert_eq!(
            capture["request"].get("query"),
            sent.strip_prefix('?').map(|sent| json!(sent)).as_ref(),
            "{query}: {capture}"
        );
        assert_eq!(capture["replayable"], true);
    }
    // Again as it came.
    let id = ask("auto", "?beta=true&key=1").await;
    let rerouted = gateway.reroute(&id, &key.secret).await;
    assert_eq!(
        (rerouted.status, a.last().target.as_str()),
        (200, "/v1/chat/completions?beta=true"),
        "{}",
        rerouted.text()
    );
    // What the operator wrote stands, and first.
    let base = "/v1/deployments/gpt/chat/completions?api-version=2024-10-21&x=%20y";
    for (query, sent) in [
        ("", ""),
        ("?beta=true", "&beta=true"),
        ("?api-version=2023-01-01&beta=true&x", "&beta=true"),
    ] {
        ask("b/model", query).await;
        assert_eq!(b.last().target, format!("{base}{sent}"), "{query}");
    }
    assert!(!gateway.log().contains("beta="), "{}", gateway.log());
}

/// Anthropic's SDK asks for its beta features this way.
#[tokio::test]
async fn the_query_of_messages_goes_to_their_provider() {
    let claude = Provider::start(crate::requests::endpoints::reply).await;
    let document = format!(
        "providers:\n  claude: {{ protocol: anthropic, base_url: \"{}\", api_key: sk-a }}\n\
         models:\n  claude/opus: {{}}\nrecipes: {{}}\naliases: {{}}\n",
        claude.url().trim_end_matches("/v1")
    );
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let body = crate::requests::endpoints::body("/v1/messages", "claude/opus");
    let answer =
        crate::requests::endpoints::post(&gateway, &key, "/v1/messages?beta=true", &[], &body)
            .await;
    assert_eq!(
        (answer.status, claude.last().target.as_str()),
        (200, "/v1/messages?beta=true"),
        "{}",
        answer.text()
    );
}

/// By default no provider is this machine by no address, nor where clouds tell machines their
/// credentials, in whatever spelling.
#[tokio::test]
async fn what_is_denied_by_default_is_never_connected_to() {
    let listener = tokio::net::TcpListener::bind("[::]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let hosts = [
        "[::]",
        "0.0.0.0",
        "[::ffff:0.0.0.0]",
        "[2002:a9fe:a9fe::]",
        "[64:ff9b::a9fe:a9fe]",
        "[::ffff:169.254.169.254]",
        "100.100.100.200",
        "168.63.129.16",
    ];
    // Each by a name of its own: what failed is not asked again at once.
    let document = |number: usize, host: &str| {
        in_order(&[(&format!("a{number}"), &format!("http://{host}:{port}/v1"))], "")
    };
    let gateway = Gateway::start(&document(99, "192.0.2.1")).await;
    let key = gateway.create_key().await;
    for (number, host) in hosts.iter().enumerate() {
        gateway.write_routing(&document(number, host)).await;
        envelope::openai(
            &gateway.chat(&key, chat_body("auto", false).as_bytes()).await,
            502,
            "server_error",
            Some("provider_error"),
        );
        let denied = || gateway.log().matches("are denied by `egress`").count();
        until(&format!("{host} to be denied"), async || (denied() > number).then_some(())).await;
    }
    let arrived =
        tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
    assert!(arrived.is_err(), "somebody connected: {arrived:?}");
}
