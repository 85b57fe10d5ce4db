//! `rerouter replay`: works with a gateway's captures, and predicts what another document would do
//! to them.

mod captures;
mod corpus;
mod evaluate;
mod export;
mod filters;
mod gate;
mod import;
mod junit;
mod list;
mod report;
mod reroute;
mod show;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

pub(super) use self::captures::{CAPTURES, dollars, rule, target};
pub(super) use self::filters::Filters;
pub(super) use self::gate::parse_share;
use super::client::ApiClient;
use super::destination::ApiClientOptions;
use super::failure::Result;
use super::output::print;
use super::terminal::confirm;
use super::{fields, keys, times, users};
use rerouter_base::clock::Clock;
use rerouter_core::config::Env;
use rerouter_records::replay::Erased;

#[derive(Args)]
pub(super) struct ReplayArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    #[command(subcommand)]
    command: ReplayCommand,
}

#[derive(Subcommand)]
enum ReplayCommand {
    /// List captures, newest first.
    List {
        #[command(flatten)]
        filters: Filters,
        /// Maximum number of captures.
        #[arg(long, default_value_t = 20, value_parser = fields::count)]
        limit: u64,
        /// Print one JSON object per line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Show one capture in full.
    Show {
        /// Id of the capture.
        id: String,
        /// Print the JSON of the API.
        #[arg(long)]
        json: bool,
    },
    /// Run a capture again under the live document, and compare the two.
    Reroute {
        /// Id of the capture.
        id: String,
        /// Decide only; no provider is called.
        #[arg(long)]
        dry_run: bool,
        /// Repeating the call with the same key within ten minutes at the same gateway returns the
        /// first answer, and costs nothing. With a key the call goes on when its client leaves.
        #[arg(long, value_name = "TEXT")]
        idempotency_key: Option<String>,
        /// Print the JSON of the API, with the comparison in `compare`.
        #[arg(long)]
        json: bool,
    },
    /// Predict what a document would do to captured traffic. With bounds, a gate for CI.
    Evaluate(Box<evaluate::EvaluateArguments>),
    /// Delete all captures that match all options given, for good; at least one is needed.
    #[command(group(ArgGroup::new("which").required(true).multiple(true)
        .args(["user", "by_key", "until"])))]
    Delete {
        /// Owned by this user, by id or email; admins only.
        #[arg(long)]
        user: Option<String>,
        /// Made with this ROUTER key, by id or name.
        #[arg(long, value_name = "KEY")]
        by_key: Option<String>,
        /// Before this time: RFC 3339, or an age such as 24h or 30d.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Write captures to a file, one per line, newest first: a corpus for `evaluate --corpus` and
    /// `import`.
    Export {
        #[command(flatten)]
        filters: Filters,
        /// Maximum number of captures. Default: all that match.
        #[arg(long, value_parser = fields::count)]
        limit: Option<u64>,
        /// File to write, readable by its owner only; `-` is standard output.
        #[arg(long, value_name = "FILE", default_value = "-")]
        out: String,
    },
    /// Add the captures of an exported file to a gateway; admins only. Existing captures are left
    /// unchanged.
    Import {
        /// File written by `export`.
        file: PathBuf,
        /// New owner of the captures, by id or email. Default: their present owners.
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Print the counts as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(arguments: ReplayArguments, env: &Env<'_>) -> Result<()> {
    let now = Clock::System.now();
    let ReplayArguments { client, command } = arguments;
    let connect = || ApiClient::new(&client, env);
    match command {
        ReplayCommand::List { filters, limit, json } => {
            let client = connect()?;
            list::list(&client, &filters.query(&client, now)?, limit, json)
        }
        ReplayCommand::Show { id, json } => show::show(&connect()?, &id, json),
        ReplayCommand::Reroute { id, dry_run, idempotency_key, json } => {
            reroute::reroute(&connect()?, &id, dry_run, idempotency_key.as_deref(), json)
        }
        ReplayCommand::Evaluate(arguments) => evaluate::run(&arguments, &connect, env, now),
        ReplayCommand::Delete { user, by_key, until, yes } => {
            let client = connect()?;
            let named = [
                ("user", user.map(|user| users::id(&client, &user)).transpose()?),
                ("key", by_key.map(|key| keys::router_id(&client, &key)).transpose()?),
                ("until", until.map(|until| times::past("--until", &until, now)).transpose()?),
            ];
            let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let named: Vec<String> = named.map(|(name, value)| format!("{name}={value}")).collect();
            confirm(yes, &format!("Delete all captures with {}?", named.join(" and ")))?;
            let done = client.delete(&format!("{CAPTURES}?{}", named.join("&")))?;
            let Erased { deleted } = done.json()?;
            print(&format!("{deleted} captures are deleted\n"))
        }
        ReplayCommand::Export { filters, limit, out } => {
            let client = connect()?;
            export::export(&client, &filters.query(&client, now)?, limit, &out)
        }
        ReplayCommand::Import { file, owner, json } => {
            let client = connect()?;
            let owner = owner.map(|user| users::id(&client, &user)).transpose()?;
            import::import(&client, &file, owner.as_deref(), json)
        }
    }
}
