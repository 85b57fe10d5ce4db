//! Captures in a file, one a line: written from a gateway, read to be decided again without one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::client::{Client, Failure};
use super::filters::Filters;
use super::output::Output;
use super::progress::{Pace, Progress};
use super::replay::{path, summaries};
use crate::bounds;
use crate::capture::record::Capture;

/// `rerouter replay export`.
pub(super) fn export(
    client: &Client,
    filters: &Filters,
    now: Timestamp,
    limit: Option<u64>,
    out: &str,
) -> Result<(), Failure> {
    let query = filters.query(now)?;
    let mut output = Output::open(out)?;
    let (mut progress, pace) = (Progress::new(), Pace::new());
    let (mut written, mut gone, mut unread) = (0_u64, 0_u64, 0_u64);
    let done = summaries(client, &query, limit.unwrap_or(u64::MAX), |summary| {
        let text = |name: &str| summary.get(name).and_then(Value::as_str).unwrap_or_default();
        let answer = client.get(&path(text("id"))?, &[])?;
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
        output.line(capture.text.trim_end())?;
        written += 1;
        pace.show(&mut progress, written, text("created_at").parse().ok());
        Ok(())
    });
    progress.end();
    let done = done.and_then(|unreadable| {
        unread += unreadable;
        output.finish()
    });
    if matches!(done, Err(Failure::Enough)) {
        return done;
    }
    let some = |count: u64, what: &str| {
        if count > 0 { format!(", {count} {what}") } else { String::new() }
    };
    let left_out = some(gone, "deleted meanwhile") + &some(unread, "that cannot be read");
    let broken_off = if done.is_err() {
        format!(", then it broke off{}", output.leave(written))
    } else {
        String::new()
    };
    tell(&format!("{written} captures{left_out}{broken_off}\n"));
    done?;
    if unread > 0 {
        Err(Failure::Gateway(format!("{unread} captures cannot be read and are not in {out}")))
    } else {
        Ok(())
    }
}

pub(super) fn tell(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Each capture of a corpus, in its order, until there are no more or `each` has enough (it says whether to go on). Beside it
/// come how far into the file it reaches and how long that is, in bytes.
pub(super) fn read(
    path: &Path,
    mut each: impl FnMut(&Capture, (u64, u64)) -> bool,
) -> Result<(), Failure> {
    let name = path.display().to_string();
    lines(path, |line, number, at| {
        let capture = Capture::read_whole(line)
            .map_err(|why| Failure::Wrong(format!("{name}:{number}: {why}")))?;
        Ok(each(&capture, at))
    })
}

/// Each line of a file that is not empty, with its number, how far into the file it reaches and how long that is, until there
/// are no more or `each` has enough.
pub(super) fn lines(
    path: &Path,
    mut each: impl FnMut(&[u8], u64, (u64, u64)) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(wrong)?;
    let all = file.metadata().map_or(0, |about| about.len());
    let (mut reader, mut line, mut number, mut at) =
        (BufReader::new(file), Vec::new(), 0_u64, 0_u64);
    loop {
        line.clear();
        let taken = reader
            .by_ref()
            .take(bounds::CLIENT_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(wrong)?;
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
