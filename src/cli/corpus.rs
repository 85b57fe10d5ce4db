//! Captures in a file, one a line: written from a gateway, read to be decided again without one.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::client::{Client, Failure};
use super::filters::Filters;
use super::progress::Progress;
use super::replay::{path, summaries};
use crate::bounds;
use crate::capture::record::Capture;

/// `rerouter replay export`.
pub(super) fn export(client: &Client, filters: &Filters, now: Timestamp, limit: Option<u64>, out: &str) -> Result<(), Failure> {
    let query = filters.query(now)?;
    let unwritten = |error: std::io::Error| Failure::Wrong(format!("{out}: {error}"));
    let mut file: Box<dyn Write> = match out {
        "-" => Box::new(std::io::stdout().lock()),
        name => Box::new(BufWriter::new(private(Path::new(name)).map_err(unwritten)?)),
    };
    let mut progress = Progress::new();
    let (mut written, mut gone, mut unread) = (0_u64, 0_u64, 0_u64);
    let done = summaries(client, &query, limit.unwrap_or(u64::MAX), |summary| {
        let answer = client.get(&path(summary.get("id").and_then(Value::as_str).unwrap_or_default())?, &[])?;
        // Deleted, or over its age, since the page was read.
        if answer.status == 404 {
            gone += 1;
            return Ok(());
        }
        // Damaged where it lies: the others are not.
        if answer.status == 500 {
            unread += 1;
            return Ok(());
        }
        let capture = answer.good()?;
        // A line is a capture that can be read back, or it is no corpus.
        if let Err(why) = Capture::read_whole(capture.text.as_bytes()) {
            tell(&format!("an answer of the gateway is {why}\n"));
            unread += 1;
            return Ok(());
        }
        file.write_all(capture.text.trim_end().as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(unwritten)?;
        written += 1;
        match limit {
            Some(limit) => progress.bar(written, limit, &format!("{written} captures")),
            None => progress.write(&format!("{written} captures")),
        }
        Ok(())
    });
    let done = done.and_then(|unreadable| {
        unread += unreadable;
        file.flush().map_err(unwritten)
    });
    progress.end();
    let some = |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    let left_out = some(gone, "deleted meanwhile") + &some(unread, "that cannot be read");
    tell(&format!("{written} captures{left_out}{}\n", if done.is_err() { ", then it broke off" } else { "" }));
    done?;
    if unread > 0 { Err(Failure::Gateway(format!("{unread} captures cannot be read and are not in {out}"))) } else { Ok(()) }
}

/// A file that only its owner reads, one that was there before too: what people asked models is in it.
fn private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

pub(super) fn tell(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Each capture of a corpus, in its order, until there are no more or `each` has enough (it says whether to go on). Beside it
/// come how far into the file it reaches and how long that is, in bytes.
pub(super) fn read(path: &Path, mut each: impl FnMut(&Capture, (u64, u64)) -> bool) -> Result<(), Failure> {
    let name = path.display().to_string();
    lines(path, |line, number, at| {
        let capture = Capture::read_whole(line).map_err(|why| Failure::Wrong(format!("{name}:{number}: {why}")))?;
        Ok(each(&capture, at))
    })
}

/// Each line of a file that is not empty, with its number, how far into the file it reaches and how long that is, until there
/// are no more or `each` has enough.
pub(super) fn lines(path: &Path, mut each: impl FnMut(&[u8], u64, (u64, u64)) -> Result<bool, Failure>) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(wrong)?;
    let all = file.metadata().map_or(0, |about| about.len());
    let (mut reader, mut line, mut number, mut at) = (BufReader::new(file), Vec::new(), 0_u64, 0_u64);
    loop {
        line.clear();
        let taken = reader.by_ref().take(bounds::CLIENT_BYTES).read_until(b'\n', &mut line).map_err(wrong)?;
        if taken == 0 {
            return Ok(());
        }
        number += 1;
        at += taken as u64;
        if !line.trim_ascii().is_empty() && !each(&line, number, (at, all))? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_its_owner_reads_a_corpus_even_where_a_file_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corpus.jsonl");
        std::fs::write(&path, "before").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        for path in [&path, &dir.path().join("new.jsonl")] {
            let about = private(path).unwrap().metadata().unwrap();
            assert_eq!((about.permissions().mode() & 0o777, about.len()), (0o600, 0));
        }
    }
}
