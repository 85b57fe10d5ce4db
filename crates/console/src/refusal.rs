//! Refused requests for pages: the answer is a page, or a part of one, with the error's own text,
//! or a redirect to a page that asks for a credential.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use maud::{Markup, html};

use super::answer;
use super::layout::{self, TabRow};
use super::pieces::prose;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind};
use rerouter_base::url::encode;

/// The field of an error that an AGENT key would fix.
pub(super) const AGENT_KEY: &str = "agent_key";

/// The facts about a browser's request to the console that refusals need.
pub struct PageAsk {
    fragment: bool,
    /// Whether a link can repeat the request.
    safe: bool,
    /// The page to return to afterwards.
    place: String,
    pub(super) tabs: Vec<TabRow>,
}

impl PageAsk {
    pub fn new(method: &Method, path_and_query: &str, headers: &HeaderMap) -> PageAsk {
        let (fragment, safe) = (is_fragment(headers), method.is_safe());
        let place = match (fragment, safe) {
            (false, true) => Some(path_and_query),
            (true, _) => path_of(headers, "hx-current-url"),
            (false, false) => path_of(headers, header::REFERER.as_str()),
        };
        PageAsk { fragment, safe, place: local(place.unwrap_or_default()).to_owned(), tabs: vec![] }
    }
}

/// Path and query of the URL in a header.
fn path_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let (_, rest) = headers.get(name)?.to_str().ok()?.split_once("://")?;
    rest.find('/').and_then(|at| rest.get(at..))
}

/// Returns `place` if it is a page of the console, else the start page: a link must not lead to
/// another site.
pub(super) fn local(place: &str) -> &str {
    let plain = place.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if plain && place.starts_with("/console/") { place } else { "/console/" }
}

/// Whether htmx asks for a part of a page. To restore a page from its history, it needs the whole
/// page.
pub(super) fn is_fragment(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request") && !headers.contains_key("hx-history-restore-request")
}

/// The answer to a request that reached no page.
pub fn refuse(ask: &PageAsk, error: &Error) -> Response<Bytes> {
    match error.kind() {
        Kind::Unauthorized => lead(ask, "/console/sign-in"),
        _ => tell(ask, &Principal::Anonymous, error),
    }
}

/// The answer of a page that failed. The error is added as an extension, for the access log.
pub(super) fn page(ask: &PageAsk, who: &Principal, error: Error) -> Response<Bytes> {
    let mut response = match (error.kind(), error.field()) {
        (Kind::Unauthorized, Some(AGENT_KEY)) => lead(ask, "/console/agent-key"),
        _ => tell(ask, who, &error),
    };
    response.extensions_mut().insert(Arc::new(error));
    response
}

/// Redirects to a page that asks for a credential and then leads back.
fn lead(ask: &PageAsk, to: &str) -> Response<Bytes> {
    let to = format!("{to}?next={}", encode(&ask.place));
    let to = HeaderValue::from_str(&to).unwrap_or(HeaderValue::from_static("/console/"));
    answer::redirect(ask.fragment, to)
}

fn tell(ask: &PageAsk, who: &Principal, error: &Error) -> Response<Bytes> {
    let passes = error.status().is_server_error() || error.retry_after_s().is_some();
    let (place, label) = match ask.safe {
        false => (ask.place.as_str(), "Go back"),
        true if passes => (ask.place.as_str(), "Try again"),
        true => ("/console/", "To the overview"),
    };
    let mut response = if ask.fragment {
        answer::html(error.status(), words(error))
    } else {
        let main = html! {
            (words(error))
            p { a.button href=(place) { (label) } }
        };
        let title = error.status().canonical_reason().unwrap_or("Error");
        layout::page(error.status(), who, &ask.tabs, None, title, &main)
    };
    set_headers(&mut response, error);
    response
}

fn set_headers(response: &mut Response<Bytes>, error: &Error) {
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after_s() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = error.allow().and_then(|allow| HeaderValue::from_str(allow).ok()) {
        headers.insert(header::ALLOW, allow);
    }
}

/// The answer of a page that tells the error itself.
pub(super) fn told(mut response: Response<Bytes>, error: Error) -> Response<Bytes> {
    set_headers(&mut response, &error);
    response.extensions_mut().insert(Arc::new(error));
    response
}

pub(super) fn words(error: &Error) -> Markup {
    html! {
        div.notice.bad role="alert" {
            p { (prose(error.detail())) }
            @if let Some(seconds) = error.retry_after_s() {
                p.muted { "Try again in " (seconds) " s." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_pages_of_the_console_are_led_back_to() {
        for good in ["/console/", "/console/keys?interface=pin&x=%20", "/console/captures/a"] {
            assert_eq!(local(good), good);
        }
        for bad in [
            "",
            "/",
            "//evil.example/console/",
            "https://evil.example/console/",
            "/consolex/",
            "/console/\\evil",
            "/console/a b",
            "/console/\r\nx: y",
        ] {
            assert_eq!(local(bad), "/console/", "{bad}");
        }
    }

    #[test]
    fn a_refusal_says_what_can_be_done() {
        let answer = |method: Method, fragment: bool, error: Error| {
            let mut headers = HeaderMap::new();
            if fragment {
                headers.insert("hx-request", HeaderValue::from_static("true"));
            }
            let ask = PageAsk::new(&method, "/console/keys?a=<b>", &headers);
            let response = refuse(&ask, &error);
            (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
        };
        let busy = || {
            let error = Error::new(Kind::Unavailable, "The <store> is away.");
            error.retry_after(std::time::Duration::from_secs(3))
        };
        for (method, fragment, error, expected) in [
            (Method::GET, false, busy(), "href=\"/console/keys?a=&lt;b&gt;\">Try again</a>"),
            (Method::POST, false, busy(), "href=\"/console/\">Go back</a>"),
            (Method::GET, false, Error::not_found("key"), "href=\"/console/\">To the overview</a>"),
            (Method::GET, true, busy(), "Try again in 3 s."),
        ] {
            let status = error.status().as_u16();
            let (found, html) = answer(method.clone(), fragment, error);
            assert_eq!(found, status);
            assert!(html.contains(expected), "{method}: {html}");
            assert_eq!(html.contains("<html"), !fragment);
            assert!(!html.contains("<store>") && html.contains("role=\"alert\""), "{html}");
        }
    }

    proptest! {
        #[test]
        fn the_way_back_is_a_header(url in "\\PC{0,60}", fragment: bool, safe: bool) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_str(&url) {
                headers.insert("hx-current-url", value.clone());
                headers.insert("referer", value);
            }
            if fragment {
                headers.insert("hx-request", HeaderValue::from_static("true"));
            }
            let method = if safe { Method::GET } else { Method::POST };
            let ask = PageAsk::new(&method, &url, &headers);
            prop_assert!(ask.place.starts_with("/console/"));
            let place = lead(&ask, "/console/sign-in").headers().values().any(|value| {
                value.to_str().is_ok_and(|to| to.starts_with("/console/sign-in?next=%2Fconsole%2F"))
            });
            prop_assert!(place);
        }
    }
}
