//! The archive of captures: encrypted bytes in segments, and an index that has their locations and
//! holds their keys.
//!
//! **One authority.** The index in the store is the truth: a capture exists if, and only if, it has
//! a row. A segment is a sequence of encrypted records without any structure of its own. Nothing is
//! ever read from a segment without a row, and no index can be made from segments. Without the
//! index the captures are lost, so a backup takes both.
//!
//! **Writing.** [`segment_log`] appends the records of a batch to the active segment and then
//! inserts their rows in one transaction, so a row points to bytes that were written before it.
//! Both survive the end of the process. Once a second the segment and then the index's log are
//! synced: a loss of power costs about the last second. If a crash leaves bytes after the last row
//! of a segment, they belong to no row and are ignored. A closed segment is never written again.
//!
//! **Keys.** Each capture is encrypted under its own key, which is derived from the store's root
//! key and a random salt of 16 bytes. The salt is in the capture's row and nowhere else. So
//! deleting the row destroys the key: from then on the bytes cannot be read, although they stay in
//! the segment until it is removed. Deleting is one transaction, does not touch the segment, and
//! works even if the segment is damaged. SQLite overwrites deleted rows (`secure_delete`), and the
//! index's write-ahead log, which may still hold an old page, is emptied within a minute.
//!
//! A segment is removed as a whole: when it holds no live capture, when its newest capture is too
//! old, or when all segments together are too large. Nothing is compacted.
//!
//! The price: each capture is compressed alone, not with its neighbours, so captures of a few
//! kilobytes take about two fifths more disk space. The dictionary makes up for a part of that.
//!
//! **Damage.** A record that does not decrypt is an unreadable capture, found when it is read.
//! Other captures are not affected.
//!
//! **Several gateways** share an index in PostgreSQL ([`sharing`]). Each writes segments with its
//! own range of numbers. `docs/internals/captures.md` tells how a gateway reads the segments of
//! another.

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
