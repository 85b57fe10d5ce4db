//! Masks secrets in texts: each byte of a secret becomes a star, so that lengths stay the same.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::{Bytes, BytesMut};
use memchr::memchr;

use super::Secret;

/// Shorter secrets are not masked, as they would match by chance.
const SHORTEST: usize = 8;
/// Bytes that many keys and few answers contain, rarest first.
const RARE_BYTES: &[u8] = b"QZXJKVWYGHUBFPLDMNORCTISAEqzxjkvw";

/// A set of secrets, compiled for a search in one pass.
#[derive(Clone, Default)]
pub struct Mask {
    /// None if there are no secrets.
    search: Option<AhoCorasick>,
    spelled: Vec<Secret>,
    /// The bytes that occur in any secret.
    used: ByteSet,
    /// Length of the shortest secret, in bytes.
    shortest: usize,
    /// A rare byte that all secrets contain, if any. Most texts lack it, so they need no search.
    rare: Option<u8>,
}

impl Mask {
    /// A mask for these secrets, except for those that are too short.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Mask {
        let long = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST);
        let spelled: Vec<Secret> = long.flat_map(spellings).map(Secret::new).collect();
        if spelled.is_empty() {
            return Mask::default();
        }
        let mut used = ByteSet::default();
        spelled.iter().for_each(|secret| secret.expose().bytes().for_each(|byte| used.add(byte)));
        // Where two secrets match at the same place, the longer one is masked.
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(spelled.iter().map(Secret::expose));
        // Unreachable: it takes 2^31 states, which are gigabytes of secrets.
        let search = search.unwrap_or_else(|_| std::process::abort());
        let shortest = spelled.iter().map(|secret| secret.expose().len()).min().unwrap_or(0);
        let in_all =
            |byte: &u8| spelled.iter().all(|secret| secret.expose().as_bytes().contains(byte));
        let rare = RARE_BYTES.iter().copied().find(in_all);
        Mask { search: Some(search), spelled, used, shortest, rare }
    }

    /// Whether a text contains any of the secrets.
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some(search) = self.search.as_ref().filter(|_| text.len() >= self.shortest) else {
            return false;
        };
        self.rare.is_none_or(|byte| memchr(byte, text).is_some()) && search.find(text).is_some()
    }

    /// Replaces all bytes of secrets by stars.
    pub fn mask(&self, text: Bytes) -> Bytes {
        // Nearly all texts have no match, and are not copied.
        let Some(search) = self.search.as_ref().filter(|_| self.matches(&text)) else {
            return text;
        };
        let mut masked = BytesMut::from(&*text);
        for found in search.find_iter(&text) {
            if let Some(place) = masked.get_mut(found.range()) {
                place.fill(b'*');
            }
        }
        masked.freeze()
    }

    /// The number of bytes at the end of a text that may be the beginning of a secret.
    fn begun_at_end(&self, text: &[u8]) -> usize {
        // Events and documents end with bytes that no secret contains.
        if !text.last().is_some_and(|last| self.used.has(*last)) {
            return 0;
        }
        let begun = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
            let longest = text.len().min(secret.len() - 1);
            (1..=longest)
                .rev()
                .find(|length| secret.get(..*length).is_some_and(|begun| text.ends_with(begun)))
        };
        self.spelled.iter().filter_map(begun).max().unwrap_or(0)
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secrets]")
    }
}

/// The spellings of a secret: unchanged, escaped as various JSON encoders do, and percent-encoded.
fn spellings(secret: &str) -> Vec<String> {
    let spelled = |spell: &dyn Fn(char) -> Option<String>| -> String {
        secret.chars().map(|char| spell(char).unwrap_or_else(|| char.into())).collect()
    };
    let quoted = |char: char| matches!(char, '"' | '\\').then(|| format!("\\{char}"));
    // JSON encoders of PHP, Go, Gson and .NET escape more characters, in different ways.
    let by_code = |chars: &'static str| {
        move |char: char| match chars.contains(char) {
            true => Some(format!("\\u{:04x}", u32::from(char))),
            false => quoted(char),
        }
    };
    let upper = |char: char| match "\"&'+<>`".contains(char) {
        true => Some(format!("\\u{:04X}", u32::from(char))),
        false => quoted(char),
    };
    let in_url = |char: char| {
        let plain = char.is_ascii_alphanumeric() || "-._~".contains(char) || !char.is_ascii();
        (!plain).then(|| format!("%{:02X}", u32::from(char)))
    };
    let mut all = vec![
        secret.to_owned(),
        spelled(&quoted),
        spelled(&|char| if char == '/' { Some("\\/".into()) } else { quoted(char) }),
        spelled(&by_code("<>&")),
        spelled(&by_code("<>&='")),
        spelled(&upper),
        spelled(&in_url),
    ];
    all.sort();
    all.dedup();
    all
}

/// Masks a text that comes in pieces. Bytes that may begin a secret are held back until the next
/// piece. All others pass at once.
#[derive(Debug, Default)]
pub struct StreamMask {
    held: Bytes,
}

impl StreamMask {
    /// Whether the next piece passes unchanged, as nearly all do.
    pub fn passes(&self, mask: &Mask, piece: &[u8]) -> bool {
        self.held.is_empty() && !mask.matches(piece) && mask.begun_at_end(piece) == 0
    }

    /// Takes the next piece, and returns the bytes that may pass.
    pub fn feed(&mut self, mask: &Mask, piece: Bytes) -> Bytes {
        let mut piece = match self.held.is_empty() {
            true => mask.mask(piece),
            false => mask.mask([std::mem::take(&mut self.held), piece].concat().into()),
        };
        let begun = mask.begun_at_end(&piece);
        if begun > 0 {
            // Copied: a slice would keep the whole piece in memory.
            self.held = Bytes::copy_from_slice(&piece.split_off(piece.len() - begun));
        }
        piece
    }

    /// Ends the text and returns what was held back.
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

#[derive(Clone, Copy, Default)]
struct ByteSet([u128; 2]);

impl ByteSet {
    fn add(&mut self, byte: u8) {
        if let Some(half) = self.0.get_mut(usize::from(byte >> 7)) {
            *half |= 1 << (byte & 127);
        }
    }

    fn has(self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 7)).is_some_and(|half| half & (1 << (byte & 127)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-proj-0123456789";

    fn through(mask: &Mask, text: &[u8], sizes: &[usize]) -> (Vec<Bytes>, Bytes) {
        let (mut masking, mut left, mut rest) = (StreamMask::default(), Vec::new(), text);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
            let passes = masking.passes(mask, piece);
            left.push(masking.feed(mask, Bytes::copy_from_slice(piece)));
            assert!(
                !passes
                    || (left.last().is_some_and(|left| *left == piece) && masking.held.is_empty())
            );
            rest = after;
        }
        (left, masking.finish())
    }

    #[test]
    fn a_secret_is_starred_as_writers_spell_it() {
        let mask = Mask::new(["ab/cd+0123&456789==", "short"]);
        for said in [
            "ab/cd+0123&456789==",
            r"ab\/cd+0123&456789==",
            r"ab/cd+0123\u0026456789==",
            r"ab/cd+0123\u0026456789\u003d\u003d",
            r"ab/cd\u002B0123\u0026456789==",
            "ab%2Fcd%2B0123%26456789%3D%3D",
        ] {
            let text = format!(r#"{{"error":"short \n\/ {said}, {said}"}}"#);
            let masked = mask.mask(text.clone().into());
            assert_eq!(masked, text.replace(said, &"*".repeat(said.len())), "{said}");
            assert!(mask.matches(text.as_bytes()) && !mask.matches(&masked));
        }
        let quoted = Mask::new(["a\"b\\c 012345"]);
        assert_eq!(quoted.mask(Bytes::from_static(br#"a\"b\\c 012345"#)), "*".repeat(14));
        assert_eq!(format!("{mask:?}"), "[secrets]");
    }

    #[test]
    fn what_is_no_secret_is_the_same_bytes_and_leaves_at_once() {
        let event = Bytes::from_static(b"data: {\"delta\":\"sk-proj\"}\n\n");
        let (mask, mut masking) = (Mask::new([KEY]), StreamMask::default());
        let left = masking.feed(&mask, event.clone());
        assert_eq!(left.as_ptr(), event.as_ptr(), "nothing is copied");
        assert_eq!(
            masking.feed(&mask, Bytes::from_static(b"it asks")),
            "it ask",
            "as one may begin so"
        );
        assert_eq!(masking.feed(&mask, Bytes::from_static(b"k- me")), "sk- me");
        let none = Mask::new(["short"]);
        assert_eq!(masking.feed(&none, Bytes::from_static(b"short s")), "short s");
    }

    #[test]
    fn of_secrets_that_begin_alike_the_longer_one_goes_whole() {
        let mask = Mask::new([KEY, &format!("{KEY}-longer")]);
        assert_eq!(
            mask.mask(Bytes::from(format!("{KEY}-longer {KEY}-long"))),
            format!("{} {}-long", "*".repeat(25), "*".repeat(18))
        );
    }

    proptest! {
        #[test]
        fn however_a_text_is_cut_it_comes_out_as_in_one_piece(
            parts in prop::collection::vec(
                prop::sample::select(
                    &["sk-proj-0123456789", "sk-proj-01234", "s", "sk-", "\n", "aabaab", "aab", " ",
                        "aabaabab"][
                        ..
                    ]
                ), 0..20
            ),
            sizes in prop::collection::vec(1usize..30, 1..5),
        ) {
            let text = parts.concat();
            let mask = Mask::new([KEY, "aabaabab"]);
            let (left, rest) = through(&mask, text.as_bytes(), &sizes);
            let out = [left.concat(), rest.to_vec()].concat();
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(!mask.matches(&out));
            let by_hand = text.replace("aabaabab", "********").replace(KEY, &"*".repeat(KEY.len()));
            prop_assert_eq!(String::from_utf8(out).unwrap(), by_hand);
            // The held bytes are fewer than those of a secret.
            prop_assert!(rest.len() < KEY.len());
        }
    }
}
