//! A gateway as the command line asks it: one address, one key, and every way in which that may fail told in a line.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use crate::bounds;
use crate::config::{self, Env, Problem};
use crate::secret::Secret;

/// Where a gateway is asked when nothing is said: where one listens when nothing is said.
const URL: &str = "http://127.0.0.1:8080";

/// Why a command ends without what it was asked for. Each has its exit code.
#[derive(Debug)]
pub(super) enum Failure {
    /// 0: who reads standard output has what it wants, and no more is written.
    Enough,
    /// 1: a bound was broken. Everything has been said already.
    Bounds,
    /// 2: what was asked cannot be: an option, a document, a corpus.
    Wrong(String),
    /// 3: the gateway could not be asked, or refused.
    Gateway(String),
}

/// The gateway that is asked.
#[derive(Args)]
pub(super) struct Reach {
    /// The gateway; else REROUTER_URL, else http://127.0.0.1:8080.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// A ROUTER key, ADMIN_API_KEY or a session's token; better in REROUTER_API_KEY, as others can see command lines.
    #[arg(long, global = true, value_name = "KEY", hide_default_value = true)]
    key: Option<String>,
    /// Certificate authorities in PEM that the gateway's certificate is checked against, instead of the public ones.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A client of one gateway.
pub(super) struct Client {
    agent: Agent,
    base: String,
    key: Secret,
}

/// An answer, whole.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
    /// Seconds after which it is worth to ask again, where it says so.
    pub(super) retry_after: Option<u64>,
}

impl Answer {
    /// Its JSON.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_str(&self.text).map_err(|_| {
            Failure::Gateway(format!("the answer ({}) is not JSON; is it a gateway?", self.status))
        })
    }

    /// It, if it is what was asked for; else the refusal.
    pub(super) fn good(self) -> Result<Answer, Failure> {
        if self.status == 200 { Ok(self) } else { Err(refused(self.status, &self.text)) }
    }
}

impl Client {
    /// A client by options and environment.
    pub(super) fn new(reach: &Reach, env: &Env<'_>) -> Result<Client, Failure> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let base =
            reach.url.clone().or_else(|| set("REROUTER_URL")).unwrap_or_else(|| URL.to_owned());
        let base = base.trim_end_matches('/').to_owned();
        if !(base.starts_with("http://") || base.starts_with("https://"))
            || base.contains(['?', '#', '@'])
        {
            return Err(Failure::Wrong(
                "the gateway's URL is like https://gateway.example.com".to_owned(),
            ));
        }
        let key = reach.key.clone().or_else(|| set("REROUTER_API_KEY"));
        let key = key.ok_or_else(|| {
            Failure::Wrong("no key: set REROUTER_API_KEY, or give --key".to_owned())
        })?;
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::Wrong(
                "the key holds what no key holds: a blank, or something that is not ASCII"
                    .to_owned(),
            ));
        }
        let mut tls = TlsConfig::builder();
        if let Some(file) = &reach.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&authorities(file)?));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A key goes to the gateway that was named, nowhere else.
            .max_redirects(0)
            .timeout_connect(Some(bounds::CLIENT_CONNECT))
            .timeout_recv_response(Some(bounds::CLIENT_ANSWER))
            .timeout_send_body(Some(bounds::CLIENT_SEND))
            .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(Client { agent: Agent::new_with_config(config), base, key: Secret::new(key) })
    }

    /// `GET`, the answer whatever its status.
    pub(super) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Answer, Failure> {
        let request =
            self.agent.get(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(request.query_pairs(query).call())
    }

    /// `POST` without a body, the answer whatever its status.
    pub(super) fn post(
        &self,
        path: &str,
        query: &[(&str, String)],
        idempotency_key: Option<&str>,
    ) -> Result<Answer, Failure> {
        let mut request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(request.query_pairs(query).send_empty())
    }

    /// `POST` of JSON lines, the answer whatever its status.
    pub(super) fn post_lines(
        &self,
        path: &str,
        query: &[(&str, String)],
        lines: &[u8],
    ) -> Result<Answer, Failure> {
        let request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(
            request.query_pairs(query).header("content-type", "application/x-ndjson").send(lines),
        )
    }

    /// `POST` of a JSON body; each line of the answer is handed over as it comes. A refusal is a
    /// failure; `file` is the name of the document that was sent.
    pub(super) fn lines(
        &self,
        path: &str,
        body: &Value,
        file: Option<&str>,
        mut line: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/x-ndjson");
        let answer = request.send(body.to_string()).map_err(|error| self.unreachable(&error))?;
        if answer.status() != http::StatusCode::OK {
            let answer = self.whole(Ok(answer))?;
            return Err(refused_with(answer.status, &answer.text, file));
        }
        let reader = answer.into_body().into_with_config().limit(bounds::CLIENT_BYTES).reader();
        for text in BufReader::new(reader).lines() {
            line(&text.map_err(|error| self.broken_off(&error))?)?;
        }
        Ok(())
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.key.expose())
    }

    fn whole(&self, answer: Result<http::Response<Body>, ureq::Error>) -> Result<Answer, Failure> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        let retry_after =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(bounds::CLIENT_BYTES).reader();
        reader.read_to_string(&mut text).map_err(|error| self.broken_off(&error))?;
        Ok(Answer { status, text, retry_after })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        Failure::Gateway(format!("{} cannot be asked: {error}", self.base))
    }

    fn broken_off(&self, error: &std::io::Error) -> Failure {
        Failure::Gateway(format!("the answer of {} broke off: {error}", self.base))
    }
}

/// A refusal in the gateway's words.
pub(super) fn refused(status: u16, text: &str) -> Failure {
    refused_with(status, text, None)
}

/// The same of a document that was sent: its mistakes are told one a line, as `rerouter check`
/// tells them, with its `file`.
pub(super) fn refused_with(status: u16, text: &str, file: Option<&str>) -> Failure {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let word = |name: &str| body.get(name).and_then(Value::as_str);
    if let Some(problems) = body.get("problems").and_then(Value::as_array) {
        let told: Vec<String> = problems.iter().map(|found| problem(found, file)).collect();
        return Failure::Wrong(format!("{}\n{} problem(s)", told.join("\n"), told.len()));
    }
    match (word("error"), word("detail")) {
        (Some(error), Some(detail)) => {
            Failure::Gateway(format!("the gateway refused ({status} {error}): {detail}"))
        }
        (Some(error), None) => Failure::Gateway(format!("the gateway refused ({status} {error})")),
        _ => Failure::Gateway(format!("the gateway refused ({status})")),
    }
}

fn problem(problem: &Value, file: Option<&str>) -> String {
    let text =
        |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| {
        problem
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or_default()
    };
    let found = Problem {
        warning: false,
        file: file.unwrap_or(config::NO_FILE).to_owned(),
        path: text("path"),
        line: number("line"),
        column: number("column"),
        message: text("message"),
        hint: Some(text("hint")).filter(|hint| !hint.is_empty()),
    };
    found.to_string()
}

pub(super) fn authorities(file: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = std::fs::read(file)
        .map_err(|error| Failure::Wrong(format!("{}: {error}", file.display())))?;
    let found: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        Err(Failure::Wrong(format!("{}: holds no certificate in PEM", file.display())))
    } else {
        Ok(found)
    }
}

/// `24h` and the like, as a duration.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(length).ok()
}
