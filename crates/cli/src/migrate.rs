//! `rerouter migrate`

use std::path::PathBuf;

use clap::Args;

use super::failure::{CommandFailure, Result, problem_list};
use super::output;
use rerouter_core::config::{self, Env};
use rerouter_store::{self as store, PostgresUrl, StoreUrl, StoreUrlError};

#[derive(Args)]
pub(super) struct MigrateArguments {
    /// Server document, which names the data directory. Default: conf/rerouter.yaml if it exists,
    /// else built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory, instead of that of the server document.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// PostgreSQL database. Default: `store.url` of the server document. Other users of this
    /// machine may see a password here.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

pub(super) fn run(arguments: &MigrateArguments, env: &Env<'_>) -> Result<()> {
    let given = arguments.to.as_deref().map(postgres_url).transpose()?;
    let (data, to) = match (&arguments.data_dir, given) {
        (Some(data), Some(to)) => (data.clone(), to),
        (data, to) => {
            let server = config::load_server(arguments.config.as_deref(), env)
                .map_err(|problems| CommandFailure::Usage(problem_list(&problems)))?;
            let to = to.or(match server.store.url {
                StoreUrl::Postgres(url) => Some(url),
                StoreUrl::Sqlite => None,
            });
            let missing = || {
                let told = "name the PostgreSQL database, by `--to` or by `store.url`";
                CommandFailure::Usage(told.to_owned())
            };
            (data.clone().unwrap_or(server.data_dir), to.ok_or_else(missing)?)
        }
    };
    let tables =
        store::migrate(&data, &to).map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let mut told = String::new();
    for table in &tables {
        let digest: String =
            table.digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        told.push_str(&format!("{:>12}  {:<11}  sha256 {digest}…\n", table.rows, table.name));
    }
    // The copy is complete even if this cannot be printed.
    let _ = output::print(&format!(
        "{told}Copied these rows to PostgreSQL, and read the same there.\n\
         Captures are in {dir}: start the gateway with that data directory, the same master key, \
         and `store.url`. It brings their rows to PostgreSQL then, and their segments to \
         `capture.objects`, if that is set.\n\
         {dir}/accounts.db is no longer used; keep it until the gateway works.\n",
        dir = data.display()
    ));
    Ok(())
}

fn postgres_url(url: &str) -> Result<PostgresUrl> {
    PostgresUrl::parse(url).map_err(|error| match error {
        StoreUrlError::Url(why) => CommandFailure::Usage(format!("--to {why}")),
        StoreUrlError::Machine(why) => CommandFailure::Failed(why),
    })
}
