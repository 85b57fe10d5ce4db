//! The state of one request, from its head to its access line and metrics, however the request
//! ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use pingora::protocols::http::ServerSession;

use super::{accounting, answers, framing};
use rerouter_access::auth::Principal;
use rerouter_access::auth::signature::Signed;
use rerouter_base::error::{Error, RefusalReason};
use rerouter_base::id::{NodeId, RequestId, UserId};
use rerouter_base::interface::Surface;
use rerouter_base::log::AccessLine;
use rerouter_base::trace_context::TraceContext;
use rerouter_console::PageAsk;
use rerouter_core::api::ClientOrigin;
use rerouter_core::app::App;

/// Longest client `X-Request-Id` kept, in characters.
const CLIENT_REQUEST_ID_CHARS: usize = 200;

pub(super) struct HttpExchange {
    pub(super) id: RequestId,
    pub(super) at: Timestamp,
    pub(super) started: Instant,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) surface: Surface,
    pub(super) authority: String,
    pub(super) client: ClientOrigin,
    /// The pattern of the route, or `unknown`: a client must not choose the label of a metric.
    pub(super) route: &'static str,
    pub(super) line: AccessLine,
    /// The headers that tell what is left of the caller's limits; empty if there are no limits.
    pub(super) rates: HeaderMap,
    pub(super) trace: Option<Arc<TraceContext>>,
    /// The node that signed the request, and its signature, whose nonce is not spent yet.
    pub(super) signed: Option<(NodeId, Arc<Signed>)>,
    /// A browser's request to the console; `None` elsewhere.
    pub(super) page: Option<PageAsk>,
    /// Set if the caller is unknown and the connection has only a reserve slot: an unread body is
    /// not drained.
    pub(super) skip_drain: bool,
    /// Set for a call of inference by a known caller until it is in the sums of usage.
    pub(super) is_uncounted: bool,
    refusal: Option<RefusalReason>,
    /// A panic on a blocking thread ended the request.
    panicked: bool,
}

impl HttpExchange {
    pub(super) fn open(app: &App, session: &ServerSession) -> Self {
        let head = session.req_header();
        let path = head.uri.path().to_string();
        let mut exchange = HttpExchange::unread(app, session, Surface::of(&path));
        if let Some(peer) = exchange.client.address {
            let trusted = |hop| app.server.trusts_proxy(hop);
            let address = forwarded_for(&head.headers, peer, trusted);
            exchange.client.address = Some(address);
            exchange.client.proven =
                !trusted(address) && (trusted(peer) || !is_forwarded(&head.headers));
            exchange.line.client = Some(address);
        }
        exchange.line.method = head.method.clone();
        // A client may by mistake have sent a key as the id.
        exchange.line.client_request_id = client_request_id(&head.headers)
            .map(|id| app.auth.key_redactor().redact(&id).into_owned());
        exchange.line.path = app.auth.key_redactor().redact(&path).into_owned();
        exchange.method = head.method.clone();
        exchange.query = head.uri.query().map(str::to_string);
        exchange.authority = framing::authority(head).unwrap_or_default().to_ascii_lowercase();
        exchange.path = path;
        if exchange.surface == Surface::Console {
            let asked = head.uri.path_and_query().map_or("/", |asked| asked.as_str());
            exchange.page = Some(PageAsk::new(&head.method, asked, &head.headers));
        }
        exchange
    }

    /// Opens the exchange of bytes that are no request head.
    pub(super) fn unread(app: &App, session: &ServerSession, surface: Surface) -> Self {
        let at = app.clock.now();
        let id = RequestId::new(at, &app.random);
        let tls = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        // No client header decides this: a cookie without `Secure` would leak over plain HTTP.
        let secure = tls || app.server.public_https();
        let address = answers::peer(session);
        let listener = session.server_addr().and_then(|address| address.as_inet()).copied();
        let line = AccessLine { client: address, ..AccessLine::new(at, id.clone()) };
        HttpExchange {
            id,
            at,
            started: Instant::now(),
            method: Method::GET,
            path: String::new(),
            query: None,
            surface,
            authority: String::new(),
            client: ClientOrigin { address, proven: false, secure, listener },
            route: "unknown",
            line,
            rates: HeaderMap::new(),
            trace: None,
            signed: None,
            page: None,
            skip_drain: false,
            is_uncounted: false,
            refusal: None,
            panicked: false,
        }
    }

    /// Names the caller in the access line.
    pub(super) fn principal(&mut self, principal: &Principal) {
        self.line.key = principal.key().map(|key| key.id.clone());
        self.line.user = principal.user_id();
    }

    /// Names the refusal in the access line; warns of an error of ours.
    pub(super) fn refused(&mut self, error: &Error) {
        let word = answers::word(self.surface, error);
        self.line.error = Some(word.to_string());
        self.line.cause = error.cause().map(str::to_string);
        self.panicked |= error.is_panic();
        self.refusal = error.refusal();
        if error.status().is_server_error() {
            let cause = error.cause().map(|cause| format!(" ({cause})")).unwrap_or_default();
            log::warn!(
                "{} {} {}: {word}: {}{cause}",
                self.id,
                self.method,
                self.route,
                error.detail()
            );
        }
    }

    /// The `Origin` header that a page of this gateway sends.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", if self.client.secure { "https" } else { "http" }, self.authority)
    }

    /// Counts the request and writes its access line.
    pub(super) fn close(mut self: Box<Self>, app: &App, status: u16, sent: usize) {
        let took = self.started.elapsed();
        self.line.status = status;
        self.line.route = self.route;
        self.line.bytes_out = sent as u64;
        self.line.duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.line.interface = self.surface.interface().as_str();
        if self.panicked {
            app.metrics.process.panics.inc();
        }
        if self.is_uncounted {
            let user = self.line.user.clone().unwrap_or_else(UserId::admin);
            let group = accounting::group_of((user, self.line.key.clone()), self.at);
            accounting::add_unasked(app, group, self.refusal);
        }
        app.metrics.request(self.surface.interface().as_str(), self.route, status, took);
        if !app.access_log.line(self.line) && app.access_log.is_on() {
            app.metrics.process.log_dropped.inc();
        }
    }
}

/// The identifier that the client gave its request, cut to [`CLIENT_REQUEST_ID_CHARS`].
pub(super) fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(&answers::REQUEST_ID)?.to_str().ok()?;
    Some(id.chars().take(CLIENT_REQUEST_ID_CHARS).collect())
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address by `X-Forwarded-For`, read from the right past the trusted proxies.
fn forwarded_for(headers: &HeaderMap, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    if !trusted(peer) {
        return peer;
    }
    let mut client = peer;
    let lines: Vec<&[u8]> =
        headers.get_all(&FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    // Compared as bytes: the part of the header that a client wrote may not be text.
    for hop in lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
        if !trusted(client) {
            break;
        }
        match std::str::from_utf8(hop).ok().and_then(|hop| hop_address(hop.trim())) {
            Some(address) => client = address.to_canonical(),
            None => break,
        }
    }
    client
}

/// An address, as some proxies write it with a port.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    hop.trim_matches(['[', ']']).parse().ok().or_else(with_port)
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        matches!(
            name.as_str(),
            "forwarded"
                | "via"
                | "x-forwarded-for"
                | "x-forwarded-host"
                | "x-forwarded-proto"
                | "x-real-ip"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_hops_are_believed() {
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", "6.6.6.6, 203.0.113.9".parse().unwrap());
        headers.append("x-forwarded-for", "10.0.0.2".parse().unwrap());
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        let inside = |address: IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
        assert_eq!(forwarded_for(&headers, peer, inside).to_string(), "203.0.113.9");
        assert_eq!(forwarded_for(&headers, peer, |_| false), peer);
        for (hop, client) in [
            ("203.0.113.9:51234", "203.0.113.9"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            let headers =
                HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), hop.parse().unwrap())]);
            assert_eq!(forwarded_for(&headers, peer, inside).to_string(), client);
        }
        let odd = HeaderMap::from_iter([(
            "x-forwarded-for".parse().unwrap(),
            HeaderValue::from_bytes(b"\xff, 203.0.113.9, 10.0.0.2").unwrap(),
        )]);
        assert_eq!(forwarded_for(&odd, peer, inside).to_string(), "203.0.113.9");
        let mut behind = HeaderMap::from_iter([(
            "x-forwarded-for".parse().unwrap(),
            HeaderValue::from_static("6.6.6.6"),
        )]);
        behind.append("x-forwarded-for", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(forwarded_for(&behind, peer, inside), peer, "an unreadable hop ends the walk");
        assert_eq!(forwarded_for(&HeaderMap::new(), peer, inside), peer);
    }

    #[test]
    fn headers_of_proxies_are_noticed() {
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-real-ip",
        ] {
            let headers = HeaderMap::from_iter([
                (HeaderName::from_static("host"), HeaderValue::from_static("a")),
                (HeaderName::from_static(name), HeaderValue::from_static("b")),
            ]);
            assert!(is_forwarded(&headers), "{name}");
        }
        let plain = HeaderMap::from_iter([(
            HeaderName::from_static("x-forwarded"),
            HeaderValue::from_static("b"),
        )]);
        assert!(!is_forwarded(&plain));
    }
}
