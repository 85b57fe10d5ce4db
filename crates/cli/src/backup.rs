//! `rerouter backup`

use std::path::PathBuf;

use clap::Args;

use super::failure::{CommandFailure, Result, problem_list};
use super::output;
use rerouter_core::config::{self, Env};
use rerouter_gateway::server::{MASTER_KEY, back_up};
use rerouter_store::StoreUrl;

#[derive(Args)]
pub(super) struct BackupArguments {
    /// Server document, which names the data directory. Default: conf/rerouter.yaml if it exists,
    /// else built-in defaults.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    config: Option<PathBuf>,
    /// Data directory, instead of a server document.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Directory to create for the copy.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(arguments: &BackupArguments, env: &Env<'_>) -> Result<()> {
    let (data, url) = match &arguments.data_dir {
        Some(data) => (data.clone(), StoreUrl::Sqlite),
        None => {
            let server = config::load_server(arguments.config.as_deref(), env)
                .map_err(|problems| CommandFailure::Usage(problem_list(&problems)))?;
            (server.data_dir, server.store.url)
        }
    };
    let accounts = matches!(url, StoreUrl::Sqlite);
    let copied = back_up(&data, &arguments.out, accounts)
        .map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let file = data.join("master.key");
    let key = if file.exists() { file.display().to_string() } else { MASTER_KEY.to_owned() };
    let elsewhere = match accounts {
        true => "",
        false => "Accounts, keys, documents and audit are in PostgreSQL: copy them with pg_dump.\n",
    };
    // The copy exists, whether or not this text can be printed.
    let _ = output::print(&format!(
        "Copied {} to {}: {} segment(s) of captures, {} bytes in all.\n{elsewhere}\
         The master key is not in the copy, and the copy is useless without it: keep {key} \
         elsewhere.\n",
        data.display(),
        arguments.out.display(),
        copied.segments,
        copied.bytes
    ));
    Ok(())
}
