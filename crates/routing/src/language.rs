//! Language detection, for the signal `language`.

use std::sync::OnceLock;

use whatlang::{Detector, Lang};

/// Number of bytes of the last user message used to detect its language. More bytes cost time and
/// do not improve the result.
const LANGUAGE_TEXT: usize = 1 << 10;

/// Below this confidence a guess is wrong as often as right, which is worse than none.
const CONFIDENCE: f64 = 0.35;

/// Detected languages with their ISO 639-1 codes. More languages cost accuracy: with Bulgarian in
/// the list, short Russian texts are detected as Bulgarian.
const LANGUAGES: [(Lang, &str); 35] = [
    (Lang::Ara, "ar"),
    (Lang::Ben, "bn"),
    (Lang::Ces, "cs"),
    (Lang::Cmn, "zh"),
    (Lang::Dan, "da"),
    (Lang::Deu, "de"),
    (Lang::Ell, "el"),
    (Lang::Eng, "en"),
    (Lang::Fin, "fi"),
    (Lang::Fra, "fr"),
    (Lang::Heb, "he"),
    (Lang::Hin, "hi"),
    (Lang::Hun, "hu"),
    (Lang::Ind, "id"),
    (Lang::Ita, "it"),
    (Lang::Jpn, "ja"),
    (Lang::Kan, "kn"),
    (Lang::Kor, "ko"),
    (Lang::Mal, "ml"),
    (Lang::Nld, "nl"),
    (Lang::Nob, "no"),
    (Lang::Pes, "fa"),
    (Lang::Pol, "pl"),
    (Lang::Por, "pt"),
    (Lang::Ron, "ro"),
    (Lang::Rus, "ru"),
    (Lang::Spa, "es"),
    (Lang::Swe, "sv"),
    (Lang::Tam, "ta"),
    (Lang::Tel, "te"),
    (Lang::Tha, "th"),
    (Lang::Tur, "tr"),
    (Lang::Ukr, "uk"),
    (Lang::Urd, "ur"),
    (Lang::Vie, "vi"),
];

/// ISO 639-1 code of the language at the beginning of the text; `""` if detection is not confident.
pub fn detect(text: &str) -> &'static str {
    static DETECTOR: OnceLock<Detector> = OnceLock::new();
    let detector = DETECTOR
        .get_or_init(|| Detector::with_allowlist(LANGUAGES.map(|(language, _)| language).to_vec()));
    let begins = text.get(..text.floor_char_boundary(LANGUAGE_TEXT)).unwrap_or("");
    let found = detector.detect(begins).filter(|found| found.confidence() >= CONFIDENCE);
    let code =
        found.and_then(|found| LANGUAGES.iter().find(|(language, _)| *language == found.lang()));
    code.map_or("", |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_told_apart() {
        for (language, text) in [
            (
                "en",
                "Please summarise the following contract in three sentences and name the key \
                 deadlines.",
            ),
            (
                "de",
                "Bitte fasse den folgenden Vertrag in drei Sätzen zusammen und nenne die \
                 wichtigsten Fristen.",
            ),
            (
                "fr",
                "Merci de résumer le contrat suivant en trois phrases et d'indiquer les délais \
                 principaux.",
            ),
            (
                "es",
                "Por favor resume el siguiente contrato en tres frases y menciona los plazos más \
                 importantes.",
            ),
            ("it", "Riassumi il seguente contratto in tre frasi e indica le scadenze principali."),
            (
                "pt",
                "Por favor, resuma o contrato a seguir em três frases e cite os prazos principais.",
            ),
            (
                "nl",
                "Vat het volgende contract samen in drie zinnen en noem \
                 de belangrijkste termijnen.",
            ),
            (
                "pl",
                "Proszę streścić poniższą umowę w trzech zdaniach i podać najważniejsze terminy.",
            ),
            ("ru", "Пожалуйста, кратко изложите следующий договор в трёх предложениях."),
            ("zh", "请用三句话概括以下合同，并列出主要期限。"),
            ("ja", "次の契約を三文で要約し、主な期限を挙げてください。"),
            ("ko", "다음 계약을 세 문장으로 요약하고 주요 기한을 알려 주세요."),
            ("ar", "يرجى تلخيص العقد التالي في ثلاث جمل وذكر المواعيد الرئيسية."),
            ("", "{\"a\": [1, 2, 3]}"),
            ("", "12345 !!"),
            ("", ""),
        ] {
            assert_eq!(detect(text), language, "{text}");
        }
    }

    #[test]
    fn only_the_beginning_counts() {
        let german = "\
            Bitte fasse den folgenden Vertrag in drei Sätzen zusammen und nenne die wichtigsten \
            Fristen. Ein Gesetz ist eine Sammlung von allgemein verbindlichen Rechtsnormen, die in \
            einem förmlichen Verfahren von dem dazu ermächtigten Organ erlassen worden ist. Am \
            Abend gingen wir noch einmal durch die Stadt, sahen die alten Häuser am Fluss und \
            sprachen über das, was im Frühling werden sollte. Niemand wusste es genau, aber alle \
            hofften auf besseres Wetter. ";
        assert_eq!(
            detect(&format!(
                "{german}{german}{german}{}",
                "Please summarise the contract. ".repeat(1000)
            )),
            "de"
        );
        assert_eq!(detect(&"語".repeat(1000)), "zh");
    }
}
