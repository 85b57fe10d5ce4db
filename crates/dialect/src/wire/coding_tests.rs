//! Valid bodies of real encoders, and hostile ones.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const CODINGS: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli];

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(body: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn encode(coding: Coding, body: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => gzip(body),
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Zstd => zstd::stream::encode_all(body, 3).unwrap(),
        Coding::Brotli => {
            let mut out = Vec::new();
            brotli::CompressorWriter::new(&mut out, 4096, 5, 22).write_all(body).unwrap();
            out
        }
    }
}

/// Decodes in chunks of these sizes. An error comes with the number of bytes decoded before it.
fn decode(
    coding: Coding,
    coded: &[u8],
    sizes: &[usize],
    limit: usize,
) -> std::result::Result<Bytes, (u16, usize)> {
    let mut decoder = Decoder::new(coding, limit);
    let (mut rest, mut sizes) = (coded, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) =
            rest.split_at(sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len()));
        decoder.push(chunk);
        loop {
            match decoder.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err((error.status().as_u16(), decoder.decoded.len())),
            }
        }
        rest = after;
    }
    decoder.finish().map_err(|error| (error.status().as_u16(), 0))
}

fn refused(coding: Coding, coded: &[u8]) -> u16 {
    decode(coding, coded, &[], 1 << 20).expect_err("refused").0
}

#[test]
fn a_body_has_one_coding_or_none() {
    let of = |lines: &[&str]| Coding::of(lines.iter().map(|line| line.as_bytes()));
    for lines in [&[][..], &[""], &["identity"], &[" IDENTITY "], &["", ","]] {
        assert_eq!(of(lines).unwrap(), None, "{lines:?}");
    }
    for (lines, coding) in [
        (&["gzip"][..], Coding::Gzip),
        (&["X-GZip"], Coding::Gzip),
        (&["deflate"], Coding::Deflate),
        (&[" zstd"], Coding::Zstd),
        (&["br"], Coding::Brotli),
        (&["", "gzip,"], Coding::Gzip),
    ] {
        assert_eq!(of(lines).unwrap(), Some(coding), "{lines:?}");
    }
    for lines in [
        &["gzip, gzip"][..],
        &["gzip", "br"],
        &["identity, gzip"],
        &["compress"],
        &["gzip;q=1"],
        &["*"],
        &["dcz"],
    ] {
        let error = of(lines).expect_err("refused");
        assert_eq!(error.status().as_u16(), 415, "{lines:?}");
        assert!(error.detail().contains(Coding::SUPPORTED));
    }
}

#[test]
fn bytes_come_out_as_they_went_in_however_they_are_cut() {
    let text: Vec<u8> =
        (0..300_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect();
    for body in [&b""[..], b"{}", &[b'a'; 200_000], &text] {
        for coding in CODINGS {
            let coded = encode(coding, body);
            for sizes in [&[][..], &[1], &[3, 7, 4096]] {
                if sizes == [1] && coded.len() > 10_000 {
                    continue;
                }
                let decoded = decode(coding, &coded, sizes, body.len());
                assert!(
                    decoded.is_ok_and(|decoded| decoded == body),
                    "{coding:?}, {} bytes in {sizes:?}",
                    body.len()
                );
            }
        }
    }
}

#[test]
fn deflate_is_read_with_and_without_zlib_s_wrapping() {
    let noise: Vec<u8> =
        (0..70_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for body in [&b""[..], b"{\"model\":\"auto\"}", &noise] {
        for level in [0, 1, 9] {
            assert_eq!(
                decode(Coding::Deflate, &raw_deflate(body, level), &[1000], body.len()).unwrap(),
                body,
                "level {level}"
            );
        }
    }
}

#[test]
fn parts_follow_each_other_where_the_coding_says_so() {
    let two = |coding: Coding| [encode(coding, b"{\"a\":"), encode(coding, b"1}")].concat();
    for sizes in [&[][..], &[1]] {
        for coding in [Coding::Gzip, Coding::Zstd] {
            assert_eq!(
                decode(coding, &two(coding), sizes, 100).unwrap(),
                &b"{\"a\":1}"[..],
                "{coding:?}"
            );
        }
    }
    for coding in [Coding::Deflate, Coding::Brotli] {
        assert_eq!(refused(coding, &two(coding)), 400, "{coding:?}");
    }
    let skippable = [&0x184D_2A57u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
    let between = [encode(Coding::Zstd, b"{"), skippable, encode(Coding::Zstd, b"}")].concat();
    assert_eq!(decode(Coding::Zstd, &between, &[2], 100).unwrap(), &b"{}"[..]);
    for coding in [Coding::Gzip, Coding::Zstd] {
        let many = encode(coding, b"").repeat(CODED_PARTS);
        assert!(decode(coding, &many, &[], 100).is_ok(), "{coding:?}");
        assert_eq!(refused(coding, &[many, encode(coding, b"")].concat()), 400, "{coding:?}");
    }
}

#[test]
fn what_is_cut_or_damaged_or_followed_by_something_else_is_refused() {
    let body = b"{\"model\":\"auto\",\"messages\":[{\"role\":\"user\",\
        \"content\":\"damage does not go unseen\"}]}"
        .repeat(20);
    for coding in CODINGS {
        let coded = encode(coding, &body);
        assert_eq!(refused(coding, b""), 400, "{coding:?}: nothing");
        for length in 1..coded.len() {
            assert_eq!(
                refused(coding, &coded[..length]),
                400,
                "{coding:?}: {length} bytes of {}",
                coded.len()
            );
        }
        for garbage in [&b"x"[..], b"\0", b"{}", b"garbage that is long enough to be looked at"] {
            assert_eq!(
                refused(coding, &[&coded, garbage].concat()),
                400,
                "{coding:?}: {garbage:?} after it"
            );
        }
        assert_eq!(refused(coding, &[b"\xff\xff\xff\xff", &coded[..]].concat()), 400, "{coding:?}");
    }
    // gzip and zlib contain checksums.
    for coding in [Coding::Gzip, Coding::Deflate] {
        let mut coded = encode(coding, &body);
        let last = coded.len() - 5;
        coded[last] ^= 1;
        assert_eq!(refused(coding, &coded), 400, "{coding:?}");
    }
    // A format older than the standard, which the library could read.
    assert_eq!(refused(Coding::Zstd, &[&0xFD2F_B525u32.to_le_bytes()[..], &[0; 40]].concat()), 400);
}

/// Decoding stops at the limit, however far the body would expand.
#[test]
fn a_bomb_stops_at_the_limit() {
    const LIMIT: usize = 1 << 20;
    let zeros = vec![0; 64 << 20];
    for coding in CODINGS {
        let coded = encode(coding, &zeros);
        assert!(coded.len() < LIMIT, "{coding:?}: {}", coded.len());
        let (status, came) = decode(coding, &coded, &[8192], LIMIT).expect_err("refused");
        assert_eq!(status, 413, "{coding:?}");
        assert!(came <= LIMIT && came > LIMIT - DECODE_STEP, "{coding:?}: {came}");
        assert!(
            decode(coding, &encode(coding, &zeros[..LIMIT]), &[], LIMIT).is_ok(),
            "{coding:?}: exactly the limit fits"
        );
        assert!(
            decode(coding, &encode(coding, &zeros[..=LIMIT]), &[], LIMIT).is_err(),
            "{coding:?}: one more does not"
        );
    }
}

/// A frame may not ask for a window of 128 MiB, which exceeds what HTTP allows.
#[test]
fn a_zstd_window_is_bounded() {
    let window = |log: u32| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder.write_all(b"small").unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(decode(Coding::Zstd, &window(23), &[], 100).unwrap(), &b"small"[..]);
    assert_eq!(refused(Coding::Zstd, &window(27)), 400);
}

proptest! {
    #[test]
    fn cutting_changes_nothing(
        coded in prop::collection::vec(any::<u8>(), 0..200),
        head in 0usize..5,
        sizes in prop::collection::vec(1usize..40, 1..4),
    ) {
        // Some bodies begin with valid bytes.
        let coded = match CODINGS.get(head) {
            Some(coding) => [encode(*coding, &coded), coded].concat(),
            None => coded,
        };
        for coding in CODINGS {
            let (whole, cut) =
                (decode(coding, &coded, &[], 300), decode(coding, &coded, &sizes, 300));
            // Damage beyond the limit may be found before the limit or after it.
            prop_assert_eq!(whole.ok(), cut.ok());
        }
    }
}
