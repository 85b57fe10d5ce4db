//! Until when the nonces of each node's signatures may have been taken without being kept: a file of one size that is written in
//! place, so that it takes a mark also when the disk is full. It is what remains of those nonces after a restart.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::StoreError;
use crate::bounds;
use crate::id::NodeId;

/// A node's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMark {
    /// Whose.
    pub node: NodeId,
    /// Signatures made until then, in seconds since the epoch, may have been taken.
    pub until: i64,
}

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Of a copy of a mark: the length of the id and the id, the mark, and the checksum of both.
const ID: usize = 64;
const WRITTEN: usize = ID + 8 + 4;
/// A node's two copies, which are written in turn: one that breaks off leaves the other.
const SLOT: usize = 2 * SECTOR;
const SIZE: usize = bounds::NODES * SLOT;

/// The file. Blocking.
pub(super) struct Marks {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// None where it could not be made: then it is tried again.
    file: Option<File>,
    slots: HashMap<NodeId, Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    number: usize,
    /// The copy that holds it.
    copy: usize,
    until: i64,
}

impl Marks {
    /// Opens the file, or makes it where there is room. What is there has to be read: a mark that is not known opens what it
    /// closed.
    pub(super) fn open(path: PathBuf) -> Result<Marks, StoreError> {
        let (file, slots) = match File::options().read(true).write(true).open(&path) {
            Ok(file) => {
                let slots = read(&path, &file)?;
                (Some(file), slots)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (make(&path).ok(), HashMap::new())
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Marks { path, state: Mutex::new(State { file, slots }) })
    }

    /// All marks.
    pub(super) fn all(&self) -> Vec<NodeMark> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .slots
            .iter()
            .map(|(node, slot)| NodeMark { node: node.clone(), until: slot.until })
            .collect()
    }

    /// Moves a node's mark to `until`, durably; one that is there already stays.
    pub(super) fn put(&self, node: &NodeId, until: i64) -> Result<(), StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.slots.get(node).copied();
        if before.is_some_and(|before| before.until >= until) {
            return Ok(());
        }
        let next = match before {
            Some(before) => Slot { copy: 1 - before.copy, until, ..before },
            None => state.free(until).ok_or_else(|| {
                StoreError::unavailable("there is no room for another node's mark")
            })?,
        };
        let file = match state.file.take() {
            Some(file) => file,
            None => make(&self.path)?,
        };
        let place = u64::try_from(next.number * SLOT + next.copy * SECTOR).unwrap_or(u64::MAX);
        let written =
            file.write_all_at(&encode(node, until), place).and_then(|()| file.sync_data());
        state.file = Some(file);
        written?;
        state.slots.retain(|_, slot| slot.number != next.number);
        state.slots.insert(node.clone(), next);
        Ok(())
    }
}

impl State {
    /// A slot for a new mark: one that nobody has, else that of a mark which closes nothing any more.
    fn free(&self, until: i64) -> Option<Slot> {
        let taken = |number: usize| self.slots.values().any(|slot| slot.number == number);
        if let Some(number) = (0..bounds::NODES).find(|number| !taken(*number)) {
            return Some(Slot { number, copy: 0, until });
        }
        let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
        let oldest = self.slots.values().min_by_key(|slot| slot.until)?;
        // Nodes that were deleted; each of the others has a slot.
        (oldest.until < until.saturating_sub(4 * skew)).then_some(Slot {
            copy: 1 - oldest.copy,
            until,
            ..*oldest
        })
    }
}

/// Makes the file with all of its bytes in their places, under its name only when it is whole.
fn make(path: &Path) -> io::Result<File> {
    let draft = path.with_extension("new");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    let made = file
        .write_all_at(&vec![0; SIZE], 0)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, path));
    if let Err(error) = made {
        // It takes room that others need.
        let _left = std::fs::remove_file(&draft);
        return Err(error);
    }
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

fn read(path: &Path, file: &File) -> Result<HashMap<NodeId, Slot>, StoreError> {
    let mut bytes = vec![0; SIZE];
    let found = file.metadata()?.len();
    if found < SIZE as u64 {
        // Not mended here: for as long as a signature is good, what it held keeps one from being used again.
        return Err(StoreError::Damaged(format!(
            "{} has {found} bytes instead of {SIZE}; two minutes after the gateway last ran nothing in it is needed: take it away \
             then, and it is made again",
            path.display()
        )));
    }
    file.read_exact_at(&mut bytes, 0)?;
    let mut slots: HashMap<NodeId, Slot> = HashMap::new();
    for (number, slot) in bytes.chunks_exact(SLOT).enumerate() {
        let copies = slot.chunks_exact(SECTOR).enumerate();
        let newest = copies
            .filter_map(|(copy, bytes)| decode(bytes).map(|(node, until)| (until, copy, node)))
            .max_by_key(|found| found.0);
        if let Some((until, copy, node)) = newest {
            slots.insert(node, Slot { number, copy, until });
        }
    }
    Ok(slots)
}

fn encode(node: &NodeId, until: i64) -> Vec<u8> {
    let id = node.as_str().as_bytes();
    let mut bytes = vec![u8::try_from(id.len()).unwrap_or(u8::MAX)];
    bytes.extend_from_slice(id);
    bytes.resize(ID, 0);
    bytes.extend_from_slice(&until.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(NodeId, i64)> {
    let (told, checksum) = bytes.get(..WRITTEN)?.split_at(WRITTEN - 4);
    if crc32fast::hash(told).to_le_bytes() != *checksum {
        return None;
    }
    let (id, until) = told.split_at(ID);
    let id = id.get(1..1 + usize::from(*id.first()?))?;
    Some((
        NodeId::parse(std::str::from_utf8(id).ok()?)?,
        i64::from_le_bytes(until.try_into().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Random;

    fn node(number: u64) -> NodeId {
        NodeId::new(jiff::Timestamp::from_second(1_764_000_000).unwrap(), &Random::seeded(number))
    }

    #[test]
    fn a_mark_only_rises_and_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks");
        let marks = Marks::open(path.clone()).unwrap();
        let (a, b) = (node(1), node(2));
        for until in [10, 12, 11] {
            marks.put(&a, until).unwrap();
        }
        marks.put(&b, 5).unwrap();
        let all = |marks: &Marks| {
            let mut all = marks.all();
            all.sort_by_key(|mark| mark.until);
            all
        };
        let written = [NodeMark { node: b, until: 5 }, NodeMark { node: a.clone(), until: 12 }];
        assert_eq!(all(&marks), written);
        assert_eq!(all(&Marks::open(path.clone()).unwrap()), written);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE as u64, "it never grows");
        // A write that broke off leaves what was before.
        let again = Marks::open(path.clone()).unwrap();
        let slot = again.state.lock().unwrap().slots[&a];
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[7; 20], (slot.number * SLOT + (1 - slot.copy) * SECTOR) as u64)
            .unwrap();
        assert_eq!(all(&Marks::open(path.clone()).unwrap()), written);
        again.put(&a, 20).unwrap();
        assert_eq!(all(&Marks::open(path).unwrap())[1].until, 20);
    }

    #[test]
    fn nodes_that_are_long_gone_leave_their_places_to_others_and_no_others_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks");
        let marks = Marks::open(path.clone()).unwrap();
        for number in 0..bounds::NODES {
            marks.put(&node(number as u64), 1_000 + number as i64).unwrap();
        }
        let one_more = node(10_000);
        assert!(marks.put(&one_more, 1_200).is_err(), "the oldest may still close something");
        marks.put(&one_more, 1_241).unwrap();
        let read = Marks::open(path).unwrap();
        assert_eq!(read.all().len(), bounds::NODES);
        let has = |id: &NodeId| read.all().iter().any(|mark| mark.node == *id);
        assert!(has(&one_more) && !has(&node(0)) && has(&node(1)));
    }

    #[test]
    fn what_could_not_be_made_is_made_when_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/marks");
        let marks = Marks::open(path.clone()).unwrap();
        assert!(marks.put(&node(1), 10).is_err());
        std::fs::create_dir(dir.path().join("none")).unwrap();
        marks.put(&node(1), 10).unwrap();
        assert_eq!(Marks::open(path.clone()).unwrap().all().len(), 1);
        std::fs::write(&path, b"short").unwrap();
        assert!(Marks::open(path).is_err(), "what is there has to be read");
    }
}
