//! Content codings of request bodies (RFC 9110 section 8.4.1; zstd: RFC 8878 and 9659; br: RFC
//! 7932). Bodies are decoded as they arrive, in steps of bounded work and into bounded memory.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use rerouter_base::error::{Error, Kind, Result};

/// Decoded bytes of a request body between two yields: some ten microseconds.
const DECODE_STEP: usize = 64 << 10;
/// Limit on gzip members and zstd frames in a body: each needs a decoder, and may be empty.
/// Block-compressed files of the largest bodies have some hundreds.
const CODED_PARTS: usize = 4_096;
/// Binary logarithm of the largest zstd window: 8 MiB, the most that HTTP allows (RFC 9659 section
/// 3).
const ZSTD_WINDOW_LOG: u32 = 23;

/// Magic number of a zstd frame, little-endian.
const ZSTD_MAGIC: u32 = 0xFD2F_B528;
/// Magic number of a skippable frame; its lowest four bits vary.
const ZSTD_SKIPPABLE: u32 = 0x184D_2A50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` or `x-gzip`: one or more members.
    Gzip,
    /// `deflate`: with a zlib header as the standard says, or without one, as some clients send it.
    Deflate,
    /// `zstd`: one or more frames.
    Zstd,
    Brotli,
}

impl Coding {
    /// The supported codings, as `Accept-Encoding` lists them.
    pub(crate) const SUPPORTED: &str = "gzip, deflate, zstd, br";

    /// Reads the values of all `Content-Encoding` lines; `None` for a plain body.
    ///
    /// # Errors
    /// 415 unless there is exactly one supported coding. Several codings would multiply the size of
    /// a small body.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Coding>> {
        let elements = lines
            .into_iter()
            .flat_map(|line| line.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii);
        let mut named = elements.filter(|element| !element.is_empty());
        let (first, second) = (named.next(), named.next());
        let known = match (first, second) {
            (None, None) => return Ok(None),
            (Some(one), None) if one.eq_ignore_ascii_case(b"identity") => return Ok(None),
            (Some(one), None) => Coding::named(one),
            _ => None,
        };
        let refused = || {
            format!("A request body may have one of these content codings: {}.", Coding::SUPPORTED)
        };
        known.map(Some).ok_or_else(|| {
            Error::new(Kind::UnsupportedMediaType, refused()).accepting(Coding::SUPPORTED)
        })
    }

    fn named(element: &[u8]) -> Option<Coding> {
        match &*element.to_ascii_lowercase() {
            b"gzip" | b"x-gzip" => Some(Coding::Gzip),
            b"deflate" => Some(Coding::Deflate),
            b"zstd" => Some(Coding::Zstd),
            b"br" => Some(Coding::Brotli),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
        }
    }
}

/// Decodes a body. Call [`push`](Self::push) with its bytes, then [`step`](Self::step) until it
/// returns false, and [`finish`](Self::finish) at the end.
pub struct Decoder {
    coding: Coding,
    engine: Engine,
    /// Pushed bytes that are not yet decoded.
    waiting: BytesMut,
    decoded: BytesMut,
    limit: usize,
    /// Output buffer of one step.
    room: Box<[u8]>,
    parts: usize,
}

/// Decodes a whole body by its `Content-Encoding` lines. `None` if no coding is supported, the body
/// is invalid, or it decodes to more than `limit` bytes.
pub fn decode<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    body: &[u8],
    limit: usize,
) -> Option<Bytes> {
    through(Coding::of(lines).ok()??, body, limit)?.finish().ok()
}

/// Returns a decoder that has decoded the whole body.
fn through(coding: Coding, body: &[u8], limit: usize) -> Option<Decoder> {
    let mut decoder = Decoder::new(coding, limit);
    decoder.push(body);
    while decoder.step().ok()? {}
    Some(decoder)
}

enum Engine {
    /// No member or frame has begun.
    Between,
    Inflate(Decompress),
    Zstd(zstd::stream::raw::Decoder<'static>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
}

struct Moved {
    read: usize,
    written: usize,
    ended: bool,
}

/// The bytes are invalid in their coding.
struct Corrupt;

impl Decoder {
    /// A decoder that produces at most `limit` bytes.
    pub fn new(coding: Coding, limit: usize) -> Self {
        let room = vec![0; DECODE_STEP].into_boxed_slice();
        Decoder {
            coding,
            engine: Engine::Between,
            waiting: BytesMut::new(),
            decoded: BytesMut::new(),
            limit,
            room,
            parts: 0,
        }
    }

    pub fn push(&mut self, chunk: &[u8]) {
        self.waiting.extend_from_slice(chunk);
    }

    /// Decodes up to [`DECODE_STEP`] bytes. Returns whether more can be decoded before the next
    /// push.
    ///
    /// # Errors
    /// 413 if the body exceeds the limit, 400 if its bytes are invalid in this coding.
    pub fn step(&mut self) -> Result<bool> {
        if matches!(self.engine, Engine::Between) {
            if self.waiting.is_empty() {
                return Ok(false);
            }
            match self.begin() {
                Ok(Some(engine)) => self.engine = engine,
                Ok(None) => return Ok(false),
                Err(Corrupt) => return Err(self.corrupt()),
            }
        }
        let Ok(moved) = self.engine.step(&self.waiting, &mut self.room) else {
            return Err(self.corrupt());
        };
        let stuck =
            moved.read == 0 && moved.written == 0 && !moved.ended && !self.waiting.is_empty();
        if stuck {
            return Err(self.corrupt());
        }
        self.waiting.advance(moved.read);
        if moved.written > self.limit - self.decoded.len() {
            return Err(Error::new(
                Kind::PayloadTooLarge,
                format!("The decoded body is larger than {} bytes.", self.limit),
            ));
        }
        self.decoded.extend_from_slice(self.room.get(..moved.written).unwrap_or_default());
        if moved.ended {
            self.engine = Engine::Between;
        }
        // An engine that filled the output buffer may hold more.
        Ok(!self.waiting.is_empty() || (!moved.ended && moved.written == self.room.len()))
    }

    /// Bytes decoded so far.
    pub fn decoded(&self) -> usize {
        self.decoded.len()
    }

    /// Returns the decoded body.
    ///
    /// # Errors
    /// 400 if the body is truncated.
    pub fn finish(self) -> Result<Bytes> {
        if self.parts == 0 || !self.waiting.is_empty() || !matches!(self.engine, Engine::Between) {
            let message =
                format!("The body breaks off: its {} is not whole.", self.coding.as_str());
            return Err(Error::new(Kind::InvalidRequest, message));
        }
        Ok(self.decoded.freeze())
    }

    /// Starts an engine for the pushed bytes; `None` if they are too few to choose one.
    fn begin(&mut self) -> std::result::Result<Option<Engine>, Corrupt> {
        let engine = match (self.coding, &self.waiting[..]) {
            (Coding::Deflate | Coding::Brotli, _) if self.parts > 0 => return Err(Corrupt),
            (Coding::Gzip, _) => Engine::Inflate(Decompress::new_gzip(15)),
            (Coding::Deflate, [first, second, ..]) => {
                Engine::Inflate(Decompress::new(is_zlib(*first, *second)))
            }
            (Coding::Zstd, &[a, b, c, d, ..]) => {
                let magic = u32::from_le_bytes([a, b, c, d]);
                // The library would also accept formats older than the standard.
                if magic != ZSTD_MAGIC && magic & !0xF != ZSTD_SKIPPABLE {
                    return Err(Corrupt);
                }
                let mut decoder = zstd::stream::raw::Decoder::new().map_err(|_| Corrupt)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
                    .map_err(|_| Corrupt)?;
                Engine::Zstd(decoder)
            }
            (Coding::Brotli, _) => Engine::Brotli(Box::new(BrotliState::new_strict(
                StandardAlloc::default(),
                StandardAlloc::default(),
                StandardAlloc::default(),
            ))),
            (Coding::Deflate | Coding::Zstd, _) => return Ok(None),
        };
        self.parts += 1;
        if self.parts > CODED_PARTS {
            return Err(Corrupt);
        }
        Ok(Some(engine))
    }

    fn corrupt(&self) -> Error {
        let what = match self.parts {
            0 | 1 => format!("The body is not valid {}.", self.coding.as_str()),
            _ => format!("The body is not valid {} after its first part.", self.coding.as_str()),
        };
        Error::new(Kind::InvalidRequest, what)
    }
}

/// Whether deflated bytes begin with a zlib header (RFC 1950 section 2.2). Raw deflate hardly ever
/// looks like one: it would be a stored block with padding bits set, which encoders leave clear.
fn is_zlib(first: u8, second: u8) -> bool {
    first & 0x0F == 8 && first >> 4 <= 7 && u16::from_be_bytes([first, second]).is_multiple_of(31)
}

impl Engine {
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> std::result::Result<Moved, Corrupt> {
        match self {
            Engine::Between => Err(Corrupt),
            Engine::Inflate(inflate) => {
                let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
                let status =
                    inflate.decompress(input, room, FlushDecompress::None).map_err(|_| Corrupt)?;
                let count =
                    |now: u64, before: u64| usize::try_from(now - before).map_err(|_| Corrupt);
                Ok(Moved {
                    read: count(inflate.total_in(), before_in)?,
                    written: count(inflate.total_out(), before_out)?,
                    ended: status == Status::StreamEnd,
                })
            }
            Engine::Zstd(zstd) => {
                let (mut source, mut sink) = (InBuffer::around(input), OutBuffer::around(room));
                let left = zstd.run(&mut source, &mut sink).map_err(|_| Corrupt)?;
                Ok(Moved { read: source.pos(), written: sink.pos(), ended: left == 0 })
            }
            Engine::Brotli(state) => {
                let (mut to_read, mut read, mut to_write, mut written, mut total) =
                    (input.len(), 0, room.len(), 0, 0);
                let said = BrotliDecompressStream(
                    &mut to_read,
                    &mut read,
                    input,
                    &mut to_write,
                    &mut written,
                    room,
                    &mut total,
                    state,
                );
                match said {
                    BrotliResult::ResultFailure => Err(Corrupt),
                    said => Ok(Moved {
                        read,
                        written,
                        ended: matches!(said, BrotliResult::ResultSuccess),
                    }),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "coding_tests.rs"]
mod tests;
