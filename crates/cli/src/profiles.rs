//! `rerouter profile`: manages several gateways by name.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::base_url;
use super::failure::{CommandFailure, Result};
use super::output::print;
use super::profile_file::{self, Profile, Profiles};
use super::records::RecordTable;
use super::terminal::{self, confirm};
use rerouter_core::config::Env;

#[derive(Args)]
pub(super) struct ProfileArguments {
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: ProfileCommand,
}

#[derive(Subcommand)]
enum ProfileCommand {
    /// List the profiles; their keys are not shown.
    List,
    /// Add a profile or change it. The key is asked for, or read from standard input.
    Set {
        name: String,
        /// URL of the gateway. Default: that of the profile, if there is one.
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// PEM file of certificate authorities to trust.
        #[arg(long, value_name = "FILE")]
        ca: Option<std::path::PathBuf>,
        /// The key that is read is for the AGENT interface.
        #[arg(long)]
        agent: bool,
        /// Read no key.
        #[arg(long)]
        no_key: bool,
    },
    /// Make a profile the current one.
    Use { name: String },
    /// Remove a profile with its keys.
    Remove {
        name: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

const TABLE: RecordTable = RecordTable {
    what: "profiles",
    titles: &["NAME", "URL", "CURRENT", "KEY", "AGENT KEY"],
    pointers: &["/name", "/url", "/current", "/key", "/agent_key"],
    order: &[0, 1, 2, 3, 4],
};

pub(super) fn run(arguments: ProfileArguments, env: &Env<'_>) -> Result<()> {
    let mut profiles = Profiles::load(env)?;
    let mut done = "saved in".to_owned();
    match arguments.command {
        ProfileCommand::List => return list(&profiles, arguments.json),
        ProfileCommand::Set { name, url, ca, agent, no_key } => {
            let before = profiles.profiles.remove(&name);
            let url = match (url, &before) {
                (Some(url), _) => base_url(&url)?,
                (None, Some(before)) => before.url.clone(),
                (None, None) => {
                    return Err(CommandFailure::Usage("a new profile needs --url".to_owned()));
                }
            };
            // A stored key is kept only for the same gateway.
            let mut profile = before.filter(|before| before.url == url).unwrap_or_default();
            let key = match no_key {
                true => None,
                false => Some(terminal::read_secret("Key: ")?).filter(|key| !key.is_empty()),
            };
            match agent {
                true => profile.agent_key = key.or(profile.agent_key),
                false => profile.key = key.or(profile.key),
            }
            profile = Profile { url, ca: ca.or(profile.ca), ..profile };
            profiles.current.get_or_insert_with(|| name.clone());
            profiles.profiles.insert(name, profile);
        }
        ProfileCommand::Use { name } => {
            known(&profiles, &name)?;
            profiles.current = Some(name);
        }
        ProfileCommand::Remove { name, yes } => {
            known(&profiles, &name)?;
            confirm(yes, &format!("Remove the profile {name} with its keys?"))?;
            profiles.profiles.remove(&name);
            profiles.current = profiles.current.filter(|current| *current != name);
            done = format!("{name} is removed from");
        }
    }
    profiles.save(env)?;
    let file = profile_file::path(env).map(|path| path.display().to_string());
    print(&format!("{done} {}\n", file.unwrap_or_default()))
}

fn known(profiles: &Profiles, name: &str) -> Result<()> {
    match profiles.profiles.contains_key(name) {
        true => Ok(()),
        false => Err(CommandFailure::Usage(format!("no profile `{name}`"))),
    }
}

fn list(profiles: &Profiles, json: bool) -> Result<()> {
    let is_set = |key: &Option<String>| if key.is_some() { json!("set") } else { Value::Null };
    let shown = profiles.profiles.iter().map(|(name, profile)| {
        json!({
            "name": name, "url": profile.url,
            "current": profiles.current.as_ref() == Some(name),
            "key": is_set(&profile.key), "agent_key": is_set(&profile.agent_key),
            "ca": profile.ca,
        })
    });
    let shown: Vec<Value> = shown.collect();
    match json {
        true => shown.iter().try_for_each(|profile| print(&format!("{profile}\n"))),
        false => TABLE.print(&shown),
    }
}
