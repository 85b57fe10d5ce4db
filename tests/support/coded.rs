//! Bodies in the content codings that clients may use.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// Names of codings as `Content-Encoding` has them; `deflate` is zlib's, and `deflate raw` what
/// some clients send for it.
pub const CODINGS: [&str; 6] = ["gzip", "x-gzip", "deflate", "deflate raw", "zstd", "br"];

/// What `Content-Encoding` says of a coding of [`CODINGS`].
pub fn header(coding: &str) -> &str {
    coding.split(' ').next().unwrap()
}

/// A body so coded.
pub fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
    encode_repeated(coding, body, 1)
}

/// The same bytes `times` in a row, so coded, without ever holding them.
pub fn encode_repeated(coding: &str, piece: &[u8], times: usize) -> Vec<u8> {
    let fast = Compression::fast();
    let mut out = Vec::new();
    let write = |to: &mut dyn Write| (0..times).for_each(|_| to.write_all(piece).unwrap());
    match coding {
        "gzip" | "x-gzip" => write(&mut GzEncoder::new(&mut out, fast)),
        "deflate" => write(&mut ZlibEncoder::new(&mut out, fast)),
        "deflate raw" => write(&mut DeflateEncoder::new(&mut out, fast)),
        "zstd" => write(&mut zstd::stream::Encoder::new(&mut out, 1).unwrap().auto_finish()),
        "br" => write(&mut brotli::CompressorWriter::new(&mut out, 64 << 10, 1, 22)),
        _ => panic!("no coding {coding}"),
    }
    out
}
