//! `rerouter replay import`

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::super::client::{ApiCall, ApiClient, ApiResponse};
use super::super::failure::{CommandFailure, Result};
use super::super::output::print;
use super::super::progress::ProgressLine;
use super::captures::CAPTURES;
use super::corpus::{CorpusPosition, for_each_line};
use rerouter_gateway::IMPORT_BODY;
use rerouter_records::replay::Import;

/// Most bytes that `rerouter replay import` sends at once; a larger line is sent alone.
const IMPORT_PART: usize = 4 << 20;
/// How often `rerouter replay import` tries to send a part while the gateway is busy.
const IMPORT_TRIES: usize = 10;
/// Longest wait between these tries.
const IMPORT_WAIT: Duration = Duration::from_secs(30);

/// Imports a file in batches. If one fails, those before it stay imported, and the same call goes
/// on from there. A line that is too large for the gateway is counted as refused.
pub(super) fn import(
    client: &ApiClient,
    file: &Path,
    owner: Option<&str>,
    json: bool,
) -> Result<()> {
    let query = owner.map(|owner| ("owner", owner.to_owned())).into_iter().collect();
    let mut upload = Upload {
        client,
        file,
        query,
        progress: ProgressLine::bar(),
        sums: Import::default(),
        batch: Vec::new(),
        first_line: 1,
    };
    let mut last = CorpusPosition::default();
    let result = for_each_line(file, |line, number, position| {
        if !upload.batch.is_empty() && upload.batch.len() + line.len() > IMPORT_PART {
            upload.send(last)?;
        }
        if upload.batch.is_empty() {
            upload.first_line = number;
        }
        upload.batch.extend_from_slice(line.trim_ascii_end());
        upload.batch.push(b'\n');
        last = position;
        Ok(true)
    });
    let result =
        result.and_then(|()| if upload.batch.is_empty() { Ok(()) } else { upload.send(last) });
    upload.progress.clear();
    let printed = print(&told(&upload.sums, json));
    result.and(printed)
}

struct Upload<'a> {
    client: &'a ApiClient,
    file: &'a Path,
    query: Vec<(&'static str, String)>,
    progress: ProgressLine,
    /// Over all answers.
    sums: Import,
    batch: Vec<u8>,
    /// The line number, in the file, of the batch's first line.
    first_line: u64,
}

impl Upload<'_> {
    fn send(&mut self, position: CorpusPosition) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let is_single = !batch.trim_ascii_end().contains(&b'\n');
        let answer = match batch.len() {
            0..=IMPORT_BODY => Some(self.post(&batch)?),
            _ => None,
        };
        match answer.filter(|answer| !is_single || answer.status != 413) {
            Some(answer) => {
                let answer = answer.ok().map_err(|failure| self.locate(failure))?;
                self.add(&answer.json()?);
            }
            None => self.sums.refused += 1,
        }
        let Import { imported, existing, expired, refused, .. } = &self.sums;
        let captures = imported + existing + expired + refused;
        self.progress.advance(position.read, position.length, &format!("{captures} captures"));
        Ok(())
    }

    fn add(&mut self, answer: &Import) {
        self.sums.imported += answer.imported;
        self.sums.existing += answer.existing;
        self.sums.expired += answer.expired;
        self.sums.refused += answer.refused;
    }

    /// Sends a batch. The gateway runs one import at a time: while it is busy, waits and retries.
    #[expect(clippy::disallowed_methods, reason = "a command that has nothing else to do")]
    fn post(&self, batch: &[u8]) -> Result<ApiResponse> {
        let path = format!("{CAPTURES}/import");
        let body = Some(("application/x-ndjson", batch));
        let call = ApiCall { query: &self.query, body, ..ApiCall::new("POST", &path) };
        for _ in 1..IMPORT_TRIES {
            let answer = self.client.any(&call)?;
            if answer.status != 429 {
                return Ok(answer);
            }
            let wait = Duration::from_secs(answer.retry_after.unwrap_or(1));
            std::thread::sleep(wait.min(IMPORT_WAIT));
        }
        self.client.any(&call)
    }

    /// Adds the batch's first line to a refusal, because the gateway counts lines within the batch.
    fn locate(&self, failure: CommandFailure) -> CommandFailure {
        match failure {
            CommandFailure::Gateway(why) => CommandFailure::Gateway(format!(
                "{}, from line {}: {why}",
                self.file.display(),
                self.first_line
            )),
            other => other,
        }
    }
}

fn told(sums: &Import, json: bool) -> String {
    let Import { imported, existing, expired, refused, .. } = sums;
    if json {
        let counts = json!({
            "imported": imported, "existing": existing, "expired": expired, "refused": refused,
        });
        return format!("{counts}\n");
    }
    let others = [
        (existing, "already there"),
        (expired, "beyond the retention there"),
        (refused, "too large or refused"),
    ];
    let others = others.iter().filter(|(count, _)| **count > 0);
    let others: String = others.map(|(count, what)| format!(", {count} {what}")).collect();
    format!("{imported} imported{others}\n")
}
