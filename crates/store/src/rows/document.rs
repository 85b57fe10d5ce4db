//! The row of a routing document.

use jiff::Timestamp;

use super::stored::row;

row! { "documents" =>
    /// A kept routing document, without its text.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DocumentRow {
        /// First 12 hex digits of its hash.
        pub revision: String,
        /// When it was first kept.
        pub created_at: Timestamp,
        /// When it was last made live.
        pub live_at: Timestamp,
    }
}
