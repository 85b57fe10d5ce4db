//! One capture as bytes: its head and its bodies, each compressed and then encrypted under the
//! capture's key.
//!
//! A record is 4 bytes of length, big-endian, then that many bytes, as a zstd frame if that is
//! shorter, as they are if not. It is encrypted with AES-256-GCM; the id of the capture is
//! authenticated with it. Without a key a CRC-32 follows it. The bodies are 4 bytes with the length
//! of the request's, then both.

use std::io;

use bytes::Bytes;
use zstd::bulk::Decompressor;
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

use super::capture_key::{CaptureKeys, SALT};
use crate::bounds;
use crate::capture::pace::{Effort, WritePace};
use crate::capture::record::Bodies;
use crate::id::{Random, RequestId};

/// What heads have in common, with tables for their letters: zstd makes none for each head then.
/// `benches/captures/dictionary.py` made it. Records written under a dictionary are read with it
/// only: another one needs another schema of the index.
const HEADS: &[u8] = include_bytes!("heads.zdict");
/// The same of bodies.
const BODIES: &[u8] = include_bytes!("bodies.zdict");
/// The largest record that is compressed with a dictionary: for larger ones it costs a third more
/// time and saves a few percent.
const SMALL: usize = 4 << 10;
/// The level under pressure: half the time of level 1, and a quarter more bytes.
const FAST: i32 = -3;
/// The largest head or bodies that are read back.
const LARGEST: usize = 2 * bounds::CAPTURE_QUEUE_BYTES;

/// Which record of a capture: no two are encrypted under the same nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordPart {
    Head = 0,
    Bodies = 1,
}

/// Encrypts and decrypts captures.
#[derive(Clone, Debug)]
pub(super) struct Cipher {
    pub(super) keys: CaptureKeys,
    pub(super) random: Random,
    /// Whether new captures are encrypted.
    pub(super) encrypt: bool,
}

/// The records of a capture.
pub(super) struct Records {
    pub(super) head: Vec<u8>,
    /// `None` where there are no bodies.
    pub(super) bodies: Option<Vec<u8>>,
    pub(super) salt: Option<[u8; SALT]>,
}

pub(super) struct RecordEncoder {
    usual: Encoders,
    fast: Encoders,
}

/// Encoders of one level. Each keeps its dictionary prepared.
struct Encoders {
    heads: Encoder<'static>,
    small: Encoder<'static>,
    large: Encoder<'static>,
}

impl Encoders {
    fn new(level: i32) -> io::Result<Self> {
        let heads = Encoder::with_dictionary(level, HEADS)?;
        let small = Encoder::with_dictionary(level, BODIES)?;
        Ok(Encoders { heads, small, large: Encoder::new(level)? })
    }

    fn of(&mut self, part: RecordPart, length: usize) -> &mut Encoder<'static> {
        match part {
            _ if length > SMALL => &mut self.large,
            RecordPart::Head => &mut self.heads,
            RecordPart::Bodies => &mut self.small,
        }
    }
}

impl RecordEncoder {
    pub(super) fn new() -> io::Result<Self> {
        Ok(RecordEncoder { usual: Encoders::new(1)?, fast: Encoders::new(FAST)? })
    }

    /// The records of a capture, encrypted under a new key.
    pub(super) fn encode(
        &mut self,
        id: &RequestId,
        head: &[u8],
        bodies: &Bodies,
        cipher: &Cipher,
        pace: WritePace,
    ) -> io::Result<Records> {
        let salt = cipher.encrypt.then(|| {
            let mut salt = [0; SALT];
            cipher.random.fill(&mut salt);
            salt
        });
        let key = salt.map(|salt| cipher.keys.derive(&salt).ok_or_else(refused)).transpose()?;
        let mut record = |part: RecordPart, pieces: &[&[u8]]| {
            let mut record = self.compress(part, pieces, pace)?;
            match &key {
                Some(key) => key
                    .seal(part as u64, id.as_str().as_bytes(), &mut record)
                    .ok_or_else(refused)?,
                None => {
                    record.extend_from_slice(&crc32fast::hash(&record).to_be_bytes());
                }
            }
            Ok::<_, io::Error>(record)
        };
        let Bodies { request, response } = bodies;
        let length = u32::try_from(request.len()).map_err(too_large)?.to_be_bytes();
        Ok(Records {
            head: record(RecordPart::Head, &[head])?,
            bodies: if request.is_empty() && response.is_empty() {
                None
            } else {
                Some(record(RecordPart::Bodies, &[&length, request, response])?)
            },
            salt,
        })
    }

    /// Compresses in steps and yields between them: megabytes take longer than a request may have
    /// to wait.
    fn compress(
        &mut self,
        part: RecordPart,
        pieces: &[&[u8]],
        pace: WritePace,
    ) -> io::Result<Vec<u8>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut record = Vec::with_capacity(4 + zstd::zstd_safe::compress_bound(length));
        record.extend_from_slice(&u32::try_from(length).map_err(too_large)?.to_be_bytes());
        let encoder = match pace.effort {
            Effort::Usual => Some(self.usual.of(part, length)),
            Effort::Less => Some(self.fast.of(part, length)),
            Effort::None => None,
        };
        if let Some(encoder) = encoder {
            encoder.reinit()?;
            encoder.set_pledged_src_size(Some(length as u64))?;
            let mut out = OutBuffer::around_pos(&mut record, 4);
            let mut since_yield = 0;
            for step in pieces.iter().flat_map(|piece| piece.chunks(bounds::CAPTURE_PIECE)) {
                since_yield += step.len();
                if since_yield > bounds::CAPTURE_PIECE {
                    pace.give_way();
                    since_yield = 0;
                }
                let mut step = InBuffer::around(step);
                encoder.run(&mut step, &mut out)?;
                if step.pos() < step.src.len() {
                    return Err(io::Error::other(INCOMPLETE));
                }
            }
            if encoder.finish(&mut out, true)? != 0 {
                return Err(io::Error::other(INCOMPLETE));
            }
        }
        if record.len() == 4 || record.len() >= 4 + length {
            record.truncate(4);
            pieces.iter().for_each(|piece| record.extend_from_slice(piece));
        }
        Ok(record)
    }
}

const INCOMPLETE: &str = "a record was not compressed whole";

fn refused() -> io::Error {
    io::Error::other("a capture could not be encrypted")
}

fn too_large(_: std::num::TryFromIntError) -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

pub(super) struct RecordDecoder {
    heads: Decompressor<'static>,
    bodies: Decompressor<'static>,
}

impl RecordDecoder {
    pub(super) fn new() -> io::Result<Self> {
        let heads = Decompressor::with_dictionary(HEADS)?;
        Ok(RecordDecoder { heads, bodies: Decompressor::with_dictionary(BODIES)? })
    }

    /// What a record holds, or what is wrong with it.
    pub(super) fn decode(
        &mut self,
        id: &RequestId,
        part: RecordPart,
        mut record: Vec<u8>,
        salt: Option<&[u8; SALT]>,
        keys: &CaptureKeys,
    ) -> Result<Vec<u8>, &'static str> {
        let plain = match salt {
            Some(salt) => {
                let key = keys.derive(salt).ok_or("its key is refused")?;
                key.open(part as u64, id.as_str().as_bytes(), record)
                    .ok_or("it does not decrypt")?
            }
            None => {
                let (plain, sum) = record.split_last_chunk::<4>().ok_or("it is cut off")?;
                if crc32fast::hash(plain) != u32::from_be_bytes(*sum) {
                    return Err("its checksum is wrong");
                }
                let length = plain.len();
                record.truncate(length);
                record
            }
        };
        let (length, rest) = plain.split_first_chunk::<4>().ok_or("it is cut off")?;
        let length = u32::from_be_bytes(*length) as usize;
        if rest.len() == length {
            return Ok(rest.to_vec());
        }
        let decoder = match part {
            RecordPart::Head => &mut self.heads,
            RecordPart::Bodies => &mut self.bodies,
        };
        let whole = decoder.decompress(rest, length.min(LARGEST));
        whole
            .ok()
            .filter(|whole| whole.len() == length)
            .ok_or("it does not decompress to its length")
    }
}

/// The bodies in a record of them.
pub(super) fn bodies(plain: Vec<u8>) -> Option<Bodies> {
    let (length, _) = plain.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    let mut request = Bytes::from(plain).split_off(4);
    if length > request.len() {
        return None;
    }
    let response = request.split_off(length);
    Some(Bodies { request, response })
}

#[cfg(test)]
#[path = "capture_codec_tests.rs"]
mod tests;
