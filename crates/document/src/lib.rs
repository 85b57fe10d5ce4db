//! Reads YAML documents by tables of keys. One pass finds every problem, with its place. The JSON
//! Schemas and the rows of the reference come from the same tables. Only this crate uses the YAML
//! parser.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]

mod diagnostics;
mod expand;
mod field;
pub mod kinds;
mod place;
mod schema;
mod suggest;
mod table;
mod tree;
mod units;
mod variables;

pub use diagnostics::{DOCUMENT_PROBLEMS, Diagnostics, Lookup, VariableReader};
pub use expand::{expand, expand_tree, matches_pattern};
pub use field::{Field, Section};
pub use place::{Finding, Located, Position};
pub use schema::{KeyEntry, keys, schema, schema_text};
pub use suggest::did_you_mean;
pub use table::{KeyTable, TableRow, ValueKind, object, whole};
pub use tree::{Parsed, TreeEntry, TreeNode, TreeValue, canonical, join, parse};
pub use variables::{is_by_name, placeholder};
