//! HTTP/2 by its frames, for what no client library would send.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::PATIENCE;

/// What a connection begins with (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// One frame as it is sent.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A SETTINGS frame.
pub fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = pairs
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// A request without a body: a HEADERS frame, and CONTINUATION frames where it is long. Fields are
/// literals, never Huffman coded.
pub fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let block: Vec<u8> = fields
        .iter()
        .flat_map(|(name, value)| [vec![0], text(name), text(value)].concat())
        .collect();
    let mut pieces = block.chunks(16_000).peekable();
    let mut out = Vec::new();
    let (mut kind, mut flags) = (HEADERS, END_STREAM);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= END_HEADERS;
        }
        out.extend(frame(kind, flags, stream, piece));
        (kind, flags) = (9, 0);
    }
    out
}

/// The beginning of a request whose head never ends.
pub fn begun_request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM, stream, &[vec![0], text(":method"), text("GET")].concat())
}

fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut length = text.len();
    if length < 127 {
        out.push(u8::try_from(length).unwrap());
    } else {
        out.push(127);
        length -= 127;
        while length >= 128 {
            out.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        out.push(u8::try_from(length).unwrap());
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// A connection that has negotiated `h2`, and sends what it is told.
pub struct Frames {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

/// How a stream ended.
#[derive(Debug)]
pub struct Ended {
    /// As the first field of the answer's head said, if there was one.
    pub status: Option<u16>,
    pub body: Vec<u8>,
    /// By RST_STREAM.
    pub reset: bool,
}

impl Frames {
    /// Sends the preface and these settings.
    pub async fn open(mut stream: TlsStream<TcpStream>, pairs: &[(u16, u32)]) -> Self {
        stream.write_all(&[PREFACE, &settings(pairs)].concat()).await.unwrap();
        Frames { stream, buffer: Vec::new() }
    }

    /// Sends these bytes; false when the other side is gone.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// The next frame: kind, flags, stream, payload. `None` when the connection is over.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            if let Some(head) = self.buffer.get(..9) {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let (kind, flags) = (head[3], head[4]);
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                if self.buffer.len() >= 9 + length {
                    let payload = self.buffer[9..9 + length].to_vec();
                    self.buffer.drain(..9 + length);
                    return Some((kind, flags, stream, payload));
                }
            }
            let mut piece = vec![0; 16 << 10];
            match self.stream.read(&mut piece).await {
                Ok(n) if n > 0 => self.buffer.extend_from_slice(&piece[..n]),
                _ => return None,
            }
        }
    }

    /// Reads until this stream has ended, or the connection has: then `None`.
    pub async fn ended(&mut self, stream: u32) -> Option<Ended> {
        let mut so_far = Ended { status: None, body: Vec::new(), reset: false };
        let reading = async {
            while let Some((kind, flags, of, payload)) = self.next().await {
                if kind == SETTINGS
                    && flags & ACK == 0
                    && !self.send(&frame(SETTINGS, ACK, 0, &[])).await
                {
                    return None;
                }
                if of != stream {
                    continue;
                }
                match kind {
                    HEADERS => so_far.status = Some(status(&payload)),
                    DATA => so_far.body.extend_from_slice(&payload),
                    RST_STREAM => so_far.reset = true,
                    _ => {}
                }
                if kind == RST_STREAM || (matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0)
                {
                    return Some(so_far);
                }
            }
            None
        };
        timeout(PATIENCE, reading).await.expect("the end of a stream within the bound")
    }

    /// Reads until the answers of so many streams have begun, or the streams are reset; false when
    /// the connection is over.
    pub async fn all_begun(&mut self, streams: usize) -> bool {
        let reading = async {
            let mut begun = std::collections::HashSet::new();
            while begun.len() < streams {
                match self.next().await {
                    Some((HEADERS | RST_STREAM, _, of, _)) => begun.insert(of),
                    Some(_) => false,
                    None => return false,
                };
            }
            true
        };
        timeout(PATIENCE, reading).await.expect("answers that begin within the bound")
    }

    /// Reads until the head of a stream's answer has come, or the stream is reset; false when the
    /// connection is over.
    pub async fn begun(&mut self, stream: u32) -> bool {
        let reading = async {
            while let Some((kind, _, of, _)) = self.next().await {
                if of == stream && matches!(kind, HEADERS | RST_STREAM) {
                    return true;
                }
            }
            false
        };
        timeout(PATIENCE, reading).await.expect("the beginning of an answer within the bound")
    }
}

/// The status of an answer's head, which is its first field: of the static table (RFC 7541 appendix
/// A), or a literal.
fn status(block: &[u8]) -> u16 {
    match block {
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        [0x08 | 0x18 | 0x48, length, value @ ..] if length & 0x80 == 0 => {
            std::str::from_utf8(&value[..usize::from(*length)]).unwrap().parse().unwrap()
        }
        [0x08 | 0x18 | 0x48, length, value @ ..] => digits(&value[..usize::from(length & 0x7f)]),
        _ => panic!("no status in {block:x?}"),
    }
}

/// Three digits in Huffman's code (RFC 7541 appendix B): 0 to 2 have five bits, the others six.
fn digits(coded: &[u8]) -> u16 {
    let bits: Vec<u8> =
        coded.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0_u16, |sum, bit| sum << 1 | u16::from(*bit));
    let (mut at, mut found) = (0, 0);
    for _ in 0..3 {
        let five = number(&bits[at..at + 5]);
        let (digit, length) =
            if five < 3 { (five, 5) } else { (number(&bits[at..at + 6]) - 25 + 3, 6) };
        found = found * 10 + digit;
        at += length;
    }
    found
}

/// As in `client.rs`: the coded statuses of RFC 7541 appendix C.6, and one that has none of its
/// own.
#[test]
fn a_status_is_read_as_it_is_coded() {
    assert_eq!(status(&[0x88]), 200);
    assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), 302);
    assert_eq!(status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), 307);
    assert_eq!(status(&[0x48, 0x83, 0x69, 0x90, 0xff]), 431);
    assert_eq!(status(b"\x48\x03421"), 421);
}
