//! `rerouter replay import`: a corpus becomes captures of a gateway.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client, Failure};
use super::corpus;
use super::output::say;
use super::progress::Progress;
use super::replay::CAPTURES;
use crate::bounds;

/// What became of them, summed over all calls.
#[derive(Default)]
struct Sums([u64; 4]);

/// The names of those sums in an answer, and for people.
const SUMS: [(&str, &str); 4] = [
    ("imported", "imported"),
    ("existing", "there already"),
    ("expired", "too old to be kept there"),
    ("refused", "too large, or not to be kept there"),
];

/// Sends the captures of a file in parts. One that fails leaves those before it imported: the same call again goes on. A line
/// that is too large for the gateway is counted, and the others follow.
pub(super) fn import(
    client: &Client,
    file: &Path,
    owner: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let query: Vec<(&str, String)> =
        owner.map(|owner| ("owner", owner.to_owned())).into_iter().collect();
    let (mut sums, mut progress) = (Sums::default(), Progress::new());
    let (mut part, mut first) = (Vec::new(), 1);
    let mut send = |part: &mut Vec<u8>, first: u64, progress: &mut Progress, at: (u64, u64)| {
        let lines = std::mem::take(part);
        let alone = !lines.trim_ascii_end().contains(&b'\n');
        let answer = if lines.len() > bounds::IMPORT_BODY {
            None
        } else {
            Some(patiently(client, &query, &lines)?)
        };
        match answer.filter(|answer| !alone || answer.status != 413) {
            // The gateway counts the lines of what it was sent.
            Some(answer) => {
                sums.add(&answer.good().map_err(|failure| from(failure, file, first))?.json()?)
            }
            None => sums.add(&json!({ "refused": 1 })),
        }
        progress.bar(at.0, at.1, &format!("{} captures", sums.0.iter().sum::<u64>()));
        Ok(())
    };
    let mut last = (0, 0);
    let done = corpus::lines(file, |line, number, at| {
        if !part.is_empty() && part.len() + line.len() > bounds::IMPORT_PART {
            send(&mut part, first, &mut progress, last)?;
        }
        if part.is_empty() {
            first = number;
        }
        part.extend_from_slice(line.trim_ascii_end());
        part.push(b'\n');
        last = at;
        Ok(true)
    });
    let done = done.and_then(|()| {
        if part.is_empty() { Ok(()) } else { send(&mut part, first, &mut progress, last) }
    });
    progress.end();
    let said = say(&if json { format!("{}\n", sums.json()) } else { sums.told() });
    done.and(said)
}

/// Sends a part until it is its turn: one import is under way at a time.
#[expect(
    clippy::disallowed_methods,
    reason = "a command of its own, which has nothing else to do meanwhile"
)]
fn patiently(client: &Client, query: &[(&str, String)], lines: &[u8]) -> Result<Answer, Failure> {
    let send = || client.post_lines(&format!("{CAPTURES}/import"), query, lines);
    for _ in 1..bounds::IMPORT_TRIES {
        let answer = send()?;
        if answer.status != 429 {
            return Ok(answer);
        }
        std::thread::sleep(
            Duration::from_secs(answer.retry_after.unwrap_or(1)).min(bounds::IMPORT_WAIT),
        );
    }
    send()
}

/// A refusal, with where in the file the refused part begins.
fn from(failure: Failure, file: &Path, first: u64) -> Failure {
    match failure {
        Failure::Gateway(why) => {
            Failure::Gateway(format!("{}, from line {first} on: {why}", file.display()))
        }
        other => other,
    }
}

impl Sums {
    fn add(&mut self, answer: &Value) {
        for (sum, (name, _)) in self.0.iter_mut().zip(SUMS) {
            *sum += answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        }
    }

    fn json(&self) -> Value {
        self.0
            .iter()
            .zip(SUMS)
            .map(|(sum, (name, _))| (name.to_owned(), Value::from(*sum)))
            .collect()
    }

    fn told(&self) -> String {
        let told: Vec<String> = self
            .0
            .iter()
            .zip(SUMS)
            .filter(|(sum, (name, _))| **sum > 0 || *name == "imported")
            .map(|(sum, (_, text))| format!("{sum} {text}"))
            .collect();
        format!("{}\n", told.join(", "))
    }
}
