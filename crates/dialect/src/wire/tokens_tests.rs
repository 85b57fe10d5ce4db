//! Compares estimates with tokenizers, and sampled texts with whole ones.

use proptest::prelude::*;

use super::*;

/// Estimates of a text as a JSON string, with characters outside ASCII as they are and as escapes.
fn both(text: &str) -> [u64; 2] {
    let plain = serde_json::to_string(text).unwrap();
    let escaped: String = plain
        .encode_utf16()
        .map(|unit| {
            if unit < 0x80 { char::from(unit as u8).to_string() } else { format!("\\u{unit:04x}") }
        })
        .collect();
    [plain, escaped].map(|written| estimate(&written.as_bytes()[1..written.len() - 1]))
}

#[test]
fn scripts_code_and_data_are_near_what_tokenizers_count() {
    // Counts of OpenAI's o200k_base. The tolerance is a third, and families differ by more than
    // that.
    for (counted, text) in [
        (1, "hello"),
        (6, "What is the capital of France"),
        (11, "The members agreed to postpone the vote until next month."),
        (
            23,
            "Der Ausschuss vertagte die Abstimmung über die Änderungen des Gemeindehaushalts auf \
             die nächste Sitzung.",
        ),
        (22, "Несколько членов считали увеличение расходов на общественный транспорт оправданным."),
        (33, "委员会星期二开会讨论市政预算的拟议修改。几位委员认为增加公共交通支出是合理的，"),
        (29, "委員会は火曜日に開かれ、市の予算の変更案について話し合った。"),
        (12, "9f86d081884c7d65 9a2fea"),
        (
            48,
            "3.14159265358979 2024-03-15T12:30:45Z 1,234,567.89 +49 170 1234567 42 7 100 256 1024",
        ),
        (
            24,
            "  if (!response.ok) {\n    throw new Error(`HTTP error! status: \
             ${response.status}`);\n  }\n",
        ),
        (
            29,
            "{\"location\":{\"type\":\"string\",\"description\":\"The city and state, e.g. San \
             Francisco, CA\"},\"unit\":1}",
        ),
    ] {
        for found in both(text) {
            assert!(found.abs_diff(counted) * 3 <= counted + 3, "{found} for {counted}: {text}");
        }
    }
    assert_eq!(estimate(b""), 0);
    assert_eq!(both("----------------------------------------"), [1, 1]);
}

/// Real texts in various languages and formats.
fn real_texts() -> Vec<(&'static str, String)> {
    let english = [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/routing.md"),
        include_str!("../../../../docs/limits.md"),
        include_str!("../../../../docs/replay.md"),
    ];
    let code =
        [include_str!("json/cursor.rs"), include_str!("../usage.rs"), include_str!("sse.rs")];
    let chinese = [
        "委员会星期二开会讨论市政预算的拟议修改。",
        "几位委员认为增加公共交通支出是合理的，另一些人要求先公布账目。",
        "表决推迟到下个月，届时将有新的报告。",
        "会议记录显示，3名成员于17:30离席；API网关的费用没有讨论。",
    ];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 1_u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let base64 = (0..40_000).map(|_| char::from(letters[next(64)])).collect();
    let chinese = (0..600).map(|_| chinese[next(4)]).collect();
    let json = (0..700)
        .map(|id| {
            format!("{{\"id\":{id},\"price\":{}.5,\"name\":\"item {}\"}},", next(900), next(9))
        })
        .collect();
    let blanks = (0..900)
        .map(|line| format!("{}{line}\n{}", " ".repeat(next(60)), "\n".repeat(next(4))))
        .collect();
    vec![
        ("english", english.concat()),
        ("code", code.concat()),
        ("chinese", chinese),
        ("base64", base64),
        ("json", json),
        ("blanks", blanks),
    ]
}

#[test]
fn samples_of_real_texts_tell_what_all_of_them_does() {
    for (what, text) in real_texts() {
        let characters: Vec<char> = text.chars().collect();
        let mut sampled = false;
        for length in [3_300, 5_000, 9_000, 20_000] {
            for from in (0..characters.len().saturating_sub(length)).step_by(1_700) {
                let piece: String = characters[from..from + length].iter().collect();
                let written = serde_json::to_string(&piece).unwrap();
                let written = &written.as_bytes()[1..written.len() - 1];
                let (some, all) = (estimate(written), count(written).div_ceil(TOKEN));
                assert!(some.abs_diff(all) * 10 <= all, "{what}, {length}: {some} for {all}");
                sampled |= by_samples(written).is_some();
            }
        }
        assert_eq!(sampled, what != "blanks", "{what}: what is cheap is counted whole");
    }
}

/// Pieces of texts of every cost: runs, escapes, words, signs and letters of all scripts.
const PIECES: [&str; 24] = [
    "a", "xyz", "aaaaaaaa", " ", "        ", "1", "12", "A", ",", "}", "--------", "\\n", "\\t",
    "\\u0020", "\\u0061", "\\\"", "\\\\", "ж", "中", "ą", "ạ", "😀", "ख", "\u{7f}",
];

fn pattern() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 1..6)
        .prop_map(|pieces| pieces.concat())
}

#[test]
fn runs_of_one_sign_or_blank_are_not_free() {
    // The estimate of 3,000 repetitions is at least half of what OpenAI's o200k_base counts.
    for (counted, one) in [
        (750, "'"),
        (1500, "}"),
        (48, "-"),
        (188, "\n"),
        (24, " "),
        (188, "\t"),
        (3000, "\u{7f}"),
        (3000, "\u{1}"),
    ] {
        for found in both(&one.repeat(3_000)) {
            assert!(found * 2 >= counted, "{found} for {counted}: {one:?}");
        }
    }
}

#[test]
fn tools_and_images_of_some_families_cost_more() {
    assert_eq!(
        (tool_instructions("anthropic/Claude-sonnet-5"), tool_instructions("gpt-5")),
        (420, 0)
    );
    assert_eq!(
        ["GPT-4o-mini", "claude-opus-5", "qwen3-vl"].map(dearest_image),
        [48_169, 4_784, 16_384]
    );
}

proptest! {
    /// Cheap text at the places of the samples lowers the estimate by a bounded factor only.
    #[test]
    fn cheap_text_where_the_samples_are_hides_little(
        cheap in pattern(),
        dear in pattern(),
        length in WHOLE + 1..40_000,
    ) {
        let mut text: Vec<u8> = dear.bytes().cycle().take(length).collect();
        let size = (length / (8 * SAMPLES)).clamp(*SAMPLE.start(), *SAMPLE.end());
        let apart = (length - size) / (SAMPLES - 1);
        for place in 0..SAMPLES {
            let sample = &mut text[place * apart..place * apart + size];
            sample.iter_mut().zip(cheap.bytes().cycle()).for_each(|(byte, with)| *byte = with);
        }
        let all = count(&text);
        prop_assert!(all <= text.len() as u64 * TOKEN * 11 / 10, "{all} of {length}");
        prop_assert!(estimate(&text) * (CHEAP + 1) * TOKEN >= all, "{} for {all}", estimate(&text));
        prop_assert_eq!(estimate(&text), estimate(&text.clone()));
    }

    #[test]
    fn no_bytes_panic_and_no_text_is_dear(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        text in "\\PC{0,40}",
    ) {
        prop_assert!(estimate(&bytes) <= 3 * bytes.len() as u64);
        let [plain, escaped] = both(&text);
        prop_assert_eq!(plain, escaped);
    }

    #[test]
    fn words_at_one_go_cost_what_they_cost_one_by_one(
        text in "[a-z ]{0,40}[A-Z.,1{`é ]{0,4}[a-z ]{0,20}",
    ) {
        prop_assert_eq!(
            estimate(text.as_bytes()),
            estimate(text.replace(' ', "\\u0020").as_bytes())
        );
    }
}
