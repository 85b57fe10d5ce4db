//! Users.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page::object;
use crate::patch::{MergePatch, Patch};
use crate::{ShownSecret, Time};
use rerouter_base::id::UserId;
use rerouter_base::secret::Secret;
use rerouter_store::{Limits, Role, UserRow};

/// Limit on the characters in the name of a key or user.
pub const NAME_CHARS: usize = 128;
/// Limit on the bytes of a password, as hashing a long one is expensive.
pub(crate) const PASSWORD_BYTES: usize = 1_024;
/// Limit on the bytes of an e-mail address (RFC 5321 section 4.5.3.1.3).
pub const EMAIL_BYTES: usize = 254;

object!(UserObject "user");

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct UserRecord {
    pub object: UserObject,
    pub id: UserId,
    /// Null for the built-in user.
    pub email: Option<String>,
    pub name: Option<String>,
    pub role: Role,
    /// Null for the built-in user.
    pub created_at: Option<Time>,
    /// Sessions and keys of a disabled user are refused.
    pub disabled: bool,
    pub labels: BTreeMap<String, String>,
    pub limits: Limits,
}

impl From<&UserRow> for UserRecord {
    fn from(user: &UserRow) -> Self {
        let real = user.id != UserId::admin();
        UserRecord {
            object: UserObject::It,
            id: user.id.clone(),
            email: real.then(|| user.email.clone()),
            name: user.name.clone(),
            role: user.role,
            created_at: real.then(|| user.created_at.into()),
            disabled: user.disabled,
            labels: user.labels.clone(),
            limits: user.limits.clone(),
        }
    }
}

/// A new user.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    #[schemars(length(max = EMAIL_BYTES))]
    pub email: String,
    /// 8 to 1,024 bytes.
    #[schemars(length(max = PASSWORD_BYTES))]
    pub password: ShownSecret,
    #[schemars(length(min = 1, max = NAME_CHARS))]
    pub name: Option<String>,
    /// Default: `user`.
    pub role: Option<Role>,
    pub limits: Option<Limits>,
}

/// A merge patch of a user. Absent fields stay unchanged.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UserPatch {
    #[schemars(length(min = 1, max = NAME_CHARS))]
    pub name: Patch<String>,
    #[schemars(with = "Role")]
    pub role: Patch<Role>,
    #[schemars(with = "bool")]
    pub disabled: Patch<bool>,
    /// 8 to 1,024 bytes. Ends all sessions of the user.
    #[schemars(with = "String", length(max = PASSWORD_BYTES))]
    pub password: Patch<Secret>,
    /// Merged limit by limit; null removes a limit, or all of them. Applies from the next request.
    pub limits: Patch<MergePatch<Limits>>,
}
