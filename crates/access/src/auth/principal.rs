//! The caller of a request after authentication, and what it may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::signature::Signed;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{NodeId, SessionId, UserId};
use rerouter_base::interface::Interface;
use rerouter_store::{Actor, KeyRow, Role, UserRow};

/// Scopes of a session on ROUTER. A key has only the first one unless its maker granted others.
pub const SESSION_SCOPES: [&str; 3] = ["inference", "replay", "keys"];
/// Scopes of a session on PIN, and of a key unless its maker granted others.
pub const PIN_SCOPES: [&str; 1] = ["user"];
/// Scopes of AGENT's tenant, and of a key unless its maker granted others.
pub const AGENT_SCOPES: [&str; 2] = ["agents", "keys"];
/// The scope with which a key of an admin acts as that admin.
pub const ADMIN_SCOPE: &str = "admin";
/// Extends the scope `replay` to all captures and usage of the owner, and `keys` to all keys.
pub(super) const REPLAY_ALL_SCOPE: &str = "replay:all";
/// Scopes that only an admin grants. They hold for as long as the user who granted them is an
/// admin.
pub const RESERVED_SCOPES: [&str; 4] = [REPLAY_ALL_SCOPE, "evaluate", "config", ADMIN_SCOPE];

/// The key label that says what is captured of its requests; only an admin sets labels.
pub const CAPTURE_LABEL: &str = "capture";

/// How much is captured of a key's requests, if captures are on; a greater level captures less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaptureLevel {
    /// Head and bodies: `on`, the default.
    Full,
    Heads,
    Off,
}

impl CaptureLevel {
    /// Reads the value of [`CAPTURE_LABEL`].
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "on" => Some(CaptureLevel::Full),
            "heads" => Some(CaptureLevel::Heads),
            "off" => Some(CaptureLevel::Off),
            _ => None,
        }
    }

    pub fn of(labels: &BTreeMap<String, String>) -> Self {
        labels
            .get(CAPTURE_LABEL)
            .and_then(|word| CaptureLevel::parse(word))
            .unwrap_or(CaptureLevel::Full)
    }
}

#[derive(Clone, Debug)]
pub enum Principal {
    /// The holder of `ADMIN_API_KEY`: the built-in `usr_admin`.
    Admin,
    /// A user, or the built-in admin by a key that it made.
    User {
        /// The row at the time of identification.
        user: Arc<UserRow>,
        via: Credential,
    },
    /// The one tenant of AGENT.
    AgentTenant {
        /// The credential that identified it.
        via: AgentCredential,
    },
    Node {
        id: NodeId,
        /// The verified signature; the digest in it is yet to be compared with the body.
        signed: Arc<Signed>,
    },
    /// Nobody, on open routes.
    Anonymous,
}

#[derive(Clone, Debug)]
pub enum Credential {
    Key(Arc<KeyRow>),
    /// A login session, by cookie or token.
    Session(SessionId),
}

#[derive(Clone, Debug)]
pub enum AgentCredential {
    Key(Arc<KeyRow>),
    CloudKey,
    /// No credential: AGENT is open.
    Open,
}

impl Principal {
    /// The user that it acts for.
    pub fn user_id(&self) -> Option<UserId> {
        match self {
            Principal::Admin => Some(UserId::admin()),
            Principal::User { user, .. } => Some(user.id.clone()),
            Principal::AgentTenant { .. } | Principal::Node { .. } | Principal::Anonymous => None,
        }
    }

    /// Whether it is `ADMIN_API_KEY`, an admin's session, or an admin's key with the scope `admin`.
    pub fn is_admin(&self) -> bool {
        match self {
            Principal::Admin => true,
            Principal::User { user, via: Credential::Session(_) } => user.role == Role::Admin,
            Principal::User { user, via: Credential::Key(key) } => {
                user.role == Role::Admin && key.scopes.iter().any(|s| s == ADMIN_SCOPE)
            }
            Principal::AgentTenant { .. } | Principal::Node { .. } | Principal::Anonymous => false,
        }
    }

    pub fn key(&self) -> Option<&KeyRow> {
        match self {
            Principal::User { via: Credential::Key(key), .. }
            | Principal::AgentTenant { via: AgentCredential::Key(key) } => Some(key),
            _ => None,
        }
    }

    pub fn capture_level(&self) -> CaptureLevel {
        self.key().map_or(CaptureLevel::Full, |key| CaptureLevel::of(&key.labels))
    }

    /// Whether the `limits.models` of its key and its user allow this name.
    pub fn allows_model(&self, model: &str) -> bool {
        let user = match self {
            Principal::User { user, .. } => user.limits.allows_model(model),
            _ => true,
        };
        user && self.key().is_none_or(|key| key.limits.allows_model(model))
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        if self.is_admin() || scope == ADMIN_SCOPE {
            // A key keeps the scope `admin` when its user is no longer an admin; the scope is void
            // then.
            return self.is_admin();
        }
        match self {
            Principal::User { via: Credential::Session(_), .. } => {
                SESSION_SCOPES.contains(&scope) || PIN_SCOPES.contains(&scope)
            }
            Principal::AgentTenant { via: AgentCredential::CloudKey | AgentCredential::Open } => {
                AGENT_SCOPES.contains(&scope)
            }
            _ => self.key().is_some_and(|key| {
                let has = |scope: &str| key.scopes.iter().any(|own| own == scope);
                has(scope) || scope == "replay" && has(REPLAY_ALL_SCOPE)
            }),
        }
    }

    /// Returns 403 if a scope is missing. The error names the scope, and how to get it.
    pub fn require(&self, scope: &str) -> Result<()> {
        if self.has_scope(scope) {
            return Ok(());
        }
        let refused = |told| Err(Error::new(Kind::InsufficientScope, told));
        let Some(key) = self.key() else {
            return refused(format!("This is for admins, and for keys with the scope `{scope}`."));
        };
        let usual = "With a session or ADMIN_API_KEY, make";
        let (of, make) = match key.interface {
            Interface::Router => ("", usual),
            Interface::Pin => (" --interface pin", usual),
            Interface::Agent => (" --interface agent", "With AGENT_CLOUD_API_KEY, make"),
        };
        let scopes = [key.scopes.as_slice(), &[scope.to_owned()]].concat();
        let is_reserved = scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
        let make = if is_reserved { "An admin makes" } else { make };
        let scopes = scopes.join(" --scope ");
        refused(format!(
            "This key lacks the scope `{scope}`. {make} a key with it: `rerouter keys create \
             NAME{of} --scope {scopes}`."
        ))
    }

    /// The name of the caller in audit rows and records.
    pub fn actor(&self) -> Actor {
        let (kind, id) = match self {
            Principal::Admin => ("admin_key", UserId::admin().to_string()),
            Principal::User { via: Credential::Session(id), .. } => ("session", id.to_string()),
            Principal::User { via: Credential::Key(key), .. }
            | Principal::AgentTenant { via: AgentCredential::Key(key) } => {
                ("api_key", key.id.to_string())
            }
            Principal::AgentTenant { via: AgentCredential::CloudKey } => {
                ("cloud_key", "agent_cloud".to_owned())
            }
            Principal::Node { id, .. } => ("node", id.to_string()),
            Principal::AgentTenant { via: AgentCredential::Open } | Principal::Anonymous => {
                ("anonymous", "anonymous".to_owned())
            }
        };
        Actor { kind: kind.to_owned(), id }
    }
}

#[cfg(test)]
#[path = "principal_tests.rs"]
mod tests;
