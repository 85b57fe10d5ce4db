//! Encodes captures: each is compressed and then encrypted under its own key. A small capture is
//! one record; a larger one has a record for its head and one for its bodies.
//!
//! A record is 4 bytes with the length of its plain text, big-endian, then the text: as a zstd
//! frame if that is shorter, otherwise as it is. A record is encrypted with AES-256-GCM, which also
//! authenticates the id of the capture. Without a key, a CRC-32 follows instead.
//! `docs/internals/captures.md` describes the content.

use std::io;

use bytes::Bytes;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{
    CCtx, CParameter, InBuffer, OutBuffer, ParamSwitch, ResetDirective, compress_bound,
    get_error_name,
};

use super::capture_key::{CaptureKeys, SALT};
use crate::capture::bounds::CAPTURE_QUEUE_BYTES;
use crate::capture::pace::{Effort, WritePace};
use crate::capture::record::Bodies;
use rerouter_base::id::{Random, RequestId};
use rerouter_store::{ByteRange, CaptureLocation};

/// Bytes that are compressed between two yields: half a millisecond of work.
const CAPTURE_PIECE: usize = 64 << 10;

/// Text that captures have in common, with ready tables of letter codes, so that zstd makes none
/// for each capture. Made by `benches/captures/dictionary.py`. Records written with a dictionary
/// can only be read with it, so another dictionary needs another schema of the index.
const DICTIONARY: &[u8] = include_bytes!("captures.zdict");
/// Largest record that is compressed with the dictionary, and largest capture in a single record.
/// For larger ones the dictionary costs a third more time and saves only a few percent.
const SMALL: usize = 4 << 10;
/// Largest head, or bodies, that are read back, in bytes.
const LARGEST: usize = 2 * CAPTURE_QUEUE_BYTES;
/// Number of salts that are drawn at once.
const SALTS: usize = 64;

/// Identifies a record of a capture, so that no two are encrypted under the same nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordPart {
    /// The head, and small bodies.
    Head = 0,
    Bodies = 1,
}

#[derive(Clone, Debug)]
pub(super) struct Cipher {
    pub(super) keys: CaptureKeys,
    pub(super) random: Random,
    /// Whether new captures are encrypted.
    pub(super) encrypt: bool,
}

/// Buffers for records, in the order of a segment: lists read only heads.
#[derive(Default)]
pub(super) struct RecordBuffers {
    pub(super) heads: Vec<u8>,
    pub(super) bodies: Vec<u8>,
}

/// Compresses and encrypts captures. Keeps its compression contexts, with the dictionary prepared.
pub(super) struct RecordEncoder {
    small: CCtx<'static>,
    large: CCtx<'static>,
    /// For times of pressure: half the time, and a sixth more bytes.
    fast: CCtx<'static>,
    /// The plain text of a small capture, in one piece.
    plain: Vec<u8>,
    /// Salts that no capture uses yet. Used salts are wiped.
    salts: Vec<[u8; SALT]>,
}

/// A compression context of this level that looks for matches of at least `shortest` bytes, and
/// entropy-codes literals at any level.
fn context(level: i32, shortest: u32) -> io::Result<CCtx<'static>> {
    let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::MinMatch(shortest),
        CParameter::LiteralCompressionMode(ParamSwitch::Enable),
    ] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    Ok(context)
}

impl RecordEncoder {
    pub(super) fn new() -> io::Result<Self> {
        let mut small = context(-3, 6)?;
        small.load_dictionary(DICTIONARY).map_err(failed)?;
        let (large, fast) = (context(1, 6)?, context(-8, 7)?);
        Ok(RecordEncoder { small, large, fast, plain: Vec::new(), salts: Vec::new() })
    }

    /// Appends the records of a capture, encrypted under a new key. Returns their places in the
    /// buffers.
    pub(super) fn encode(
        &mut self,
        id: &RequestId,
        head: &[u8],
        bodies: &Bodies,
        cipher: &Cipher,
        pace: WritePace,
        out: &mut RecordBuffers,
    ) -> io::Result<CaptureLocation> {
        let salt = cipher.encrypt.then(|| self.salt(&cipher.random));
        let key = salt.map(|salt| cipher.keys.derive(&salt, id.as_str()).ok_or_else(refused));
        let key = key.transpose()?;
        let mut record = |part: RecordPart, pieces: &[&[u8]], out: &mut Vec<u8>| {
            let begin = out.len();
            self.compress(pieces, pace, out)?;
            match &key {
                Some(key) => {
                    key.seal(part as u64, id.as_str().as_bytes(), out, begin).ok_or_else(refused)?
                }
                None => {
                    let sum = crc32fast::hash(out.get(begin..).unwrap_or_default());
                    out.extend_from_slice(&sum.to_be_bytes());
                }
            }
            let length = u32::try_from(out.len() - begin).map_err(too_large)?;
            Ok::<_, io::Error>(ByteRange { offset: begin as u64, length })
        };
        let Bodies { request, response } = bodies;
        let (head_length, request_length) = (length_of(head)?, length_of(request)?);
        let whole = PREFIX + head.len() + request.len() + response.len();
        let (head, bodies) = if whole <= SMALL || (request.is_empty() && response.is_empty()) {
            let pieces: [&[u8]; 5] = [&head_length, &request_length, head, request, response];
            (record(RecordPart::Head, &pieces, &mut out.heads)?, None)
        } else {
            let (pieces, of_bodies): ([&[u8]; 3], [&[u8]; 3]) =
                ([&head_length, &[0; 4], head], [&request_length, request, response]);
            let head = record(RecordPart::Head, &pieces, &mut out.heads)?;
            (head, Some(record(RecordPart::Bodies, &of_bodies, &mut out.bodies)?))
        };
        Ok(CaptureLocation { segment: 0, head, bodies, salt, head_record: None })
    }

    /// An unpredictable salt. The system is asked for many at once.
    fn salt(&mut self, random: &Random) -> [u8; SALT] {
        if self.salts.is_empty() {
            self.salts.resize(SALTS, [0; SALT]);
            random.fill(self.salts.as_flattened_mut());
        }
        let drawn = self.salts.last_mut().map(std::mem::take).unwrap_or_default();
        self.salts.pop();
        drawn
    }

    /// Appends pieces to `out`, compressed in steps. Yields between steps, because megabytes take
    /// longer than a request may have to wait.
    fn compress(&mut self, pieces: &[&[u8]], pace: WritePace, out: &mut Vec<u8>) -> io::Result<()> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let begin = out.len();
        out.reserve(4 + compress_bound(length) + TAG);
        out.extend_from_slice(&u32::try_from(length).map_err(too_large)?.to_be_bytes());
        self.plain.clear();
        // Pieces that fit into one step are joined first.
        let pieces = if length <= CAPTURE_PIECE {
            pieces.iter().for_each(|piece| self.plain.extend_from_slice(piece));
            &[&*self.plain]
        } else {
            pieces
        };
        let context = match pace.effort {
            Effort::None => None,
            _ if length <= SMALL => Some(&mut self.small),
            Effort::Usual => Some(&mut self.large),
            Effort::Less => Some(&mut self.fast),
        };
        if let Some(context) = context {
            run(context, pieces, length, pace, out)?;
        }
        if out.len() == begin + 4 || out.len() >= begin + 4 + length {
            out.truncate(begin + 4);
            pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        }
        Ok(())
    }
}

/// Appends one frame with all pieces. `out` must have room for it.
fn run(
    context: &mut CCtx<'_>,
    pieces: &[&[u8]],
    length: usize,
    pace: WritePace,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    context.reset(ResetDirective::SessionOnly).map_err(failed)?;
    context.set_pledged_src_size(Some(length as u64)).map_err(failed)?;
    let begin = out.len();
    let mut frame = OutBuffer::around_pos(out, begin);
    let (mut left, mut since_yield) = (length, 0);
    for step in pieces.iter().flat_map(|piece| piece.chunks(CAPTURE_PIECE)) {
        since_yield += step.len();
        if since_yield > CAPTURE_PIECE {
            pace.give_way();
            since_yield = 0;
        }
        left -= step.len();
        let directive = match left {
            0 => ZSTD_EndDirective::ZSTD_e_end,
            _ => ZSTD_EndDirective::ZSTD_e_continue,
        };
        let mut step = InBuffer::around(step);
        let rest = context.compress_stream2(&mut frame, &mut step, directive).map_err(failed)?;
        if step.pos() < step.src.len() || (left == 0 && rest > 0) {
            return Err(io::Error::other("a record was not compressed whole"));
        }
    }
    Ok(())
}

/// Bytes before the head in its record.
const PREFIX: usize = 8;
/// Bytes that encryption adds to a record.
const TAG: usize = 16;

fn length_of(bytes: &[u8]) -> io::Result<[u8; 4]> {
    Ok(u32::try_from(bytes.len()).map_err(too_large)?.to_be_bytes())
}

fn refused() -> io::Error {
    io::Error::other("a capture could not be encrypted")
}

fn too_large(_: std::num::TryFromIntError) -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

fn failed(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

pub(super) struct RecordDecoder(Decompressor<'static>);

impl RecordDecoder {
    pub(super) fn new() -> io::Result<Self> {
        Ok(RecordDecoder(Decompressor::with_dictionary(DICTIONARY)?))
    }

    /// The content of a record, or what is wrong with it.
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
                let open = |mixed: &str, record| {
                    keys.derive(salt, mixed)?.open(part as u64, id.as_str().as_bytes(), record)
                };
                // Earlier builds derived the key only from the salt.
                open(id.as_str(), record.clone())
                    .or_else(|| open("", record))
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
        let whole = self.0.decompress(rest, length.min(LARGEST));
        whole
            .ok()
            .filter(|whole| whole.len() == length)
            .ok_or("it does not decompress to its length")
    }
}

/// Splits the plain text of a head's record into head and bodies; `None` if it is cut off.
pub(super) fn head_and_bodies(plain: Vec<u8>) -> Option<(Bytes, Bodies)> {
    let [a, b, c, d, e, f, g, h] = *plain.first_chunk::<PREFIX>()?;
    let lengths = [[a, b, c, d], [e, f, g, h]];
    let [head_length, request_length] = lengths.map(|length| u32::from_be_bytes(length) as usize);
    let mut head = Bytes::from(plain).split_off(PREFIX);
    if head_length.checked_add(request_length)? > head.len() {
        return None;
    }
    let mut request = head.split_off(head_length);
    let response = request.split_off(request_length);
    Some((head, Bodies { request, response }))
}

/// The bodies in the plain text of their record; `None` if it is cut off.
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
