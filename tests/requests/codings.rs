//! Bodies in a content coding: decoded for the provider, the decision and the capture; bounded
//! coded and decoded.

use serde_json::{Value, json};

use crate::support::client::{self, Answer, H2};
use crate::support::coded::{CODINGS, encode, encode_repeated, header};
use crate::support::documents::in_order;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

const KIB: usize = 1 << 10;
const PATH: &str = "/v1/chat/completions";

async fn start(limit: &str) -> (Gateway, Key, Provider) {
    // It counts no tokens: else estimates would follow it from request to request.
    let mut answer = scripted::completion_body("hello");
    answer.as_object_mut().unwrap().remove("usage");
    let provider = Provider::always(scripted::json_answer(200, &answer)).await;
    let document = in_order(&[("a", &provider.url())], "");
    let gateway = Setup::new(&document)
        .server(&format!("limits: {{ request_body: {limit} }}"))
        .tls()
        .start()
        .await;
    let key = gateway.create_key().await;
    (gateway, key, provider)
}

/// A chat request of some size; its text does not compress to nothing.
fn body(words: u32, model: &str) -> String {
    let text: String =
        (0..words).map(|n| format!("{:08x} ", n.wrapping_mul(2_654_435_761))).collect();
    format!(
        "{{ \"messages\":[{{\"role\":\"user\",\"content\":\"caf\\u00e9 \
         {text}\"}}],\"model\":\"{model}\", \"seed\":1.0e0 }}"
    )
}

async fn post(gateway: &Gateway, key: &Key, coding: &[&str], body: &[u8]) -> Answer {
    let bearer = format!("Bearer {}", key.secret);
    let mut headers =
        vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    headers.extend(coding.iter().map(|line| ("content-encoding", *line)));
    gateway.send("POST", PATH, &headers, Some(body)).await
}

#[tokio::test]
async fn a_coded_body_goes_on_decoded_over_every_framing() {
    let (gateway, key, provider) = start("32MiB").await;
    let bearer = format!("Bearer {}", key.secret);
    let mut http1 = gateway.connect().await;
    let mut http2 = H2::open(gateway.tls()).await;
    for words in [1, 40_000] {
        let (plain, expected) = (body(words, "auto"), body(words, "model"));
        let uncoded = post(&gateway, &key, &["identity"], plain.as_bytes()).await;
        let uncoded = gateway.capture(&uncoded.request_id()).await;
        for coding in CODINGS {
            let coded = encode(coding, plain.as_bytes());
            let headers = [
                ("authorization", bearer.as_str()),
                ("content-type", "application/json"),
                ("content-encoding", header(coding)),
            ];
            for framing in ["length", "chunks", "HTTP/2", "HTTP/2 frames"] {
                let answer = match framing {
                    "length" => {
                        http1
                            .exchange(&client::request(
                                "POST",
                                PATH,
                                &gateway.host(),
                                &headers,
                                Some(&coded),
                            ))
                            .await
                    }
                    "chunks" => {
                        http1
                            .exchange(&client::chunked_request(
                                "POST",
                                PATH,
                                &gateway.host(),
                                &headers,
                                &coded,
                                997,
                            ))
                            .await
                    }
                    _ => {
                        http2.send("POST", PATH, &headers, &coded, framing == "HTTP/2 frames").await
                    }
                };
                let what = format!("{words} words in {coding}, {framing}");
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                let received = provider.last();
                assert!(
                    received.body == expected.as_bytes(),
                    "{what}: {} bytes arrived",
                    received.body.len()
                );
                assert_eq!(
                    received.header("content-length"),
                    Some(expected.len().to_string()),
                    "{what}"
                );
                assert_eq!(
                    (received.header("content-encoding"), received.header("transfer-encoding")),
                    (None, None),
                    "{what}"
                );
                let capture = gateway.capture(&answer.request_id()).await;
                // What is kept and decided on is what would have been without a coding.
                assert_eq!(capture["request"]["body"], uncoded["request"]["body"], "{what}");
                assert_eq!(capture["inputs"]["request"], uncoded["inputs"]["request"], "{what}");
                assert_eq!(
                    (&capture["state"], &capture["replayable"]),
                    (&json!("completed"), &json!(true)),
                    "{what}"
                );
            }
        }
    }
    let coded = encode("gzip", body(1, "auto").as_bytes());
    let id = post(&gateway, &key, &["gzip"], &coded).await.request_id();
    gateway.capture(&id).await;
    gateway
        .answers(200, "POST", &format!("/v1/router/replay/{id}/reroute"), &key.secret, None)
        .await;
    assert_eq!(provider.last().body, body(1, "model").as_bytes());
}

#[tokio::test]
async fn what_is_no_coding_of_ours_is_415_and_names_those_that_are() {
    let (gateway, key, provider) = start("32MiB").await;
    let plain = body(1, "auto");
    let twice = encode("gzip", &encode("gzip", plain.as_bytes()));
    for lines in [
        &["gzip, gzip"][..],
        &["gzip", "gzip"],
        &["br", "identity"],
        &["compress"],
        &["*"],
        &["gzip;q=1"],
        &["dcb"],
    ] {
        let answer = post(&gateway, &key, lines, &twice).await;
        envelope::openai(&answer, 415, "invalid_request_error", Some("unsupported_media_type"));
        for coding in ["gzip", "deflate", "zstd", "br"] {
            assert!(
                answer.json()["error"]["message"].as_str().unwrap().contains(coding),
                "{}",
                answer.text()
            );
        }
    }
    assert_eq!(provider.count(), 0);
    for lines in [&["identity"][..], &[""], &["", "Identity"]] {
        assert_eq!(post(&gateway, &key, lines, plain.as_bytes()).await.status, 200, "{lines:?}");
    }
    // Where documents and accounts are managed nobody needs them.
    let bearer = format!("Bearer {}", key.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    let coded = encode("gzip", plain.as_bytes());
    for path in ["/v1/router/decide", "/v1/router/keys"] {
        envelope::management(
            &gateway.send("POST", path, &headers, Some(&coded)).await,
            415,
            "unsupported_media_type",
        );
    }
}

#[tokio::test]
async fn a_body_that_is_not_as_its_coding_says_is_400_and_the_connection_stays() {
    let (gateway, key, provider) = start("32MiB").await;
    let bearer = format!("Bearer {}", key.secret);
    let plain = body(50, "auto");
    let mut connection = gateway.connect().await;
    for coding in CODINGS {
        let coded = encode(coding, plain.as_bytes());
        let headers = [("authorization", bearer.as_str()), ("content-encoding", header(coding))];
        let damaged: Vec<u8> = coded
            .iter()
            .enumerate()
            .map(|(at, byte)| if at == 1 { byte ^ 0xff } else { *byte })
            .collect();
        for bad in [
            &b""[..],
            &coded[..coded.len() - 1],
            &coded[..coded.len() / 2],
            &[&coded[..], b"more"].concat(),
            plain.as_bytes(),
            &damaged,
        ] {
            for chunked in [false, true] {
                let request = match chunked {
                    false => client::request("POST", PATH, &gateway.host(), &headers, Some(bad)),
                    true => {
                        client::chunked_request("POST", PATH, &gateway.host(), &headers, bad, 64)
                    }
                };
                let answer = connection.exchange(&request).await;
                envelope::openai(&answer, 400, "invalid_request_error", None);
            }
        }
        let good = connection
            .exchange(&client::request("POST", PATH, &gateway.host(), &headers, Some(&coded)))
            .await;
        assert_eq!(good.status, 200, "{coding}: {}", good.text());
    }
    assert_eq!(provider.count(), CODINGS.len());
}

#[tokio::test]
async fn coded_and_decoded_size_are_both_bounded() {
    let (gateway, key, provider) = start("64KiB").await;
    let bearer = format!("Bearer {}", key.secret);
    let room = 64 * KIB - body(0, "auto").len();
    let fits = body(0, "auto").replace("caf", &format!("{}caf", "a".repeat(room)));
    let over = fits.replace("caf", "acaf");
    assert_eq!(fits.len(), 64 * KIB);
    // Bytes that no coding makes fewer.
    let noise: Vec<u8> = (0..40_000u64)
        .flat_map(|n| {
            n.wrapping_add(7).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17).to_le_bytes()
        })
        .collect();
    let check = |answer: &Answer| {
        envelope::openai(answer, 413, "invalid_request_error", Some("payload_too_large"))
    };
    for coding in CODINGS {
        let lines = [header(coding)];
        assert_eq!(
            post(&gateway, &key, &lines, &encode(coding, fits.as_bytes())).await.status,
            200,
            "{coding}: exactly the limit fits"
        );
        check(&post(&gateway, &key, &lines, &encode(coding, over.as_bytes())).await);
        check(&post(&gateway, &key, &lines, &encode_repeated(coding, &[b' '; 1 << 20], 16)).await);
        let large = encode(coding, &noise);
        assert!(large.len() > 64 * KIB);
        let headers = [("authorization", bearer.as_str()), ("content-encoding", header(coding))];
        check(
            &gateway
                .connect()
                .await
                .exchange(&client::request("POST", PATH, &gateway.host(), &headers, Some(&large)))
                .await,
        );
        check(
            &gateway
                .connect()
                .await
                .exchange(&client::chunked_request(
                    "POST",
                    PATH,
                    &gateway.host(),
                    &headers,
                    &large,
                    5_000,
                ))
                .await,
        );
        check(
            &H2::open(gateway.tls())
                .await
                .send("POST", PATH, &headers, &encode(coding, over.as_bytes()), true)
                .await,
        );
    }
    assert_eq!(provider.count(), CODINGS.len());
    let log = gateway.log();
    let decoded = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["status"] == 200);
    let bytes: Vec<u64> = decoded
        .filter(|line| line["route"] == PATH)
        .filter_map(|line| line["bytes_in"].as_u64())
        .collect();
    assert!(
        bytes.iter().all(|bytes| *bytes > 0 && *bytes < 64 * 1024),
        "what came over the wire: {bytes:?}"
    );
}
