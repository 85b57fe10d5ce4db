//! `rerouter backup`: a copy of the store, and a word about the key that is not in it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::listed;
use crate::config;
use crate::server::{MASTER_KEY, back_up};

/// What was typed.
#[derive(Args)]
pub(super) struct Arguments {
    /// The server document, which says where the data directory is; without it conf/rerouter.yaml if there, else
    /// built-in defaults.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    config: Option<PathBuf>,
    /// The data directory itself, instead of a server document.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where the copy goes: a directory that is not there yet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Makes the copy and says what it is.
pub(super) fn run(
    arguments: &Arguments,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let data = match &arguments.data_dir {
        Some(data) => data.clone(),
        None => {
            config::load_server(arguments.config.as_deref(), variable)
                .map_err(|problems| listed(&problems))?
                .data_dir
        }
    };
    let copied = back_up(&data, &arguments.out).map_err(|error| error.to_string())?;
    let file = data.join("master.key");
    let key = if file.exists() { file.display().to_string() } else { MASTER_KEY.to_owned() };
    // Nobody is left to tell when standard output is gone.
    let _ = writeln!(
        std::io::stdout(),
        "{} holds the store of {}: {} segments of captures, {} bytes in all.\n\
         The master key is not in it, and nothing in it can be used without: keep {key} apart from it.",
        arguments.out.display(),
        data.display(),
        copied.segments,
        copied.bytes
    );
    Ok(())
}
