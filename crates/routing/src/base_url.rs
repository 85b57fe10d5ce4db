//! The root URL of a provider's API.

use std::fmt;

use rerouter_base::url::decode_leniently;
use rerouter_dialect::endpoint::Endpoint;

#[derive(Clone, Default, PartialEq, Eq)]
pub struct BaseUrl {
    pub tls: bool,
    /// Host name or address; an IPv6 address has no brackets.
    pub host: String,
    /// Port; by default the scheme's.
    pub port: u16,
    /// Path prefix of all endpoints: empty, or `/…` without a trailing slash.
    pub path: String,
    /// Query of every request, without `?`; usually empty.
    pub query: String,
    /// Whether request targets have the model between this path and the path of the endpoint.
    pub model_in_path: bool,
}

impl BaseUrl {
    /// Parses an http or https URL without a query. Errors do not quote the URL: it may be a
    /// secret.
    pub fn parse(url: &str) -> Result<BaseUrl, &'static str> {
        let uri: http::Uri = url.parse().map_err(|_| "is not a URL")?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("must begin with https:// or http://"),
        };
        let authority = uri.authority().ok_or("names no host")?;
        if authority.as_str().contains('@') {
            return Err("must not hold credentials; use `api_key`");
        }
        if uri.query().is_some() || url.contains('#') {
            return Err("must not have a query or a fragment");
        }
        let host =
            authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err("names no host");
        }
        let port = match authority.port() {
            Some(port) if port.as_u16() == 0 => return Err("has port 0"),
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':')
                || authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':')) =>
            {
                return Err("has an invalid port");
            }
            None => default_port(tls),
        };
        Ok(BaseUrl {
            tls,
            host,
            port,
            path: uri.path().trim_end_matches('/').to_owned(),
            query: String::new(),
            model_in_path: false,
        })
    }

    /// Parses a URL that may have a query, such as Azure's `?api-version=…`.
    pub fn with_query(url: &str) -> Result<BaseUrl, &'static str> {
        let Some((root, query)) = url.split_once('?') else { return BaseUrl::parse(url) };
        if query.contains('#') {
            return Err("must not have a fragment");
        }
        let base = BaseUrl::parse(root)?;
        // The root is valid, so an error here is in the query.
        url.parse::<http::Uri>().map_err(|_| "is not a URL")?;
        Ok(BaseUrl { query: query.to_owned(), ..base })
    }

    /// Request target for an endpoint. The query of this URL comes first. Parameters of the
    /// client's query follow, except those that this URL's query sets.
    pub fn request_target(&self, endpoint: Endpoint, model: &str, query: Option<&str>) -> String {
        if self.model_in_path {
            return self.request_target_at(&["/", model, endpoint.path()].concat(), query);
        }
        self.request_target_at(endpoint.path(), query)
    }

    /// The request target of a path below the path of this URL.
    pub fn request_target_at(&self, path: &str, query: Option<&str>) -> String {
        let mut request_target = [self.path.as_str(), path].concat();
        let own = self.query.as_str();
        let is_free =
            |part: &&str| own.is_empty() || !parameters(own).any(|set| set == name_of(part));
        let mut mark = '?';
        let clients = query.into_iter().flat_map(|query| query.split('&').filter(is_free));
        for part in (!own.is_empty()).then_some(own).into_iter().chain(clients) {
            request_target.push(std::mem::replace(&mut mark, '&'));
            request_target.push_str(part);
        }
        request_target
    }

    /// This URL, with a path that ends in `/v1`. Anthropic documents its base URL without `/v1`,
    /// OpenAI with it, and people write both.
    #[must_use]
    pub fn versioned(mut self) -> BaseUrl {
        if !self.path.ends_with("/v1") {
            self.path.push_str("/v1");
        }
        self
    }

    /// Whether requests for this model can be sent. If the model is part of the path, it must be
    /// one plain segment: letters, digits, `-`, `_` and `.`, but not dots only.
    pub fn takes(&self, model: &str) -> bool {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        !self.model_in_path || (model.bytes().all(is_plain) && !model.bytes().all(|b| b == b'.'))
    }

    /// `host` or `host:port`, as in the `Host` header.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

/// Decoded names of a query's parameters.
fn parameters(query: &str) -> impl Iterator<Item = String> {
    query.split('&').map(name_of)
}

fn name_of(parameter: &str) -> String {
    decode_leniently(parameter.split('=').next().unwrap_or_default())
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl fmt::Debug for BaseUrl {
    /// Omits host and path: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseUrl").field("tls", &self.tls).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "base_url_tests.rs"]
mod tests;
