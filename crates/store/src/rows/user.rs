//! The row of a user.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::stored::row;
use crate::Limits;
use crate::columns::{json_columns, word_columns};
use rerouter_base::id::UserId;

rerouter_base::words! {
    /// The role of a user.
    pub enum Role {
        /// Sees own keys and captures only.
        User = "user",
        Admin = "admin",
    }
}

word_columns! { Role }
json_columns! { Limits }

row! { "users" shows id, role, disabled =>
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
}

impl UserRow {
    /// An enabled user without a name, labels and limits.
    pub fn new(id: UserId, email: String, role: Role, password: String, at: Timestamp) -> Self {
        UserRow {
            id,
            email,
            name: None,
            role,
            password,
            disabled: false,
            labels: BTreeMap::new(),
            limits: Limits::default(),
            created_at: at,
        }
    }
}
