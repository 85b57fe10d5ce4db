//! `rerouter replay export`

use serde_json::Value;

use super::super::client::ApiClient;
use super::super::failure::{CommandFailure, Result};
use super::super::output::{Output, print_error};
use super::super::progress::ProgressLine;
use super::super::records::for_each_record;
use super::captures::{CAPTURES, path};
use rerouter_captures::capture::record::Capture;

#[derive(Default)]
struct ExportCounts {
    written: u64,
    /// Deleted between the list and the export.
    deleted: u64,
    unreadable: u64,
}

pub(super) fn export(
    client: &ApiClient,
    query: &[(&'static str, String)],
    limit: Option<u64>,
    out: &str,
) -> Result<()> {
    let mut output = Output::open(out)?;
    let (progress, mut counts) = (ProgressLine::text(), ExportCounts::default());
    let result = for_each_record(client, CAPTURES, query, limit.unwrap_or(u64::MAX), |summary| {
        let field = |name: &str| summary.get(name).and_then(Value::as_str).unwrap_or_default();
        export_one(client, field("id"), &mut output, &mut counts)?;
        progress.pace(counts.written, field("created_at").parse().ok());
        Ok(())
    });
    progress.clear();
    match result {
        Ok(unreadable) => {
            counts.unreadable += unreadable;
            output.finish()?;
            print_error(&format!("{}\n", counts.text()));
        }
        Err(CommandFailure::PipeClosed) => return Err(CommandFailure::PipeClosed),
        Err(failure) => {
            let kept = output.abandon().map(|path| format!("; they are in {}", path.display()));
            let kept = kept.unwrap_or_default();
            print_error(&format!("{}, then the export failed{kept}\n", counts.text()));
            return Err(failure);
        }
    }
    match counts.unreadable {
        0 => Ok(()),
        count => {
            Err(CommandFailure::Gateway(format!("{count} captures cannot be read: not in {out}")))
        }
    }
}

fn export_one(
    client: &ApiClient,
    id: &str,
    output: &mut Output,
    counts: &mut ExportCounts,
) -> Result<()> {
    let answer = client.get(&path(id)?, &[])?;
    match answer.status {
        404 => counts.deleted += 1,
        // Only this capture is damaged, or has its bodies on another gateway; the others may be
        // readable.
        409 => counts.unreadable += 1,
        503 if answer.forbids_retry => counts.unreadable += 1,
        _ => {
            let capture = answer.ok()?;
            match Capture::read_whole(capture.text.as_bytes()) {
                Ok(_) => {
                    output.line(capture.text.trim_end())?;
                    counts.written += 1;
                }
                Err(why) => {
                    print_error(&format!("{id}: the answer of the gateway is {why}\n"));
                    counts.unreadable += 1;
                }
            }
        }
    }
    Ok(())
}

impl ExportCounts {
    fn text(&self) -> String {
        let some = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let (deleted, unreadable) =
            (some(self.deleted, "deleted meanwhile"), some(self.unreadable, "unreadable"));
        format!("{} captures{deleted}{unreadable}", self.written)
    }
}
