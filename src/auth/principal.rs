//! Who a request is, and the questions that endpoints ask about that.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::signature::Signed;
use crate::id::{NodeId, SessionId, UserId};
use crate::store::{Actor, KeyRow, Role, UserRow};

/// What a session may do on ROUTER, and a key unless its maker said otherwise.
pub const DEFAULT_SCOPES: [&str; 3] = ["inference", "replay", "keys"];
/// What a session may do on PIN, and a key unless its maker said otherwise.
pub const PIN_SCOPES: [&str; 1] = ["user"];
/// What AGENT's tenant may do, and a key unless its maker said otherwise.
pub const AGENT_SCOPES: [&str; 2] = ["agents", "keys"];
/// The scope that makes a key of an admin act as that admin.
pub const ADMIN_SCOPE: &str = "admin";
/// What only an admin grants. It holds for as long as whoever granted it is one: no key has more than its creator.
pub const RESERVED_SCOPES: [&str; 3] = ["evaluate", "config", ADMIN_SCOPE];

/// The label of a key that says what is kept of its requests; only an admin sets labels.
pub const CAPTURE_LABEL: &str = "capture";

/// What is kept of a key's requests, where captures are kept at all; the greater, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// Head and bodies: `on`, and where nothing is said.
    Whole,
    /// No bodies: `heads`.
    Heads,
    /// No capture: `off`.
    Nothing,
}

impl Kept {
    /// Reads the value of [`CAPTURE_LABEL`].
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "on" => Some(Kept::Whole),
            "heads" => Some(Kept::Heads),
            "off" => Some(Kept::Nothing),
            _ => None,
        }
    }

    /// What the labels of a key say.
    pub fn of(labels: &BTreeMap<String, String>) -> Self {
        labels.get(CAPTURE_LABEL).and_then(|word| Kept::parse(word)).unwrap_or(Kept::Whole)
    }
}

/// Who a request is, after authentication.
#[derive(Clone, Debug)]
pub enum Principal {
    /// The holder of `ADMIN_API_KEY`: the built-in `usr_admin`.
    Admin,
    /// A user, or the built-in one by a key that it made.
    User {
        /// As the tables had them at that moment.
        user: Arc<UserRow>,
        /// By what.
        via: Credential,
    },
    /// The one tenant of AGENT.
    AgentTenant {
        /// By what.
        via: AgentCredential,
    },
    /// A node, by its signature.
    Node {
        /// Which.
        id: NodeId,
        /// What it showed; the digest in it is still to be held against the body.
        signed: Arc<Signed>,
    },
    /// Nobody in particular, on open routes.
    Anonymous,
}

/// How a user showed who they are.
#[derive(Clone, Debug)]
pub enum Credential {
    /// By a key of the interface.
    Key(Arc<KeyRow>),
    /// By a login, cookie or token.
    Session(SessionId),
}

/// How AGENT's tenant showed itself.
#[derive(Clone, Debug)]
pub enum AgentCredential {
    /// By a stored key.
    Key(Arc<KeyRow>),
    /// By `AGENT_CLOUD_API_KEY`.
    CloudKey,
    /// Not at all: AGENT is open.
    Open,
}

impl Principal {
    /// The user on whose behalf it acts.
    pub fn user_id(&self) -> Option<UserId> {
        match self {
            Principal::Admin => Some(UserId::admin()),
            Principal::User { user, .. } => Some(user.id.clone()),
            Principal::AgentTenant { .. } | Principal::Node { .. } | Principal::Anonymous => None,
        }
    }

    /// Whether it may do everything: `ADMIN_API_KEY`, an admin's session, an admin's key with the scope `admin`.
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

    /// The key that it came by.
    pub fn key(&self) -> Option<&KeyRow> {
        match self {
            Principal::User { via: Credential::Key(key), .. }
            | Principal::AgentTenant { via: AgentCredential::Key(key) } => Some(key),
            _ => None,
        }
    }

    /// What is kept of its requests.
    pub fn kept(&self) -> Kept {
        self.key().map_or(Kept::Whole, |key| Kept::of(&key.labels))
    }

    /// Whether the `limits.models` of its key and of its user allow the name.
    pub fn may_ask_for(&self, model: &str) -> bool {
        let user = match self {
            Principal::User { user, .. } => user.limits.allows_model(model),
            _ => true,
        };
        user && self.key().is_none_or(|key| key.limits.allows_model(model))
    }

    /// Whether it may use what `scope` stands for.
    pub fn has_scope(&self, scope: &str) -> bool {
        if self.is_admin() || scope == ADMIN_SCOPE {
            // A key keeps its scope `admin` when its user is none any more; it means nothing then.
            return self.is_admin();
        }
        match self {
            Principal::User { via: Credential::Session(_), .. } => {
                DEFAULT_SCOPES.contains(&scope) || PIN_SCOPES.contains(&scope)
            }
            Principal::AgentTenant { via: AgentCredential::CloudKey | AgentCredential::Open } => {
                AGENT_SCOPES.contains(&scope)
            }
            _ => self.key().is_some_and(|key| key.scopes.iter().any(|own| own == scope)),
        }
    }

    /// Who it is in records of what was done.
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
