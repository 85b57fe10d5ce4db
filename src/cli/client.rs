//! HTTP client of a gateway: one address, one key, failures in one line.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use super::failure::{CommandFailure, problem_list};
use crate::bounds;
use crate::config::{self, Env, Problem};
use crate::secret::Secret;

/// Where a gateway listens by default.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

#[derive(Args)]
pub(super) struct ApiClientOptions {
    /// URL of the gateway. Default: REROUTER_URL, else http://127.0.0.1:8080.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// ROUTER key, ADMIN_API_KEY or session token. Prefer REROUTER_API_KEY: command lines are
    /// visible to other users.
    #[arg(long, global = true, value_name = "KEY", hide_default_value = true)]
    key: Option<String>,
    /// PEM file of certificate authorities to trust instead of the public ones.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

pub(super) struct ApiClient {
    agent: Agent,
    base: String,
    key: Secret,
}

/// An answer that was read to its end.
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) retry_after: Option<u64>,
}

impl ApiResponse {
    pub(super) fn json(&self) -> Result<Value, CommandFailure> {
        serde_json::from_str(&self.text).map_err(|_| {
            CommandFailure::Gateway(format!(
                "the answer (status {}) is not JSON; is this a gateway?",
                self.status
            ))
        })
    }

    /// The answer if its status is 200, else the refusal as an error.
    pub(super) fn ok(self) -> Result<ApiResponse, CommandFailure> {
        if self.status == 200 { Ok(self) } else { Err(refusal(self.status, &self.text, None)) }
    }
}

impl ApiClient {
    pub(super) fn new(
        options: &ApiClientOptions,
        env: &Env<'_>,
    ) -> Result<ApiClient, CommandFailure> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let base = options
            .url
            .clone()
            .or_else(|| set("REROUTER_URL"))
            .unwrap_or_else(|| DEFAULT_URL.to_owned());
        let base = base.trim_end_matches('/').to_owned();
        if !(base.starts_with("http://") || base.starts_with("https://"))
            || base.contains(['?', '#', '@'])
        {
            return Err(CommandFailure::Usage(
                "the URL of the gateway has to be like https://gateway.example.com".to_owned(),
            ));
        }
        let key = options.key.clone().or_else(|| set("REROUTER_API_KEY"));
        let key = key.ok_or_else(|| {
            CommandFailure::Usage("no key: set REROUTER_API_KEY, or pass --key".to_owned())
        })?;
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CommandFailure::Usage(
                "the key is malformed: it holds a blank, or something that is not ASCII".to_owned(),
            ));
        }
        let mut tls = TlsConfig::builder();
        if let Some(file) = &options.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&authorities(file)?));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The key must not follow a redirect to another host.
            .max_redirects(0)
            .timeout_connect(Some(bounds::CLIENT_CONNECT))
            .timeout_recv_response(Some(bounds::CLIENT_ANSWER))
            .timeout_send_body(Some(bounds::CLIENT_SEND))
            .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(ApiClient { agent: Agent::new_with_config(config), base, key: Secret::new(key) })
    }

    /// `GET`; any status is an answer.
    pub(super) fn get(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<ApiResponse, CommandFailure> {
        let request =
            self.agent.get(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(request.query_pairs(query).call())
    }

    /// `POST` without a body; any status is an answer.
    pub(super) fn post(
        &self,
        path: &str,
        query: &[(&str, String)],
        idempotency_key: Option<&str>,
    ) -> Result<ApiResponse, CommandFailure> {
        let mut request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(request.query_pairs(query).send_empty())
    }

    /// `POST` of JSON lines; any status is an answer.
    pub(super) fn post_lines(
        &self,
        path: &str,
        query: &[(&str, String)],
        lines: &[u8],
    ) -> Result<ApiResponse, CommandFailure> {
        let request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        self.whole(
            request.query_pairs(query).header("content-type", "application/x-ndjson").send(lines),
        )
    }

    /// `POST` of a JSON body; `line` gets each line of the answer as it arrives. Any status but 200
    /// is an error. `file` names the document in the body, for its problems.
    pub(super) fn lines(
        &self,
        path: &str,
        body: &Value,
        file: Option<&str>,
        mut line: impl FnMut(&str) -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let request =
            self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/x-ndjson");
        let answer = request.send(body.to_string()).map_err(|error| self.unreachable(&error))?;
        if answer.status() != http::StatusCode::OK {
            let answer = self.whole(Ok(answer))?;
            return Err(refusal(answer.status, &answer.text, file));
        }
        let reader = answer.into_body().into_with_config().limit(bounds::CLIENT_BYTES).reader();
        for text in BufReader::new(reader).lines() {
            line(&text.map_err(|error| self.incomplete(&error))?)?;
        }
        Ok(())
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.key.expose())
    }

    fn whole(
        &self,
        answer: Result<http::Response<Body>, ureq::Error>,
    ) -> Result<ApiResponse, CommandFailure> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        let retry_after =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(bounds::CLIENT_BYTES).reader();
        reader.read_to_string(&mut text).map_err(|error| self.incomplete(&error))?;
        Ok(ApiResponse { status, text, retry_after })
    }

    fn unreachable(&self, error: &ureq::Error) -> CommandFailure {
        CommandFailure::Gateway(format!("{} cannot be reached: {error}", self.base))
    }

    fn incomplete(&self, error: &std::io::Error) -> CommandFailure {
        CommandFailure::Gateway(format!("the answer of {} is incomplete: {error}", self.base))
    }
}

/// A refusal as the gateway states it. Problems of a document are listed like those of
/// `rerouter check`, under the name of its `file`.
pub(super) fn refusal(status: u16, text: &str, file: Option<&str>) -> CommandFailure {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let word = |name: &str| body.get(name).and_then(Value::as_str);
    if let Some(problems) = body.get("problems").and_then(Value::as_array) {
        let problems: Vec<Problem> = problems.iter().map(|value| problem(value, file)).collect();
        return CommandFailure::Usage(problem_list(&problems));
    }
    match (word("error"), word("detail")) {
        (Some(error), Some(detail)) => {
            CommandFailure::Gateway(format!("the gateway refused ({status} {error}): {detail}"))
        }
        (Some(error), None) => {
            CommandFailure::Gateway(format!("the gateway refused ({status} {error})"))
        }
        _ => CommandFailure::Gateway(format!("the gateway refused ({status})")),
    }
}

fn problem(value: &Value, file: Option<&str>) -> Problem {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| {
        let number = value.get(name).and_then(Value::as_u64).unwrap_or_default();
        usize::try_from(number).unwrap_or_default()
    };
    Problem {
        warning: false,
        file: file.unwrap_or(config::NO_FILE).to_owned(),
        path: text("path"),
        line: number("line"),
        column: number("column"),
        message: text("message"),
        hint: Some(text("hint")).filter(|hint| !hint.is_empty()),
    }
}

/// The certificates of a PEM file.
pub(super) fn authorities(file: &Path) -> Result<Vec<Certificate<'static>>, CommandFailure> {
    let text = std::fs::read(file)
        .map_err(|error| CommandFailure::Usage(format!("{}: {error}", file.display())))?;
    let found: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        Err(CommandFailure::Usage(format!("{}: holds no certificate in PEM", file.display())))
    } else {
        Ok(found)
    }
}
