//! `rerouter config`: the routing document of a gateway, and the schemas of both documents.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use similar::TextDiff;

use super::client::{ApiCall, ApiClient};
use super::destination::ApiClientOptions;
use super::failure::{CommandFailure, Result, problem_list};
use super::fields;
use super::output::{print, print_error};
use super::records::{RecordTable, text};
use super::replay::parse_share;
use super::terminal::{self, TextStyle, confirm};
use rerouter_core::config::{self, Env};
use rerouter_records::evaluation::Rollback;

#[derive(Args)]
pub(super) struct ConfigArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// Print the JSON of the API; of a list one object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the live document.
    Get,
    /// Show how a file differs from the live document. Exits with 1 if it does.
    Diff { file: PathBuf },
    /// Make a file the live document, unless another one becomes live meanwhile.
    Put(PutArguments),
    /// Make an earlier revision live again.
    Rollback {
        revision: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Print the JSON Schema of a document, for editors. Asks no gateway.
    Schema { document: DocumentKind },
    /// List the revisions that were live, newest first.
    Revisions {
        /// Maximum number of revisions.
        #[arg(long, default_value_t = 20, value_parser = fields::count)]
        limit: u64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum DocumentKind {
    Server,
    Routing,
}

#[derive(Args)]
struct PutArguments {
    file: PathBuf,
    /// Refuse if more than this share of the requests of the last day would go elsewhere, for
    /// example 2% or 0.02.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_changed: Option<f64>,
    /// Refuse if a request of the last day would find no target.
    #[arg(long)]
    forbid_unroutable: bool,
    /// Refuse if more than this share of the requests of the last day would find no target.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_unroutable: Option<f64>,
    /// With one of these bounds: accept if there are no captures that found a target.
    #[arg(long)]
    allow_empty: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

const CONFIG: &str = "/v1/router/config";

const TABLE: RecordTable = RecordTable {
    what: "revisions",
    titles: &["REVISION", "LIVE", "LIVE SINCE", "MADE"],
    pointers: &["/revision", "/live", "/live_at", "/created_at"],
    order: &[0, 2, 1, 3],
};

pub(super) fn run(arguments: ConfigArguments, env: &Env<'_>) -> Result<()> {
    let ConfigArguments { client, json, command } = arguments;
    let client = || ApiClient::new(&client, env);
    match command {
        ConfigCommand::Schema { document: DocumentKind::Server } => print(&config::server_schema()),
        ConfigCommand::Schema { document: DocumentKind::Routing } => {
            print(&config::routing_schema())
        }
        ConfigCommand::Get => get(&client()?, json),
        ConfigCommand::Diff { file } => diff(&client()?, &file, json),
        ConfigCommand::Put(wanted) => put(&client()?, &wanted, json),
        ConfigCommand::Rollback { revision, yes } => rollback(&client()?, &revision, yes, json),
        ConfigCommand::Revisions { limit } => {
            TABLE.list(&client()?, &format!("{CONFIG}/revisions"), &[], limit, json)
        }
    }
}

/// The live document: the whole record, its revision and its text.
fn live(client: &ApiClient) -> Result<(Value, String, String)> {
    let record = client.record(CONFIG)?;
    let (revision, document) = (text(record.get("revision")), text(record.get("document")));
    Ok((record, revision, document))
}

fn get(client: &ApiClient, json: bool) -> Result<()> {
    let (record, _, document) = live(client)?;
    match json {
        true => print(&format!("{record}\n")),
        false => print(&format!("{}\n", document.trim_end())),
    }
}

/// Reads a document and checks that it is YAML. Only the gateway can tell whether it is usable.
fn read(file: &Path) -> Result<String> {
    let source = config::load(file).and_then(|source| config::parses(&source).map(|()| source));
    source
        .map(|source| source.text)
        .map_err(|problems| CommandFailure::Usage(problem_list(&problems)))
}

fn diff(client: &ApiClient, file: &Path, json: bool) -> Result<()> {
    let wanted = read(file)?;
    let (_, revision, document) = live(client)?;
    let lines = changes(&document, &wanted, &revision, file);
    match json {
        true => {
            let diff = json!({ "revision": revision, "equal": lines.is_empty(), "diff": lines });
            print(&format!("{diff}\n"))?;
        }
        false => print(&coloured(&lines))?,
    }
    if lines.is_empty() { Ok(()) } else { Err(CommandFailure::BoundBroken) }
}

/// A unified diff; empty if there is no difference.
fn changes(live: &str, wanted: &str, revision: &str, file: &Path) -> String {
    let (live, wanted) = (format!("{}\n", live.trim_end()), format!("{}\n", wanted.trim_end()));
    TextDiff::from_lines(&live, &wanted)
        .unified_diff()
        .header(&format!("live {revision}"), &file.display().to_string())
        .to_string()
}

fn coloured(diff: &str) -> String {
    let line = |line: &str| match line.chars().next() {
        Some('+') => terminal::styled(line, TextStyle::Good),
        Some('-') => terminal::styled(line, TextStyle::Bad),
        _ => line.to_owned(),
    };
    diff.lines().map(|text| line(text) + "\n").collect()
}

fn put(client: &ApiClient, wanted: &PutArguments, json: bool) -> Result<()> {
    let document = read(&wanted.file)?;
    let (_, revision, before) = live(client)?;
    let lines = changes(&before, &document, &revision, &wanted.file);
    if !wanted.yes && !lines.is_empty() {
        if !json {
            print(&coloured(&lines))?;
        }
        confirm(false, "Make this document live?")?;
    }
    let mut query = Vec::new();
    query.extend(wanted.max_changed.map(|share| ("max_changed", share.to_string())));
    query.extend(wanted.max_unroutable.map(|share| ("max_unroutable", share.to_string())));
    let flags =
        [("forbid_unroutable", wanted.forbid_unroutable), ("allow_empty", wanted.allow_empty)];
    query.extend(flags.iter().filter(|(_, on)| *on).map(|(name, _)| (*name, "true".to_owned())));
    let tag = format!("\"{revision}\"");
    let file = wanted.file.display().to_string();
    let call = ApiCall {
        query: &query,
        headers: &[("if-match", &tag)],
        body: Some(("application/yaml", document.as_bytes())),
        ..ApiCall::new("PUT", CONFIG)
    };
    taken(&client.call(&call, Some(&file))?.json()?, json)
}

fn rollback(client: &ApiClient, revision: &str, yes: bool, json: bool) -> Result<()> {
    confirm(yes, &format!("Make revision {revision} live again?"))?;
    let body = Rollback { revision: revision.to_owned() };
    taken(&client.change("POST", &format!("{CONFIG}/rollback"), &body)?, json)
}

/// Prints the answer to a change.
fn taken(answer: &Value, json: bool) -> Result<()> {
    if json {
        return print(&format!("{answer}\n"));
    }
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        print_error(&format!("warning: {}\n", text(Some(warning))));
    }
    let (revision, previous) = (text(answer.get("revision")), text(answer.get("previous")));
    match revision == previous {
        true => print(&format!("revision {revision} was live already\n")),
        false => print(&format!("revision {revision} is live, after {previous}\n")),
    }
}
