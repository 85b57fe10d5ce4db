//! Segments in an object store. All calls to the store run on their own threads. No request waits
//! for them, except to read a capture of another gateway.

mod client;
mod location;

use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};
use tokio::runtime::{Builder, Handle, Runtime};

use super::segment_folder::file_name;
use rerouter_base::blocking::blocking;
use rerouter_store::ByteRange;

pub use location::ObjectLocation;

/// Bytes of a segment that are sent or read in one part.
const OBJECT_PART: usize = 8 << 20;
/// Longest time of all requests for one segment.
const OBJECT_TIME: Duration = Duration::from_secs(120);
/// Most characters of an object store's error that are reported.
const OBJECT_ERROR: usize = 300;

/// The name of the object with the mark of the store that owns the folder.
const OWNER: &str = "rerouter-database";

/// Segments in an object store. Cloning is cheap.
#[derive(Clone)]
pub struct SegmentObjects(Arc<ObjectThreads>);

struct ObjectThreads {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for ObjectThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last handle may be dropped on a thread that must not block.
            runtime.shutdown_background();
        }
    }
}

impl SegmentObjects {
    fn new(store: Arc<dyn ObjectStore>, prefix: ObjectPath) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("capture-objects")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok(SegmentObjects(Arc::new(ObjectThreads {
            store,
            prefix,
            handle,
            runtime: Some(runtime),
        })))
    }

    /// Claims the folder for the store with this mark. An error if the folder belongs to another
    /// store, because numbers of segments are unique only within one store.
    pub(super) async fn claim(&self, mark: String) -> io::Result<()> {
        let (store, path) = (Arc::clone(&self.0.store), self.0.prefix.clone().join(OWNER));
        let claim = async move {
            // If two stores claim it at once, one of them finds the other's mark.
            let new = PutOptions::from(PutMode::Create);
            match store.put_opts(&path, PutPayload::from(mark.clone()), new).await {
                Ok(_) => return Ok(()),
                Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. },
                ) => {}
                Err(error) => return Err(told(&error)),
            }
            let found = match store.get(&path).await {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            };
            match found.map_err(|error| told(&error))? == mark {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "captures of another database are in this folder of the object store: name \
                     another folder, or delete {path} if that database is gone"
                ))),
            }
        };
        self.run(claim).await
    }

    /// Uploads a closed segment from this file. Returns its size in bytes. Error kind `NotFound`:
    /// there is no such file.
    pub(super) async fn upload(&self, number: i64, file: PathBuf) -> io::Result<u64> {
        let (store, path) = (Arc::clone(&self.0.store), self.path(number));
        self.run(async move { upload(&*store, &path, file).await }).await
    }

    /// Reads a range of a segment. Error kind `NotFound`: there is no such segment. Blocking.
    pub(super) fn read(&self, number: i64, range: ByteRange) -> io::Result<Bytes> {
        let (store, path) = (Arc::clone(&self.0.store), self.path(number));
        let range = range.offset..range.offset.saturating_add(range.length.into());
        self.wait(
            async move { store.get_range(&path, range).await.map_err(|error| absent(&error)) },
        )
    }

    /// Copies the first `length` bytes of a segment into a new file. Error kind `NotFound`: there
    /// is no such segment. Blocking.
    pub(super) fn fetch(&self, number: i64, length: u64, to: &Path) -> io::Result<()> {
        let (store, path) = (Arc::clone(&self.0.store), self.path(number));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(to)?;
        let mut from = 0;
        while from < length {
            let until = length.min(from + OBJECT_PART as u64);
            let (store, path) = (Arc::clone(&store), path.clone());
            let part =
                async move { store.get_range(&path, from..until).await.map_err(|e| absent(&e)) };
            file.write_all(&self.wait(part)?)?;
            from = until;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, number: i64) -> io::Result<()> {
        let (store, path) = (Arc::clone(&self.0.store), self.path(number));
        self.run(async move { delete(&*store, &path).await }).await
    }

    /// Writes, reads and deletes a small object. Blocking.
    pub fn probe(&self, name: &str) -> io::Result<()> {
        let (store, path) = (Arc::clone(&self.0.store), self.0.prefix.clone().join(name));
        let probe = async move {
            let written = Bytes::from_static(b"rerouter");
            let put = store.put(&path, PutPayload::from_bytes(written.clone())).await;
            put.map_err(|error| told(&error))?;
            let read = store.get_range(&path, 0..written.len() as u64).await;
            let deleted = delete(&*store, &path).await;
            let read = read.map_err(|error| told(&error))?;
            if read != written {
                return Err(io::Error::other("it returns other bytes than were written"));
            }
            deleted
        };
        self.wait(probe)
    }

    fn path(&self, number: i64) -> ObjectPath {
        self.0.prefix.clone().join(file_name(number))
    }

    /// Runs `work` on the threads for the object store, for at most [`OBJECT_TIME`].
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        // The timer must be created on one of these threads, too.
        let work = async move { tokio::time::timeout(OBJECT_TIME, work).await };
        let work = self.0.handle.spawn(work);
        let done = work.await.map_err(io::Error::other)?;
        done.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))?
    }

    /// Runs a future and blocks until it is done.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        self.0.handle.block_on(self.run(work))
    }
}

async fn upload(store: &dyn ObjectStore, path: &ObjectPath, file: PathBuf) -> io::Result<u64> {
    let open = move || {
        let file = File::open(file)?;
        let size = file.metadata()?.len();
        Ok::<_, io::Error>((Arc::new(file), size))
    };
    let (file, size) = blocking(open).await.map_err(io::Error::other)??;
    let part = async |from: u64| {
        let (file, length) = (Arc::clone(&file), (size - from).min(OBJECT_PART as u64));
        let read = move || {
            let mut part = vec![0; length as usize];
            file.read_exact_at(&mut part, from).map(|()| Bytes::from(part))
        };
        blocking(read).await.map_err(io::Error::other)?
    };
    if size <= OBJECT_PART as u64 {
        let put = store.put(path, PutPayload::from_bytes(part(0).await?)).await;
        return put.map(|_| size).map_err(|error| told(&error));
    }
    let multipart = store.put_multipart(path).await.map_err(|error| told(&error))?;
    let mut upload = WriteMultipart::new_with_chunk_size(multipart, OBJECT_PART);
    let mut from = 0;
    while from < size {
        let sent = async {
            let part = part(from).await?;
            upload.wait_for_capacity(1).await.map_err(|error| told(&error))?;
            from += part.len() as u64;
            upload.put(part);
            Ok::<_, io::Error>(())
        };
        if let Err(error) = sent.await {
            // Otherwise the object store keeps the parts until its own rules delete them.
            let _left = upload.abort().await;
            return Err(error);
        }
    }
    upload.finish().await.map(|_| size).map_err(|error| told(&error))
}

async fn delete(store: &dyn ObjectStore, path: &ObjectPath) -> io::Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(told(&error)),
    }
}

/// The error of a read, of kind `NotFound` if there is no such object.
fn absent(error: &object_store::Error) -> io::Error {
    match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound.into(),
        error => told(error),
    }
}

/// A short form of the error: of a server's long text only the code is kept. Its kind is never
/// `NotFound`, which a missing bucket would cause too.
fn told(error: &object_store::Error) -> io::Error {
    let all = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let (all, xml) = all.split_once("<?xml").unwrap_or((&all, ""));
    let code = xml.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    // Azure's XML begins with a byte order mark.
    let all = all.trim_end_matches(['\u{feff}', ' ']).chars().take(OBJECT_ERROR);
    let code = code.map_or("", |(code, _)| code).chars().take(OBJECT_ERROR);
    io::Error::other(all.chain([' ']).chain(code).collect::<String>().trim_end().to_owned())
}

#[cfg(test)]
mod tests;
