//! Runs the fuzz targets on their seeds, on recorded exchanges, and on mutations of both, without a
//! fuzzer.

use std::path::PathBuf;
use std::sync::OnceLock;

use proptest::prelude::*;

use crate::support::coded::{CODINGS, encode};
use crate::support::recorded::all as exchanges;

#[path = "../fuzz/targets.rs"]
pub mod targets;

/// The seeds of a target, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(target);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut seeds: Vec<_> =
        files.map(|file| (file.display().to_string(), std::fs::read(&file).unwrap())).collect();
    seeds.sort();
    assert!(seeds.len() >= 5, "{target} has its seeds");
    seeds
}

/// The seeds, and small recorded exchanges in the form that each target takes.
fn corpus(target: &'static str) -> &'static [Vec<u8>] {
    static ALL: [OnceLock<Vec<Vec<u8>>>; 5] = [const { OnceLock::new() }; 5];
    let all = ["edits", "events", "coding", "requests", "answers"];
    let at = all.iter().position(|known| *known == target).unwrap();
    ALL[at].get_or_init(|| {
        let mut all: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, bytes)| bytes).collect();
        for (n, exchange) in exchanges().into_iter().enumerate() {
            let (size, request) =
                (u8::try_from(n % 251).unwrap(), exchange.request.get().as_bytes());
            match target {
                "edits" => all.push(request.to_vec()),
                "events" if exchange.stream => {
                    all.push([&[size], exchange.response.as_bytes()].concat())
                }
                "coding" => all.extend(["gzip", "deflate", "zstd", "br"].iter().zip(0u8..).map(
                    |(coding, which)| {
                        assert!(CODINGS.contains(coding));
                        [&[size, which], &encode(coding, request)[..]].concat()
                    },
                )),
                "requests" => {
                    let kinds = ["chat", "messages", "responses"];
                    let from = kinds.iter().position(|kind| *kind == exchange.kind);
                    let from = u8::try_from(from.unwrap_or(0)).unwrap();
                    all.push([&[from], exchange.request.get().as_bytes()].concat());
                }
                "answers" => {
                    let kinds = ["chat", "messages", "responses"];
                    let from = kinds.iter().position(|kind| *kind == exchange.kind);
                    let (answer, from) = (exchange.response.as_bytes(), from.unwrap_or(0) as u8);
                    all.extend([0, 4, 8].map(|to| [&[size, from + to], answer].concat()));
                }
                _ => {}
            }
        }
        all.retain(|bytes| bytes.len() <= 16 << 10);
        all
    })
}

#[test]
fn every_target_holds_over_its_seeds_and_recorded_exchanges() {
    for (target, run) in [
        ("edits", targets::edits as fn(&[u8])),
        ("events", targets::events),
        ("coding", targets::coding),
        ("requests", targets::requests),
        ("answers", targets::answers),
    ] {
        corpus(target).iter().for_each(|bytes| run(bytes));
    }
}

/// Bytes after a few mutations: changed bytes, a removed piece, a repeated piece, or a piece of
/// other bytes.
fn changed(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (0u8..5, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>());
    let one = || any::<prop::sample::Index>().prop_map(move |at| at.get(corpus(target)).clone());
    (one(), one(), prop::collection::vec(change, 0..6)).prop_map(|(mut bytes, other, changes)| {
        for (kind, a, b, byte) in changes {
            if bytes.is_empty() {
                break;
            }
            let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
            let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 200));
            match kind {
                0 => bytes[a] = byte,
                1 => bytes[a] ^= 1 << (byte % 8),
                2 => drop(bytes.drain(from..to)),
                3 => bytes = [&bytes[..to], &bytes[from..]].concat(),
                _ => {
                    bytes = [
                        &bytes[..from],
                        &other[from.min(other.len())..to.min(other.len())],
                        &bytes[from..],
                    ]
                    .concat()
                }
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn edits_hold_over_changed_requests(bytes in changed("edits")) {
        targets::edits(&bytes);
    }

    #[test]
    fn events_hold_over_changed_streams(bytes in changed("events")) {
        targets::events(&bytes);
    }

    #[test]
    fn requests_hold_over_changed_requests(bytes in changed("requests")) {
        targets::requests(&bytes);
    }

    #[test]
    fn answers_hold_over_changed_answers(bytes in changed("answers")) {
        targets::answers(&bytes);
    }

    #[test]
    fn coding_holds_over_changed_bodies(bytes in changed("coding")) {
        targets::coding(&bytes);
    }
}
