//! Checks the segments at a start: those that the index does not list are set aside.

use super::segment_log::SegmentLog;
use super::service::Archive;
use rerouter_base::blocking::blocking;
use rerouter_store::StoreError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments without a row in the index. Either a crash came before their first batch was
    /// inserted, or the index was lost or replaced by an older one: these cases look alike. Empty
    /// segments are deleted, others are moved to `captures-unknown-<n>/`.
    pub unknown: usize,
    /// Segments in the index whose file is missing. Their captures are unreadable.
    pub missing: usize,
}

impl Archive {
    /// Checks the segments once, before the first capture is written. If the check fails, the first
    /// write tries it again.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        self.recover_log(&mut *self.log.lock().await).await
    }

    pub(super) async fn recover_log(&self, log: &mut SegmentLog) -> Result<Recovered, StoreError> {
        let known = self.index.segments().await?;
        let folder = self.settings.folder.clone();
        // A segment that the process before has begun may not be in the index yet.
        let all_known = self.index.is_of_two_processes();
        let mut known: Vec<i64> = known.into_iter().map(|(segment, _)| segment.number).collect();
        known.extend(self.index.spooled_segments().await?);
        let numbers = self.index.numbers();
        // Uploaded segments are in the object store, so only those that wait have to be here.
        let waiting = match self.remote.is_some() {
            true => Some(self.index.waiting_segments().await?),
            false => None,
        };
        let (last, recovered, aside) = blocking(move || {
            let files = folder.list()?;
            let is_unknown = |number: &i64| !all_known && !known.contains(number);
            let unknown: Vec<i64> = files.iter().copied().filter(is_unknown).collect();
            let is_only_here = |number: &i64| {
                waiting.as_ref().is_none_or(|waiting| waiting.iter().any(|(one, _)| one == number))
            };
            let missing = known.iter().filter(|number| !files.contains(number));
            let missing = missing.filter(|number| is_only_here(number)).count();
            let recovered = Recovered { unknown: unknown.len(), missing };
            let mut full = Vec::new();
            for number in unknown {
                match folder.is_empty(number)? {
                    true => folder.delete(number)?,
                    false => full.push(number),
                }
            }
            let aside = (!full.is_empty()).then(|| (full.len(), folder.set_aside(&full)));
            // Numbers of segments that were set aside are not reused, because these segments may be
            // put back.
            let used = known.into_iter().chain(files).chain(folder.list_aside()?);
            let last = used.map(|number| numbered(number, numbers)).max().unwrap_or(0);
            Ok::<_, std::io::Error>((last.max(numbers.0), recovered, aside))
        })
        .await??;
        log.last = Some(last);
        match aside {
            Some((count, Ok(folder))) => log::warn!(
                "{count} segments that the index does not list are moved to {}: if the index \
                 was lost or is an older one, stop the gateway, put the right one back and these \
                 files into captures/; if not, a crash left them, and they can be deleted",
                folder.display()
            ),
            Some((count, Err(error))) => log::warn!(
                "{count} segments that the index does not list cannot be moved away, and stay: \
                 {error}; if the index was lost or is an older one, stop the gateway and put the \
                 right one back"
            ),
            None => {}
        }
        if recovered.missing > 0 {
            log::error!(
                "{} segments are not there: their captures cannot be read",
                recovered.missing
            );
        }
        Ok(recovered)
    }
}

/// The number of a segment in this gateway's range of numbers. A segment from before gateways
/// shared the index has only the lower half of its number. Returns 0 for segments of other
/// gateways.
pub(super) fn numbered(number: i64, (first, last): (i64, i64)) -> i64 {
    match number {
        number if (first..=last).contains(&number) => number,
        number if number <= i64::from(u32::MAX) => first | number,
        _ => 0,
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
