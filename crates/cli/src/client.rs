//! HTTP client of a gateway, for one address and one key. A failure is one line of text.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use super::destination::{ApiClientOptions, ApiDestination, CalledInterface};
use super::failure::{CommandFailure, Result, problem_list};
use super::output::print_error;
use rerouter_base::bounds;
use rerouter_base::secret::Secret;
use rerouter_base::url::encode;
use rerouter_core::config::{self, Env, Problem};
use rerouter_records::error::ManagementError;
use rerouter_records::routing::ProblemRecord;

/// Longest wait of the command line for a connection.
const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// Longest time for the command line to send a request: enough for a megabyte on a slow line.
const CLIENT_SEND: Duration = Duration::from_secs(120);
/// Longest wait of the command line for the head of an answer: a reroute waits for its provider.
const CLIENT_ANSWER: Duration = Duration::from_secs(900);
/// Most bytes of one answer to the command line, and of one line of a corpus: enough for a capture
/// of the longest bodies, escaped.
pub(super) const CLIENT_BYTES: u64 = 512 << 20;

const USER_AGENT: &str = concat!("rerouter/", env!("CARGO_PKG_VERSION"));

/// Added to the message of a 401 from AGENT.
const AGENT_HINT: &str = " (AGENT takes a key of its own: from REROUTER_AGENT_API_KEY, or from a \
                          profile by `rerouter profile set NAME --agent`)";

pub(super) struct ApiClient {
    agent: Agent,
    base: String,
    key: Option<Secret>,
    called: CalledInterface,
    /// Whether a gateway has not confirmed a change.
    unconfirmed: Cell<bool>,
}

pub(super) struct ApiCall<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, String)],
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// Content type and bytes.
    pub(super) body: Option<(&'static str, &'a [u8])>,
}

impl<'a> ApiCall<'a> {
    pub(super) fn new(method: &'static str, path: &'a str) -> ApiCall<'a> {
        ApiCall { method, path, query: &[], headers: &[], body: None }
    }
}

/// An answer that was read to its end.
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) retry_after: Option<u64>,
    /// Whether the gateway says that a repeated call would get the same answer.
    pub(super) forbids_retry: bool,
    called: CalledInterface,
}

impl ApiResponse {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.text).map_err(|_| {
            CommandFailure::Gateway(format!(
                "the answer (status {}) is not JSON; is this a gateway?",
                self.status
            ))
        })
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer if it is a success, else the refusal as an error.
    pub(super) fn ok(self) -> Result<ApiResponse> {
        if self.is_success() { Ok(self) } else { Err(self.refused(None)) }
    }

    /// The gateways that have not confirmed a change, of an answer with 202.
    fn unconfirmed(&self) -> Option<String> {
        if self.status != 202 {
            return None;
        }
        let answer: Value = serde_json::from_str(&self.text).ok()?;
        let names: Vec<&str> =
            answer.get("unconfirmed")?.as_array()?.iter().filter_map(Value::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn refused(&self, file: Option<&str>) -> CommandFailure {
        match refusal(self.status, &self.text, file) {
            CommandFailure::Gateway(why)
                if self.status == 401 && self.called == CalledInterface::Agent =>
            {
                CommandFailure::Gateway(format!("{why}{AGENT_HINT}"))
            }
            failure => failure,
        }
    }
}

impl ApiClient {
    pub(super) fn new(options: &ApiClientOptions, env: &Env<'_>) -> Result<ApiClient> {
        ApiClient::to(options, CalledInterface::PinOrRouter, env)
    }

    /// AGENT may be open and take no key.
    pub(super) fn to(
        options: &ApiClientOptions,
        called: CalledInterface,
        env: &Env<'_>,
    ) -> Result<ApiClient> {
        let ApiDestination { url, key, ca } = options.destination(called, env)?;
        let base = base_url(&url)?;
        let is_sendable = |key: &Secret| key.expose().bytes().all(|byte| byte.is_ascii_graphic());
        if !key.as_ref().is_none_or(is_sendable) {
            return Err(CommandFailure::Usage(
                "the key is malformed: it holds a blank, or something that is not ASCII".to_owned(),
            ));
        }
        let mut tls = TlsConfig::builder();
        if let Some(file) = &ca {
            let found = authorities(file).map_err(CommandFailure::Usage)?;
            tls = tls.root_certs(RootCerts::new_with_certs(&found));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The key must not follow a redirect to another host.
            .max_redirects(0)
            .timeout_connect(Some(CLIENT_CONNECT))
            .timeout_recv_response(Some(CLIENT_ANSWER))
            .timeout_send_body(Some(CLIENT_SEND))
            .user_agent(USER_AGENT)
            .tls_config(tls.build())
            .build();
        if key.is_none() && called == CalledInterface::PinOrRouter {
            return Err(CommandFailure::Usage(
                "no key: set REROUTER_API_KEY, add a profile, or pass --key".to_owned(),
            ));
        }
        let (agent, unconfirmed) = (Agent::new_with_config(config), Cell::new(false));
        Ok(ApiClient { agent, base, key, called, unconfirmed })
    }

    /// Any status is an answer.
    pub(super) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<ApiResponse> {
        self.any(&ApiCall { query, ..ApiCall::new("GET", path) })
    }

    pub(super) fn record(&self, path: &str) -> Result<Value> {
        self.get(path, &[])?.ok()?.json()
    }

    pub(super) fn change<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let text = body_text(body)?;
        let body = Some(("application/json", text.as_bytes()));
        self.call(&ApiCall { body, ..ApiCall::new(method, path) }, None)?.json()
    }

    pub(super) fn delete(&self, path: &str) -> Result<ApiResponse> {
        self.call(&ApiCall::new("DELETE", path), None)
    }

    /// Any call. A status that is no success is an error; `file` names the document in the body,
    /// for its problems. Standard error names gateways that have not confirmed a change; for a
    /// deletion that is an error. [`ApiClient::confirmed`] tells of other changes.
    pub(super) fn call(&self, call: &ApiCall<'_>, file: Option<&str>) -> Result<ApiResponse> {
        let answer = self.any(call)?;
        if !answer.is_success() {
            return Err(answer.refused(file));
        }
        let Some(names) = answer.unconfirmed() else { return Ok(answer) };
        let told = format!("it is stored, but these gateways have not confirmed it yet: {names}");
        if call.method == "DELETE" {
            return Err(CommandFailure::Gateway(told));
        }
        print_error(&format!("warning: {told}\n"));
        self.unconfirmed.set(true);
        Ok(answer)
    }

    /// Fails if a gateway has not confirmed a change. For commands that end a right.
    pub(super) fn confirmed(&self) -> Result<()> {
        match self.unconfirmed.get() {
            true => Err(CommandFailure::Gateway("not every gateway has confirmed it".to_owned())),
            false => Ok(()),
        }
    }

    /// Any call; any status is an answer.
    pub(super) fn any(&self, call: &ApiCall<'_>) -> Result<ApiResponse> {
        self.whole(self.send(call))
    }

    /// `POST` of a JSON body; `line` gets each line of the answer as it arrives. Any status but 200
    /// is an error. `file` names the document in the body, for its problems.
    pub(super) fn lines(
        &self,
        path: &str,
        body: &impl Serialize,
        file: Option<&str>,
        mut line: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let text = body_text(body)?;
        let call = ApiCall {
            headers: &[("accept", "application/x-ndjson")],
            body: Some(("application/json", text.as_bytes())),
            ..ApiCall::new("POST", path)
        };
        let answer = self.send(&call).map_err(|error| self.unreachable(&error))?;
        if answer.status() != http::StatusCode::OK {
            let answer = self.whole(Ok(answer))?;
            return Err(refusal(answer.status, &answer.text, file));
        }
        let reader = answer.into_body().into_with_config().limit(CLIENT_BYTES).reader();
        for text in BufReader::new(reader).lines() {
            line(&text.map_err(|error| self.incomplete(&error))?)?;
        }
        Ok(())
    }

    fn send(&self, call: &ApiCall<'_>) -> Result<http::Response<Body>, ureq::Error> {
        let mut url = format!("{}{}", self.base, call.path);
        for (at, (name, value)) in call.query.iter().enumerate() {
            let mark = if at == 0 { '?' } else { '&' };
            url.push_str(&format!("{mark}{name}={}", encode(value)));
        }
        let mut request = http::Request::builder().method(call.method).uri(url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {}", key.expose()));
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        match call.body {
            Some((kind, body)) => self.agent.run(request.header("content-type", kind).body(body)?),
            None if matches!(call.method, "GET" | "DELETE") => self.agent.run(request.body(())?),
            // An empty body has `Content-Length: 0`.
            None => self.agent.run(request.body(&[][..])?),
        }
    }

    fn whole(&self, answer: Result<http::Response<Body>, ureq::Error>) -> Result<ApiResponse> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        let retry_after =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let forbids_retry =
            answer.headers().get("x-should-retry").is_some_and(|value| value == "false");
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(CLIENT_BYTES).reader();
        reader.read_to_string(&mut text).map_err(|error| self.incomplete(&error))?;
        Ok(ApiResponse { status, text, retry_after, forbids_retry, called: self.called })
    }

    fn unreachable(&self, error: &ureq::Error) -> CommandFailure {
        let why = cause(error);
        let hint = match why == UNTRUSTED {
            true => "`--ca` names a file with its authority",
            false => "`--url` or REROUTER_URL names another gateway",
        };
        CommandFailure::Gateway(format!("{} cannot be reached: {why} ({hint})", self.base))
    }

    fn incomplete(&self, error: &std::io::Error) -> CommandFailure {
        CommandFailure::Gateway(format!("the answer of {} is incomplete: {error}", self.base))
    }
}

fn body_text(body: &impl Serialize) -> Result<String> {
    serde_json::to_string(body).map_err(|error| CommandFailure::Failed(error.to_string()))
}

/// The URL of a gateway without a path. The `/v1` is taken off that SDKs have behind it.
pub(super) fn base_url(url: &str) -> Result<String> {
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/');
    let has_scheme = base.starts_with("http://") || base.starts_with("https://");
    match has_scheme && !base.contains(['?', '#', '@']) {
        true => Ok(base.to_owned()),
        false => Err(CommandFailure::Usage(
            "the URL of the gateway has to be like https://gateway.example.com".to_owned(),
        )),
    }
}

const UNTRUSTED: &str = "no trusted authority signed its certificate";

/// A word in a message of rustls, and the explanation for people that replaces the message.
const TLS_FAILURES: [(&str, &str); 3] = [
    ("InvalidContentType", "it does not speak TLS there: try http:// instead of https://"),
    ("UnknownIssuer", UNTRUSTED),
    (
        "CaUsedAsEndEntity",
        "its certificate is that of an authority, which no server may use: make one with \
         `basicConstraints=CA:FALSE`",
    ),
];

pub(super) fn cause(error: &ureq::Error) -> String {
    let text = error.to_string();
    let known = TLS_FAILURES.iter().find(|(word, _)| text.contains(word));
    known.map_or(text, |(_, told)| (*told).to_owned())
}

/// The text at this URL, if the server answers with success within this time.
pub(super) fn ask_once(url: &str, wait: Duration) -> Option<String> {
    let config =
        Agent::config_builder().max_redirects(0).proxy(None).timeout_global(Some(wait)).build();
    let answer = Agent::new_with_config(config).get(url).call().ok()?;
    answer.into_body().into_with_config().limit(bounds::DOCUMENT_BYTES as u64).read_to_string().ok()
}

pub(super) struct ProbeAnswer {
    pub(super) status: u16,
    /// Its header `Date`.
    pub(super) date: Option<String>,
    pub(super) text: String,
}

/// Asks a server once. Any status is an answer. `authorities`, in DER, are trusted instead of the
/// public ones.
pub(super) fn probe(
    url: &str,
    headers: &http::HeaderMap,
    authorities: Option<&[Vec<u8>]>,
    wait: Duration,
) -> Result<ProbeAnswer, String> {
    let mut tls = TlsConfig::builder();
    if let Some(authorities) = authorities {
        let found = authorities.iter().map(|der| Certificate::from_der(der).to_owned());
        tls = tls.root_certs(RootCerts::new_with_certs(&found.collect::<Vec<_>>()));
    }
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        // As the gateway asks: it takes no proxy from the environment.
        .proxy(None)
        .timeout_global(Some(wait))
        .tls_config(tls.build())
        .build();
    let mut request = Agent::new_with_config(config).get(url);
    // The client takes `Host` from the URL.
    for (name, value) in headers.iter().filter(|(name, _)| *name != http::header::HOST) {
        request = request.header(name, value);
    }
    let answer = request.call().map_err(|error| cause(&error))?;
    let date = answer.headers().get("date").and_then(|date| Some(date.to_str().ok()?.to_owned()));
    let status = answer.status().as_u16();
    let body = answer.into_body().into_with_config().limit(bounds::DOCUMENT_BYTES as u64);
    Ok(ProbeAnswer { status, date, text: body.read_to_string().unwrap_or_default() })
}

/// A refusal as the gateway states it. Problems of a document are listed like those of
/// `rerouter check`, under the name of its `file`.
pub(super) fn refusal(status: u16, text: &str, file: Option<&str>) -> CommandFailure {
    let refused = serde_json::from_str(text);
    if let Ok(ManagementError { problems: Some(problems), .. }) = refused {
        let problems = problems.into_iter().map(|found| problem(found, file));
        return CommandFailure::Usage(problem_list(&problems.collect::<Vec<_>>()));
    }
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let word = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    // The envelopes of inference have a message.
    let told = match (word("/error"), word("/detail"), word("/error/message")) {
        (Some(error), Some(detail), _) => format!("refused ({status} {error}): {detail}"),
        (Some(error), None, _) => format!("refused ({status} {error})"),
        (None, _, Some(message)) => format!("refused ({status}): {message}"),
        (None, _, None) => format!("refused ({status}) without a reason: is its URL right?"),
    };
    let told = format!("the gateway {told}");
    match word("/error") {
        Some("gate_refused") => CommandFailure::Failed(told),
        _ => CommandFailure::Gateway(told),
    }
}

fn problem(found: ProblemRecord, file: Option<&str>) -> Problem {
    let ProblemRecord { path, line, column, message, hint } = found;
    let file = file.unwrap_or(config::NO_FILE).to_owned();
    Problem { warning: false, file, path, line, column, message, hint }
}

/// The certificates of a PEM file.
pub(super) fn authorities(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let text = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let found: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        Err(format!("{}: holds no certificate in PEM", file.display()))
    } else {
        Ok(found)
    }
}
