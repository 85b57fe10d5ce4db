//! A segment that is being written. What is pushed is in the file after a commit, and survives the loss of power after a sync.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

use super::format::{self, BlockHead, FIRST, FileHead, Kind};
use crate::bounds;
use crate::id::Random;
use crate::secret::{BlockKey, SecretBytes};
use crate::store::Faults;

/// How much work goes into a block: the less, the more wait to be written. The order is from much to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// zstd's level 1: blocks need no more to be a quarter of their size.
    Usual,
    /// zstd's level -3.
    Less,
    /// Not compressed.
    None,
}

impl Effort {
    /// For a queue that is `used` parts of `limit` full.
    pub fn at(used: usize, limit: usize) -> Self {
        match used {
            _ if used > limit / 4 * 3 => Effort::None,
            _ if used > limit / 4 => Effort::Less,
            _ => Effort::Usual,
        }
    }
}

/// How a batch is written: with how much effort, and how long others go first.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How much work goes into its blocks.
    pub effort: Effort,
    /// From then on it gives way to nobody: on a machine that is never idle it would stand for seconds. None: it may.
    pub until: Option<Instant>,
}

impl Pace {
    /// Of a job that begins now and is not the queue's, which waits for its end.
    pub fn beside() -> Self {
        Pace { effort: Effort::Usual, until: Some(Instant::now() + bounds::CAPTURE_YIELD_MAX) }
    }

    /// Lets a thread that waits for this processor go first, unless too much waits to be written, or waits for too long. Work
    /// beside the requests' path says this every tenth of a millisecond or so: else the scheduler lets it use up its slice, of
    /// milliseconds, while requests wait. Costs next to nothing when nobody waits. Whether it did.
    pub fn give_way(self) -> bool {
        let gives =
            self.effort == Effort::Usual && self.until.is_none_or(|until| Instant::now() < until);
        if gives {
            std::thread::yield_now();
        }
        gives
    }
}

impl From<Effort> for Pace {
    fn from(effort: Effort) -> Self {
        Pace { effort, until: None }
    }
}

/// A new segment. Dropped without [`Writer::finish`] it is left as after a crash, but for what was not committed.
pub struct Writer {
    file: File,
    head: FileHead,
    key: Option<BlockKey>,
    compressor: Encoder<'static>,
    pace: Pace,
    /// Bytes in the file.
    length: u64,
    /// Pushed, and not in the file yet.
    waiting: Vec<u8>,
    /// The number of the next block: never one that was used, also when what used it is gone.
    next: u64,
    faults: Faults,
}

impl Writer {
    /// Makes the file of segment `number` in `dir`; its name ends in `ending` instead of `seg`, if one is given. When that
    /// fails no file is left.
    pub fn create(
        dir: &Path,
        head: (FileHead, Option<BlockKey>),
        ending: Option<&str>,
    ) -> io::Result<Self> {
        Writer::create_failing(dir, head, ending, Faults::default())
    }

    /// The same, failing as `faults` says.
    pub fn create_failing(
        dir: &Path,
        (head, key): (FileHead, Option<BlockKey>),
        ending: Option<&str>,
        faults: Faults,
    ) -> io::Result<Self> {
        let mut path = format::path(dir, head.number);
        if let Some(ending) = ending {
            path.set_extension(ending);
            // What an earlier try left.
            let _none = std::fs::remove_file(&path);
        }
        let file =
            File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        // A full disk, perhaps: each try would leave another.
        Writer::begun(file, head, key, faults).inspect_err(|_| _ = std::fs::remove_file(path))
    }

    fn begun(
        file: File,
        head: FileHead,
        key: Option<BlockKey>,
        faults: Faults,
    ) -> io::Result<Self> {
        let compressor = Encoder::new(1)?;
        let mut made = Writer {
            file,
            head,
            key,
            compressor,
            pace: Effort::Usual.into(),
            length: 0,
            waiting: Vec::new(),
            next: 0,
            faults,
        };
        made.waiting = made.head.encode();
        made.commit()?;
        Ok(made)
    }

    /// Its head.
    pub fn head(&self) -> &FileHead {
        &self.head
    }

    /// Bytes in the file, and to be: where the next block begins.
    pub fn length(&self) -> u64 {
        self.length + self.waiting.len() as u64
    }

    /// Bytes that a commit would write.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.length() == FIRST
    }

    /// From now on blocks are written so.
    pub fn set_pace(&mut self, pace: impl Into<Pace>) {
        self.pace = pace.into();
    }

    /// Adds a block; gives where it begins.
    pub fn push(&mut self, kind: Kind, count: u32, raw: &[u8]) -> io::Result<u64> {
        let compressed =
            if self.pace.effort == Effort::None { None } else { Some(self.compress(raw)?) };
        match compressed.filter(|compressed| compressed.len() < raw.len()) {
            Some(compressed) => self.push_as(kind, count, raw.len(), true, compressed),
            None => self.push_as(kind, count, raw.len(), false, raw.to_vec()),
        }
    }

    /// In pieces, with way given between them: a block takes longer than a request may have to wait.
    fn compress(&mut self, raw: &[u8]) -> io::Result<Vec<u8>> {
        self.compressor.reinit()?;
        self.compressor.set_parameter(CParameter::CompressionLevel(
            if self.pace.effort == Effort::Less { -3 } else { 1 },
        ))?;
        // Said in the frame, as by those who compress at once.
        self.compressor.set_pledged_src_size(Some(raw.len() as u64))?;
        let mut stored = Vec::with_capacity(zstd::zstd_safe::compress_bound(raw.len()));
        let mut out = OutBuffer::around(&mut stored);
        for piece in raw.chunks(bounds::CAPTURE_PIECE) {
            self.pace.give_way();
            let mut piece = InBuffer::around(piece);
            self.compressor.run(&mut piece, &mut out)?;
            // There is room for whatever it is.
            if piece.pos() < piece.src.len() {
                return Err(io::Error::other(NOT_WHOLE));
            }
        }
        match self.compressor.finish(&mut out, true)? {
            0 => Ok(stored),
            _ => Err(io::Error::other(NOT_WHOLE)),
        }
    }

    /// Adds a block that is compressed, or not, already: of `raw` bytes before that.
    pub fn push_as(
        &mut self,
        kind: Kind,
        count: u32,
        raw: usize,
        compressed: bool,
        mut stored: Vec<u8>,
    ) -> io::Result<u64> {
        self.pace.give_way();
        let offset = self.length();
        let seals = self.key.is_some() && kind != Kind::End;
        let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        if raw > format::BLOCK_MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let length = stored.len() + if seals { BlockKey::TAG } else { 0 };
        let mut head = BlockHead {
            kind,
            compressed,
            sealed: seals,
            count,
            raw: u32::try_from(raw).map_err(too_large)?,
            stored: u32::try_from(length).map_err(too_large)?,
            number: self.next,
            sum: 0,
        };
        self.next += 1;
        if let Some(key) = self.key.as_ref().filter(|_| seals) {
            let sealed =
                key.seal(head.number, &head.context(self.head.number, offset), &mut stored);
            sealed.ok_or_else(|| io::Error::other("a block could not be sealed"))?;
        }
        head.sum = crc32fast::hash(&stored);
        self.waiting.extend_from_slice(&head.encode(self.head.number, offset));
        self.waiting.extend_from_slice(&stored);
        Ok(offset)
    }

    /// Writes what was pushed. When that fails, nothing of it is in the segment.
    pub fn commit(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let written = match self.faults.torn_write() {
            None => self.file.write_all_at(&waiting, self.length),
            Some(bytes) => {
                self.file.write_all_at(waiting.get(..bytes).unwrap_or(&waiting), self.length)?;
                Err(io::Error::other("torn on demand"))
            }
        };
        match written {
            Ok(()) => self.length += waiting.len() as u64,
            Err(_) => self.rewind(self.length)?,
        }
        written
    }

    /// Takes back what was pushed beyond `length`, in the file or not.
    pub fn rewind(&mut self, length: u64) -> io::Result<()> {
        self.waiting.clear();
        self.length = self.length.min(length);
        self.faults.before_truncation()?;
        self.file.set_len(self.length)
    }

    /// Waits until what is in the file survives the loss of power.
    pub fn sync(&self) -> io::Result<()> {
        self.faults.before_sync()?;
        self.file.sync_data()
    }

    /// Closes the segment: an end block, and all of it durable. Gives its length.
    pub fn finish(mut self) -> io::Result<u64> {
        self.push_as(Kind::End, 0, 0, false, Vec::new())?;
        self.commit()?;
        self.faults.before_sync()?;
        self.file.sync_all()?;
        Ok(self.length)
    }
}

const NOT_WHOLE: &str = "a block was not compressed whole";

/// The head and key of a segment that begins now.
pub fn begin(
    number: i64,
    replaces: i64,
    created_us: i64,
    seal: Option<(&SecretBytes, &Random)>,
) -> io::Result<(FileHead, Option<BlockKey>)> {
    FileHead::make(number, replaces, created_us, seal)
        .ok_or_else(|| io::Error::other("no key for a segment could be made"))
}
