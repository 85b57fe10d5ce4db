//! [`Reach`], as a value and as a condition of statements.

use std::collections::BTreeSet;
use std::sync::Arc;

use rerouter_base::id::{KeyId, UserId};

/// Whose captures, usage and keys a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Those of all users.
    #[default]
    All,
    /// All of one user.
    Owner(UserId),
    /// Those of one user that were made with one of these keys, and the keys themselves.
    Line(UserId, Arc<BTreeSet<KeyId>>),
}

impl Reach {
    pub fn owner(&self) -> Option<&UserId> {
        match self {
            Reach::All => None,
            Reach::Owner(owner) | Reach::Line(owner, _) => Some(owner),
        }
    }

    /// Whether it includes something that belongs to `owner` and was made with `key`.
    pub fn covers(&self, owner: &UserId, key: Option<&KeyId>) -> bool {
        match self {
            Reach::All => true,
            Reach::Owner(own) => own == owner,
            Reach::Line(own, keys) => own == owner && key.is_some_and(|key| keys.contains(key)),
        }
    }

    /// The keys to which it is limited, as a JSON list for [`in_list`].
    pub(super) fn keys(&self) -> Option<String> {
        let Reach::Line(_, keys) = self else { return None };
        // An empty text is no JSON list, so the statement fails.
        Some(serde_json::to_string(&**keys).unwrap_or_default())
    }
}

/// The condition that a column has one of the texts of a JSON list, which is the value of `place`.
pub(super) fn in_list(column: &str, place: &str, shared: bool) -> String {
    let list = match shared {
        true => format!("json_array_elements_text(CAST(CAST({place} AS TEXT) AS JSON))"),
        false => format!("value FROM json_each({place})"),
    };
    format!("{column} IN (SELECT {list})")
}
