//! Accounts, their sessions, and the version of a gateway.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::user::{EMAIL_BYTES, NAME_CHARS, PASSWORD_BYTES};
use crate::{ShownSecret, Time};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::secret::Secret;
use rerouter_store::{Role, UserRow};

/// The caller.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct User {
    pub id: UserId,
    /// Null for the built-in user.
    pub email: Option<String>,
    pub name: Option<String>,
    pub role: Role,
    /// Null for the built-in user.
    pub created_at: Option<Time>,
    /// How the caller is authenticated; only in `GET /v1/auth/me`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
}

impl From<&UserRow> for User {
    fn from(user: &UserRow) -> Self {
        let real = user.id != UserId::admin();
        User {
            id: user.id.clone(),
            email: real.then(|| user.email.clone()),
            name: user.name.clone(),
            role: user.role,
            created_at: real.then(|| user.created_at.into()),
            auth: None,
        }
    }
}

rerouter_base::words! {
    /// Kind of a credential.
    pub enum CredentialKind {
        ApiKey = "api_key",
        Session = "session",
        AdminKey = "admin_key",
    }
}

/// How a caller is authenticated.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Authentication {
    #[serde(rename = "type")]
    pub kind: CredentialKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
}

/// An account to register.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Registration")]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    #[schemars(length(max = EMAIL_BYTES))]
    pub email: String,
    /// 8 to 1,024 bytes.
    #[schemars(with = "String", length(max = PASSWORD_BYTES))]
    pub password: Secret,
    #[schemars(length(min = 1, max = NAME_CHARS))]
    pub name: Option<String>,
}

/// A registered account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Registered {
    pub user: User,
}

/// A login.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub email: String,
    #[schemars(with = "String")]
    pub password: Secret,
}

rerouter_base::words! {
    /// Scheme of a token in `Authorization`.
    pub enum TokenType {
        Bearer = "Bearer",
    }
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LoggedIn {
    pub user: User,
    #[schemars(extend("pattern" = "^ses_"))]
    pub token: ShownSecret,
    pub token_type: TokenType,
    pub expires_at: Time,
}

/// A change of the caller's password.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    #[schemars(with = "String")]
    pub current_password: Secret,
    /// 8 to 1,024 bytes.
    #[schemars(with = "String", length(max = PASSWORD_BYTES))]
    pub new_password: Secret,
}

/// What a gateway is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Version {
    /// `rerouter`.
    pub name: String,
    pub version: String,
    pub commit: String,
    pub api: Vec<String>,
}
