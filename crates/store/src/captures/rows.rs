//! Rows of the capture index, and what a list of captures filters by.

use std::borrow::Cow;
use std::sync::Arc;

use crate::columns::{Columns, Written};
use crate::rows::Stored;
use crate::rows::stored::{Field, pair, row};
use crate::{Reach, Result};
use rerouter_base::id::{KeyId, RequestId, UserId};

row! { "captures" =>
    /// A capture in the index: what lists filter by. The capture itself lies in a segment.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CaptureRow {
        /// The order of ids is the order of time.
        pub id: RequestId,
        /// Microseconds since the epoch.
        pub created_at_us: i64 = "created_at",
        pub owner: UserId,
        pub key: Option<KeyId>,
        /// The alias that the client asked for.
        pub alias: Option<Arc<str>>,
        pub recipe: Option<Arc<str>>,
        /// The provider that answered.
        pub provider: Option<Arc<str>>,
        /// The model that answered.
        pub model: Option<Arc<str>>,
        /// The first provider of the plan.
        pub decided_provider: Option<Arc<str>>,
        /// The first model of the plan.
        pub decided_model: Option<Arc<str>>,
        /// The status that the client got.
        pub status: u16,
        /// How the request ended.
        pub state: Cow<'static, str>,
        pub replay_of: Option<RequestId>,
        pub shadow_of: Option<RequestId>,
    }
}

pair! {
    /// A range of bytes in a segment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ByteRange {
        pub offset: u64,
        pub length: u32,
    }
}

row! { "captures" =>
    /// Where a capture lies, and what its key derives from.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CaptureLocation {
        pub segment: i64,
        pub head: ByteRange = "head_at, head_len",
        /// `None` if the bodies are small and lie with the head, or if none were kept.
        pub bodies: Option<ByteRange> = "bodies_at, bodies_len",
        /// Salt of the capture's key; `None` if the capture is not encrypted. The salt is stored
        /// nowhere else: without this row the capture's bytes cannot be read.
        pub salt: Option<[u8; 16]>,
        /// The record of the head. Only an index that gateways share holds it too.
        pub head_record: Option<Arc<[u8]>> = "head",
    }
}

impl Field for ByteRange {
    fn read(columns: &mut Columns<'_>) -> Result<Self> {
        Ok(ByteRange { offset: columns.get()?, length: columns.get()? })
    }

    fn put<'a>(&'a self, values: &mut Vec<Written<'a>>) -> Result<()> {
        values.extend([Written::of(Some(&self.offset)), Written::of(Some(&self.length))]);
        Ok(())
    }
}

/// The columns of a capture, in the order of the table.
pub(crate) fn capture_columns(shared: bool) -> String {
    format!("{}, {}", CaptureRow::COLUMNS.join(", "), location_columns(shared, ""))
}

/// The columns of a location. Only an index that gateways share has the last column; `otherwise`
/// replaces it in other indexes.
pub(super) fn location_columns(shared: bool, otherwise: &str) -> String {
    let all = CaptureLocation::COLUMNS.join(", ");
    match shared {
        true => all,
        false => format!("{}{otherwise}", all.trim_end_matches(", head")),
    }
}

pub(crate) fn put_capture<'a>(
    (row, location): &'a (CaptureRow, CaptureLocation),
    shared: bool,
    values: &mut Vec<Written<'a>>,
) -> Result<()> {
    row.put(values)?;
    location.put(values)?;
    if !shared {
        values.pop();
    }
    Ok(())
}

row! { "segments" =>
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SegmentRow {
        pub number: i64,
        /// Time of its newest capture, in microseconds since the epoch.
        pub newest_us: i64 = "newest",
        /// Bytes that captures of the index take. The file may be longer.
        pub bytes: u64,
    }
}

/// A page of captures, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturePage {
    pub found: Vec<(RequestId, CaptureLocation)>,
    /// The next page begins after this id; `None` on the last page.
    pub next: Option<RequestId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shadows {
    #[default]
    Without,
    Only,
    With,
}

/// An unset field does not filter.
#[derive(Clone, Debug, Default)]
pub struct CaptureFilter {
    pub reach: Reach,
    pub key: Option<KeyId>,
    /// Inclusive, in microseconds since the epoch.
    pub since_us: Option<i64>,
    /// Exclusive, in microseconds since the epoch.
    pub until_us: Option<i64>,
    pub alias: Option<String>,
    pub recipe: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub decided_provider: Option<String>,
    pub decided_model: Option<String>,
    /// Ranges of statuses, both ends included; empty: all.
    pub statuses: Vec<(u16, u16)>,
    pub state: Option<String>,
    pub replay_of: Option<RequestId>,
    pub shadows: Shadows,
    /// Finds nothing if shadows are left out.
    pub shadow_of: Option<RequestId>,
}
