//! Prepared parts of the heads of requests to a provider, and names as header values. They are
//! built with the document, so that a request only copies them.

use std::fmt;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::base_url::BaseUrl;
use super::settings::{KeyHeader, Protocol};
use rerouter_base::secret::Secret;
use rerouter_dialect::endpoint::Endpoint;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("rerouter/", env!("CARGO_PKG_VERSION")));

pub struct RequestHead {
    /// Empty if request targets depend on the model.
    request_targets: Vec<(Endpoint, Uri)>,
    /// Headers of inference requests: one map for each key, or the only one of a provider without
    /// keys. Their `Content-Length` is 0, to be replaced.
    headers: Vec<HeaderMap>,
    check: HeaderMap,
    /// The names that the document sets. Clients cannot change their values.
    set: Vec<HeaderName>,
}

impl RequestHead {
    /// The heads of a provider. `None` if a part is no valid header or URI; the checks of the
    /// document prevent that.
    pub(super) fn new(
        (protocol, key_header): (Protocol, KeyHeader),
        base: &BaseUrl,
        keys: &[Secret],
        set: &[(HeaderName, HeaderValue)],
    ) -> Option<RequestHead> {
        let host = HeaderValue::try_from(base.authority()).ok()?;
        let head = |general: &[(HeaderName, HeaderValue)], key: Option<&Secret>| {
            // A clone keeps the size of the hash index, so there is room for the headers that a
            // request adds.
            let mut headers = HeaderMap::with_capacity(general.len() + set.len() + 4);
            headers.insert(HOST, host.clone());
            headers.extend(general.iter().cloned());
            identify(&mut headers, (protocol, key_header), key)?;
            for (name, value) in set {
                headers.insert(name.clone(), value.clone());
            }
            Some(headers)
        };
        let inference = [
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (CONTENT_LENGTH, HeaderValue::from_static("0")),
            // Bytes are relayed as they come, so they must not be compressed.
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (USER_AGENT, AGENT),
        ];
        let check = [(ACCEPT, HeaderValue::from_static("*/*")), (USER_AGENT, AGENT)];
        let request_target = |endpoint: &Endpoint| {
            Some((*endpoint, Uri::try_from(base.request_target(*endpoint, "", None)).ok()?))
        };
        let request_targets = match base.model_in_path {
            true => Vec::new(),
            false => Endpoint::ALL.iter().map(request_target).collect::<Option<_>>()?,
        };
        let headers = match keys {
            [] => vec![head(&inference, None)?],
            keys => keys.iter().map(|key| head(&inference, Some(key))).collect::<Option<_>>()?,
        };
        let check = head(&check, keys.first())?;
        let set = set.iter().map(|(name, _)| name.clone()).collect();
        Some(RequestHead { request_targets, headers, check, set })
    }

    /// The request target of an endpoint, for a request without a query; `None` if it depends on
    /// the model.
    pub fn request_target(&self, endpoint: Endpoint) -> Option<&Uri> {
        self.request_targets.iter().find(|(of, _)| *of == endpoint).map(|(_, uri)| uri)
    }

    /// The headers of an inference request with this key, by its place in the document.
    pub fn headers(&self, key: Option<usize>) -> Option<&HeaderMap> {
        self.headers.get(key.unwrap_or(0))
    }

    /// The headers of a health check.
    pub fn check(&self) -> &HeaderMap {
        &self.check
    }

    pub fn sets(&self, name: &HeaderName) -> bool {
        self.set.contains(name)
    }
}

impl fmt::Debug for RequestHead {
    /// Omits everything: paths and headers may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestHead")
    }
}

/// A name as a header value. The checked names of a document are plain ASCII.
pub fn header_of(name: &str) -> HeaderValue {
    HeaderValue::from_str(name).unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
}

/// Adds our credential, in the manner of the provider.
fn identify(
    headers: &mut HeaderMap,
    (protocol, key_header): (Protocol, KeyHeader),
    key: Option<&Secret>,
) -> Option<()> {
    if let Some((name, version)) = protocol.version() {
        headers.insert(name.clone(), version.clone());
    }
    let Some(key) = key else { return Some(()) };
    headers.insert(key_header.name(), key_header.value(key.expose())?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_dialect::messages::{VERSION, VERSION_HEADER};

    fn head(
        protocol: Protocol,
        keys: &[&str],
        set: &[(&'static str, &'static str)],
    ) -> RequestHead {
        let base = BaseUrl::with_query("https://[::1]:8443/v1?api-version=2").unwrap();
        let keys: Vec<Secret> = keys.iter().copied().map(Secret::new).collect();
        let set: Vec<_> = set
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        RequestHead::new((protocol, protocol.key_header()), &base, &keys, &set).unwrap()
    }

    #[test]
    fn each_key_has_its_head() {
        let two = head(Protocol::OpenAi, &["sk-one", "sk-two"], &[]);
        let credential = |key| two.headers(key).unwrap()["authorization"].clone();
        assert_eq!(credential(Some(0)), "Bearer sk-one");
        assert_eq!(credential(Some(1)), "Bearer sk-two");
        assert!(credential(Some(1)).is_sensitive());
        assert!(two.headers(Some(2)).is_none());
        assert_eq!(two.check()["authorization"], "Bearer sk-one");
        assert_eq!(
            (&two.check()["accept"], two.check().get("content-length")),
            (&"*/*".parse().unwrap(), None)
        );
        assert!(!format!("{two:?}").contains("sk-"));
        let none = head(Protocol::OpenAi, &[], &[]);
        assert!(!none.headers(None).unwrap().contains_key("authorization"));
        assert_eq!(none.headers(None).unwrap()["host"], "[::1]:8443");
    }

    #[test]
    fn the_document_s_headers_win() {
        let set = [("anthropic-version", "2030-01-01"), ("user-agent", "ours")];
        let set = head(Protocol::Anthropic, &["sk-ant"], &set);
        let headers = set.headers(Some(0)).unwrap();
        assert_eq!(
            (&headers["x-api-key"], &headers["user-agent"]),
            (&"sk-ant".parse().unwrap(), &"ours".parse().unwrap())
        );
        assert_eq!(headers["anthropic-version"], "2030-01-01");
        assert!(set.sets(&VERSION_HEADER));
        let usual = head(Protocol::Anthropic, &["sk-ant"], &[]);
        assert_eq!(usual.headers(Some(0)).unwrap()["anthropic-version"], VERSION);
        assert!(!usual.sets(&VERSION_HEADER));
    }

    #[test]
    fn request_targets_are_those_of_the_base_url() {
        let made = head(Protocol::OpenAi, &[], &[]);
        let base = BaseUrl::with_query("https://[::1]:8443/v1?api-version=2").unwrap();
        for endpoint in Endpoint::ALL {
            let request_target = made.request_target(endpoint).unwrap();
            assert_eq!(request_target.to_string(), base.request_target(endpoint, "", None));
        }
    }
}
