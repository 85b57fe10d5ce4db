//! A corpus: a file with one exported capture per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::super::failure::{CommandFailure, Result};
use crate::client::CLIENT_BYTES;
use rerouter_captures::capture::record::Capture;

/// How far a corpus has been read, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct CorpusPosition {
    pub(super) read: u64,
    pub(super) length: u64,
}

/// Calls `each` with each capture in order, until it returns `false`.
pub(super) fn for_each_capture(
    path: &Path,
    mut each: impl FnMut(&Capture, CorpusPosition) -> bool,
) -> Result<()> {
    for_each_line(path, |line, number, position| {
        let capture = Capture::read_whole(line)
            .map_err(|why| CommandFailure::Usage(format!("{}:{number}: {why}", path.display())))?;
        Ok(each(&capture, position))
    })
}

/// Calls `each` with each line that is not empty, with its number, until it returns `false`.
pub(super) fn for_each_line(
    path: &Path,
    mut each: impl FnMut(&[u8], u64, CorpusPosition) -> Result<bool>,
) -> Result<()> {
    let failed =
        |error: std::io::Error| CommandFailure::Usage(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut reader = BufReader::new(file);
    let (mut line, mut number, mut read) = (Vec::new(), 0_u64, 0_u64);
    loop {
        line.clear();
        let mut bounded = reader.by_ref().take(CLIENT_BYTES);
        let bytes = bounded.read_until(b'\n', &mut line).map_err(failed)?;
        if bytes == 0 {
            return Ok(());
        }
        number += 1;
        read += bytes as u64;
        let position = CorpusPosition { read, length };
        if !line.trim_ascii().is_empty() && !each(&line, number, position)? {
            return Ok(());
        }
    }
}
