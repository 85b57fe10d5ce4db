//! What a start does with segments: those that the index does not know leave.

use super::segment_log::SegmentLog;
use super::service::Archive;
use crate::blocking::blocking;
use crate::store::StoreError;

/// What [`Archive::recover`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments without a row in the index: a crash came before their first batch counted. They are
    /// deleted.
    pub unknown: usize,
    /// Segments of the index whose file is not there. Their captures are unreadable.
    pub missing: usize,
}

impl Archive {
    /// Looks at the segments once, before the first capture is written. Where that fails, the first
    /// write tries again.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        self.recover_log(&mut *self.log.lock().await).await
    }

    pub(super) async fn recover_log(&self, log: &mut SegmentLog) -> Result<Recovered, StoreError> {
        let known = self.index.segments().await?;
        let folder = self.settings.folder.clone();
        let known: Vec<i64> = known.into_iter().map(|(segment, _)| segment.number).collect();
        let (numbers, recovered) = blocking(move || {
            let files = folder.list()?;
            let unknown: Vec<i64> =
                files.iter().copied().filter(|number| !known.contains(number)).collect();
            for number in &unknown {
                folder.delete(*number)?;
            }
            let missing = known.iter().filter(|number| !files.contains(number)).count();
            let last = known.into_iter().chain(files).max().unwrap_or(0);
            Ok::<_, std::io::Error>((last, Recovered { unknown: unknown.len(), missing }))
        })
        .await??;
        log.last = Some(numbers);
        if recovered.unknown > 0 {
            log::info!("{} segments without captures are deleted", recovered.unknown);
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

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
