//! `rerouter nodes`: the nodes of a gateway. `rerouter node` is one of them.

use clap::{Args, Subcommand};

use super::client::{ApiCall, ApiClient};
use super::destination::ApiClientOptions;
use super::failure::Result;
use super::fields;
use super::output::print;
use super::records::{RecordName, RecordTable, named, show, show_with_secret};
use super::terminal::confirm;
use rerouter_base::id::NodeId;
use rerouter_base::url::encode;
use rerouter_core::config::Env;
use rerouter_records::node::NewNode;

#[derive(Args)]
pub(super) struct NodesArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// Print the JSON of the API; of a list one object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: NodesCommand,
}

#[derive(Subcommand)]
enum NodesCommand {
    /// List nodes, newest first.
    List {
        /// Maximum number of nodes.
        #[arg(long, default_value_t = 100, value_parser = fields::count)]
        limit: u64,
    },
    /// Enrol a node. Its secret, for `rerouter node`, is shown once.
    Create {
        name: String,
        /// Model that it may serve; a trailing `*` matches the rest. Repeatable. Default: all.
        #[arg(long = "model", value_name = "PATTERN")]
        models: Vec<String>,
        /// URL at which the gateway reaches it. Default: the address that it registers from.
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
        /// Print the secret alone.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show a node, by its id or name, and its state.
    Show { id: String },
    /// Give a node, by its id or name, a new secret, which is shown once. The old one ends with its
    /// first use, or after ten minutes.
    Rotate {
        id: String,
        /// Print the secret alone.
        #[arg(long, short)]
        quiet: bool,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Delete a node, by its id or name; it gets no further requests.
    Delete {
        id: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

const NODES: &str = "/v1/nodes";

const TABLE: RecordTable = RecordTable {
    what: "nodes",
    titles: &["ID", "NAME", "STATE", "MODELS", "RUNNING", "QUEUED", "ENDPOINT", "CREATED"],
    pointers: &[
        "/id",
        "/name",
        "/state",
        "/models",
        "/running",
        "/queued",
        "/endpoint",
        "/created_at",
    ],
    order: &[0, 2, 1, 3, 4, 5, 6, 7],
};

const NAME: RecordName = RecordName {
    what: ["node", "nodes"],
    is_id: |given| NodeId::parse(given).is_some(),
    field: "name",
};

pub(super) fn run(arguments: NodesArguments, env: &Env<'_>) -> Result<()> {
    let NodesArguments { client, json, command } = arguments;
    let client = ApiClient::new(&client, env)?;
    let path = |id: &str| format!("{NODES}/{}", encode(id));
    let id_of = |given: &str| NAME.id(&client, NODES, given);
    match command {
        NodesCommand::List { limit } => TABLE.list(&client, NODES, &[], limit, json),
        NodesCommand::Create { name, models, endpoint, quiet } => {
            let models = Some(models).filter(|models| !models.is_empty());
            let new = NewNode { name, models, endpoint };
            show_with_secret(&client.change("POST", NODES, &new)?, "secret", json, quiet)
        }
        NodesCommand::Show { id } => show(&client.record(&path(&id_of(&id)?))?, json),
        NodesCommand::Rotate { id: given, quiet, yes } => {
            let id = id_of(&given)?;
            confirm(yes, &format!("Give {} a new secret?", named(&given, &id)))?;
            let path = format!("{}/rotate", path(&id));
            let record = client.call(&ApiCall::new("POST", &path), None)?.json()?;
            show_with_secret(&record, "secret", json, quiet)?;
            client.confirmed()
        }
        NodesCommand::Delete { id: given, yes } => {
            let id = id_of(&given)?;
            confirm(yes, &format!("Delete the node {}?", named(&given, &id)))?;
            client.delete(&path(&id))?;
            if json { Ok(()) } else { print(&format!("{id} is deleted\n")) }
        }
    }
}
