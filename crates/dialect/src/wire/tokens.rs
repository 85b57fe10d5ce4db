//! Estimates the tokens of a text in one pass over its bytes. It follows what tokenizers do on
//! average with words, numbers, signs and scripts, without their tables. A tokenizer would cost
//! more than all other work on a request, and would be right for one family of models only.

use std::ops::RangeInclusive;

/// Thousandths of a token, the unit of all costs here. The costs were fitted to OpenAI's o200k_base
/// over prose, code and JSON in many scripts. Encodings of other families count a little more.
const TOKEN: u64 = 1000;
/// Length up to which a word is one token. Longer words consist of pieces.
const WORD: u64 = 6;
/// Cost of each further letter of a word.
const WORD_LETTER: u64 = 170;
/// Length up to which a word in capitals is one token. Tokenizers know fewer such words.
const CAPITALS: u64 = 5;
/// Cost of each further letter of a word in capitals.
const CAPITAL: u64 = 300;
/// Extra cost of a Western European letter outside ASCII, as it splits a word in two.
const ACCENT: u64 = 350;
/// Extra cost of a Central European or Turkish letter. Few tokens contain these.
const ACCENT_FURTHER: u64 = 1100;
/// Cost of a sign right before a word, as both are often one token.
const SIGN_BEFORE_WORD: u64 = 450;
/// Cost of each further sign in a run.
const SIGN: u64 = 180;
/// Cost of each repetition of a sign beyond [`TOGETHER`].
const REPEATED: u64 = 300;
/// Number of identical signs that are one token together.
const TOGETHER: u64 = 4;
/// Cost of each repetition, beyond [`DRAWN_TOGETHER`], of a sign such as `-` or `=` that lines are
/// drawn with.
const DRAWN: u64 = 30;
/// Number of such identical signs that are one token together.
const DRAWN_TOGETHER: u64 = 48;
/// Cost of each blank in a run beyond [`BLANKS_TOGETHER`].
const BLANK: u64 = 50;
/// Number of blanks that are one token together.
const BLANKS_TOGETHER: u64 = 24;
/// Cost of a line break after a sign, as both are often one token.
const BREAK_AFTER_SIGN: u64 = 300;

/// The class of the last character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Start,
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Sign,
    Other,
}

struct Count {
    /// The cost so far, in thousandths of a token.
    sum: u64,
    class: Class,
    /// Length of the current run of characters of one class. For a word, the number of its letters.
    run: u64,
    /// The sign that the current run repeats.
    sign: u8,
    /// Number of repetitions of `sign`.
    repeats: u64,
}

/// Texts up to this length are counted completely. Longer texts are sampled.
const WHOLE: usize = 3 << 10;
/// Number of samples, evenly spaced.
const SAMPLES: usize = 16;
/// Length of a sample. All samples together are an eighth of the text, within these bounds.
const SAMPLE: RangeInclusive<usize> = 128..=512;
/// Bytes per token from which samples are too cheap to be trusted, as a client may put cheap text
/// where the samples are. No text has many more tokens than bytes, so the real number of tokens is
/// at most about `CHEAP` times the estimate.
const CHEAP: u64 = 8;

/// Estimated tokens of a JSON string's inside, including escapes. Equal bytes have equal estimates.
pub fn estimate(written: &[u8]) -> u64 {
    let sampled = if written.len() <= WHOLE { None } else { by_samples(written) };
    sampled.unwrap_or_else(|| count(written)).div_ceil(TOKEN)
}

/// Thousandths of a token, extrapolated from samples. `None` if the samples are too [`CHEAP`].
fn by_samples(written: &[u8]) -> Option<u64> {
    let size = (written.len() / (8 * SAMPLES)).clamp(*SAMPLE.start(), *SAMPLE.end());
    let apart = (written.len() - size) / (SAMPLES - 1);
    let (mut sum, mut bytes) = (0, 0);
    for place in 0..SAMPLES {
        let from = written.get(place * apart..).unwrap_or_default();
        // A sample must not begin within a character.
        let begun = from.iter().take(4).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
        let sample = from.get(begun..from.len().min(size)).unwrap_or_default();
        sum += count(sample);
        bytes += sample.len() as u64;
    }
    let whole = u128::from(sum) * written.len() as u128 / u128::from(bytes.max(1));
    (sum * CHEAP >= bytes * TOKEN).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
}

/// Thousandths of a token of the whole text.
fn count(written: &[u8]) -> u64 {
    let mut count = Count { sum: 0, class: Class::Start, run: 0, sign: 0, repeats: 0 };
    let mut rest = written;
    while let Some((first, tail)) = rest.split_first() {
        rest = match first {
            b'a'..=b'z' => {
                count.lower();
                count.words(tail)
            }
            b'\\' => count.escape(tail),
            byte if byte.is_ascii() => {
                count.ascii(*byte);
                tail
            }
            _ => count.character(rest),
        };
    }
    count.end_run();
    count.sum
}

/// Number of lower-case letters at the start of eight bytes. All bytes are compared at once: where
/// a word ends cannot be predicted, and a loop over its letters takes half as long again.
fn letters(eight: [u8; 8]) -> usize {
    /// A one in each of the eight bytes.
    const EACH: u64 = 0x0101_0101_0101_0101;
    let text = u64::from_le_bytes(eight);
    let seven = text & (0x7f * EACH);
    // The highest bit of each byte tells of a letter.
    let letters = (seven + 0x1f * EACH) & !(seven + 0x05 * EACH) & !text & (0x80 * EACH);
    (letters ^ (0x80 * EACH)).trailing_zeros() as usize / 8
}

impl Count {
    /// Counts the rest of a word whose first letter is counted already, and the following words
    /// after single spaces. Returns the remaining bytes.
    fn words<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        loop {
            let more = loop {
                let Some((eight, next)) = rest.split_first_chunk::<8>() else {
                    break rest.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
                };
                match letters(*eight) {
                    8 => self.run += 8,
                    more => break more,
                }
                rest = next;
            };
            self.run += more as u64;
            rest = rest.get(more..).unwrap_or_default();
            let [b' ', b'a'..=b'z', next @ ..] = rest else { return rest };
            self.end_run();
            self.run = 1;
            rest = next;
        }
    }

    fn ascii(&mut self, byte: u8) {
        match byte {
            b'a'..=b'z' => self.lower(),
            b'A'..=b'Z' => self.upper(),
            b'0'..=b'9' => self.grow(Class::Digit),
            b' ' | b'\t' => self.grow(Class::Space),
            b'\n' | b'\r' => self.grow(Class::Break),
            0..0x20 | 0x7f => {
                self.end_run();
                self.class = Class::Other;
                self.sum += TOKEN;
            }
            sign if self.class == Class::Sign && sign == self.sign => self.repeat(sign),
            sign => {
                self.sign = sign;
                self.repeats = 0;
                self.grow(Class::Sign);
            }
        }
    }

    /// Counts a repeated sign. A line of dashes is one token.
    fn repeat(&mut self, sign: u8) {
        self.repeats += 1;
        let (together, more) = match sign {
            b'-' | b'=' | b'*' | b'#' | b'_' | b'.' | b'/' | b'~' | b'%' => (DRAWN_TOGETHER, DRAWN),
            _ => (TOGETHER, REPEATED),
        };
        self.sum += if self.repeats >= together { more } else { 0 };
    }

    /// Counts the escape after a backslash. Returns the remaining bytes.
    fn escape<'a>(&mut self, tail: &'a [u8]) -> &'a [u8] {
        let Some((kind, after)) = tail.split_first() else { return tail };
        match kind {
            b'n' | b'r' => self.ascii(b'\n'),
            b't' => self.ascii(b'\t'),
            b'u' => {
                let digits = after.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                let unit =
                    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0);
                match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => self.ascii(byte),
                    // The first half of a surrogate pair was counted for both.
                    _ if (0xdc00..0xe000).contains(&unit) => {}
                    _ => self.wide(unit),
                }
                return after.get(4..).unwrap_or_default();
            }
            sign => self.ascii(*sign),
        }
        after
    }

    /// Counts a character of several bytes. Returns the remaining bytes.
    fn character<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let length = match rest.first() {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            _ => 4,
        };
        let payload = |at: usize| rest.get(at).map_or(0, |byte| u32::from(byte & 0x3f));
        let first = rest.first().map_or(0, |byte| u32::from(*byte));
        self.wide(match length {
            2 => (first & 0x1f) << 6 | payload(1),
            3 => (first & 0x0f) << 12 | payload(1) << 6 | payload(2),
            _ => (first & 0x07) << 18 | payload(1) << 12 | payload(2) << 6 | payload(3),
        });
        rest.get(length..).unwrap_or_default()
    }

    /// Counts a character outside ASCII, by its block.
    fn wide(&mut self, character: u32) {
        let cost = match character {
            // Latin letters belong to a word.
            0xc0..=0x24f | 0x300..=0x36f | 0x1e00..=0x1eff => {
                self.lower();
                self.sum += match character {
                    0xc0..=0xff => ACCENT,
                    0x100..=0x24f | 0x300..=0x36f => ACCENT_FURTHER,
                    _ => 0,
                };
                return;
            }
            0x370..=0x3ff => 430,
            0x400..=0x52f => 300,
            0x590..=0x5ff => 480,
            0x600..=0x6ff => 370,
            0x900..=0x97f => 340,
            0x980..=0xdff => 370,
            0xe00..=0xeff => 420,
            0x2000..=0x206f => 700,
            0x3040..=0x30ff => 750,
            0x3400..=0x9fff | 0xf900..=0xfaff => 840,
            0xac00..=0xd7af => 840,
            0x3000..=0x303f | 0xff00..=0xffef => 750,
            0x1_0000.. | 0xd800..=0xdbff => 1900,
            _ => 1100,
        };
        if self.class != Class::Space || self.run != 1 {
            self.end_run();
        }
        self.class = Class::Other;
        self.sum += cost;
    }

    fn lower(&mut self) {
        match self.class {
            Class::Lower => self.run += 1,
            // In `Word` and `HTTPServer` the last capital begins the word.
            Class::Upper if self.run == 1 => {
                self.class = Class::Lower;
                self.run = 2;
            }
            Class::Upper => {
                self.run -= 1;
                self.end_run();
                self.class = Class::Lower;
                self.run = 2;
            }
            _ => self.grow(Class::Lower),
        }
    }

    fn upper(&mut self) {
        self.grow(Class::Upper);
    }

    fn grow(&mut self, class: Class) {
        if self.class == class {
            self.run += 1;
            return;
        }
        let before = self.class;
        let single = self.run == 1;
        let word = matches!(class, Class::Lower | Class::Upper);
        match (before, class) {
            (Class::Sign, _) if word && single => self.sum += SIGN_BEFORE_WORD,
            // A single space belongs to the next token. Of several spaces, all but the last are a
            // token.
            (Class::Space, _) if single && class != Class::Digit => {}
            (Class::Sign, Class::Break) => {
                self.end_run();
                self.sum = (self.sum + BREAK_AFTER_SIGN).saturating_sub(TOKEN);
            }
            _ => self.end_run(),
        }
        self.class = class;
        self.run = 1;
    }

    /// Adds the cost of the run that ended.
    fn end_run(&mut self) {
        self.sum += match self.class {
            Class::Start | Class::Other => 0,
            Class::Lower => TOKEN + self.run.saturating_sub(WORD) * WORD_LETTER,
            Class::Upper => TOKEN + self.run.saturating_sub(CAPITALS) * CAPITAL,
            Class::Digit => self.run.div_ceil(3) * TOKEN,
            Class::Space | Class::Break => TOKEN + self.run.saturating_sub(BLANKS_TOGETHER) * BLANK,
            Class::Sign => TOKEN + (self.run - 1) * SIGN,
        };
    }
}

/// Tokens of a chat template's instructions on tool calls, by a part of the model's lower-case
/// name. Other families have short instructions, or include them in the definitions.
const TOOL_INSTRUCTIONS: [(&str, u64); 2] = [("claude", 420), ("llama-4", MOST_TOOL_INSTRUCTIONS)];
/// The highest number for any family.
pub(crate) const MOST_TOOL_INSTRUCTIONS: u64 = 640;

/// Tokens of a chat template's instructions on tool calls for this model.
pub(crate) fn tool_instructions(model: &str) -> u64 {
    let model = model.to_ascii_lowercase();
    TOOL_INSTRUCTIONS
        .iter()
        .find(|(family, _)| model.contains(family))
        .map_or(0, |(_, tokens)| *tokens)
}

/// The most tokens of an image, by a part of the model's lower-case name.
const IMAGES: [(&str, u64); 2] = [("gpt-4o-mini", 48_169), ("claude", 4_784)];
/// The most tokens of an image for other models. Qwen's models take the most.
const IMAGE: u64 = 16_384;

/// The most tokens of an image for this model.
pub fn dearest_image(model: &str) -> u64 {
    let model = model.to_ascii_lowercase();
    IMAGES.iter().find(|(family, _)| model.contains(family)).map_or(IMAGE, |(_, tokens)| *tokens)
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
