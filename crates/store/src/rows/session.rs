//! The row of a login session.

use jiff::Timestamp;

use super::stored::row;
use rerouter_base::id::{SessionId, UserId};

row! { "sessions" shows id, user =>
    #[derive(Clone, PartialEq, Eq)]
    pub struct SessionRow {
        pub id: SessionId,
        pub user: UserId = "\"user\"",
        /// Digest of the cookie's value.
        pub cookie_digest: [u8; 32],
        /// Digest of the Bearer token, which differs from the cookie's value.
        pub token_digest: [u8; 32],
        pub created_at: Timestamp,
        pub expires_at: Timestamp,
        /// When it was last used. The stored value lags behind.
        pub last_seen: Timestamp,
    }
}
