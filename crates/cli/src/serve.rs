//! `rerouter serve`. Without a routing document it serves the providers that it finds.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;

use super::check;
use super::failure::{CommandFailure, Result};
use super::output::print_error;
use super::server_source::ServerSourceArguments;
use super::starter::{self, FoundProvider};
use rerouter_base::atomic_file;
use rerouter_base::log::{self, LogForm};
use rerouter_base::secret::Secret;
use rerouter_core::config::{Env, Server};
use rerouter_gateway::server::{self, CaughtSignals, Environment, Gateway};

/// File of the first key in the data directory, if no terminal can show it.
const FIRST_KEY: &str = "first-key";

#[derive(Args)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    server: ServerSourceArguments,
    /// Take over from the gateway that runs with the same data directory: no connection is refused,
    /// and it ends its requests.
    #[arg(long)]
    upgrade: bool,
}

pub(super) fn run(
    arguments: &ServeArguments,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> Result<()> {
    let failed = CommandFailure::Failed;
    let boot = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    // With huge pages, two dozen idle threads would hold two megabytes each for a few KiB.
    #[cfg(target_os = "linux")]
    let _kernel_without_them = rustix::thread::disable_transparent_huge_pages(true);
    // From here on SIGTERM ends the process in order.
    let caught = boot.block_on(async { CaughtSignals::catch() });
    let mut caught = caught.map_err(|error| failed(format!("cannot receive signals: {error}")))?;
    let source = arguments.server.source();
    let mut found = None;
    let adopt = |server: &mut Server| found = starter::adopt(server, env);
    let document = check::server_for_start(source, adopt, arguments.upgrade, environment, env)
        .map_err(failed)?;
    let levels = env("RUST_LOG");
    let usual = "info,pingora=warn,pingora_core=warn,pingora_proxy=warn";
    let form = document.log.format.form(std::io::stderr().is_terminal(), env);
    log::init(levels.as_deref().unwrap_or(usual), form).map_err(failed)?;
    log::log_panics();
    let data_dir = document.data_dir.clone();
    let prepared = boot.block_on(async {
        let prepared = async {
            match arguments.upgrade {
                false => Gateway::prepare(document, environment()).await,
                true => Gateway::prepare_upgrade(document, environment()).await,
            }
        };
        // No request was served yet, so there is nothing to end.
        tokio::select! {
            prepared = prepared => Some(prepared),
            () = caught.received() => None,
        }
    });
    let Some(prepared) = prepared else { return Ok(()) };
    let gateway = prepared.map_err(|error| failed(error.to_string()))?;
    // With an admin key, people make keys and users themselves.
    let has_admin_key = environment().admin_key.is_some_and(|key| !key.is_empty());
    if let Some(found) = found.filter(|_| !arguments.upgrade) {
        let key = match has_admin_key {
            true => None,
            false => boot.block_on(gateway.first_key()).map_err(|why| failed(why.to_string()))?,
        };
        let key = match key {
            Some(key) => Handed::over(key, &data_dir),
            None => Handed::before(&data_dir, has_admin_key),
        };
        tell(&welcome(&found, &gateway, key), form);
    }
    if let Some(link) = gateway.first_admin(!has_admin_key, has_terminal()) {
        tell(&link, form);
    }
    let notifies = env("NOTIFY_SOCKET").is_some();
    server::run(gateway, next(), caught, notifies).map_err(|error| failed(error.to_string()))
}

/// Tells people what a start did. In JSON form it becomes a log line, for programs.
fn tell(text: &str, form: LogForm) {
    match form {
        LogForm::Json if !std::io::stderr().is_terminal() => ::log::info!("{}", text.trim_end()),
        _ => print_error(text),
    }
}

/// Whether a person reads the output. Without input, as in `docker run -t`, the output is a log.
fn has_terminal() -> bool {
    std::io::stderr().is_terminal() && std::io::stdin().is_terminal()
}

/// The command that starts this program again with the same arguments, to take over from this
/// process.
fn next() -> (PathBuf, Vec<OsString>) {
    // Without /proc the path is unknown. Then the name alone is used, and a start reports its
    // failure.
    let program = std::env::current_exe().unwrap_or_else(|_| "rerouter".into());
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments.push("--upgrade".into());
    }
    (program, arguments)
}

/// How the user gets the first key.
enum Handed {
    /// Shown on the terminal.
    Shown(Secret),
    /// Written to a file, because output that does not go to a terminal ends up in logs.
    Kept(PathBuf),
    Lost(String),
    /// The user makes keys with `ADMIN_API_KEY`.
    Made,
    /// Made and shown at an earlier start.
    Known,
}

impl Handed {
    fn over(key: Secret, data_dir: &Path) -> Handed {
        if has_terminal() {
            return Handed::Shown(key);
        }
        let file = data_dir.join(FIRST_KEY);
        match atomic_file::write(&file, format!("{}\n", key.expose()).as_bytes()) {
            Ok(()) => Handed::Kept(file),
            Err(error) => Handed::Lost(format!("{}: {error}", file.display())),
        }
    }

    /// For a start that made no first key.
    fn before(data_dir: &Path, has_admin_key: bool) -> Handed {
        let file = data_dir.join(FIRST_KEY);
        match (file.exists(), has_admin_key) {
            (true, _) => Handed::Kept(file),
            (false, true) => Handed::Made,
            (false, false) => Handed::Known,
        }
    }
}

/// The text about what a start without configuration did, and what to try.
fn welcome(found: &[FoundProvider], gateway: &Gateway, key: Handed) -> String {
    let (told, bearer) = match key {
        Handed::Shown(key) => {
            (format!("The first key, shown this once: {}", key.expose()), key.expose().to_owned())
        }
        Handed::Kept(file) => {
            let file = file.display();
            (format!("The first key is in {file}, for this user only."), format!("$(cat '{file}')"))
        }
        Handed::Lost(why) => {
            (format!("The first key is lost ({why}): make one with ADMIN_API_KEY."), kept())
        }
        Handed::Made => (
            format!(
                "Make a key where ADMIN_API_KEY is set as here:\n\n  \
                 KEY=$(REROUTER_API_KEY=$ADMIN_API_KEY \
                 rerouter keys create laptop --quiet --url {})\n",
                gateway.url()
            ),
            kept(),
        ),
        Handed::Known => {
            ("$KEY stands for a key of yours, such as the first one.".to_owned(), kept())
        }
    };
    format!(
        "There is no routing document.\n{}\n{told}\nTry it:\n\n  \
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

/// The text about the providers that were found, and the models that clients may request.
fn of_providers(found: &[FoundProvider]) -> String {
    if found.is_empty() {
        let names: Vec<&str> = starter::known().filter_map(|known| known.key_variable).collect();
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
