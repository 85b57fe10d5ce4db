//! Groups of captures within a segment: what is pushed together, and how single captures are read out of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::format::{Fields, Kind};
use super::reader::{Damage, Found, Segment};
use super::writer::Writer;
use crate::bounds;
use crate::capture::prepare;
use crate::capture::record::{Bodies, Head};
use crate::id::RequestId;
use crate::store::{CaptureRow, Place};

/// A capture that is ready to be written.
pub struct Ready {
    /// What the index is told.
    pub row: CaptureRow,
    /// The head, as JSON.
    pub head: Vec<u8>,
    /// The bodies; empty where they are not kept.
    pub bodies: Bodies,
}

impl Ready {
    fn size(&self) -> usize {
        self.head.len() + self.bodies.request.len() + self.bodies.response.len()
    }
}

/// What a block of rows says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Rows {
    /// Where the heads are.
    pub heads: u64,
    /// Where the bodies are, if any of the captures has one.
    pub bodies: Option<u64>,
    /// The captures, in the order of their heads and bodies.
    pub rows: Vec<CaptureRow>,
    /// Heads speak of bodies that nothing leads to.
    #[serde(skip)]
    pub lost: bool,
}

impl Rows {
    /// Reads the block of rows at `offset`.
    pub fn read(segment: &Segment, offset: u64) -> Result<Self, Damage> {
        let (_, raw) = segment.block(offset, Kind::Rows)?;
        serde_json::from_slice(&raw).map_err(|_| Damage::Bytes("its rows do not read"))
    }

    /// The same where that is damaged, from heads that are not, and the bodies that lie behind them.
    pub fn of_heads(segment: &Segment, heads: u64, bodies: Option<u64>) -> Result<Self, Damage> {
        let parts = Parts::heads(segment, heads)?;
        let mut lost = false;
        let read = (0..).map_while(|position| parts.head(position)).map(|head| {
            let head = serde_json::from_slice::<Head>(&head)
                .ok()
                .filter(|head| head.version <= Head::VERSION);
            let head = head.ok_or(Damage::Bytes("a head of it does not read"))?;
            lost |= bodies.is_none() && head.request_captured;
            Ok(prepare::row(&head))
        });
        let rows = read.collect::<Result<_, Damage>>()?;
        Ok(Rows { heads, bodies, rows, lost })
    }

    /// Whether rows that can be read say of the heads at `heads` that there never were bodies of theirs: all were empty.
    pub fn tell_of_no_bodies(segment: &Segment, heads: u64) -> bool {
        let behind = segment.block_head(heads).map(|head| head.end(heads));
        behind
            .and_then(|behind| Rows::read(segment, behind))
            .is_ok_and(|rows| rows.heads == heads && rows.bodies.is_none())
    }

    /// Its rows with their places.
    pub fn placed(self, segment: i64) -> impl Iterator<Item = (CaptureRow, Place)> {
        let (heads, bodies) = (self.heads, self.bodies);
        let place = move |position| Place { segment, heads, bodies, position };
        self.rows.into_iter().zip(0..).map(move |(row, position)| (row, place(position)))
    }
}

/// Blocks of heads, with those of bodies that lie next to them, as a scan comes upon them: where their rows are damaged, that
/// is how they are found.
#[derive(Default)]
pub struct Groups(BTreeMap<u64, (Option<u64>, u64)>);

impl Groups {
    /// Takes what a scan found.
    pub fn found(&mut self, Found { offset, head }: &Found) {
        match (head.kind, self.0.values_mut().next_back()) {
            (Kind::Heads, _) => _ = self.0.insert(*offset, (None, head.end(*offset))),
            // Anywhere else they are those of heads that were not found.
            (Kind::Bodies, Some((bodies @ None, end))) if end == offset => *bodies = Some(*offset),
            _ => {}
        }
    }

    /// There are rows that lead to these heads.
    pub fn told(&mut self, heads: u64) {
        self.0.remove(&heads);
    }

    /// Those before `end` that no rows lead to: where the heads are, and the bodies.
    pub fn untold(&self, end: u64) -> impl Iterator<Item = (u64, Option<u64>)> {
        self.0.range(..end).map(|(heads, (bodies, _))| (*heads, *bodies))
    }
}

/// A capture that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grave {
    /// Which.
    pub id: RequestId,
    /// When, in microseconds since the epoch.
    pub at_us: i64,
}

/// Reads the block of graves at `offset`.
pub fn read_graves(segment: &Segment, offset: u64) -> Result<Vec<Grave>, Damage> {
    let (_, raw) = segment.block(offset, Kind::Graves)?;
    serde_json::from_slice(&raw).map_err(|_| Damage::Bytes("its graves do not read"))
}

/// Pushes a block of graves.
pub fn push_graves(writer: &mut Writer, graves: &[Grave]) -> std::io::Result<()> {
    let raw = serde_json::to_vec(graves)?;
    writer.push(Kind::Graves, u32::try_from(graves.len()).unwrap_or(u32::MAX), &raw).map(|_| ())
}

/// Pushes captures in groups of about [`bounds::CAPTURE_BLOCK`] bytes, [`bounds::HEADS_BLOCK`] of them heads; gives what the index is to be told. What a commit
/// would write is committed whenever it is [`bounds::CAPTURE_COMMIT`] bytes, so that it is never held twice for long.
pub fn push(
    writer: &mut Writer,
    captures: impl IntoIterator<Item = Ready>,
) -> std::io::Result<Vec<(CaptureRow, Place)>> {
    let mut pushed = Vec::new();
    let (mut group, mut size, mut heads) = (Vec::new(), 0, 0);
    for capture in captures {
        size += capture.size();
        heads += capture.head.len();
        group.push(capture);
        if size >= bounds::CAPTURE_BLOCK || heads >= bounds::HEADS_BLOCK {
            pushed.extend(push_group(writer, std::mem::take(&mut group), size)?);
            (size, heads) = (0, 0);
            if writer.waiting() >= bounds::CAPTURE_COMMIT {
                writer.commit()?;
            }
        }
    }
    if !group.is_empty() {
        pushed.extend(push_group(writer, group, size)?);
    }
    Ok(pushed)
}

/// Pushes one group, of `size` bytes in all.
pub fn push_group(
    writer: &mut Writer,
    group: Vec<Ready>,
    size: usize,
) -> std::io::Result<impl Iterator<Item = (CaptureRow, Place)> + use<>> {
    let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
    let mut raw = Vec::with_capacity(size + 8 * group.len());
    group.iter().for_each(|capture| raw.extend_from_slice(&length(&capture.head)));
    group.iter().for_each(|capture| raw.extend_from_slice(&capture.head));
    let heads = writer.push(Kind::Heads, count, &raw)?;
    let mut bodies = None;
    if group.iter().any(|capture| capture.bodies != Bodies::default()) {
        raw.clear();
        for Bodies { request, response } in group.iter().map(|capture| &capture.bodies) {
            raw.extend_from_slice(&length(request));
            raw.extend_from_slice(&length(response));
        }
        for Bodies { request, response } in group.iter().map(|capture| &capture.bodies) {
            raw.extend_from_slice(request);
            raw.extend_from_slice(response);
        }
        bodies = Some(writer.push(Kind::Bodies, count, &raw)?);
    }
    let rows = Rows {
        heads,
        bodies,
        rows: group.into_iter().map(|capture| capture.row).collect(),
        lost: false,
    };
    push_rows(writer, &rows)?;
    Ok(rows.placed(writer.head().number))
}

/// Pushes the rows that end a group.
pub fn push_rows(writer: &mut Writer, rows: &Rows) -> std::io::Result<()> {
    let count = u32::try_from(rows.rows.len()).unwrap_or(u32::MAX);
    writer.push(Kind::Rows, count, &serde_json::to_vec(rows)?).map(|_| ())
}

fn length(part: &[u8]) -> [u8; 4] {
    // Blocks are refused long before a part of one is this long.
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// A block of heads or bodies, taken apart.
pub struct Parts {
    raw: Bytes,
    /// Where each part ends; the first begins at `begin`.
    ends: Vec<usize>,
    begin: usize,
    /// Parts of one capture.
    each: usize,
}

impl Parts {
    /// The heads of the block at `offset`.
    pub fn heads(segment: &Segment, offset: u64) -> Result<Self, Damage> {
        Parts::read(segment, offset, Kind::Heads, 1)
    }

    /// The bodies of the block at `offset`.
    pub fn bodies(segment: &Segment, offset: u64) -> Result<Self, Damage> {
        Parts::read(segment, offset, Kind::Bodies, 2)
    }

    fn read(segment: &Segment, offset: u64, kind: Kind, each: usize) -> Result<Self, Damage> {
        let (head, raw) = segment.block(offset, kind)?;
        Parts::split(raw.into(), head.count as usize, each)
            .ok_or(Damage::Bytes("it is not what was pushed"))
    }

    /// Takes a block of `count` captures apart; `None` unless every byte is accounted for.
    fn split(raw: Bytes, count: usize, each: usize) -> Option<Self> {
        let parts = count
            .checked_mul(each)
            .filter(|parts| parts.checked_mul(4).is_some_and(|begin| begin <= raw.len()))?;
        let mut lengths = Fields(&raw);
        let (begin, mut ends) = (parts * 4, Vec::with_capacity(parts));
        let mut end = begin;
        for _ in 0..parts {
            end = end.checked_add(u32::from_be_bytes(lengths.take::<4>()?) as usize)?;
            ends.push(end);
        }
        (end == raw.len()).then_some(Parts { raw, ends, begin, each })
    }

    fn part(&self, index: usize) -> Option<Bytes> {
        let from = index
            .checked_sub(1)
            .map_or(Some(self.begin), |before| self.ends.get(before).copied())?;
        Some(self.raw.slice(from..*self.ends.get(index)?))
    }

    /// The head at `position`.
    pub fn head(&self, position: u32) -> Option<Bytes> {
        self.part(position as usize).filter(|_| self.each == 1)
    }

    /// The bodies at `position`, which hold on to the block.
    pub fn bodies_at(&self, position: u32) -> Option<Bodies> {
        let index = (position as usize).checked_mul(2)?;
        Some(Bodies { request: self.part(index)?, response: self.part(index + 1)? })
            .filter(|_| self.each == 2)
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
