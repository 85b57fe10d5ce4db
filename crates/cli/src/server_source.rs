//! The server document that a command reads: a file, or the built-in defaults with a few values
//! set.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::init::address;
use rerouter_core::config::{self, DocumentSource, Problem};

#[derive(Args)]
pub(super) struct ServerSourceArguments {
    /// Server document. Default: conf/rerouter.yaml if it exists, else built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen here, and use no server document. Default: 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address of metrics and probes, without a server document. Default: 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Data directory, without a server document. Default: ./data.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    data_dir: Option<PathBuf>,
}

/// Each option, with the key that it sets.
const OPTIONS: [(&str, &str); 3] = [
    ("--listen", "listeners[0].address"),
    ("--metrics", "metrics.address"),
    ("--data-dir", "data_dir"),
];

/// Names options in problems, instead of places in a document that nobody wrote.
pub(super) fn name_options(problems: &mut [Problem]) {
    for problem in problems.iter_mut().filter(|problem| problem.file == config::OPTIONS) {
        if let Some((option, _)) = OPTIONS.iter().find(|(_, key)| problem.path == *key) {
            (problem.file, problem.line) = ((*option).to_owned(), 0);
            problem.path.clear();
        }
    }
}

impl ServerSourceArguments {
    pub(super) fn source(&self) -> Result<DocumentSource, Vec<Problem>> {
        let mut keys = Map::new();
        if let Some(address) = self.listen {
            keys.insert("listeners".to_owned(), json!([{ "address": address }]));
        }
        if let Some(address) = self.metrics {
            keys.insert("metrics".to_owned(), json!({ "address": address }));
        }
        if let Some(dir) = &self.data_dir {
            let dir = dir.display().to_string().replace("${", "$${");
            keys.insert("data_dir".to_owned(), dir.into());
        }
        match keys.is_empty() {
            true => config::server_source(self.config.as_deref()),
            // Every JSON text is also YAML.
            false => Ok(DocumentSource::built_in(Value::Object(keys).to_string())),
        }
    }
}
