//! The profile, against its published test vectors and with each of its parts changed.

use http::HeaderValue;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn vectors() -> (Vec<u8>, Vec<Value>) {
    let file: Value =
        serde_json::from_str(include_str!("../../../../tests/data/node_signature_vectors.json"))
            .unwrap();
    let hex = file["key_hex"].as_str().unwrap();
    let key = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    (key, file["vectors"].as_array().unwrap().clone())
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(
            http::HeaderName::try_from(*name).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

#[test]
fn the_vectors_verify_and_are_what_a_node_writes() {
    let (key, vectors) = vectors();
    assert_eq!(vectors.len(), 3);
    for vector in vectors {
        let text = |name: &str| vector[name].as_str();
        let method: Method = text("method").unwrap().parse().unwrap();
        let covered = Covered {
            method: &method,
            authority: text("authority").unwrap(),
            path: text("path").unwrap(),
            query: text("query").filter(|query| !query.is_empty()),
        };
        let mut pairs = vec![
            (SIGNATURE_INPUT, text("signature_input").unwrap()),
            (SIGNATURE, text("signature").unwrap()),
        ];
        pairs.extend(text("content_digest").map(|digest| (CONTENT_DIGEST, digest)));
        let signed = Signed::read(&covered, &headers(&pairs)).unwrap();
        assert_eq!(signed.base, text("base").unwrap());
        assert_eq!(
            (signed.node.as_str(), signed.generation),
            ("node_01JD0000000000000000000000", 1)
        );
        assert!(
            signed.is_made_with(&key) && signed.covers(text("body").unwrap_or_default().as_bytes())
        );
        assert!(!signed.is_made_with(&key[1..]) && !signed.covers(b"other"));
        for (now, timely) in [(0, true), (60, true), (-60, true), (61, false), (-61, false)] {
            assert_eq!(signed.is_timely(1_764_000_000 + now), timely, "{now}");
        }
        if let Some(body) = text("body") {
            let signer = Signer { key: &key, node: &signed.node, generation: 1 };
            let made = signer.sign_with(&covered, body.as_bytes(), signed.created, &signed.nonce);
            assert!(made.iter().all(|made| pairs.contains(&(made.0, made.1.as_str()))), "{made:?}");
        }
    }
}

const KEY: &[u8] = b"nod_secret";
const BODY: &[u8] = br#"{"seq":1}"#;

fn good() -> [(&'static str, String); 3] {
    let signer = Signer { key: KEY, node: "node_1", generation: 2 };
    signer.sign_with(&covered(&Method::POST), BODY, 1_764_000_000, "AAECAwQFBgcICQoLDA0ODw")
}

fn covered(method: &Method) -> Covered<'_> {
    Covered { method, authority: "gw.example.com", path: "/v1/agent/heartbeat", query: Some("a=1") }
}

/// Why a changed signature is refused; `good` if it is accepted.
fn judge(request: &Covered<'_>, pairs: &[(&str, String)], body: &[u8]) -> &'static str {
    let pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    match Signed::read(request, &headers(&pairs)) {
        Err(reason) => reason,
        Ok(signed) if !signed.is_timely(1_764_000_000) => "skew",
        Ok(signed) if !signed.is_made_with(KEY) => "mac",
        Ok(signed) if !signed.covers(body) => "digest",
        Ok(_) => "good",
    }
}

#[test]
fn whatever_is_covered_cannot_be_another() {
    let pairs = good();
    let request = covered(&Method::POST);
    assert_eq!(judge(&request, &pairs, BODY), "good");
    assert_eq!(judge(&Covered { method: &Method::PUT, ..request }, &pairs, BODY), "mac");
    assert_eq!(judge(&Covered { authority: "other.example.com", ..request }, &pairs, BODY), "mac");
    assert_eq!(judge(&Covered { path: "/v1/agent/heartbeat/", ..request }, &pairs, BODY), "mac");
    for query in [None, Some("a=2"), Some("a=1&b=1"), Some("a%3D1")] {
        assert_eq!(judge(&Covered { query, ..request }, &pairs, BODY), "mac", "{query:?}");
    }
    assert_eq!(judge(&request, &pairs, br#"{"seq":2}"#), "digest");
    assert_eq!(judge(&request, &pairs, b""), "digest");
    assert_eq!(judge(&request, &[], BODY), "missing");
}

#[test]
fn whatever_is_spelt_otherwise_is_no_signature() {
    let pairs = good();
    let request = covered(&Method::POST);
    let bend = |at: usize, bend: &dyn Fn(&str) -> String| {
        let mut bent = pairs.clone();
        bent[at].1 = bend(&pairs[at].1);
        assert_ne!(bent[at].1, pairs[at].1);
        judge(&request, &bent, BODY)
    };
    let inputs: [(&str, &str, &str); 20] = [
        ("sig1=", "sig2=", "profile"),
        ("sig1=", "sig1= ", "profile"),
        ("\"@method\" \"@authority\"", "\"@authority\" \"@method\"", "profile"),
        (" \"@query\"", "", "profile"),
        (" \"content-digest\"", "", "profile"),
        ("\"@path\"", "\"@path\";req", "profile"),
        ("\"@path\"", "\"@PATH\"", "profile"),
        ("content-digest\"", "content-digest\" \"date\"", "profile"),
        (
            ";created=1764000000;nonce=\"AAECAwQFBgcICQoLDA0ODw\"",
            ";nonce=\"AAECAwQFBgcICQoLDA0ODw\";created=1764000000",
            "profile",
        ),
        (";created=1764000000", "", "profile"),
        ("1764000000", "01764000000", "profile"),
        ("1764000000", "1764000061", "skew"),
        ("1764000000", "1763999939", "skew"),
        ("1764000000", "1764000001", "mac"),
        ("AAECAw", "BAECAw", "mac"),
        ("AAECAw", "AAEC", "profile"),
        ("node_1.2", "node_1.1", "mac"),
        ("node_1.2", "node_1", "profile"),
        ("hmac-sha256", "hmac-sha512", "profile"),
        ("pin-node-agent\"", "pin-node-agent\";expires=1764000060", "profile"),
    ];
    for (from, to, reason) in inputs {
        assert_eq!(bend(1, &|text| text.replacen(from, to, 1)), reason, "{from} → {to}");
    }
    for label in [", sig2=()", ",sig1=()"] {
        assert_eq!(bend(1, &|text| format!("{text}{label}")), "profile");
        assert_eq!(bend(2, &|text| format!("{text}{label}")), "profile");
    }
    assert_eq!(bend(0, &|text| text.replace("sha-256", "sha-512")), "profile");
    assert_eq!(bend(0, &|text| format!("{text}, sha-512=:AAAA:")), "profile");
    assert_eq!(bend(0, &|_| format!("sha-256=:{}:", STANDARD.encode([7; 32]))), "mac");
    assert_eq!(bend(2, &|text| format!("{text}, sig2=:AAAA:")), "profile");
    assert_eq!(bend(2, &|text| text.replacen("sig1", "sig2", 1)), "profile");
    assert_eq!(bend(2, &|_| format!("sig1=:{}:", STANDARD.encode([7; 16]))), "profile");
    assert_eq!(bend(2, &|_| format!("sig1=:{}:", STANDARD.encode([7; 32]))), "mac");
    for at in 0..3 {
        let twice = [pairs.to_vec(), vec![pairs[at].clone()]].concat();
        assert_eq!(judge(&request, &twice, BODY), "profile", "{}", pairs[at].0);
        let mut without = pairs.to_vec();
        without.remove(at);
        assert_eq!(
            judge(&request, &without, BODY),
            if at == 0 { "profile" } else { "missing" },
            "{}",
            pairs[at].0
        );
    }
    assert_eq!(judge(&request, &good(), BODY), "good");
}

/// Each component and parameter left out, moved and repeated.
#[test]
fn each_part_is_needed_once_and_in_its_place() {
    let pairs = good();
    let input = pairs[1].1.clone();
    let (list, parameters) = input.split_at(input.find(')').unwrap());
    let components: Vec<&str> = list.strip_prefix("sig1=(").unwrap().split(' ').collect();
    let parameters: Vec<&str> = parameters.strip_prefix(");").unwrap().split(';').collect();
    assert_eq!((components.len(), parameters.len()), (5, 5));
    let judged = |components: &[&str], parameters: &[&str]| {
        let mut bent = pairs.clone();
        bent[1].1 = format!("sig1=({});{}", components.join(" "), parameters.join(";"));
        judge(&covered(&Method::POST), &bent, BODY)
    };
    assert_eq!(judged(&components, &parameters), "good");
    for at in 0..5 {
        for components in bent(&components, at) {
            assert_eq!(judged(&components, &parameters), "profile", "{components:?}");
        }
        for parameters in bent(&parameters, at) {
            assert_eq!(judged(&components, &parameters), "profile", "{parameters:?}");
        }
    }
}

/// The parts without the one at `at`, in another order, and with that part twice.
fn bent<'a>(parts: &[&'a str], at: usize) -> [Vec<&'a str>; 3] {
    let (mut without, mut moved) = (parts.to_vec(), parts.to_vec());
    without.remove(at);
    moved.rotate_left(at.max(1));
    [without, moved, [parts, &parts[at..=at]].concat()]
}

proptest! {
    #[test]
    fn any_headers_are_read_or_refused(input in "[ -~]{0,200}", signature in "[ -~]{0,80}",
        digest in proptest::option::of("[ -~]{0,80}")) {
        let mut pairs = vec![(SIGNATURE_INPUT, input), (SIGNATURE, signature)];
        pairs.extend(digest.map(|digest| (CONTENT_DIGEST, digest)));
        prop_assert_eq!(judge(&covered(&Method::POST), &pairs, BODY), "profile");
    }

    /// A signature is never good if any byte of its headers is exchanged for another.
    #[test]
    fn no_byte_can_be_another(at in any::<prop::sample::Index>(), by in 1..95_u8) {
        let mut pairs = good();
        let places: Vec<(usize, usize)> = (0..3)
            .flat_map(|header| (0..pairs[header].1.len()).map(move |byte| (header, byte)))
            .collect();
        let (header, byte) = places[at.index(places.len())];
        let mut text = pairs[header].1.clone().into_bytes();
        text[byte] = (text[byte] - 32 + by) % 95 + 32;
        pairs[header].1 = String::from_utf8(text).unwrap();
        prop_assert_ne!(judge(&covered(&Method::POST), &pairs, BODY), "good");
    }
}
