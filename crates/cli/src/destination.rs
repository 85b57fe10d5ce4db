//! The gateway that a command talks to, and the key for it.

use std::path::PathBuf;

use clap::Args;

use super::failure::{CommandFailure, Result};
use super::profile_file::{Profile, Profiles};
use rerouter_base::secret::Secret;
use rerouter_core::config::Env;

/// The URL of a gateway at its default address.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

#[derive(Args)]
pub(super) struct ApiClientOptions {
    /// URL of the gateway. Default: REROUTER_URL, else that of the profile, else
    /// http://127.0.0.1:8080.
    #[arg(long, global = true, value_name = "URL", help_heading = GATEWAY)]
    url: Option<String>,
    /// Key of the gateway. Prefer REROUTER_API_KEY or a profile: command lines are visible to other
    /// users.
    #[arg(long, global = true, value_name = "KEY", hide_default_value = true,
        help_heading = GATEWAY)]
    key: Option<String>,
    /// PEM file of certificate authorities to trust instead of the public ones.
    #[arg(long, global = true, value_name = "FILE", help_heading = GATEWAY)]
    ca: Option<PathBuf>,
    /// Profile of `rerouter profile`. Default: REROUTER_PROFILE, else the current one, unless
    /// REROUTER_URL or REROUTER_API_KEY is set.
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "url",
        help_heading = GATEWAY)]
    profile: Option<String>,
}

const GATEWAY: &str = "Gateway";

/// The interface that a command calls. AGENT has its own credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CalledInterface {
    PinOrRouter,
    Agent,
}

pub(super) struct ApiDestination {
    pub(super) url: String,
    /// AGENT may be open.
    pub(super) key: Option<Secret>,
    pub(super) ca: Option<PathBuf>,
}

impl ApiClientOptions {
    /// Options take precedence over a named profile, that over the environment, and that over the
    /// current profile. A profile's key is sent only to that profile's gateway.
    pub(super) fn destination(
        &self,
        called: CalledInterface,
        env: &Env<'_>,
    ) -> Result<ApiDestination> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let named =
            self.profile.clone().or_else(|| set("REROUTER_PROFILE").filter(|_| self.url.is_none()));
        let variable = match called {
            CalledInterface::PinOrRouter => "REROUTER_API_KEY",
            CalledInterface::Agent => "REROUTER_AGENT_API_KEY",
        };
        let is_given =
            self.url.is_some() || ["REROUTER_URL", variable].iter().any(|name| set(name).is_some());
        let profile = match named {
            Some(name) => Some(named_profile(&name, env)?),
            None if is_given => None,
            None => {
                let profiles = Profiles::load(env)?;
                profiles.current.and_then(|name| profiles.profiles.get(&name).cloned())
            }
        };
        let Profile { url, key, agent_key, ca } = match profile {
            Some(profile) => profile,
            None => Profile {
                url: set("REROUTER_URL").unwrap_or_else(|| DEFAULT_URL.to_owned()),
                key: set("REROUTER_API_KEY"),
                agent_key: set("REROUTER_AGENT_API_KEY"),
                ca: None,
            },
        };
        let key = match called {
            CalledInterface::PinOrRouter => key,
            CalledInterface::Agent => agent_key,
        };
        Ok(ApiDestination {
            url: self.url.clone().unwrap_or(url),
            key: self.key.clone().or(key).map(Secret::new),
            ca: self.ca.clone().or(ca),
        })
    }
}

fn named_profile(name: &str, env: &Env<'_>) -> Result<Profile> {
    let mut profiles = Profiles::load(env)?.profiles;
    let names: Vec<String> = profiles.keys().cloned().collect();
    profiles.remove(name).ok_or_else(|| {
        let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
        CommandFailure::Usage(format!("no profile `{name}` (known: {known})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: Option<&str>, key: Option<&str>, profile: Option<&str>) -> ApiClientOptions {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        ApiClientOptions { url: owned(url), key: owned(key), ca: None, profile: owned(profile) }
    }

    #[test]
    fn a_key_goes_to_its_own_gateway() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().to_str().unwrap().to_owned();
        let with = |more: &'static [(&'static str, &'static str)]| {
            let file = file.clone();
            move |name: &str| match name {
                "XDG_CONFIG_HOME" => Some(file.clone()),
                name => more.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned()),
            }
        };
        let profile = |url: &str, key: &str| Profile {
            url: url.to_owned(),
            key: Some(key.to_owned()),
            agent_key: Some(format!("{key}-agent")),
            ca: None,
        };
        let profiles = Profiles {
            current: Some("home".to_owned()),
            profiles: [
                ("home".to_owned(), profile("http://home", "home-key")),
                ("work".to_owned(), profile("http://work", "work-key")),
            ]
            .into(),
        };
        profiles.save(&with(&[])).unwrap();
        let reached = |options: &ApiClientOptions, env: &Env<'_>, called| {
            let found = options.destination(called, env).map_err(|_| ()).unwrap();
            (found.url, found.key.map(|key| key.expose().to_owned()))
        };
        let router = CalledInterface::PinOrRouter;
        let is = |url: &str, key: Option<&str>| (url.to_owned(), key.map(str::to_owned));
        let none = options(None, None, None);
        assert_eq!(reached(&none, &with(&[]), router), is("http://home", Some("home-key")));
        assert_eq!(
            reached(&none, &with(&[]), CalledInterface::Agent),
            is("http://home", Some("home-key-agent"))
        );
        let work = options(None, None, Some("work"));
        let both = &[("REROUTER_URL", "http://env"), ("REROUTER_API_KEY", "env-key")];
        assert_eq!(reached(&work, &with(both), router), is("http://work", Some("work-key")));
        assert_eq!(reached(&none, &with(both), router), is("http://env", Some("env-key")));
        let named = &[("REROUTER_PROFILE", "work"), ("REROUTER_API_KEY", "env-key")];
        assert_eq!(reached(&none, &with(named), router), is("http://work", Some("work-key")));
        let other = options(None, Some("other-key"), None);
        assert_eq!(reached(&other, &with(&[]), router), is("http://home", Some("other-key")));
        // The key of a profile is never sent to another URL.
        let elsewhere = options(Some("http://else"), None, None);
        assert_eq!(reached(&elsewhere, &with(&[]), router), is("http://else", None));
        assert_eq!(
            reached(&elsewhere, &with(&[("REROUTER_PROFILE", "work")]), router),
            is("http://else", None)
        );
        assert!(options(None, None, Some("nowhere")).destination(router, &with(&[])).is_err());
        // A file that others can read is refused.
        let path = home.path().join("rerouter/profiles.json");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640))
            .unwrap();
        assert!(none.destination(router, &with(&[])).is_err());
    }
}
