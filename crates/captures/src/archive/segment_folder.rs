//! Where segments are kept: a folder of files. It creates, opens, lists, moves and deletes them;
//! `segment_log.rs` writes the active one, and a backup copies them.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rerouter_store::ByteRange;

/// The folder of segments in a data directory.
pub const FOLDER: &str = "captures";
/// The folder of copies of segments of other gateways.
const COPIES: &str = "captures-cache";
/// What the names of folders with segments that were set aside begin with.
const ASIDE: &str = "captures-unknown-";

/// The file name of a segment.
pub fn file_name(number: i64) -> String {
    format!("{number:016x}.seg")
}

/// The number of the segment in a file of this name; `None` if it is not the name of a segment.
fn number(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?, 16).ok()
}

/// A folder of segments.
#[derive(Clone, Debug)]
pub(super) struct SegmentFolder(PathBuf);

impl SegmentFolder {
    pub(super) fn new(data: &Path) -> Self {
        SegmentFolder(data.join(FOLDER))
    }

    /// The folder of copies of segments that other gateways wrote.
    pub(super) fn of_copies(data: &Path) -> Self {
        SegmentFolder(data.join(COPIES))
    }

    pub(super) fn path(&self, number: i64) -> PathBuf {
        self.0.join(file_name(number))
    }

    /// Creates the file of a new segment, durably, for this user only. An error of kind
    /// `AlreadyExists`: the number is taken.
    pub(super) fn create(&self, number: i64) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let file =
            File::options().write(true).create_new(true).mode(0o600).open(self.path(number))?;
        File::open(&self.0)?.sync_all()?;
        Ok(file)
    }

    /// Makes a copy of a segment by `write`, which makes the file at the path that it gets.
    pub(super) fn fill(
        &self,
        number: i64,
        write: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        // Two readers may fetch it at once.
        let draft = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = self.0.join(format!("{}-{draft}.partial", std::process::id()));
        let written = std::fs::remove_file(&draft)
            .or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .and_then(|()| write(&draft))
            .and_then(|()| std::fs::rename(&draft, self.path(number)));
        if written.is_err() {
            let _none = std::fs::remove_file(&draft);
        }
        written
    }

    pub(super) fn metadata(&self, number: i64) -> io::Result<Metadata> {
        std::fs::metadata(self.path(number))
    }

    /// Takes over a segment that is written no more: all of it is durable when this returns.
    pub(super) fn close(&self, segment: &File) -> io::Result<()> {
        segment.sync_all()
    }

    /// Opens a segment, closed or active. An error of kind `NotFound`: it is not there.
    pub(super) fn open(&self, number: i64) -> io::Result<SegmentReader> {
        Ok(SegmentReader(File::open(self.path(number))?))
    }

    /// Deletes a segment, if it is there.
    pub(super) fn delete(&self, number: i64) -> io::Result<()> {
        match std::fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The numbers of all segments.
    pub(super) fn list(&self) -> io::Result<BTreeSet<i64>> {
        list(&self.0)
    }

    /// Whether a segment holds no bytes.
    pub(super) fn is_empty(&self, number: i64) -> io::Result<bool> {
        Ok(std::fs::metadata(self.path(number))?.len() == 0)
    }

    /// Gives a segment another number, if it is there.
    pub(super) fn rename(&self, from: i64, to: i64) -> io::Result<()> {
        match std::fs::rename(self.path(from), self.path(to)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Moves segments to a new folder beside this one, which it returns.
    pub(super) fn set_aside(&self, numbers: &[i64]) -> io::Result<PathBuf> {
        let mut count = 0_u32;
        let aside = loop {
            count += 1;
            let aside = self.0.with_file_name(format!("{ASIDE}{count}"));
            match DirBuilder::new().mode(0o700).create(&aside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => break created.map(|()| aside)?,
            }
        };
        let moved = numbers.iter().try_for_each(|number| {
            std::fs::rename(self.path(*number), aside.join(file_name(*number)))
        });
        if let Err(error) = moved {
            // Only an empty folder is removed.
            let _filled = std::fs::remove_dir(&aside);
            return Err(error);
        }
        Ok(aside)
    }

    /// The numbers of all segments that were set aside.
    pub(super) fn list_aside(&self) -> io::Result<BTreeSet<i64>> {
        let mut numbers = BTreeSet::new();
        let Some(data) = self.0.parent() else { return Ok(numbers) };
        for entry in std::fs::read_dir(data)? {
            let entry = entry?;
            // A folder that cannot be read must not keep captures from being written.
            if entry.file_name().to_string_lossy().starts_with(ASIDE)
                && let Ok(aside) = list(&entry.path())
            {
                numbers.extend(aside);
            }
        }
        Ok(numbers)
    }
}

/// The numbers of the segments in a folder, which need not be there.
pub fn segment_files(folder: &Path) -> io::Result<Vec<i64>> {
    Ok(list(folder)?.into_iter().collect())
}

fn list(folder: &Path) -> io::Result<BTreeSet<i64>> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        entries => entries?
            .filter_map(|entry| {
                let entry = entry.map(|entry| number(&entry.file_name().to_string_lossy()));
                entry.transpose()
            })
            .collect(),
    }
}

/// A segment open for reading.
pub(super) struct SegmentReader(File);

impl SegmentReader {
    /// Reads a range. An error of kind `UnexpectedEof`: the segment is shorter.
    pub(super) fn read(&self, range: ByteRange) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; range.length as usize];
        self.0.read_exact_at(&mut bytes, range.offset)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_numbers() {
        assert_eq!(number(&file_name(77)), Some(77));
        for other in ["4d.seg", "000000000000004d.new", "lock"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn segments_are_created_once_read_in_ranges_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SegmentFolder::new(dir.path());
        assert!(folder.list().unwrap().is_empty());
        let file = folder.create(3).unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        folder.close(&file).unwrap();
        assert_eq!(folder.create(3).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let segment = folder.open(3).unwrap();
        assert_eq!(segment.read(ByteRange { offset: 2, length: 3 }).unwrap(), b"234");
        let beyond = segment.read(ByteRange { offset: 8, length: 3 }).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(folder.list().unwrap(), BTreeSet::from([3]));
        folder.delete(3).unwrap();
        folder.delete(3).unwrap();
        assert_eq!(folder.open(3).err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
