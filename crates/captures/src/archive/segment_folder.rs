//! The folder with the files of segments. Creates, opens, lists, moves and deletes them.
//! `segment_log.rs` writes the active segment, and a backup copies all.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rerouter_base::atomic_file::allow_absent;
use rerouter_store::ByteRange;

/// The name of the folder of segments in a data directory.
pub const FOLDER: &str = "captures";
/// The name of the folder with copies of other gateways' segments.
const COPIES: &str = "captures-cache";
/// Prefix of the names of folders with segments that were set aside.
const ASIDE: &str = "captures-unknown-";

pub fn file_name(number: i64) -> String {
    format!("{number:016x}.seg")
}

/// The number of the segment in a file with this name; `None` if that is not a segment's name.
fn number(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?, 16).ok()
}

#[derive(Clone, Debug)]
pub(super) struct SegmentFolder(PathBuf);

impl SegmentFolder {
    pub(super) fn new(data: &Path) -> Self {
        SegmentFolder(data.join(FOLDER))
    }

    pub(super) fn of_copies(data: &Path) -> Self {
        SegmentFolder(data.join(COPIES))
    }

    pub(super) fn path(&self, number: i64) -> PathBuf {
        self.0.join(file_name(number))
    }

    /// Creates the file of a new segment, durably, for this user only. Error kind `AlreadyExists`:
    /// the number is taken.
    pub(super) fn create(&self, number: i64) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let file =
            File::options().write(true).create_new(true).mode(0o600).open(self.path(number))?;
        File::open(&self.0)?.sync_all()?;
        Ok(file)
    }

    /// Makes a copy of a segment. `write` creates the file at the path that it is passed.
    pub(super) fn fill(
        &self,
        number: i64,
        write: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        // Two readers may fetch the segment at once.
        let draft = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = self.0.join(format!("{}-{draft}.partial", std::process::id()));
        let written = allow_absent(std::fs::remove_file(&draft))
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

    /// Opens a segment, closed or active. Error kind `NotFound`: there is no such segment.
    pub(super) fn open(&self, number: i64) -> io::Result<SegmentReader> {
        Ok(SegmentReader(File::open(self.path(number))?))
    }

    pub(super) fn delete(&self, number: i64) -> io::Result<()> {
        allow_absent(std::fs::remove_file(self.path(number)))
    }

    pub(super) fn list(&self) -> io::Result<BTreeSet<i64>> {
        list(&self.0)
    }

    pub(super) fn is_empty(&self, number: i64) -> io::Result<bool> {
        Ok(self.metadata(number)?.len() == 0)
    }

    /// Changes the number of a segment, if it exists.
    pub(super) fn rename(&self, from: i64, to: i64) -> io::Result<()> {
        allow_absent(std::fs::rename(self.path(from), self.path(to)))
    }

    /// Moves segments to a new folder beside this one. Returns its path.
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
            // This removes the folder only if it is empty.
            let _filled = std::fs::remove_dir(&aside);
            return Err(error);
        }
        Ok(aside)
    }

    pub(super) fn list_aside(&self) -> io::Result<BTreeSet<i64>> {
        let mut numbers = BTreeSet::new();
        let Some(data) = self.0.parent() else { return Ok(numbers) };
        for entry in std::fs::read_dir(data)? {
            let entry = entry?;
            // A folder that cannot be read must not stop the writing of captures.
            if entry.file_name().to_string_lossy().starts_with(ASIDE)
                && let Ok(aside) = list(&entry.path())
            {
                numbers.extend(aside);
            }
        }
        Ok(numbers)
    }
}

/// The numbers of the segments in a folder; none if the folder does not exist.
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

pub(super) struct SegmentReader(File);

impl SegmentReader {
    /// Reads a range. Error kind `UnexpectedEof`: the segment is shorter.
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
        file.sync_all().unwrap();
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
