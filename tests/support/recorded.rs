//! The recorded provider: `tests/tools/recorded_provider.py` over `tests/data/recorded_*.jsonl`, or
//! over the file that `REROUTER_RECORDED` names.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::neutral::AnswerContext;
use rerouter::internals::dialect::translate_answer::{
    StreamTranslator, translate_answer, translate_error,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::client::{self, Connection};
use super::{free_port, until};

/// One recorded exchange; the request as its bytes stand in the file.
#[derive(Deserialize)]
pub struct Exchange {
    pub id: String,
    pub kind: String,
    pub host: String,
    pub request: Box<RawValue>,
    pub stream: bool,
    pub status: u16,
    pub content_type: String,
    pub headers: std::collections::BTreeMap<String, String>,
    pub response: String,
}

impl Exchange {
    /// The model that was asked for.
    pub fn model(&self) -> String {
        let text = self.request.get();
        serde_json::from_str(&text[super::json_text::model_span(text)]).unwrap()
    }

    /// Where such a request is sent.
    pub fn path(&self) -> &'static str {
        match self.kind.as_str() {
            "chat" => "/v1/chat/completions",
            "embeddings" => "/v1/embeddings",
            "responses" => "/v1/responses",
            "messages" => "/v1/messages",
            kind => panic!("recorded exchanges of the kind {kind}"),
        }
    }

    /// Which endpoint it is of.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::ALL
            .into_iter()
            .find(|endpoint| self.path().strip_prefix("/v1") == Some(endpoint.path()))
            .expect("an endpoint")
    }

    /// What the provider counted for the prompt, in the answer or in one of its events.
    pub fn counted(&self) -> Option<u64> {
        let events = self.response.lines().filter_map(|line| line.strip_prefix("data:"));
        let texts: Vec<&str> = if self.stream { events.collect() } else { vec![&self.response] };
        let mut usages = texts.into_iter().filter_map(|text| {
            let answer: Value = serde_json::from_str(text).ok()?;
            let usages = [
                &answer["usage"],
                &answer["x_groq"]["usage"],
                &answer["message"]["usage"],
                &answer["response"]["usage"],
            ];
            let whole = |usage: &Value| {
                // OpenAI's counts hold the cached ones, Anthropic's stand beside them.
                let cached = ["cache_read_input_tokens", "cache_creation_input_tokens"]
                    .iter()
                    .filter_map(|name| usage[name].as_u64());
                Some(usage["input_tokens"].as_u64()? + cached.sum::<u64>())
            };
            usages
                .into_iter()
                .find_map(|usage| usage["prompt_tokens"].as_u64().or_else(|| whole(usage)))
        });
        usages.rfind(|tokens| *tokens > 0)
    }

    /// What the translation makes of the answer, apart from the gateway.
    pub fn translated(&self, to: Dialect, context: AnswerContext) -> Vec<u8> {
        let from = self.endpoint().dialect();
        let body = self.response.as_bytes();
        if self.status != 200 {
            return translate_error(to, self.status, body).to_vec();
        }
        if !self.stream {
            return translate_answer(from, to, body, &context).unwrap().body.to_vec();
        }
        let mut translator = StreamTranslator::new(from, to, context);
        let mut out = Vec::new();
        body.chunks(777).for_each(|chunk| translator.feed(chunk, &mut out));
        translator.finish(&mut out);
        out
    }

    /// The provider of its protocol in the documents of the tests.
    pub fn provider(&self) -> &'static str {
        if self.kind == "messages" { "ant" } else { "rec" }
    }
}

/// Where the exchanges are.
pub fn files() -> Vec<PathBuf> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let own = || {
        ["chat", "embeddings", "messages", "responses"]
            .map(|kind| data.join(format!("recorded_{kind}.jsonl")))
            .to_vec()
    };
    std::env::var_os("REROUTER_RECORDED").map_or_else(own, |file| vec![file.into()])
}

/// Every recorded exchange.
pub fn all() -> Vec<Exchange> {
    let texts: Vec<String> =
        files().iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let all: Vec<Exchange> = texts
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!all.is_empty());
    all
}

/// A running recorded provider; ends with the value.
pub struct Recorded {
    child: Child,
    port: u16,
    received: TempDir,
}

impl Recorded {
    /// Starts it with that pause after each event of a stream.
    pub async fn start(event_delay_ms: u32) -> Self {
        let (port, received) = (free_port(), tempfile::tempdir().unwrap());
        let tool =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tools/recorded_provider.py");
        let mut command = Command::new("python3");
        command.arg(tool).arg("--file").args(files()).args(["--port", &port.to_string()]);
        command
            .args(["--event-delay-ms", &event_delay_ms.to_string()])
            .arg("--received")
            .arg(received.path());
        let child = command.stdout(Stdio::null()).spawn().expect("python3");
        let recorded = Recorded { child, port, received };
        until("the recorded provider", async || {
            let mut connection = Connection::try_open(([127, 0, 0, 1], port).into()).await?;
            connection
                .try_exchange(&client::request("GET", "/healthz", "localhost", &[], None))
                .await
        })
        .await;
        recorded
    }

    /// Its `base_url`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The bodies that came in, in order, each with the id of the exchange that it was taken for.
    pub fn received(&self) -> Vec<(String, Vec<u8>)> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(self.received.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.retain(|name| name.extension().is_some_and(|end| end == "bin"));
        names.sort();
        let id = |name: &PathBuf| name.file_stem().unwrap().to_str().unwrap()[6..].to_owned();
        names.iter().map(|name| (id(name), std::fs::read(name).unwrap())).collect()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As in `provider.rs`: asked directly, the recorded provider answers as recorded and keeps what
/// came in.
#[tokio::test]
async fn the_recorded_provider_answers_as_recorded() {
    let recorded = Recorded::start(0).await;
    let mut connection =
        Connection::try_open(([127, 0, 0, 1], recorded.port).into()).await.unwrap();
    for exchange in all() {
        for text in [
            super::json_text::compact(exchange.request.get()),
            super::json_text::odd(exchange.request.get()),
        ] {
            let request =
                client::request("POST", exchange.path(), "localhost", &[], Some(text.as_bytes()));
            let answer = connection.exchange(&request).await;
            assert_eq!(
                (answer.status, answer.text()),
                (exchange.status, exchange.response.clone()),
                "{}",
                exchange.id
            );
            assert_eq!(
                recorded.received().last().unwrap(),
                &(exchange.id.clone(), text.into_bytes())
            );
        }
    }
}
