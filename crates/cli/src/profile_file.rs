//! The file of profiles: a person's gateways, with their keys.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::failure::{CommandFailure, Result};
use rerouter_base::atomic_file;
use rerouter_core::config::Env;

/// All profiles. They hold keys, so none of these types has `Debug`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profiles {
    /// The profile that is used if no other is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ca: Option<PathBuf>,
}

impl Profiles {
    /// Reads the file. Without a file there are no profiles. A file that others can read is
    /// refused.
    pub(super) fn load(env: &Env<'_>) -> Result<Profiles> {
        let Some(path) = path(env) else { return Ok(Profiles::default()) };
        let wrong = |why: String| CommandFailure::Usage(format!("{}: {why}", path.display()));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Profiles::default());
            }
            Err(error) => return Err(wrong(error.to_string())),
        };
        let mode = std::fs::metadata(&path).map_or(0, |file| file.permissions().mode());
        if mode & 0o077 != 0 {
            return Err(wrong("others can read the keys in it: chmod 600".to_owned()));
        }
        // The parser's own error could quote a key.
        serde_json::from_str(&text).map_err(|error| {
            wrong(format!(
                "not a file of profiles, line {}, column {}",
                error.line(),
                error.column()
            ))
        })
    }

    /// Replaces the file, which only its owner can read.
    pub(super) fn save(&self, env: &Env<'_>) -> Result<()> {
        let path = path(env).ok_or_else(|| {
            CommandFailure::Usage("neither XDG_CONFIG_HOME nor HOME is set".to_owned())
        })?;
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string());
        let failed = |error: String| CommandFailure::Usage(format!("{}: {error}", path.display()));
        let text = text.map_err(failed)?;
        make_directory(&path)
            .and_then(|()| atomic_file::write(&path, format!("{text}\n").as_bytes()))
            .map_err(|error| failed(error.to_string()))
    }
}

fn make_directory(file: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(atomic_file::directory(file))
}

pub(super) fn path(env: &Env<'_>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("rerouter/profiles.json"))
}
