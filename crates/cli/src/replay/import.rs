//! `rerouter replay import`

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::client::{ApiClient, ApiResponse};
use super::super::failure::CommandFailure;
use super::super::output::print;
use super::super::progress::ProgressLine;
use super::captures::CAPTURES;
use super::corpus::{CorpusPosition, for_each_line};
use rerouter_gateway::IMPORT_BODY;

/// Most bytes that `rerouter replay import` sends at once; a larger line is sent alone.
const IMPORT_PART: usize = 4 << 20;
/// How often `rerouter replay import` tries to send a part while the gateway is busy.
const IMPORT_TRIES: usize = 10;
/// Longest wait between these tries.
const IMPORT_WAIT: Duration = Duration::from_secs(30);

/// The counts of an answer: their names, and the texts for people.
const COUNTS: [(&str, &str); 4] = [
    ("imported", "imported"),
    ("existing", "already there"),
    ("expired", "beyond the retention there"),
    ("refused", "too large or refused"),
];

/// Sums over all answers.
#[derive(Default)]
struct ImportCounts([u64; 4]);

/// Imports a file in batches. If one fails, the earlier ones stay imported, and a repeat of the
/// call continues from there. A line that is too large for the gateway counts as refused.
pub(super) fn import(
    client: &ApiClient,
    file: &Path,
    owner: Option<&str>,
    json: bool,
) -> Result<(), CommandFailure> {
    let query = owner.map(|owner| ("owner", owner.to_owned())).into_iter().collect();
    let mut upload = Upload {
        client,
        file,
        query,
        progress: ProgressLine::bar(),
        counts: ImportCounts::default(),
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
    let counts = &upload.counts;
    let printed = print(&if json { format!("{}\n", counts.json()) } else { counts.text() });
    result.and(printed)
}

struct Upload<'a> {
    client: &'a ApiClient,
    file: &'a Path,
    query: Vec<(&'static str, String)>,
    progress: ProgressLine,
    counts: ImportCounts,
    batch: Vec<u8>,
    /// The line number, in the file, of the batch's first line.
    first_line: u64,
}

impl Upload<'_> {
    fn send(&mut self, position: CorpusPosition) -> Result<(), CommandFailure> {
        let batch = std::mem::take(&mut self.batch);
        let is_single = !batch.trim_ascii_end().contains(&b'\n');
        let answer = match batch.len() {
            0..=IMPORT_BODY => Some(self.post(&batch)?),
            _ => None,
        };
        match answer.filter(|answer| !is_single || answer.status != 413) {
            Some(answer) => {
                let answer = answer.ok().map_err(|failure| self.locate(failure))?;
                self.counts.add(&answer.json()?);
            }
            None => self.counts.add(&json!({ "refused": 1 })),
        }
        let captures = self.counts.0.iter().sum::<u64>();
        self.progress.advance(position.read, position.length, &format!("{captures} captures"));
        Ok(())
    }

    /// Sends a batch. While the gateway is busy with another import, waits and tries again.
    #[expect(clippy::disallowed_methods, reason = "a command that has nothing else to do")]
    fn post(&self, batch: &[u8]) -> Result<ApiResponse, CommandFailure> {
        let path = format!("{CAPTURES}/import");
        for _ in 1..IMPORT_TRIES {
            let answer = self.client.post_lines(&path, &self.query, batch)?;
            if answer.status != 429 {
                return Ok(answer);
            }
            let wait = Duration::from_secs(answer.retry_after.unwrap_or(1));
            std::thread::sleep(wait.min(IMPORT_WAIT));
        }
        self.client.post_lines(&path, &self.query, batch)
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

impl ImportCounts {
    fn add(&mut self, answer: &Value) {
        for (count, (name, _)) in self.0.iter_mut().zip(COUNTS) {
            *count += answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        }
    }

    fn json(&self) -> Value {
        let pairs = self.0.iter().zip(COUNTS);
        pairs.map(|(count, (name, _))| (name.to_owned(), Value::from(*count))).collect()
    }

    fn text(&self) -> String {
        let counts: Vec<String> = self
            .0
            .iter()
            .zip(COUNTS)
            .filter(|(count, (name, _))| **count > 0 || *name == "imported")
            .map(|(count, (_, text))| format!("{count} {text}"))
            .collect();
        format!("{}\n", counts.join(", "))
    }
}
