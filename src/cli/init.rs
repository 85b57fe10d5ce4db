//! `rerouter init`: writes both documents, from a few questions or from options.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::failure::CommandFailure;
use super::output::print;
use super::starter::{self, FoundProvider, KNOWN};
use super::terminal;
use crate::config::Env;

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
    /// Replace documents that are there.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &InitArguments, env: &Env<'_>) -> Result<(), CommandFailure> {
    let files = starter::files(&arguments.dir, arguments.force)?;
    let asks = !arguments.yes && std::io::stdin().is_terminal();
    let answer = |given: Option<String>, question: &str, usual: &str| match given {
        Some(given) => Ok(given),
        None if asks => terminal::ask(&format!("{question} [{usual}] "))
            .map(|line| if line.trim().is_empty() { usual.to_owned() } else { line }),
        None => Ok(usual.to_owned()),
    };
    let [usual, usual_metrics] = starter::ADDRESSES;
    let listen = answer(arguments.listen.map(|address| address.to_string()), "Listen on", usual)?;
    let address = address(&listen).map_err(CommandFailure::Usage)?;
    let metrics = arguments.metrics.map(|address| address.to_string());
    let metrics = metrics.unwrap_or_else(|| usual_metrics.to_owned());
    let found = starter::find(env, &[address]);
    let names: Vec<&str> = found.iter().map(|found| found.known.name).collect();
    let given = (!arguments.providers.is_empty()).then(|| arguments.providers.join(","));
    let known: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    let question = format!("Providers, of {}", known.join(", "));
    let wanted = answer(given, &question, &names.join(", "))?;
    let chosen = choose(&wanted, found, env, address)?;
    let dir = arguments.data_dir.as_ref().map(|dir| dir.display().to_string());
    let dir = answer(dir, "Data directory", "./data")?;
    let [server, routing] = &files;
    let path = routing.display().to_string();
    let addresses = [&*address.to_string(), &metrics];
    starter::write(server, &starter::server_document(addresses, &dir, &path, &[]))?;
    starter::write(routing, &starter::routing_document(&chosen))?;
    print(&next(&files, address, &chosen, env))
}

/// An address and a port, as an argument.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let told = || format!("`{text}` is not an address and a port such as 127.0.0.1:8080");
    text.parse().map_err(|_| told())
}

/// The providers with these names: as they were found, else as they usually are.
fn choose(
    wanted: &str,
    mut found: Vec<FoundProvider>,
    env: &Env<'_>,
    own: SocketAddr,
) -> Result<Vec<FoundProvider>, CommandFailure> {
    let mut chosen: Vec<FoundProvider> = Vec::new();
    for name in wanted.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = KNOWN.iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            CommandFailure::Usage(format!(
                "unknown provider `{name}` (known: {})",
                names.join(", ")
            ))
        })?;
        if chosen.iter().any(|chosen| chosen.known.name == name) {
            continue;
        }
        let at = found.iter().position(|found| found.known.name == name);
        chosen.push(at.map_or_else(|| known.wanted(env, &[own]), |at| found.remove(at)));
    }
    match chosen.is_empty() {
        true => Err(CommandFailure::Usage(
            "no provider was found in the environment: name one with --provider".to_owned(),
        )),
        false => Ok(chosen),
    }
}

/// What to do next.
fn next(
    [server, routing]: &[PathBuf; 2],
    address: SocketAddr,
    chosen: &[FoundProvider],
    env: &Env<'_>,
) -> String {
    let missing: Vec<&str> = chosen
        .iter()
        .filter_map(|chosen| chosen.known.key)
        .filter(|name| env(name).is_none_or(|value| value.trim().is_empty()))
        .collect();
    let set = match missing.is_empty() {
        true => String::new(),
        false => format!("Set {} first.\n", missing.join(", ")),
    };
    let (server, routing) = (server.display(), routing.display());
    // Named, also where it is the default: the environment may name another one.
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
