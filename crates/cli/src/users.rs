//! `rerouter users`

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::ApiClient;
use super::destination::ApiClientOptions;
use super::failure::Result;
use super::fields::{self, LimitArguments};
use super::output::print;
use super::records::{RecordName, RecordTable, named, show};
use super::terminal::{confirm, read_secret};
use rerouter_base::id::UserId;
use rerouter_base::secret::Secret;
use rerouter_base::url::encode;
use rerouter_core::config::Env;
use rerouter_records::user::NewUser;
use rerouter_records::{Role, ShownSecret};

#[derive(Args)]
pub(super) struct UsersArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// Print the JSON of the API; of a list one object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Subcommand)]
enum UsersCommand {
    /// List users, newest first.
    List {
        /// Maximum number of users.
        #[arg(long, default_value_t = 100, value_parser = fields::count)]
        limit: u64,
    },
    /// Make a user. The password is asked for, or read from standard input.
    Create {
        email: String,
        #[arg(long)]
        name: Option<String>,
        /// Role of the user.
        #[arg(long, default_value = "user", value_parser = fields::word!(Role))]
        role: Role,
        #[command(flatten)]
        limits: LimitArguments,
    },
    /// Show a user, by id or email.
    Show { id: String },
    /// Change a user, by id or email. What is not given stays.
    Patch {
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// New role.
        #[arg(long, value_parser = ["user", "admin"])]
        role: Option<String>,
        #[command(flatten)]
        limits: LimitArguments,
        /// A merge patch of the record, for what no option says.
        #[arg(long, value_name = "JSON", value_parser = fields::json_object)]
        patch: Option<Map<String, Value>>,
    },
    /// End the sessions of a user, by id or email, and refuse the keys until `enable`.
    Disable {
        id: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Let a user in again, by id or email.
    Enable { id: String },
    /// Delete a user, by id or email, with all captures. Keys and sessions end, usage and audit
    /// stay.
    Delete {
        id: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

const USERS: &str = "/v1/users";

const TABLE: RecordTable = RecordTable {
    what: "users",
    titles: &["ID", "EMAIL", "ROLE", "DISABLED", "NAME", "CREATED", "LIMITS"],
    pointers: &["/id", "/email", "/role", "/disabled", "/name", "/created_at", "/limits"],
    order: &[0, 1, 2, 3, 4, 5, 6],
};

const NAME: RecordName = RecordName {
    what: ["user", "users"],
    // Built-in users count as ids too.
    is_id: |given| given.starts_with(UserId::PREFIX) && !given.contains('@'),
    field: "email",
};

/// The id of a user who is given by id or email.
pub(super) fn id(client: &ApiClient, given: &str) -> Result<String> {
    // In lower case, as the gateway stores emails.
    NAME.id(client, USERS, &given.to_lowercase())
}

pub(super) fn run(arguments: UsersArguments, env: &Env<'_>) -> Result<()> {
    let UsersArguments { client, json, command } = arguments;
    let client = ApiClient::new(&client, env)?;
    let path = |id: &str| format!("{USERS}/{}", encode(id));
    let patch = |id: &str, body: &Value| {
        show(&client.change("PATCH", &path(id), body)?, json)?;
        client.confirmed()
    };
    let id_of = |given: &str| id(&client, given);
    match command {
        UsersCommand::List { limit } => TABLE.list(&client, USERS, &[], limit, json),
        UsersCommand::Create { email, name, role, limits } => {
            let password = read_secret("Password: ")?;
            let password = ShownSecret(Secret::new(password));
            let new = NewUser { email, password, name, role: Some(role), limits: limits.given() };
            show(&client.change("POST", USERS, &new)?, json)
        }
        UsersCommand::Show { id } => show(&client.record(&path(&id_of(&id)?))?, json),
        UsersCommand::Patch { id, name, role, limits, patch: given } => {
            let members = json!({ "name": name, "role": role, "limits": limits.given() });
            let body = fields::some_change(fields::body(given, members))?;
            patch(&id_of(&id)?, &json!(body))
        }
        UsersCommand::Disable { id: given, yes } => {
            let id = id_of(&given)?;
            let named = named(&given, &id);
            confirm(yes, &format!("Disable {named}? All sessions end, and the keys are refused."))?;
            patch(&id, &json!({ "disabled": true }))
        }
        UsersCommand::Delete { id: given, yes } => {
            let id = id_of(&given)?;
            confirm(yes, &format!("Delete {} and all captures?", named(&given, &id)))?;
            client.delete(&path(&id))?;
            if json { Ok(()) } else { print(&format!("{id} is deleted\n")) }
        }
        UsersCommand::Enable { id } => patch(&id_of(&id)?, &json!({ "disabled": false })),
    }
}
