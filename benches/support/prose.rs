//! Random text that never repeats and compresses as well as prose.

/// Number of different words.
const WORDS: usize = 2_000;
/// Number of words, out of 256, that depend on the word before, as "order" does in "in order". Real
/// chats in blocks of 256 KiB are compressed to 31 % at zstd's level 1, and so is this text.
const TOGETHER: u64 = 56;

/// A generator of such text.
pub struct Prose {
    words: Vec<String>,
    /// Indexes of words, repeated by their frequency. The frequency follows Zipf's law.
    drawn: Vec<u16>,
    state: u64,
}

impl Prose {
    pub fn new(seed: u64) -> Self {
        let mut prose = Prose { words: Vec::with_capacity(WORDS), drawn: Vec::new(), state: seed };
        for number in 0..WORDS {
            let word = prose.word(number);
            prose.words.push(word);
        }
        // Zipf's law, with Mandelbrot's shift for the most frequent words.
        let weight = |rank: usize| 1.0 / (rank as f64 + 2.7);
        let scale = 65_536.0 / (0..WORDS).map(weight).sum::<f64>();
        prose.drawn = (0..WORDS)
            .flat_map(|rank| {
                std::iter::repeat_n(rank as u16, (weight(rank) * scale).round() as usize)
            })
            .collect();
        prose
    }

    /// The next random number, by splitmix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random element.
    pub fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.get(self.next() as usize % of.len().max(1)).copied().unwrap_or_default()
    }

    /// Makes a new word. Frequent words are short.
    fn word(&mut self, number: usize) -> String {
        const BEGIN: [&str; 21] = [
            "b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "ch",
            "pl", "sh", "th", "",
        ];
        const MIDDLE: [&str; 8] = ["a", "e", "i", "o", "u", "ea", "ou", "ai"];
        const END: [&str; 10] = ["", "n", "r", "s", "t", "l", "nd", "ng", "st", "m"];
        loop {
            let syllables = if number < 80 { 1 } else { 1 + self.next() % 3 };
            let word: String = (0..syllables)
                .flat_map(|_| [self.one(&BEGIN), self.one(&MIDDLE), self.one(&END)])
                .collect();
            if !self.words.contains(&word) {
                return word;
            }
        }
    }

    /// Makes a text of `bytes` bytes.
    pub fn text(&mut self, bytes: usize) -> String {
        let mut out = String::with_capacity(bytes + 16);
        let (mut last, mut left) = (0_usize, 0);
        while out.len() < bytes {
            let random = self.next();
            let draw = |bits: u64| {
                self.drawn.get(bits as usize % self.drawn.len()).copied().unwrap_or_default()
                    as usize
            };
            let together = random & 0xff < TOGETHER;
            let word = if together {
                draw((last as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
            } else {
                draw(random >> 8 & 0xff_ffff)
            };
            let text = self.words.get(word).map_or("", String::as_str);
            if left == 0 {
                left = 6 + (random >> 40) % 13;
                out.extend(text.chars().next().map(|first| first.to_ascii_uppercase()));
                out.push_str(text.get(1..).unwrap_or_default());
            } else {
                out.push_str(text);
            }
            left -= 1;
            out.push_str(if left == 0 { ". " } else { " " });
            last = word;
        }
        out.truncate(bytes);
        out
    }
}
