//! The archive of captures: encrypted bytes in segments, and an index that knows where they lie and
//! holds their keys.
//!
//! **One authority.** The index in the store is the truth: a capture is there if, and only if, it
//! has a row. A segment is a run of encrypted records without any structure of its own; nothing is
//! ever read from one without a row, and no index can be made from segments. Whoever loses the
//! index loses the captures, so a backup takes both.
//!
//! **Writing.** [`segment_log`] appends the records of a batch to the active segment and then
//! inserts their rows in one transaction, so a row points to bytes that were written before it.
//! Both survive the end of the process. Once a second the segment and the index's log are synced,
//! in this order: a loss of power costs about the last second. What a crash leaves behind the last
//! row of a segment belongs to no row and is ignored. A segment is never written again after it was
//! closed.
//!
//! **Keys.** Each capture is encrypted under a key of its own, derived from the store's root key
//! and a random salt of 16 bytes. The salt is in the capture's row and nowhere else. Deleting the
//! row therefore destroys the key: the bytes cannot be read from then on, although they stay in the
//! segment until it leaves. Deleting is one transaction, needs no segment, and works on a damaged
//! one. SQLite overwrites deleted rows (`secure_delete`), and the index's write-ahead log, which
//! may still hold an old page, is emptied within a minute.
//!
//! A segment leaves as a whole: when it holds no live capture, when its newest capture is past its
//! age, or when all segments together are too large. Nothing is compacted.
//!
//! The price: a capture is compressed alone, not with its neighbours, so captures of a few
//! kilobytes take about two fifths more of the disk. A dictionary makes up for some of it.
//!
//! **Damage.** A record that does not decrypt is an unreadable capture, found when it is read. It
//! costs no other capture.
//!
//! **Several gateways** share an index in PostgreSQL ([`sharing`]). Each writes segments of its own
//! numbers. `docs/internals/captures.md` says how one reads those of another.

mod capture_codec;
mod capture_key;
mod capture_reader;
mod import;
mod objects;
mod prepare;
mod recovery;
mod retention;
pub mod segment_folder;
mod segment_log;
mod segment_source;
mod service;
mod sharing;
mod unreadable;

pub use capture_reader::CaptureReader;
pub use objects::{ObjectLocation, SegmentObjects};
pub use service::Archive;
pub use service::{HeadPage, SEGMENT_SHARE};
