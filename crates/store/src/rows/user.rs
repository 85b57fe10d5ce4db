//! The row of a user.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use crate::columns::Columns;
use crate::sql::Row;
use crate::{Limits, StoreError};
use rerouter_base::id::UserId;

rerouter_base::words! {
    /// The role of a user.
    pub enum Role {
        /// Sees own keys and captures only.
        User = "user",
        Admin = "admin",
    }
}

/// A user, who can log in.
#[derive(Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: UserId,
    pub email: String,
    pub name: Option<String>,
    pub role: Role,
    /// The password's Argon2id hash in PHC form.
    pub password: String,
    /// Sessions and keys of a disabled user are refused.
    pub disabled: bool,
    /// For conditions of routing rules.
    pub labels: BTreeMap<String, String>,
    /// Limits of all requests of the user together.
    pub limits: Limits,
    pub created_at: Timestamp,
}

impl fmt::Debug for UserRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRow")
            .field("id", &self.id)
            .field("role", &self.role)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

pub(crate) fn user(row: &Row<'_>) -> Result<UserRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(UserRow {
        id: UserId::known(columns.text()?),
        email: columns.get()?,
        name: columns.maybe()?,
        role: columns.word(Role::parse)?,
        password: columns.get()?,
        disabled: columns.get()?,
        labels: columns.json()?,
        limits: columns.json()?,
        created_at: columns.get()?,
    })
}
