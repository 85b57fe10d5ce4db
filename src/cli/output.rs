//! Where a command writes what others read: standard output, or a file that takes the place of another when it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::client::Failure;

/// Text to standard output.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| unsaid(&error))
}

/// Why standard output takes no more.
fn unsaid(error: &io::Error) -> Failure {
    match error.kind() {
        // Who reads the beginning only, as `head` does, has what it wants.
        io::ErrorKind::BrokenPipe => Failure::Enough,
        _ => Failure::Wrong(format!("standard output: {error}")),
    }
}

/// Where lines go.
pub(super) enum Output {
    /// To standard output.
    Standard,
    /// To what is no file, as a pipe with a name, as they come.
    Device(BufWriter<File>, String),
    /// Into a file that others may not read, and that is not under its name before it is whole.
    File(Part),
}

/// A file while it is written.
pub(super) struct Part {
    file: BufWriter<File>,
    /// Where it is until then.
    at: PathBuf,
    /// Where it will be; a file that is there stays as it is until then.
    path: PathBuf,
}

impl Output {
    /// Where `name` says; `-` is standard output.
    pub(super) fn open(name: &str) -> Result<Output, Failure> {
        if name == "-" {
            return Ok(Output::Standard);
        }
        let wrong = |error: io::Error| Failure::Wrong(format!("{name}: {error}"));
        // A link stays one: what it leads to gets another content.
        let path = std::fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
        if std::fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
            let device = File::options().write(true).open(&path).map_err(wrong)?;
            return Ok(Output::Device(BufWriter::new(device), name.to_owned()));
        }
        let mut ending = path
            .file_name()
            .map(std::ffi::OsStr::to_owned)
            .ok_or_else(|| Failure::Wrong(format!("{name}: no file")))?;
        ending.push(".part");
        let at = path.with_file_name(ending);
        let file = private(&at).map_err(|error| unwritten(&at, &error))?;
        Ok(Output::File(Part { file: BufWriter::new(file), at, path }))
    }

    /// Writes a line.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Failure> {
        match self {
            Output::Standard => say(&format!("{line}\n")),
            Output::Device(file, name) => {
                written(file, line).map_err(|error| Failure::Wrong(format!("{name}: {error}")))
            }
            Output::File(Part { file, at, .. }) => {
                written(file, line).map_err(|error| unwritten(at, &error))
            }
        }
    }

    /// All lines are written: a file is under its name when this returns, and survives the loss of power.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Output::Standard => Ok(()),
            Output::Device(file, name) => {
                file.flush().map_err(|error| Failure::Wrong(format!("{name}: {error}")))
            }
            Output::File(part) => part.finish().map_err(|error| unwritten(&part.path, &error)),
        }
    }

    /// No more lines come than the so many that did: what becomes of them, for people.
    pub(super) fn leave(self, lines: u64) -> String {
        match self {
            Output::Standard | Output::Device(..) => String::new(),
            // Its lines are in no file that has a name any more.
            Output::File(part) if !part.is_there().unwrap_or(false) => String::new(),
            Output::File(Part { at, .. }) if lines == 0 => {
                // It says nothing.
                let _none = std::fs::remove_file(at);
                String::new()
            }
            Output::File(Part { mut file, at, .. }) => {
                // On a full disk there is less of it.
                let _less = file.flush();
                format!("; what came is in {}", at.display())
            }
        }
    }
}

impl Part {
    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        if !self.is_there()? {
            return Err(io::Error::other("somebody else writes it at the same time"));
        }
        std::fs::rename(&self.at, &self.path)
    }

    /// Whether what is there is what was begun here: another call may have begun anew.
    fn is_there(&self) -> io::Result<bool> {
        let (own, there) = (self.file.get_ref().metadata()?, std::fs::symlink_metadata(&self.at)?);
        Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::Wrong(format!("{}: {error}", path.display()))
}

fn written(file: &mut BufWriter<File>, line: &str) -> io::Result<()> {
    file.write_all(line.as_bytes())?;
    file.write_all(b"\n")
}

/// A new file that only its owner reads, in the place of what an earlier call left: what people asked models is in it.
fn private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Also where the mask of the process leaves its owner less.
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Output {
        Output::open(path.to_str().unwrap()).unwrap()
    }

    fn read(path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    #[test]
    fn a_file_is_there_whole_or_as_it_was_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let [path, part] = ["corpus.jsonl", "corpus.jsonl.part"].map(|name| dir.path().join(name));
        for before in [None, Some("before")] {
            let _none = std::fs::remove_file(&path);
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
            }
            // What a call left that was killed.
            std::fs::write(&part, "left").unwrap();
            let mut out = open(&path);
            assert_eq!((read(&path).as_deref(), read(&part).as_deref()), (before, Some("")));
            assert_eq!(out.leave(0), "");
            assert_eq!((read(&path).as_deref(), read(&part)), (before, None), "nothing came");
            out = open(&path);
            out.line("one").unwrap();
            assert!(out.leave(1).ends_with("corpus.jsonl.part"));
            assert_eq!(
                (read(&path).as_deref(), read(&part).as_deref()),
                (before, Some("one\n")),
                "it broke off"
            );
            out = open(&path);
            out.line("one").unwrap();
            out.line("two").unwrap();
            assert_eq!(read(&path).as_deref(), before);
            out.finish().unwrap();
            assert_eq!((read(&path).as_deref(), read(&part)), (Some("one\ntwo\n"), None));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let dir = tempfile::tempdir().unwrap();
        let [path, link] = ["real.jsonl", "link.jsonl"].map(|name| dir.path().join(name));
        std::fs::write(&path, "before").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut out = open(&link);
        out.line("after").unwrap();
        out.finish().unwrap();
        assert!(link.is_symlink() && read(&path).as_deref() == Some("after\n"));
        let mut null = Output::open("/dev/null").unwrap();
        null.line("gone").unwrap();
        null.finish().unwrap();
        assert_eq!(null.leave(1), "");
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        let mut full = Output::open("/dev/full").unwrap();
        full.line("no").unwrap();
        assert!(
            matches!(full.finish(), Err(Failure::Wrong(why)) if why.starts_with("/dev/full: "))
        );
        assert!(
            Output::open(dir.path().to_str().unwrap()).is_err()
                && Output::open("no/such/dir").is_err()
        );
    }

    #[test]
    fn of_two_that_write_the_same_file_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corpus.jsonl");
        let (mut first, mut second) = (open(&path), open(&path));
        first.line("first").unwrap();
        assert!(first.finish().is_err());
        second.line("second").unwrap();
        second.finish().unwrap();
        assert_eq!(read(&path).as_deref(), Some("second\n"));
    }

    #[test]
    fn who_is_not_the_last_to_begin_takes_nothing_away_from_who_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corpus.jsonl");
        for lines in [0, 1] {
            let (mut first, mut second) = (open(&path), open(&path));
            second.line("second").unwrap();
            assert!(first.finish().is_err());
            assert_eq!(first.leave(lines), "", "nothing of it is anywhere");
            second.finish().unwrap();
            assert_eq!(read(&path).as_deref(), Some("second\n"));
            std::fs::remove_file(&path).unwrap();
        }
    }
}
