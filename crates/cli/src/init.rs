//! `rerouter init`: writes both documents, from a few questions or from options.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::failure::{CommandFailure, Result};
use super::output::{print, print_error};
use super::starter::{self, FoundProvider};
use super::terminal;
use rerouter_core::config::Env;

#[derive(Args)]
pub(super) struct InitArguments {
    /// Directory of the documents, rerouter.yaml and routing.yaml.
    #[arg(long, value_name = "DIR", default_value = "conf")]
    dir: PathBuf,
    /// Provider: openai, anthropic, gemini, mistral, groq, openrouter or ollama. Repeatable.
    /// Default: those that the environment has keys for.
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// Address to listen on. Default: 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address of metrics and probes. Default: 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Data directory. Default: ./data.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Ask nothing.
    #[arg(long, short)]
    yes: bool,
    /// Overwrite rerouter.yaml and routing.yaml if they exist.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &InitArguments, env: &Env<'_>) -> Result<()> {
    let files = starter::files(&arguments.dir, arguments.force)?;
    let asks = !arguments.yes && std::io::stdin().is_terminal();
    let [usual, usual_metrics] = starter::ADDRESSES;
    let address = match arguments.listen {
        Some(given) => given,
        None => {
            answer(asks, "Listen on", usual, |line| address(line).map_err(CommandFailure::Usage))?
        }
    };
    let metrics = arguments.metrics.map(|address| address.to_string());
    let metrics = metrics.unwrap_or_else(|| usual_metrics.to_owned());
    let found = starter::find(env, &[address]);
    let names: Vec<&str> = found.iter().map(|found| found.known.name).collect();
    let known: Vec<&str> = starter::known().map(|known| known.name).collect();
    let question = format!("Providers, of {}", known.join(", "));
    let choose = |wanted: &str| choose(wanted, &found, env, address);
    let chosen = match arguments.providers.is_empty() {
        true => answer(asks, &question, &names.join(", "), choose)?,
        false => choose(&arguments.providers.join(","))?,
    };
    let dir = match &arguments.data_dir {
        Some(dir) => dir.display().to_string(),
        None => answer(asks, "Data directory", "./data", |line| Ok(line.to_owned()))?,
    };
    let [server, routing] = &files;
    let path = routing.display().to_string();
    let addresses = [&*address.to_string(), &metrics];
    starter::write(server, &starter::server_document(addresses, &dir, &path, &[]))?;
    starter::write(routing, &starter::routing_document(&chosen))?;
    print(&next(&files, address, &chosen, env))
}

/// The answer to a question on the terminal; the default for an empty line or without `asks`. An
/// invalid answer is asked for again, twice.
fn answer<T>(
    asks: bool,
    question: &str,
    usual: &str,
    read: impl Fn(&str) -> Result<T>,
) -> Result<T> {
    if !asks {
        return read(usual);
    }
    let question = format!("{question} [{usual}] ");
    let ask = || {
        let line = terminal::ask(&question)?;
        read(if line.trim().is_empty() { usual } else { line.trim() })
    };
    for _ in 0..2 {
        match ask() {
            Err(CommandFailure::Usage(why)) => print_error(&format!("{why}\n")),
            done => return done,
        }
    }
    ask()
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let told = || format!("`{text}` is not an address and a port such as 127.0.0.1:8080");
    text.parse().map_err(|_| told())
}

/// The providers with these names: as they were found, else with their default settings.
fn choose(
    wanted: &str,
    found: &[FoundProvider],
    env: &Env<'_>,
    own: SocketAddr,
) -> Result<Vec<FoundProvider>> {
    let mut chosen: Vec<FoundProvider> = Vec::new();
    for name in wanted.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = starter::known().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = starter::known().map(|known| known.name).collect();
            CommandFailure::Usage(format!(
                "unknown provider `{name}` (known: {})",
                names.join(", ")
            ))
        })?;
        if chosen.iter().any(|chosen| chosen.known.name == name) {
            continue;
        }
        let here = found.iter().find(|found| found.known.name == name);
        chosen.push(here.cloned().unwrap_or_else(|| FoundProvider::wanted(known, env, &[own])));
    }
    match chosen.is_empty() {
        true => Err(CommandFailure::Usage(
            "no provider was found in the environment: name one with --provider".to_owned(),
        )),
        false => Ok(chosen),
    }
}

fn next(
    [server, routing]: &[PathBuf; 2],
    address: SocketAddr,
    chosen: &[FoundProvider],
    env: &Env<'_>,
) -> String {
    let missing: Vec<&str> = chosen
        .iter()
        .filter_map(|chosen| chosen.known.key_variable)
        .filter(|name| env(name).is_none_or(|value| value.trim().is_empty()))
        .collect();
    let set = match missing.is_empty() {
        true => String::new(),
        false => format!("Set {} first.\n", missing.join(", ")),
    };
    let (server, routing) = (server.display(), routing.display());
    // The URL is named even if it is the default, because the environment may have another one.
    let url = match address.ip().is_unspecified() {
        true => format!("http://localhost:{}", address.port()),
        false => format!("http://{address}"),
    };
    format!(
        "Wrote {server} and {routing}.\n{set}Then:\n\n  \
         export ADMIN_API_KEY=$(openssl rand -hex 24) # manages the gateway\n  \
         rerouter check --config {server}\n  rerouter serve --config {server}\n\n\
         and in another terminal, with the same ADMIN_API_KEY:\n\n  \
         REROUTER_API_KEY=$ADMIN_API_KEY rerouter keys create laptop --url {url}\n"
    )
}
