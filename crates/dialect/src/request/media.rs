//! Estimates the tokens of images, audio and files in a prompt. An image counts by its size and its
//! provider's rule, audio and files count by their length.

/// Tokens of an image of unknown size: OpenAI's count for a square image in high detail.
pub(crate) const TOKENS_PER_IMAGE: u64 = 765;
/// Tokens of an image in low detail.
pub(crate) const TOKENS_PER_SMALL_IMAGE: u64 = 85;
/// The least tokens of an audio part, enough for about ten seconds.
pub(crate) const TOKENS_PER_AUDIO: u64 = 100;
/// The least tokens of a file, enough for one page.
pub(crate) const TOKENS_PER_FILE: u64 = 250;
/// Base64 characters per token of audio at common bit rates.
const AUDIO_CHARACTERS: u64 = 2_000;
/// Base64 characters per token of audio at the lowest bit rate (1.5 kbit/s at 32 tokens a second).
const LEAST_AUDIO_CHARACTERS: u64 = 8;
/// Bytes per token of a file such as a PDF. Its pages contain pictures and fonts.
const FILE_BYTES: u64 = 40;
/// Bytes per token of a text file.
const TEXT_BYTES: u64 = 4;

#[derive(Default)]
pub(crate) struct PromptSize {
    pub messages: u64,
    pub images: u64,
    pub audio: u64,
    pub tokens: u64,
    /// The strings of the last user message.
    pub user_text: Vec<std::ops::Range<usize>>,
    /// Bytes of the body that are not text.
    pub apart: u64,
    /// The most tokens of those bytes, plus the most that chat templates add to the text.
    pub beside: u64,
    /// Whether the bytes give no upper bound, as in [`super::model_request::Ceiling::is_open`].
    pub is_open: bool,
    /// Whether there is thinking of an answer that the gateway translated.
    pub has_foreign_thinking: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageRule {
    /// `small` if the client asks for low detail.
    OpenAi {
        small: bool,
    },
    Anthropic,
}

impl PromptSize {
    /// Adds an image, by its URL or as base64.
    pub(crate) fn image(&mut self, image: &[u8], rule: ImageRule) {
        let data = inline(image).unwrap_or(image);
        let found = look(data);
        let is_address = image.is_empty() || image.starts_with(b"http");
        match found {
            Some(_) => self.apart += data.len() as u64,
            // Some servers accept a PDF or a video here.
            None => self.is_open |= !is_address,
        }
        self.images += 1;
        self.tokens += match (rule, found.flatten()) {
            (ImageRule::OpenAi { small: true }, _) => TOKENS_PER_SMALL_IMAGE,
            (_, None) => TOKENS_PER_IMAGE,
            (ImageRule::OpenAi { .. }, Some(size)) => tiles(size),
            (ImageRule::Anthropic, Some(size)) => pixels(size),
        };
    }

    /// Adds an audio part in base64.
    pub(crate) fn audio(&mut self, data: &[u8]) {
        let length = data.len() as u64;
        // Some servers accept a URL here.
        self.is_open |= data.starts_with(b"http");
        self.apart += length;
        self.beside += length / LEAST_AUDIO_CHARACTERS;
        self.audio += 1;
        self.tokens += TOKENS_PER_AUDIO.max(length / AUDIO_CHARACTERS);
    }

    /// Adds a file: bare base64, or a `data:` URL.
    pub(crate) fn file(&mut self, data: &[u8]) {
        let bytes = data.len() as u64 / 4 * 3;
        // A server may follow the content instead of the declared type.
        self.is_open = true;
        if data.starts_with(b"data:text/") {
            // The file is text, so its base64 characters remain the upper bound.
            self.tokens += bytes / TEXT_BYTES;
            return;
        }
        self.apart += data.len() as u64;
        self.tokens += TOKENS_PER_FILE.max(bytes / FILE_BYTES);
    }
}

/// The base64 data of a `data:` URL.
fn inline(address: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b";base64,";
    let head = address.strip_prefix(b"data:")?;
    let at = memchr::memmem::find(head.get(..128).unwrap_or(head), MARK)?;
    head.get(at + MARK.len()..)
}

/// OpenAI's rule. The image is scaled to fit a square of 2,048 pixels and to a shorter side of 768,
/// then cut into tiles of 512.
fn tiles((width, height): (u32, u32)) -> u64 {
    let (width, height) = (f64::from(width), f64::from(height));
    let fit = (2048.0 / width.max(height)).min(1.0);
    let scale = fit * (768.0 / (width.min(height) * fit)).min(1.0);
    let across = |side: f64| ((side * scale / 512.0).ceil() as u64).max(1);
    85 + 170 * across(width) * across(height)
}

/// Anthropic's rule. The longer side is scaled down to 1,568 pixels, and a token is 750 pixels, up
/// to 1,600 tokens.
fn pixels((width, height): (u32, u32)) -> u64 {
    let (width, height) = (f64::from(width), f64::from(height));
    let scale = (1568.0 / width.max(height)).min(1.0);
    ((width * height * scale * scale / 750.0).ceil() as u64).clamp(1, 1_600)
}

/// The image size in base64 data. `None` if it is no image, `Some(None)` if the size is unknown.
#[expect(clippy::option_option, reason = "no image, or one of unknown size")]
fn look(data: &[u8]) -> Option<Option<(u32, u32)>> {
    let is = |begins: &str| data.starts_with(begins.as_bytes());
    // An escaped slash shifts the data, so the size then stays unknown.
    let size = if is("iVBORw0KGgo") {
        bytes(data, 16).map(|[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
        })
    } else if is("/9j/") || is("_9j_") || is("\\/9j\\/") {
        jpeg(data)
    } else if is("R0lGOD") {
        bytes(data, 6).map(|[a, b, c, d]| {
            (u16::from_le_bytes([a, b]).into(), u16::from_le_bytes([c, d]).into())
        })
    } else if is("UklGR") && bytes(data, 8) == Some(*b"WEBP") {
        webp(data)
    } else {
        return None;
    };
    Some(size.filter(|(width, height)| *width > 0 && *height > 0))
}

/// The size of a JPEG, from the first frame after the metadata segments.
fn jpeg(data: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    for _ in 0..64 {
        let [mark, kind, high, low]: [u8; 4] = bytes(data, at)?;
        match (mark, kind) {
            (0xff, 0xff) => at += 1,
            (0xff, 0xc0..=0xcf) if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                let [a, b, c, d]: [u8; 4] = bytes(data, at + 5)?;
                return Some((
                    u16::from_be_bytes([c, d]).into(),
                    u16::from_be_bytes([a, b]).into(),
                ));
            }
            (0xff, _) => at += 2 + usize::from(u16::from_be_bytes([high, low])),
            _ => return None,
        }
    }
    None
}

fn webp(data: &[u8]) -> Option<(u32, u32)> {
    let [v, p, eight, form]: [u8; 4] = bytes(data, 12)?;
    if [v, p, eight] != *b"VP8" {
        return None;
    }
    match form {
        b'X' => bytes(data, 24).map(|[a, b, c, d, e, f]| {
            (u32::from_le_bytes([a, b, c, 0]) + 1, u32::from_le_bytes([d, e, f, 0]) + 1)
        }),
        b'L' => bytes(data, 21)
            .map(u32::from_le_bytes)
            .map(|bits| ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)),
        _ => bytes(data, 26).map(|[a, b, c, d]| {
            (
                u32::from(u16::from_le_bytes([a, b]) & 0x3fff),
                u32::from(u16::from_le_bytes([c, d]) & 0x3fff),
            )
        }),
    }
}

/// Decodes the bytes at an offset of base64 data, without decoding the data before it.
fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    let mut found = [0; N];
    for (place, byte) in (at..).zip(&mut found) {
        let sextet = |more: usize| {
            data.get(place / 3 * 4 + place % 3 + more).and_then(|letter| sextet(*letter))
        };
        *byte = sextet(0)? << (2 * (place % 3) + 2) | sextet(1)? >> (4 - 2 * (place % 3));
    }
    Some(found)
}

fn sextet(letter: u8) -> Option<u8> {
    Some(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
