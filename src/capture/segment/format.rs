//! The bytes of a segment: its head, and the heads of its blocks. All numbers are big-endian.

use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::id::Random;
use crate::secret::{self, BlockKey, SecretBytes};

const MAGIC: &[u8; 8] = b"RRCAPSEG";
const BLOCK_MAGIC: [u8; 4] = *b"RRb1";
/// The version that this build writes, and the newest that it reads.
const VERSION: u16 = 1;
/// A sealed data key: nonce, 32 bytes, tag.
const WRAPPED: usize = 60;
/// Bytes of one copy of a segment's head.
const COPY: usize = 8 + 2 + 2 + 8 + 8 + 8 + WRAPPED + 4;
/// Where the first block begins: after two copies of the head, so that one damaged byte does not cost a segment.
pub const FIRST: u64 = 2 * COPY as u64;
/// Bytes of a block's head.
pub const BLOCK_HEAD: usize = 36;
/// Those of them that a sealed block is bound to.
const BOUND: usize = 28;
/// Most raw bytes of a block: what the queue may hold, and as much again. A length beyond it is no length.
pub const BLOCK_MOST: usize = 256 << 20;

/// The head of a segment: what it takes to read its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// Its number, which its file is named by; later segments have larger ones.
    pub number: i64,
    /// The segment that this one was made from and stands for; 0: none.
    pub replaces: i64,
    /// Microseconds since the epoch.
    pub created_us: i64,
    /// The sealed data key; `None` where blocks are in the clear.
    wrapped: Option<[u8; WRAPPED]>,
}

impl FileHead {
    /// The head of a new segment and, if its blocks are to be sealed, a new data key.
    pub fn make(
        number: i64,
        replaces: i64,
        created_us: i64,
        seal: Option<(&SecretBytes, &Random)>,
    ) -> Option<(Self, Option<BlockKey>)> {
        let mut head = FileHead { number, replaces, created_us, wrapped: None };
        let Some((master, random)) = seal else { return Some((head, None)) };
        let mut data_key = [0; 32];
        random.fill(&mut data_key);
        let data_key = SecretBytes::new(data_key);
        let wrapped = secret::seal(master, &number.to_be_bytes(), data_key.expose(), random)?;
        head.wrapped = Some(wrapped.try_into().ok()?);
        Some((head, Some(BlockKey::new(&data_key)?)))
    }

    /// The data key; the outer `None` when it does not open, the inner where there is none.
    pub fn key(&self, master: &SecretBytes) -> Option<Option<BlockKey>> {
        let Some(wrapped) = &self.wrapped else { return Some(None) };
        let bytes: [u8; 32] =
            secret::open(master, &self.number.to_be_bytes(), wrapped)?.try_into().ok()?;
        Some(Some(BlockKey::new(&SecretBytes::new(bytes))?))
    }

    /// Both copies.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * COPY);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&u16::from(self.wrapped.is_some()).to_be_bytes());
        for number in [self.number, self.replaces, self.created_us] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.wrapped.unwrap_or([0; WRAPPED]));
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out.extend_from_within(..);
        out
    }

    /// Reads whichever copy is whole.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut copies = bytes.chunks_exact(COPY).take(2).map(FileHead::decode_copy);
        let first = copies.next().ok_or("too short for a segment")?;
        first.or_else(|why| copies.next().unwrap_or(Err(why)))
    }

    fn decode_copy(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(bytes);
        let magic = fields.take::<8>();
        let version = fields.take::<2>().map(u16::from_be_bytes);
        let flags = fields.take::<2>().map(u16::from_be_bytes);
        let [number, replaces, created_us] =
            [(); 3].map(|()| fields.take::<8>().map(i64::from_be_bytes));
        let wrapped = fields.take::<WRAPPED>();
        let sum = fields.take::<4>().map(u32::from_be_bytes);
        if magic.as_ref() != Some(MAGIC) || sum != bytes.get(..COPY - 4).map(crc32fast::hash) {
            return Err("no head of a segment");
        }
        if version.is_none_or(|version| version > VERSION) {
            return Err("a segment of a newer build");
        }
        let cut = "too short for a segment";
        Ok(FileHead {
            number: number.ok_or(cut)?,
            replaces: replaces.ok_or(cut)?,
            created_us: created_us.ok_or(cut)?,
            wrapped: wrapped.filter(|_| flags == Some(1)),
        })
    }
}

/// The file of a segment.
pub fn path(dir: &Path, number: i64) -> PathBuf {
    dir.join(format!("{number:016x}.seg"))
}

/// Whether these bytes, all of a file, are of a segment that was begun and never had a block: its process ended, or the disk
/// was full.
pub fn is_begun(bytes: &[u8]) -> bool {
    let head = bytes.iter().zip(MAGIC).all(|(byte, magic)| byte == magic);
    // A loss of power leaves zeros where a file had its length already.
    bytes.len() as u64 <= FIRST && (head || bytes.iter().all(|byte| *byte == 0))
}

/// The number of a segment, if a file of this name is one.
pub fn number(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?, 16).ok()
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Heads of captures.
    Heads = 1,
    /// Their bodies.
    Bodies = 2,
    /// What the index is told of them, and where both are.
    Rows = 3,
    /// Captures that were deleted.
    Graves = 4,
    /// Nothing: the segment is closed.
    End = 5,
}

/// The head of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// What is in it.
    pub kind: Kind,
    /// Whether it is compressed.
    pub compressed: bool,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Entries in it.
    pub count: u32,
    /// Bytes of it as they were.
    pub raw: u32,
    /// Bytes of it as they are kept.
    pub stored: u32,
    /// Its number, which no other block under the same key has; it makes the nonce.
    pub number: u64,
    /// Checksum of the kept bytes.
    pub sum: u32,
}

impl BlockHead {
    /// The head as kept at `offset` of the segment `segment`; anywhere else it is none.
    pub fn encode(&self, segment: i64, offset: u64) -> [u8; BLOCK_HEAD] {
        let bound = self.bound();
        let sum = head_sum(segment, offset, &bound, self.sum);
        let mut out = [0; BLOCK_HEAD];
        let bytes = bound.into_iter().chain(self.sum.to_be_bytes()).chain(sum.to_be_bytes());
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out
    }

    fn bound(&self) -> [u8; BOUND] {
        let flags = u8::from(self.compressed) | u8::from(self.sealed) << 1;
        let mut out = [0; BOUND];
        let numbers = [self.count, self.raw, self.stored].into_iter().flat_map(u32::to_be_bytes);
        let bytes = BLOCK_MAGIC
            .into_iter()
            .chain([self.kind as u8, flags, 0, 0])
            .chain(numbers)
            .chain(self.number.to_be_bytes());
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out
    }

    /// What the seal is bound to: the place of the block, and its head.
    pub fn context(&self, segment: i64, offset: u64) -> Vec<u8> {
        [&segment.to_be_bytes()[..], &offset.to_be_bytes(), &self.bound()].concat()
    }

    /// Reads the head at `offset`; `None` unless every byte of it is right, and there.
    pub fn decode(bytes: &[u8], segment: i64, offset: u64) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.take::<4>()?;
        let [kind, flags, _, _] = fields.take::<4>()?;
        let [count, raw, stored] = [(); 3].map(|()| fields.take::<4>().map(u32::from_be_bytes));
        let number = u64::from_be_bytes(fields.take::<8>()?);
        let sum = u32::from_be_bytes(fields.take::<4>()?);
        let own = u32::from_be_bytes(fields.take::<4>()?);
        let kinds = [Kind::Heads, Kind::Bodies, Kind::Rows, Kind::Graves, Kind::End];
        let head = BlockHead {
            kind: kinds.into_iter().find(|known| *known as u8 == kind)?,
            compressed: flags & 1 != 0,
            sealed: flags & 2 != 0,
            count: count?,
            raw: raw?,
            stored: stored?,
            number,
            sum,
        };
        let right = magic == BLOCK_MAGIC
            && own == head_sum(segment, offset, &bytes.first_chunk::<BOUND>().copied()?, sum);
        (right && head.raw as usize <= BLOCK_MOST && head.stored as usize <= BLOCK_MOST)
            .then_some(head)
    }

    /// Where the next block begins.
    pub fn end(&self, offset: u64) -> u64 {
        offset + BLOCK_HEAD as u64 + u64::from(self.stored)
    }
}

/// What every block's head begins with.
pub fn block_magic() -> &'static [u8] {
    &BLOCK_MAGIC
}

fn head_sum(segment: i64, offset: u64, bound: &[u8], sum: u32) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&segment.to_be_bytes());
    hasher.update(&offset.to_be_bytes());
    hasher.update(bound);
    hasher.update(&sum.to_be_bytes());
    hasher.finalize()
}

/// Takes fields off the front of bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_from_either_copy_and_a_newer_one_is_refused() {
        let master = SecretBytes::new([1; 32]);
        for seal in [None, Some((&master, &Random::System))] {
            let (head, _) = FileHead::make(7, 3, 11, seal).unwrap();
            let bytes = head.encode();
            assert_eq!(bytes.len() as u64, FIRST);
            for at in 0..bytes.len() {
                let mut bent = bytes.clone();
                bent[at] ^= 1;
                assert_eq!(FileHead::decode(&bent).as_ref(), Ok(&head), "{at}");
                bent[(at + COPY) % (2 * COPY)] ^= 1;
                assert!(FileHead::decode(&bent).is_err());
            }
            assert_eq!(head.key(&master).unwrap().is_some(), seal.is_some());
            assert_eq!(head.key(&SecretBytes::new([2; 32])).is_some(), seal.is_none());
            let mut newer = bytes[..COPY - 4].to_vec();
            newer[9] += 1;
            newer.extend_from_slice(&crc32fast::hash(&newer).to_be_bytes());
            assert_eq!(FileHead::decode(&newer), Err("a segment of a newer build"));
        }
        assert!(FileHead::decode(&[]).is_err());
    }

    #[test]
    fn a_head_of_a_block_is_right_in_its_place_only() {
        let head = BlockHead {
            kind: Kind::Rows,
            compressed: true,
            sealed: false,
            count: 5,
            raw: 6,
            stored: 7,
            number: 8,
            sum: 9,
        };
        let bytes = head.encode(1, 200);
        assert_eq!(BlockHead::decode(&bytes, 1, 200), Some(head));
        assert_eq!(
            (BlockHead::decode(&bytes, 2, 200), BlockHead::decode(&bytes, 1, 201)),
            (None, None)
        );
        for at in 0..bytes.len() {
            let mut bent = bytes;
            bent[at] ^= 4;
            assert_eq!(BlockHead::decode(&bent, 1, 200), None, "{at}");
            assert_eq!(BlockHead::decode(&bytes[..at], 1, 200), None);
        }
    }

    #[test]
    fn files_are_named_by_their_numbers() {
        assert_eq!(
            number(path(Path::new("/d"), 77).file_name().unwrap().to_str().unwrap()),
            Some(77)
        );
        assert_eq!(
            (number("4d.seg"), number("000000000000004d.new"), number("lock")),
            (None, None, None)
        );
    }
}
