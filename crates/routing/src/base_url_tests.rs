//! Parsing of root URLs, and request targets below them.

use super::*;

#[test]
fn a_base_is_read_or_refused() {
    let base = BaseUrl::parse("https://API.example.com/v1/").unwrap();
    assert_eq!(
        (base.tls, base.host.as_str(), base.port, base.path.as_str()),
        (true, "api.example.com", 443, "/v1")
    );
    assert_eq!(base.authority(), "api.example.com");
    let base = BaseUrl::parse("http://[::1]:8000").unwrap();
    assert_eq!(
        (base.host.as_str(), base.port, base.path.as_str(), base.authority().as_str()),
        ("::1", 8000, "", "[::1]:8000")
    );
    for bad in [
        "",
        "api.example.com",
        "ftp://x",
        "https://",
        "https://u:p@x/",
        "https://x/?a=1",
        "https://x/#a",
        "https://x:0/",
        "https://x:99999/",
        "/v1",
    ] {
        assert!(BaseUrl::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_base_may_have_a_query_where_a_provider_is_meant() {
    let base = BaseUrl::with_query("https://x/openai/?api-version=1&a%20b=c").unwrap();
    assert_eq!((base.path.as_str(), base.query.as_str()), ("/openai", "api-version=1&a%20b=c"));
    assert_eq!(
        BaseUrl::with_query("https://x/v1").unwrap(),
        BaseUrl::parse("https://x/v1").unwrap()
    );
    for bad in ["https://x/?a=1#b", "https://u:p@x/?a", "?a=1", "https://x/?a b", "ftp://x?a"] {
        assert!(BaseUrl::with_query(bad).is_err(), "{bad}");
    }
    let path = "/openai/chat/completions";
    for (query, shown) in [
        (None, "?api-version=1&a%20b=c"),
        (Some("beta=true&&x"), "?api-version=1&a%20b=c&beta=true&&x"),
        (Some("api%2Dversion=2&a+b&beta=%74"), "?api-version=1&a%20b=c&beta=%74"),
    ] {
        assert_eq!(
            base.request_target(Endpoint::ChatCompletions, "m", query),
            format!("{path}{shown}")
        );
    }
    let plain = BaseUrl::parse("https://x").unwrap();
    assert_eq!(plain.request_target(Endpoint::Messages, "m", None), "/messages");
    assert_eq!(
        plain.request_target(Endpoint::Messages, "m", Some("beta=true")),
        "/messages?beta=true"
    );
}

#[test]
fn a_base_of_anthropic_s_protocol_ends_in_its_version_once() {
    for (written, path) in [
        ("https://api.anthropic.com", "/v1"),
        ("https://api.anthropic.com/v1/", "/v1"),
        ("https://example.com/anthropic", "/anthropic/v1"),
        ("https://example.com/api/v1", "/api/v1"),
    ] {
        assert_eq!(BaseUrl::parse(written).unwrap().versioned().path, path, "{written}");
    }
}

#[test]
fn a_model_in_the_path_is_one_plain_segment() {
    let plain = BaseUrl::with_query("https://x/d?v=1").unwrap();
    let base = BaseUrl { model_in_path: true, ..plain.clone() };
    assert_eq!(
        base.request_target(Endpoint::ChatCompletions, "gpt-5_x.1", Some("q=2")),
        "/d/gpt-5_x.1/chat/completions?v=1&q=2"
    );
    for (model, fits) in [
        ("gpt-5_x.1", true),
        ("..x", true),
        ("..", false),
        (".", false),
        ("", false),
        ("a/b", false),
        ("a%2Fb", false),
        ("a?b", false),
        ("\u{e9}", false),
    ] {
        assert_eq!((base.takes(model), plain.takes(model)), (fits, true), "{model}");
    }
}
