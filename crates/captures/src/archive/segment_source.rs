//! The sources from which a segment is read: the data directory, the copies of other gateways'
//! segments, or the object store.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::capture_key::CaptureKeys;
use super::objects::SegmentObjects;
use super::segment_folder::{SegmentFolder, SegmentReader};
use super::unreadable::Unreadable;
use rerouter_store::{ByteRange, CaptureIndex};

/// Time between two checks whether the object store answers. Each costs two requests.
const OBJECTS_LOOK: Duration = Duration::from_secs(20);
/// Time for which a failed object store is not asked again.
const OBJECTS_AWAY: Duration = Duration::from_secs(5);
/// Number of single ranges that are read of one remote segment before the whole segment is fetched.
const SEGMENT_RANGES: u32 = 3;
/// Most bytes of other gateways' segments that are kept here.
pub(super) const SEGMENT_CACHE: u64 = 1 << 30;
/// Time for which a fetched segment is kept.
pub(super) const SEGMENT_CACHE_TIME: Duration = Duration::from_secs(3600);

/// The object store of segments, and the folder of segments that were fetched whole.
#[derive(Clone)]
pub(super) struct RemoteSegments {
    pub(super) objects: SegmentObjects,
    pub(super) cache: SegmentFolder,
    index: CaptureIndex,
    /// The last time at which the object store's folder was seen to belong to this store.
    claimed: Arc<Mutex<Option<Instant>>>,
    /// The time and the reason of the object store's last failure.
    away: Arc<Mutex<Option<(Instant, String)>>>,
}

impl RemoteSegments {
    pub(super) fn new(objects: SegmentObjects, cache: SegmentFolder, index: CaptureIndex) -> Self {
        RemoteSegments { objects, cache, index, claimed: Arc::default(), away: Arc::default() }
    }

    /// Makes sure that the object store's folder belongs to the store of these keys. Nothing is
    /// written or deleted in it before. The check is repeated regularly, to notice an outage.
    pub(super) async fn claim(&self, keys: &CaptureKeys) -> io::Result<()> {
        let claimed = || self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed().is_none_or(|at| at.elapsed() >= OBJECTS_LOOK) {
            let mark = keys.mark().ok_or_else(|| io::Error::other("the keys of captures fail"))?;
            self.objects.claim(mark).await?;
            *claimed() = Some(Instant::now());
        }
        Ok(())
    }

    /// Asks the object store, unless it failed a moment ago: otherwise an evaluation would wait for
    /// each capture in vain.
    fn asked<T>(&self, ask: impl FnOnce() -> Result<T, Unreadable>) -> Result<T, Unreadable> {
        let away = || self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, why)) = &*away()
            && since.elapsed() < OBJECTS_AWAY
        {
            return Err(Unreadable::Away(why.clone()));
        }
        let answer = ask();
        *away() = match &answer {
            Err(Unreadable::Away(why)) => Some((Instant::now(), why.clone())),
            _ => None,
        };
        answer
    }

    /// Fetches a whole segment, unless it is here already. The index tells its length: otherwise
    /// anybody who may write to the object store could fill this disk.
    fn fetch(&self, number: i64) -> Result<SegmentReader, Unreadable> {
        match self.cache.open(number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return Ok(opened?),
        }
        self.make_room(SEGMENT_CACHE, SEGMENT_CACHE_TIME)?;
        let index = self.index.clone();
        let known = async move { index.segment_bytes(number).await.map_err(io::Error::other) };
        let length = self.objects.wait(known).map_err(remote_error)?.ok_or(Unreadable::Absent)?;
        let fetch = |path: &Path| self.objects.fetch(number, length, path);
        self.cache.fill(number, fetch).map_err(remote_error)?;
        Ok(self.cache.open(number)?)
    }

    /// Deletes copies that are older than `age`, and the oldest while all hold more than `bytes`.
    pub(super) fn make_room(&self, bytes: u64, age: Duration) -> io::Result<()> {
        let mut copies = Vec::new();
        for number in self.cache.list()? {
            // Another reader may have deleted the copy.
            let Ok(found) = self.cache.metadata(number) else { continue };
            copies.push((found.modified()?, number, found.len()));
        }
        copies.sort();
        let mut held: u64 = copies.iter().map(|(.., length)| length).sum();
        for (made, number, length) in copies {
            let old = SystemTime::now().duration_since(made).is_ok_and(|passed| passed > age);
            if old || held > bytes {
                self.cache.delete(number)?;
                held -= length;
            }
        }
        Ok(())
    }
}

/// Reads ranges of segments. Keeps the last segment open: captures made at the same time are close
/// together.
pub(super) struct SegmentSource {
    folder: SegmentFolder,
    remote: Option<RemoteSegments>,
    /// The first and the last segment number of this gateway, if there are several gateways.
    own: Option<(i64, i64)>,
    open: Option<(i64, SegmentReader)>,
    /// The last segment that was read from the object store, and how many times.
    asked: (i64, u32),
}

impl SegmentSource {
    pub(super) fn new(
        folder: SegmentFolder,
        remote: Option<RemoteSegments>,
        own: Option<(i64, i64)>,
    ) -> Self {
        SegmentSource { folder, remote, own, open: None, asked: (0, 0) }
    }

    pub(super) fn read(&mut self, number: i64, range: ByteRange) -> Result<Vec<u8>, Unreadable> {
        let segment = match self.open.take() {
            Some((open, segment)) if open == number => segment,
            _ => match self.folder.open(number).map_err(Unreadable::from) {
                Err(Unreadable::Absent) => match self.elsewhere(number, range) {
                    Ok(RemoteRead::Segment(segment)) => segment,
                    Ok(RemoteRead::Range(bytes)) => return Ok(bytes.into()),
                    Err(Unreadable::Absent) if self.is_of_another(number) => {
                        return Err(Unreadable::Elsewhere(number));
                    }
                    Err(why) => return Err(why),
                },
                opened => opened?,
            },
        };
        let (_, segment) = self.open.insert((number, segment));
        Ok(segment.read(range)?)
    }

    fn elsewhere(&mut self, number: i64, range: ByteRange) -> Result<RemoteRead, Unreadable> {
        let Some(remote) = &self.remote else { return Err(Unreadable::Absent) };
        let times = if self.asked.0 == number { self.asked.1 + 1 } else { 1 };
        self.asked = (number, times);
        remote.asked(|| match times {
            0..=SEGMENT_RANGES => {
                remote.objects.read(number, range).map(RemoteRead::Range).map_err(remote_error)
            }
            _ => remote.fetch(number).map(RemoteRead::Segment),
        })
    }

    fn is_of_another(&self, segment: i64) -> bool {
        self.own.is_some_and(|(first, last)| !(first..=last).contains(&segment))
    }
}

enum RemoteRead {
    Segment(SegmentReader),
    Range(Bytes),
}

fn remote_error(error: io::Error) -> Unreadable {
    match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Absent,
        _ => Unreadable::Away(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::archive::objects::ObjectLocation;
    use rerouter_store::{SegmentRow, Store};

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn remote(dir: &std::path::Path) -> RemoteSegments {
        let url = format!("file://{}", dir.join("objects").display());
        let objects = ObjectLocation::parse(&url).unwrap().open(&|_| None).unwrap();
        let store = wait(Store::open(&dir.join("data"))).unwrap();
        RemoteSegments::new(objects, SegmentFolder::of_copies(dir), store.capture_index())
    }

    /// Uploads a segment for which the index has the length `known`.
    fn put(dir: &std::path::Path, remote: &RemoteSegments, number: i64, known: u64) {
        let folder = SegmentFolder::new(&dir.join("elsewhere"));
        let file = folder.create(number).unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        wait(remote.objects.upload(number, folder.path(number))).unwrap();
        wait(remote.index.put_segment(SegmentRow { number, newest_us: 1, bytes: known })).unwrap();
    }

    #[test]
    fn no_more_of_a_segment_is_copied_than_the_index_knows() {
        let dir = tempfile::tempdir().unwrap();
        let remote = remote(dir.path());
        put(dir.path(), &remote, 7, 4);
        assert_eq!(
            remote.fetch(7).unwrap().read(ByteRange { offset: 0, length: 4 }).unwrap(),
            b"0123"
        );
        assert_eq!(remote.cache.metadata(7).unwrap().len(), 4, "somebody made the object longer");
        put(dir.path(), &remote, 8, 11);
        // The object is shorter than the index says.
        let beyond = ByteRange { offset: 8, length: 3 };
        assert!(remote.fetch(8).and_then(|segment| Ok(segment.read(beyond)?)).is_err());
        let unknown = remote.fetch(9).map(drop).unwrap_err();
        assert!(matches!(unknown, Unreadable::Absent), "{unknown}");
        assert!(!remote.cache.list().unwrap().contains(&9));
    }

    #[test]
    fn the_fourth_read_of_a_segment_fetches_it_and_copies_stay_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let remote = remote(dir.path());
        for number in [8, 9] {
            put(dir.path(), &remote, number, 10);
        }
        let mine = SegmentFolder::new(&dir.path().join("mine"));
        let mut source = SegmentSource::new(mine, Some(remote.clone()), Some((1, 5)));
        let range = ByteRange { offset: 2, length: 3 };
        for times in 1..6 {
            assert_eq!(source.read(9, range).unwrap(), b"234");
            assert_eq!(remote.cache.list().unwrap().contains(&9), times > 3, "{times}");
        }
        assert!(matches!(source.read(7, range), Err(Unreadable::Elsewhere(7))));
        assert!(matches!(source.read(3, range), Err(Unreadable::Absent)));
        remote.fetch(8).map(drop).unwrap();
        remote.make_room(15, Duration::from_secs(60)).unwrap();
        assert_eq!(remote.cache.list().unwrap(), [8].into(), "the older one leaves");
        remote.make_room(15, Duration::ZERO).unwrap();
        assert!(remote.cache.list().unwrap().is_empty());
    }
}
