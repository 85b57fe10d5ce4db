//! `rerouter keys`

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::client::ApiClient;
use super::destination::{ApiClientOptions, CalledInterface};
use super::failure::Result;
use super::fields::{self, LimitArguments};
use super::output::print;
use super::records::{RecordName, RecordTable, named, show, show_with_secret};
use super::terminal::confirm;
use super::times;
use super::users;
use rerouter_access::auth::{AGENT_SCOPES, PIN_SCOPES, RESERVED_SCOPES, SESSION_SCOPES};
use rerouter_base::clock::Clock;
use rerouter_base::id::KeyId;
use rerouter_base::url::encode;
use rerouter_core::config::Env;
use rerouter_records::Time;
use rerouter_records::key::{NewKey, Rotation};

#[derive(Args)]
pub(super) struct KeysArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// Interface of the keys.
    #[arg(long, global = true, value_enum, default_value_t = KeyInterface::Router)]
    interface: KeyInterface,
    /// Print the JSON of the API; of a list one object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum KeyInterface {
    Router,
    Pin,
    Agent,
}

impl KeyInterface {
    fn path(self) -> &'static str {
        match self {
            KeyInterface::Router => "/v1/router/keys",
            KeyInterface::Pin => "/v1/apikeys",
            KeyInterface::Agent => "/v1/api-keys",
        }
    }

    fn called(self) -> CalledInterface {
        match self {
            KeyInterface::Agent => CalledInterface::Agent,
            KeyInterface::Router | KeyInterface::Pin => CalledInterface::PinOrRouter,
        }
    }
}

#[derive(Subcommand)]
enum KeysCommand {
    /// List keys, newest first.
    List {
        /// Keys of this status. Default: all but revoked ones.
        #[arg(long, value_parser = ["active", "inactive", "expired", "revoked"])]
        status: Option<String>,
        /// Keys of this user, by id or email; admins only.
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Maximum number of keys.
        #[arg(long, default_value_t = 100, value_parser = fields::count)]
        limit: u64,
    },
    /// Make a key. Its secret is shown once.
    Create(Box<NewKeyArguments>),
    /// Show a key, by its id or name, and what is used of its limits.
    Show { id: String },
    /// Give a key, by its id or name, a new secret, which is shown once.
    Rotate {
        id: String,
        /// How long the old secret stays valid, for example 1h. Default: not at all.
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        grace: Option<u64>,
        /// Print the secret alone.
        #[arg(long, short)]
        quiet: bool,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// End a key, by its id or name. It is dead when this returns.
    Revoke {
        id: String,
        /// Also end the keys that were made with it.
        #[arg(long)]
        descendants: bool,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Change a key, by its id or name. What is not given stays.
    Patch(Box<KeyPatchArguments>),
}

#[derive(Args)]
struct NewKeyArguments {
    /// Name of the key.
    name: Option<String>,
    /// Scope. Repeatable. Default: `inference`; of PIN `user`, of AGENT `agents` and `keys`.
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes())]
    scopes: Vec<String>,
    /// When it ends: an RFC 3339 time, or a time from now such as 30d.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// User who owns it, by id or email; admins only.
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Label for conditions of routing rules; admins only. Repeatable.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = fields::pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    limits: LimitArguments,
    /// Print the secret alone.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct KeyPatchArguments {
    id: String,
    #[arg(long)]
    name: Option<String>,
    /// New status.
    #[arg(long, value_parser = ["active", "inactive"])]
    status: Option<String>,
    /// An earlier end: an RFC 3339 time, or a time from now such as 30d.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Label to set. Repeatable.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = fields::pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    limits: LimitArguments,
    /// A merge patch of the record, for what no option says: {"limits": {"rpm": null}} takes a
    /// limit away.
    #[arg(long, value_name = "JSON", value_parser = fields::json_object)]
    patch: Option<Map<String, Value>>,
}

const TABLE: RecordTable = RecordTable {
    what: "keys",
    titles: &["ID", "NAME", "STATUS", "KEY", "SCOPES", "CREATED", "LAST USED", "EXPIRES", "OWNER"],
    pointers: &[
        "/id",
        "/name",
        "/status",
        "/redacted",
        "/scopes",
        "/created_at",
        "/last_used_at",
        "/expires_at",
        "/owner",
    ],
    order: &[0, 2, 1, 3, 4, 6, 5, 7, 8],
};

/// Finds a key by its name, except among revoked keys, which are not listed.
const NAME: RecordName = RecordName {
    what: ["key", "keys"],
    is_id: |given| KeyId::parse(given).is_some(),
    field: "name",
};

/// The id of a ROUTER key that is given by its id or name.
pub(super) fn router_id(client: &ApiClient, given: &str) -> Result<String> {
    NAME.id(client, KeyInterface::Router.path(), given)
}

fn scopes() -> PossibleValuesParser {
    let own = AGENT_SCOPES.iter().filter(|scope| !SESSION_SCOPES.contains(scope));
    let all = SESSION_SCOPES.iter().chain(&RESERVED_SCOPES).chain(&PIN_SCOPES).chain(own);
    PossibleValuesParser::new(all.copied())
}

fn seconds(text: &str) -> Result<u64, String> {
    times::distance(text)
        .map(|grace| grace.as_secs())
        .ok_or_else(|| "has to be a length of time such as 30m or 1h".to_owned())
}

pub(super) fn run(arguments: KeysArguments, env: &Env<'_>) -> Result<()> {
    let KeysArguments { client, interface, json, command } = arguments;
    let (client, root) = (ApiClient::to(&client, interface.called(), env)?, interface.path());
    let path = |id: &str| format!("{root}/{}", encode(id));
    let id_of = |given: &str| NAME.id(&client, root, given);
    let owner_id = |given: Option<String>| given.map(|user| users::id(&client, &user)).transpose();
    match command {
        KeysCommand::List { status, owner, limit } => {
            let owner = owner_id(owner)?;
            let query = [("status", status), ("owner", owner)];
            let query: Vec<_> =
                query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            TABLE.list(&client, root, &query, limit, json)
        }
        KeysCommand::Create(mut new) => {
            new.owner = owner_id(new.owner)?;
            let quiet = new.quiet;
            show_with_secret(&client.change("POST", root, &new.record()?)?, "key", json, quiet)
        }
        KeysCommand::Show { id } => show(&client.record(&path(&id_of(&id)?))?, json),
        KeysCommand::Rotate { id: given, grace, quiet, yes } => {
            let id = id_of(&given)?;
            let end = match grace {
                Some(grace) if grace > 0 => format!("ends in {grace} seconds"),
                _ => "ends at once".to_owned(),
            };
            let named = named(&given, &id);
            confirm(yes, &format!("Give {named} a new secret? The old one {end}."))?;
            let body = Rotation { grace_period_seconds: Some(grace.unwrap_or(0)) };
            let record = client.change("POST", &format!("{}/rotate", path(&id)), &body)?;
            show_with_secret(&record, "key", json, quiet)?;
            client.confirmed()
        }
        KeysCommand::Revoke { id: given, descendants, yes } => {
            let id = id_of(&given)?;
            let all = if descendants { " and all keys that were made with it" } else { "" };
            let named = named(&given, &id);
            confirm(yes, &format!("Revoke {named}{all}? This cannot be undone."))?;
            let mark = if descendants { "?descendants=true" } else { "" };
            client.delete(&format!("{}{mark}", path(&id)))?;
            if json { Ok(()) } else { print(&format!("{id} is revoked\n")) }
        }
        KeysCommand::Patch(patch) => {
            let given = patch.id.clone();
            let body = patch.body()?;
            show(&client.change("PATCH", &path(&id_of(&given)?), &body)?, json)?;
            client.confirmed()
        }
    }
}

fn end(expires: Option<String>) -> Result<Option<Time>> {
    let end = expires.map(|text| times::future("--expires", &text, Clock::System.now()));
    Ok(end.transpose()?.map(Time))
}

impl NewKeyArguments {
    fn record(self) -> Result<NewKey> {
        Ok(NewKey {
            name: self.name,
            scopes: Some(self.scopes).filter(|scopes| !scopes.is_empty()),
            expires_at: end(self.expires)?,
            limits: self.limits.given(),
            metadata: None,
            owner: self.owner,
            labels: fields::pairs(self.labels),
        })
    }
}

impl KeyPatchArguments {
    fn body(self) -> Result<Map<String, Value>> {
        let members = json!({
            "name": self.name, "status": self.status, "expires_at": end(self.expires)?,
            "labels": fields::pairs(self.labels), "limits": self.limits.given(),
        });
        fields::some_change(fields::body(self.patch, members))
    }
}
