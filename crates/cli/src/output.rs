//! Output of commands: standard output, a device, or a file that is visible only once it is
//! complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::failure::{CommandFailure, Result};
use rerouter_base::atomic_file::Replacement;

pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        // `head` and the like close the pipe when they have read enough.
        io::ErrorKind::BrokenPipe => CommandFailure::PipeClosed,
        _ => CommandFailure::Usage(format!("standard output: {error}")),
    })
}

pub(super) fn print_error(text: &str) {
    // There is nowhere left to report a closed standard error.
    let _ = io::stderr().write_all(text.as_bytes());
}

pub(super) enum Output {
    Standard,
    /// A named pipe or a device.
    Device(BufWriter<File>, PathBuf),
    /// A file that only its owner may read, because it holds prompts.
    File {
        replacement: Replacement,
        buffer: Vec<u8>,
        path: PathBuf,
    },
}

/// Number of bytes that are gathered before a write.
const BUFFER: usize = 64 << 10;

impl Output {
    /// Opens the output with this name; `-` is standard output.
    pub(super) fn open(name: &str) -> Result<Output> {
        if name == "-" {
            return Ok(Output::Standard);
        }
        // A symbolic link stays a link: the file that it points to is replaced.
        let path = std::fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
        let failed = |error| failure(&path, &error);
        if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            let device = File::options().write(true).open(&path).map_err(failed)?;
            return Ok(Output::Device(BufWriter::new(device), path));
        }
        let replacement = Replacement::begin(&path).map_err(failed)?;
        Ok(Output::File { replacement, buffer: Vec::new(), path })
    }

    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        match self {
            Output::Standard => print(&format!("{line}\n")),
            Output::Device(device, path) => {
                writeln!(device, "{line}").map_err(|error| failure(path, &error))
            }
            Output::File { replacement, buffer, path } => {
                buffer.extend_from_slice(line.as_bytes());
                buffer.push(b'\n');
                if buffer.len() < BUFFER {
                    return Ok(());
                }
                flush(replacement, buffer).map_err(|error| failure(path, &error))
            }
        }
    }

    /// Completes the output. Afterwards a file has its final name and survives a loss of power.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Output::Standard => Ok(()),
            Output::Device(mut device, path) => {
                device.flush().map_err(|error| failure(&path, &error))
            }
            Output::File { mut replacement, mut buffer, path } => {
                flush(&mut replacement, &mut buffer)
                    .and_then(|()| replacement.commit())
                    .map_err(|error| failure(&path, &error))
            }
        }
    }

    /// Ends an incomplete output. A file that was to be replaced stays unchanged. Returns the path
    /// of the lines that were written, if there are any.
    pub(super) fn abandon(self) -> Option<PathBuf> {
        let Output::File { mut replacement, mut buffer, .. } = self else { return None };
        // On a full disk the draft has fewer lines.
        let _ = flush(&mut replacement, &mut buffer);
        let is_empty = replacement.file().metadata().is_ok_and(|metadata| metadata.len() == 0);
        (!is_empty).then(|| replacement.keep_draft())
    }
}

fn flush(replacement: &mut Replacement, buffer: &mut Vec<u8>) -> io::Result<()> {
    replacement.file().write_all(buffer)?;
    buffer.clear();
    Ok(())
}

fn failure(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::Usage(format!("{}: {error}", path.display()))
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
    fn a_file_is_replaced_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corpus.jsonl");
        for before in [None, Some("before")] {
            let _none = std::fs::remove_file(&path);
            before.iter().for_each(|text| std::fs::write(&path, text).unwrap());
            assert_eq!(open(&path).abandon(), None, "no line was written");
            assert_eq!(read(&path).as_deref(), before);
            let mut out = open(&path);
            out.line("one").unwrap();
            let draft = out.abandon().unwrap();
            assert_eq!((read(&path).as_deref(), read(&draft).as_deref()), (before, Some("one\n")));
            let mut out = open(&path);
            out.line("one").unwrap();
            out.line(&"2".repeat(BUFFER)).unwrap();
            assert_eq!(read(&path).as_deref(), before);
            out.finish().unwrap();
            assert_eq!(read(&path), Some(format!("one\n{}\n", "2".repeat(BUFFER))));
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
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        let mut full = Output::open("/dev/full").unwrap();
        full.line("no").unwrap();
        assert!(matches!(
            full.finish(), Err(CommandFailure::Usage(why)) if why.starts_with("/dev/full: ")
        ));
        assert!(Output::open(dir.path().to_str().unwrap()).is_err());
        assert!(Output::open("no/such/dir").is_err());
    }
}
