//! Pages of lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limit on the entries of a page.
pub const PAGE_MAX: usize = 100;
/// Default number of entries on a page.
const PAGE_DEFAULT: usize = 20;

/// Declares the type of a record's member `object`, which has a single value.
macro_rules! object {
    ($name:ident $word:literal) => {
        #[doc = concat!("`", $word, "`")]
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            serde::Serialize,
            serde::Deserialize,
            schemars::JsonSchema,
        )]
        #[schemars(inline, description = "")]
        pub enum $name {
            #[default]
            #[serde(rename = $word)]
            It,
        }
    };
}
pub(crate) use object;

object!(ListObject "list");

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List", deny_unknown_fields)]
pub struct Page<T> {
    pub object: ListObject,
    pub data: Vec<T>,
    pub has_more: bool,
    /// Value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of `found`, which has one entry more than `limit` if further pages follow. `id`
    /// returns the cursor of an entry.
    pub fn of(mut found: Vec<T>, limit: usize, id: impl Fn(&T) -> String) -> Self {
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(id);
        Page { object: ListObject::It, data: found, has_more, next }
    }
}

/// Query of a list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// Maximum number of entries of the page.
    #[serde(default = "page_default")]
    #[schemars(range(min = 1, max = PAGE_MAX))]
    pub limit: usize,
    /// `next` of the previous page.
    pub after: Option<String>,
}

/// The default of `limit`.
pub(crate) const fn page_default() -> usize {
    PAGE_DEFAULT
}

/// Query of an operation that takes no parameter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}
