//! Estimates the tokens of a text in one pass over its bytes: what tokenizers do on average with
//! words, numbers, signs and scripts, without their tables. A tokenizer would cost more than all
//! other work on a request, and would be right for one family of models only.

use std::ops::RangeInclusive;

/// Costs are in thousandths of a token. They were fitted to OpenAI's o200k_base over prose, code
/// and JSON in many scripts. Encodings of other families count a little more.
const TOKEN: u64 = 1000;
/// Letters of a word that are one token; longer words are made of pieces.
const WORD: u64 = 6;
/// Each letter beyond that.
const WORD_LETTER: u64 = 170;
/// Letters of a word in capitals that are one token: fewer such words are known.
const CAPITALS: u64 = 5;
/// Each letter beyond that.
const CAPITAL: u64 = 300;
/// Each letter of Western Europe that is not ASCII, beside its word: it breaks words in two.
const ACCENT: u64 = 350;
/// Each of Central Europe's and Turkey's, whose words fewer tokens are made for.
const ACCENT_FURTHER: u64 = 1100;
/// A sign right before a word, which often are one token together.
const SIGN_BEFORE_WORD: u64 = 450;
/// Each further sign of a run.
const SIGN: u64 = 180;
/// Each repetition of a sign, beyond [`TOGETHER`].
const REPEATED: u64 = 300;
/// As many of a sign are one token together.
const TOGETHER: u64 = 4;
/// Each repetition of a sign that lines are drawn with, beyond [`DRAWN_TOGETHER`].
const DRAWN: u64 = 30;
/// As many of such a sign are one token together.
const DRAWN_TOGETHER: u64 = 48;
/// Each blank of a run beyond [`BLANKS_TOGETHER`].
const BLANK: u64 = 50;
/// As many blanks are one token together.
const BLANKS_TOGETHER: u64 = 24;
/// A line break after a sign, which often are one token together.
const BREAK_AFTER_SIGN: u64 = 300;

/// What the last byte or character belonged to.
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

/// The pass over one text.
struct Count {
    /// Thousandths of a token so far.
    sum: u64,
    class: Class,
    /// Length of the run so far; of a word, its letters.
    run: u64,
    /// The sign that the run repeats.
    sign: u8,
    /// How often it did.
    repeats: u64,
}

/// Bytes up to which every token is counted. In a longer text samples are counted.
const WHOLE: usize = 3 << 10;
/// Number of samples, evenly spaced.
const SAMPLES: usize = 16;
/// Bytes of a sample: all together are an eighth of the text, within these bounds.
const SAMPLE: RangeInclusive<usize> = 128..=512;
/// Samples with fewer tokens than one in so many bytes do not speak for the text. Anybody may put
/// cheap text where the samples are. As no text has many more tokens than bytes, what stands
/// between them costs at most about so many times as much.
const CHEAP: u64 = 8;

/// Estimated tokens of the inside of a JSON string, escapes included. The same bytes always have
/// the same estimate.
pub fn estimate(written: &[u8]) -> u64 {
    let sampled = if written.len() <= WHOLE { None } else { by_samples(written) };
    sampled.unwrap_or_else(|| count(written)).div_ceil(TOKEN)
}

/// Thousandths of a token, told from samples. `None` if they are [`CHEAP`].
fn by_samples(written: &[u8]) -> Option<u64> {
    let size = (written.len() / (8 * SAMPLES)).clamp(*SAMPLE.start(), *SAMPLE.end());
    let apart = (written.len() - size) / (SAMPLES - 1);
    let (mut sum, mut bytes) = (0, 0);
    for place in 0..SAMPLES {
        let from = written.get(place * apart..).unwrap_or_default();
        // Not from within a character.
        let begun = from.iter().take(4).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
        let sample = from.get(begun..from.len().min(size)).unwrap_or_default();
        sum += count(sample);
        bytes += sample.len() as u64;
    }
    let whole = u128::from(sum) * written.len() as u128 / u128::from(bytes.max(1));
    (sum * CHEAP >= bytes * TOKEN).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
}

/// Thousandths of a token.
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

impl Count {
    /// Counts the rest of a word whose first letter was counted, and the words that follow it, each
    /// after one space. Returns the remaining bytes.
    fn words<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        loop {
            let more =
                rest.iter().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(rest.len());
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

    /// A sign again: a line of dashes is a token.
    fn repeat(&mut self, sign: u8) {
        self.repeats += 1;
        let (together, more) = match sign {
            b'-' | b'=' | b'*' | b'#' | b'_' | b'.' | b'/' | b'~' | b'%' => (DRAWN_TOGETHER, DRAWN),
            _ => (TOGETHER, REPEATED),
        };
        self.sum += if self.repeats >= together { more } else { 0 };
    }

    /// What follows a backslash; gives what is left.
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
                    // The second half of a pair belongs to the first, which said it all.
                    _ if (0xdc00..0xe000).contains(&unit) => {}
                    _ => self.wide(unit),
                }
                return after.get(4..).unwrap_or_default();
            }
            sign => self.ascii(*sign),
        }
        after
    }

    /// A character of more than one byte; gives what is left.
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

    /// A character beyond ASCII, by its block.
    fn wide(&mut self, character: u32) {
        let cost = match character {
            // Latin: part of the word.
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
            // `Word` and `HTTPServer`: the last capital begins the word.
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
            // One space belongs to what follows; of more, all but the last are a token.
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

    /// Adds the cost of the run that is over.
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

/// Tokens of the instructions on tool calls that a chat template adds, by a part of the model's
/// name in lower case. Those of other families are short, or part of the definitions.
const TOOL_INSTRUCTIONS: [(&str, u64); 2] = [("claude", 420), ("llama-4", MOST_TOOL_INSTRUCTIONS)];
/// The most that any family adds.
pub(crate) const MOST_TOOL_INSTRUCTIONS: u64 = 640;

/// Tokens of the instructions on tool calls for this model.
pub(crate) fn tool_instructions(model: &str) -> u64 {
    let model = model.to_ascii_lowercase();
    TOOL_INSTRUCTIONS
        .iter()
        .find(|(family, _)| model.contains(family))
        .map_or(0, |(_, tokens)| *tokens)
}

/// The most tokens of an image, by a part of the model's name in lower case.
const IMAGES: [(&str, u64); 2] = [("gpt-4o-mini", 48_169), ("claude", 4_784)];
/// The most tokens of an image for other models: those of Qwen take the most.
const IMAGE: u64 = 16_384;

/// The most tokens of an image for this model.
pub fn dearest_image(model: &str) -> u64 {
    let model = model.to_ascii_lowercase();
    IMAGES.iter().find(|(family, _)| model.contains(family)).map_or(IMAGE, |(_, tokens)| *tokens)
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
