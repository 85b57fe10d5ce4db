//! `rerouter agents`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::ApiClient;
use super::destination::{ApiClientOptions, CalledInterface};
use super::failure::{CommandFailure, Result};
use super::fields;
use super::output::print;
use super::records::{RecordTable, show};
use super::terminal::confirm;
use rerouter_base::url::encode;
use rerouter_core::config::Env;

#[derive(Args)]
pub(super) struct AgentsArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// Print the JSON of the API; of a list one object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AgentsCommand,
}

#[derive(Subcommand)]
enum AgentsCommand {
    /// List agents, newest first.
    List {
        /// Maximum number of agents.
        #[arg(long, default_value_t = 100, value_parser = fields::count)]
        limit: u64,
    },
    /// Make an agent, which clients ask for as agent/NAME.
    Create {
        name: String,
        #[command(flatten)]
        fields: AgentFieldArguments,
    },
    /// Show an agent, by its id or name.
    Show { id: String },
    /// Change an agent, by its id or name. What is not given stays.
    Patch {
        id: String,
        /// New name.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        fields: AgentFieldArguments,
    },
    /// Delete an agent, by its id or name.
    Delete {
        id: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Args)]
struct AgentFieldArguments {
    /// Alias of the routing document that answers.
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    /// File with the instructions.
    #[arg(long, value_name = "FILE")]
    instructions: Option<PathBuf>,
    #[arg(long)]
    description: Option<String>,
    /// Further members of the record: defaults, tools, metadata.
    #[arg(long, value_name = "JSON", value_parser = fields::json_object)]
    patch: Option<Map<String, Value>>,
}

const AGENTS: &str = "/v1/agents";

const TABLE: RecordTable = RecordTable {
    what: "agents",
    titles: &["NAME", "ID", "MODEL", "TRUSTED", "UPDATED", "DESCRIPTION"],
    pointers: &["/name", "/id", "/model", "/trusted", "/updated_at", "/description"],
    order: &[0, 1, 2, 3, 4, 5],
};

pub(super) fn run(arguments: AgentsArguments, env: &Env<'_>) -> Result<()> {
    let AgentsArguments { client, json, command } = arguments;
    let client = ApiClient::to(&client, CalledInterface::Agent, env)?;
    let path = |id: &str| format!("{AGENTS}/{}", encode(id));
    match command {
        AgentsCommand::List { limit } => TABLE.list(&client, AGENTS, &[], limit, json),
        AgentsCommand::Create { name, fields } => {
            show(&client.change("POST", AGENTS, &fields.body(Some(name))?)?, json)
        }
        AgentsCommand::Show { id } => show(&client.record(&path(&id))?, json),
        AgentsCommand::Patch { id, name, fields } => {
            // An empty patch makes an agent trusted.
            let is_patched = fields.patch.is_some();
            let body = fields.body(name)?;
            let body = if is_patched { body } else { fields::some_change(body)? };
            show(&client.change("PATCH", &path(&id), &body)?, json)
        }
        AgentsCommand::Delete { id, yes } => {
            confirm(yes, &format!("Delete the agent {id}?"))?;
            client.delete(&path(&id))?;
            if json { Ok(()) } else { print(&format!("{id} is deleted\n")) }
        }
    }
}

impl AgentFieldArguments {
    fn body(self, name: Option<String>) -> Result<Map<String, Value>> {
        let instructions = self.instructions.as_deref().map(read).transpose()?;
        let members = json!({
            "name": name, "model": self.model, "instructions": instructions,
            "description": self.description,
        });
        Ok(fields::body(self.patch, members))
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file)
        .map_err(|error| CommandFailure::Usage(format!("{}: {error}", file.display())))
}
