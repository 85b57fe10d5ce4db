//! `rerouter serve`. Without a routing document it serves the providers that
//! it finds.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::check;
use super::failure::CommandFailure;
use super::init::address;
use super::output::print_error;
use super::starter::{self, FoundProvider};
use crate::atomic_file;
use crate::config::{self, DocumentSource, Env, Problem, Server};
use crate::log;
use crate::secret::Secret;
use crate::server::{self, Environment, Gateway};

/// File of the first key in the data directory, if no terminal can show it.
const FIRST_KEY: &str = "first-key";

#[derive(Args)]
pub(super) struct ServeArguments {
    /// Server document. Default: conf/rerouter.yaml if it exists, else built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take over from the gateway that runs with the same data directory: no connection is refused,
    /// and it ends its requests.
    #[arg(long)]
    upgrade: bool,
    #[command(flatten)]
    defaults: ServerDefaults,
}

/// Values for a start without a server document.
#[derive(Args)]
pub(super) struct ServerDefaults {
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

impl ServeArguments {
    fn source(&self) -> Result<DocumentSource, Vec<Problem>> {
        let ServerDefaults { listen, metrics, data_dir } = &self.defaults;
        let mut keys = Map::new();
        if let Some(address) = listen {
            keys.insert("listeners".to_owned(), json!([{ "address": address }]));
        }
        if let Some(address) = metrics {
            keys.insert("metrics".to_owned(), json!({ "address": address }));
        }
        if let Some(dir) = data_dir {
            let dir = dir.display().to_string().replace("${", "$${");
            keys.insert("data_dir".to_owned(), dir.into());
        }
        match keys.is_empty() {
            true => config::server_source(self.config.as_deref()),
            // JSON is YAML.
            false => Ok(DocumentSource::built_in(Value::Object(keys).to_string())),
        }
    }
}

pub(super) fn run(
    arguments: &ServeArguments,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> Result<(), CommandFailure> {
    let failed = CommandFailure::Failed;
    let source = arguments.source();
    let mut found = None;
    let adopt = |server: &mut Server| found = starter::adopt(server, env);
    let document = check::server_for_start(source, adopt, arguments.upgrade, environment, env)
        .map_err(failed)?;
    let levels = env("RUST_LOG");
    let usual = "info,pingora=warn,pingora_core=warn,pingora_proxy=warn";
    let form = document.log.form(std::io::stderr().is_terminal(), env);
    log::init(levels.as_deref().unwrap_or(usual), form).map_err(failed)?;
    log::log_panics();
    let data_dir = document.data_dir.clone();
    let boot = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let gateway = boot
        .block_on(async {
            match arguments.upgrade {
                false => Gateway::prepare(document, environment()).await,
                true => Gateway::prepare_upgrade(document, environment()).await,
            }
        })
        .map_err(|error| failed(error.to_string()))?;
    if let Some(found) = found.filter(|_| !arguments.upgrade) {
        // Whoever has the admin key makes keys with it.
        let key = match environment().admin_key.filter(|key| !key.is_empty()) {
            Some(_) => None,
            None => boot.block_on(gateway.first_key()).map_err(|why| failed(why.to_string()))?,
        };
        print_error(&welcome(&found, &gateway, key.map(|key| Handed::over(key, data_dir))));
    }
    let notifies = env("NOTIFY_SOCKET").is_some();
    server::run(gateway, next(), notifies).map_err(|error| failed(error.to_string()))
}

/// This program with these arguments again, to take over from this process.
fn next() -> (PathBuf, Vec<OsString>) {
    // Without /proc it is not known; then a start of that name says so.
    let program = std::env::current_exe().unwrap_or_else(|_| "rerouter".into());
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments.push("--upgrade".into());
    }
    (program, arguments)
}

/// How the user of this process gets the first key.
enum Handed {
    /// On the terminal.
    Shown(Secret),
    /// In a file: what is written elsewhere than to a terminal ends up in logs.
    Kept(PathBuf),
    Lost(String),
}

impl Handed {
    fn over(key: Secret, data_dir: PathBuf) -> Handed {
        if std::io::stderr().is_terminal() {
            return Handed::Shown(key);
        }
        let file = data_dir.join(FIRST_KEY);
        match atomic_file::write(&file, format!("{}\n", key.expose()).as_bytes()) {
            Ok(()) => Handed::Kept(file),
            Err(error) => Handed::Lost(format!("{}: {error}", file.display())),
        }
    }
}

/// What a start without configuration did, and what to try.
fn welcome(found: &[FoundProvider], gateway: &Gateway, key: Option<Handed>) -> String {
    let (told, bearer) = match key {
        Some(Handed::Shown(key)) => {
            (format!("The first key, shown this once: {}", key.expose()), key.expose().to_owned())
        }
        Some(Handed::Kept(file)) => {
            let file = file.display();
            (format!("The first key is in {file}, for this user only."), format!("$(cat {file})"))
        }
        Some(Handed::Lost(why)) => {
            (format!("The first key is lost ({why}): make one with ADMIN_API_KEY."), kept())
        }
        None => (
            "$KEY stands for a key of yours, such as the first one. ADMIN_API_KEY makes one, if \
             the gateway was started with it."
                .to_owned(),
            kept(),
        ),
    };
    let console =
        gateway.console().map_or_else(String::new, |url| format!("The console is {url}\n"));
    format!(
        "There is no routing document.\n{}\n{told}\n{console}Try it:\n\n  \
         curl -sS {}/v1/chat/completions -H \"Authorization: Bearer {bearer}\" \\\n    \
         -H 'Content-Type: application/json' \\\n    -d '{{\"model\": \"auto\", \"messages\": \
         [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'\n\n\
         `rerouter init` writes a configuration into files to edit.\n",
        of_providers(found),
        gateway.url(),
    )
}

fn kept() -> String {
    "$KEY".to_owned()
}

/// What was found, and what clients may ask for.
fn of_providers(found: &[FoundProvider]) -> String {
    if found.is_empty() {
        let names: Vec<&str> = starter::KNOWN.iter().filter_map(|known| known.key).collect();
        return format!(
            "No provider was found: set one of {}, or start Ollama, and start again.\n\
             Until then the demo answers, whose models are mocks.",
            names.join(", ")
        );
    }
    let places: Vec<&str> = found.iter().map(|found| found.place.as_str()).collect();
    let targets: Vec<String> =
        found.iter().map(|found| format!("{}/{}", found.known.name, found.model)).collect();
    let direct = found.iter().map(|found| format!("{}/*", found.known.name));
    let names = found.iter().flat_map(|found| found.known.names).map(|name| (*name).to_owned());
    let names: Vec<String> = direct.chain(names).collect();
    format!(
        "Found {}.\nThe model auto is {}. Clients may also ask for {}.",
        places.join(", "),
        targets.join(", else "),
        names.join(", ")
    )
}
