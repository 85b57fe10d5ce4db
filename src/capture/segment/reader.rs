//! A segment that is read: one block, or all of them in turn. What is damaged costs what it holds and nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::format::{self, BLOCK_HEAD, BlockHead, FIRST, FileHead, Kind};
use crate::secret::{BlockKey, SecretBytes};

/// Why something of a segment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file could not be read.
    #[error("{0}")]
    Io(io::Error),
    /// Its bytes are not what was written.
    #[error("{0}")]
    Bytes(&'static str),
}

impl Damage {
    /// Whether the file is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Damage::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Damage::Bytes("it is cut off"),
            _ => Damage::Io(error),
        }
    }
}

/// A segment, open to be read; it may still be written elsewhere.
pub struct Segment {
    file: File,
    head: FileHead,
    key: Option<BlockKey>,
    sealed_under: Option<usize>,
}

/// What a scan came upon.
pub struct Found {
    /// Where it begins.
    pub offset: u64,
    /// Its head.
    pub head: BlockHead,
}

/// What a scan saw in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Where the last complete group, graves or end ends: beyond it is nothing that anybody could read.
    pub whole: u64,
    /// Whether the segment was closed.
    pub ended: bool,
    /// Where blocks are damaged that others follow.
    pub damaged: Vec<u64>,
    /// Bytes read.
    pub read: u64,
}

impl Segment {
    /// Opens a file; its key is sealed under one of these.
    pub fn open(dir: &Path, number: i64, masters: &[SecretBytes]) -> Result<Self, Damage> {
        let file = File::open(format::path(dir, number))?;
        let mut bytes = Vec::with_capacity(256);
        io::Read::read_to_end(&mut io::Read::take(&file, FIRST), &mut bytes)?;
        let head = FileHead::decode(&bytes).map_err(Damage::Bytes)?;
        if head.number != number {
            return Err(Damage::Bytes("it is another segment"));
        }
        let opened =
            masters.iter().enumerate().find_map(|(at, master)| Some((at, head.key(master)?)));
        let (at, key) = opened.ok_or(Damage::Bytes("its key does not open"))?;
        let sealed_under = key.is_some().then_some(at);
        Ok(Segment { file, head, key, sealed_under })
    }

    /// Its head.
    pub fn head(&self) -> &FileHead {
        &self.head
    }

    /// Which of the keys that it was opened with its key is sealed under, by its place; none: it is in the clear.
    pub fn sealed_under(&self) -> Option<usize> {
        self.sealed_under
    }

    /// Bytes of the file.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The head of the block at `offset`.
    pub fn block_head(&self, offset: u64) -> Result<BlockHead, Damage> {
        let mut bytes = [0; BLOCK_HEAD];
        self.file.read_exact_at(&mut bytes, offset)?;
        BlockHead::decode(&bytes, self.head.number, offset)
            .ok_or(Damage::Bytes("no block begins here"))
    }

    /// The block at `offset`, which is of this kind: its head, and its bytes as they were before they were compressed.
    pub fn block(&self, offset: u64, kind: Kind) -> Result<(BlockHead, Vec<u8>), Damage> {
        let (head, stored) = self.packed(offset, kind)?;
        if !head.compressed {
            return Ok((head, stored));
        }
        let raw = zstd::bulk::decompress(&stored, head.raw as usize)
            .map_err(|_| Damage::Bytes("it does not decompress"))?;
        if raw.len() == head.raw as usize {
            Ok((head, raw))
        } else {
            Err(Damage::Bytes("it decompresses to another length"))
        }
    }

    /// The same, still compressed where it is.
    pub fn packed(&self, offset: u64, kind: Kind) -> Result<(BlockHead, Vec<u8>), Damage> {
        let head = self.block_head(offset)?;
        if head.kind != kind {
            return Err(Damage::Bytes("another block is here"));
        }
        let stored = self.stored(offset, &head)?;
        match (&self.key, head.sealed) {
            (Some(key), true) => {
                let opened = key.open(head.number, &head.context(self.head.number, offset), stored);
                Ok((head, opened.ok_or(Damage::Bytes("its seal is broken"))?))
            }
            (None, false) => Ok((head, stored)),
            // In a segment that is sealed nothing else counts: or anybody could write blocks.
            _ => Err(Damage::Bytes("it is not sealed as its segment is")),
        }
    }

    fn stored(&self, offset: u64, head: &BlockHead) -> Result<Vec<u8>, Damage> {
        if head.end(offset) > self.length()? {
            return Err(Damage::Bytes("it is cut off"));
        }
        let mut stored = vec![0; head.stored as usize];
        self.file.read_exact_at(&mut stored, offset + BLOCK_HEAD as u64)?;
        if crc32fast::hash(&stored) == head.sum {
            Ok(stored)
        } else {
            Err(Damage::Bytes("its checksum is wrong"))
        }
    }

    /// Goes from block to block, beginning at `from`, where one begins. With `verify` the bytes of each are looked at, else only
    /// those that `each` reads. `each` is given blocks that are not known to be damaged, and says so where they are; what cannot
    /// be read at all ends the scan.
    pub fn scan(
        &self,
        from: u64,
        verify: bool,
        mut each: impl FnMut(Found) -> Result<(), Damage>,
    ) -> Result<Scanned, Damage> {
        let length = self.length()?;
        let mut seen = Scanned { whole: from, ..Scanned::default() };
        let (mut at, mut bad) = (from, Vec::new());
        while at < length {
            let head = match self.block_head(at) {
                Err(Damage::Bytes(_)) => {
                    bad.push(at);
                    match self.next_block(at + 1, length, &mut seen.read)? {
                        Some(next) => at = next,
                        None => break,
                    }
                    continue;
                }
                head => head?,
            };
            seen.read += BLOCK_HEAD as u64;
            let next = head.end(at);
            let good = match next <= length {
                true if verify => {
                    seen.read += u64::from(head.stored);
                    match self.stored(at, &head) {
                        Err(Damage::Bytes(_)) => false,
                        stored => stored.map(|_| true)?,
                    }
                }
                within => within,
            };
            let ends = matches!(head.kind, Kind::Rows | Kind::Graves | Kind::End);
            seen.ended |= good && head.kind == Kind::End;
            let read = if good {
                each(Found { offset: at, head })
            } else {
                Err(Damage::Bytes("its bytes are not what was written"))
            };
            match read {
                // Nothing is known of what it holds then: that is no damage.
                Err(damage @ Damage::Io(_)) => return Err(damage),
                Err(Damage::Bytes(_)) => {
                    bad.push(at);
                    at = next;
                    continue;
                }
                Ok(()) => {}
            }
            if ends {
                seen.whole = next;
                seen.damaged.append(&mut bad);
            }
            at = next;
        }
        Ok(seen)
    }

    /// Where the next block's head is, from `at` on.
    fn next_block(&self, mut at: u64, length: u64, read: &mut u64) -> Result<Option<u64>, Damage> {
        const WINDOW: usize = 1 << 20;
        let mut window = Vec::new();
        while at + BLOCK_HEAD as u64 <= length {
            window.resize(usize::try_from(length - at).unwrap_or(WINDOW).min(WINDOW), 0);
            self.file.read_exact_at(&mut window, at)?;
            *read += window.len() as u64;
            for found in memchr::memmem::find_iter(&window, format::block_magic()) {
                let offset = at + found as u64;
                if self.block_head(offset).is_ok() {
                    return Ok(Some(offset));
                }
            }
            // A magic may begin in one window and end in the next.
            at += (window.len() - (format::block_magic().len() - 1)) as u64;
        }
        Ok(None)
    }

    /// Whether the segment was closed, by its last bytes.
    pub fn has_ended(&self) -> Result<bool, Damage> {
        let Some(at) = self.length()?.checked_sub(BLOCK_HEAD as u64) else { return Ok(false) };
        Ok(self.block_head(at).is_ok_and(|head| head.kind == Kind::End))
    }
}
