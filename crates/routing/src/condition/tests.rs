//! Conditions and keys: what compiles, what is rejected and why, and how evaluation fails.

use proptest::prelude::*;

use jiff::tz::TimeZone;

use super::check::Uses;
use super::compile::CEL_BYTES;
use super::flaw::shorten;
use super::*;
use crate::fixtures::chat;
use crate::inputs::{AgentRef, Inputs, KeywordHit};

fn holds(text: &str, inputs: &Inputs) -> Result<bool, String> {
    let condition = Condition::compile(text).map_err(|flaws| format!("{flaws:?}"))?;
    let zone = TimeZone::get("Asia/Tokyo").unwrap();
    let facts = Signals::new(inputs, &zone);
    condition.holds(&EvaluationContext::new(&facts))
}

fn flaw(text: &str) -> String {
    let flaw = Condition::compile(text).unwrap_err().remove(0);
    format!("{} / {}", flaw.message, flaw.hint.unwrap_or_default())
}

#[test]
fn signals_are_read() {
    let mut inputs = chat("auto", 1);
    inputs.request.headers.insert("x-tier".into(), "gold".into());
    inputs.principal.labels.insert("team".into(), "core".into());
    inputs.principal.user_labels.insert("plan".into(), "pro".into());
    inputs.keywords.insert("code".into(), KeywordHit { hash: "1".into(), hit: true });
    inputs.keywords.insert("law".into(), KeywordHit { hash: "2".into(), hit: false });
    for (text, wanted) in [
        ("prompt_tokens > 10 && !stream", true),
        ("model == 'auto' && endpoint.startsWith('chat')", true),
        ("max_tokens > 1000", false),
        ("hour == 1", true), // 16:00 UTC
        ("key.id == 'key_1' && user.id != ''", true),
        ("key.labels.team == 'core'", true),
        ("has(key.labels.team) && !has(user.labels.team)", true),
        ("'team' in key.labels && !('x' in key.labels)", true),
        ("key.labels.exists(name, key.labels[name] == 'core')", true),
        ("user.labels['plan'] in ['pro', 'max']", true),
        ("'code' in keywords && !('law' in keywords) && size(keywords) == 1", true),
        ("keywords.exists(set, set == 'code') && keywords[0] == 'code'", true),
        ("language == '' && agent == ''", true),
        ("headers['x-tier'] == 'gold' && size(headers) == 1", true),
        (
            "model.matches('^a.t[no]$') && !model.matches('^[0-9]+$') && \
             matches(headers['x-tier'], '(?i)GOLD')",
            true,
        ),
        ("'auto'.contains(model) ? tools + images + audio == 0 : json_output", true),
    ] {
        assert_eq!(holds(text, &inputs), Ok(wanted), "{text}");
    }
    inputs.request.language = Some("de".into());
    inputs.request.agent =
        Some(AgentRef { id: "agent_1".into(), name: "helpdesk".into(), etag: "1".into() });
    assert_eq!(holds("language == 'de' && agent == 'helpdesk'", &inputs), Ok(true));
    assert!(holds("key.labels.nope == 'x'", &inputs).unwrap_err().contains("nope"));
    assert!(holds("100 / max_tokens > 1", &inputs).is_err());
}

#[test]
fn mistakes_show_when_compiled() {
    for (text, wanted) in [
        ("promt_tokens > 1", "unknown signal `promt_tokens` / did you mean `prompt_tokens`?"),
        ("key.label == ''", "unknown field of `key`: `label` / did you mean `labels`?"),
        ("key == ''", "`key` is not a signal itself / key.id or key.labels"),
        ("languages == 'de'", "unknown signal `languages` / did you mean `language`?"),
        ("keywords.code", "`.code`: this signal has no fields / 'code' in keywords"),
        ("keywords == 'code'", "`keywords` is a list of names / 'code' in keywords"),
        ("keywords.contains('code')", "`keywords` is a list of names / 'code' in keywords"),
        ("agent.id == ''", "`.id`: text has no fields"),
        ("model.name == ''", "`.name`: text has no fields"),
        ("model.matches('a(')", "the pattern of `matches` is wrong: unclosed group"),
        ("model.matches(language)", "the pattern of `matches` must be a literal"),
        ("matches(model)", "`matches` takes a text and a pattern"),
        ("model.matches('(a{1000}){1000}')", "the pattern of `matches` is wrong: it is too large"),
        (
            "prompt_tokens.matches('a')",
            "at character 22: `matches` does not work on a whole number and text / for example \
             `model.matches",
        ),
        ("model.startWith('a')", "unknown function `startWith` / did you mean `startsWith`?"),
        ("prompt_tokens +", "not an expression, at character 16: unexpected end"),
        ("prompt_tokens = 5", "at character 15: unexpected `=` / `==` compares"),
        ("stream and tools > 0", "at character 8: unexpected `and` / `&&` stands for and"),
        ("stream or tools > 0", "at character 8: unexpected `or` / `||` stands for or"),
        ("model == 'auto", "at character 10: unterminated string"),
        ("'ä' == model && tools > > 1", "at character 25: unexpected `>`"),
        ("stream &&\n  tools > > 1", "at line 2, character 11: unexpected `>`"),
        ("tools > 99999999999999999999", "this number is too large"),
        ("has(model)", "`has` takes a label or a header"),
        ("keywords.exists('a', true)", "a macro's variable has to be a name"),
        (
            "stream && prompt_tokens > 'a'",
            "at character 25: `>` does not work on a whole number and text / numbers stand \
             without quotes",
        ),
        (
            "'ä' == model && prompt_tokens + 1.5 > 2.0",
            "at character 31: `+` does not work on a whole number and a decimal number",
        ),
        (
            "tools && stream",
            "at character 7: `&&` needs true or false, not a whole number / compare it",
        ),
        ("!model", "`!` needs true or false, not text"),
        ("tools ? stream : stream", "`? :` needs true or false, not a whole number"),
        (
            "tools[0] == 1",
            "at character 6: `[ ]` does not work on a whole number / labels and headers",
        ),
        (
            "keywords['a'] == ''",
            "the list of keyword sets is asked for by number, not by text / for example `'code' in \
             keywords`",
        ),
        ("headers[0] == ''", "headers are asked for by name, not by a whole number"),
        ("'a' in model", "`in` does not work on text and text"),
        ("stream == 'true'", "at character 8: `==` does not work on a boolean and text"),
        (
            "key.labels.tier == 1",
            "`==` does not work on text and a whole number / numbers stand without quotes",
        ),
        ("max_tokens != 'none'", "`!=` does not work on a whole number and text"),
        ("model == null", "`==` does not work on text and null"),
        (
            "1 in headers",
            "`in` does not work on a whole number and headers / for example `'code' in keywords`",
        ),
        ("-model == ''", "`-` does not work on text"),
        ("model.exists(x, x == 'a')", "a macro goes through a list, labels or headers, not text"),
        ("key.labels.exists(x, x > 1)", "`>` does not work on text and a whole number"),
        ("size() > 1 && stream", "`size` needs a value"),
        (
            "prompt_tokens + 1",
            "the expression gives a whole number, not true or false / compare it",
        ),
        ("1 < 2", "the expression uses no signal"),
        ("[1].exists(x, [2].exists(y, x == y))", "macros cannot be nested"),
        ("key.labels.exists(model, model == '')", "`model` is a signal"),
        ("{'a': model}['a'] == ''", "maps and messages cannot be written"),
        ("  ", "the expression is empty"),
    ] {
        let found = flaw(text);
        assert!(found.contains(wanted), "{text}: {found}");
    }
    let same_family = "tools == 0u && tools == 0.0 && headers != key.labels";
    assert!(Condition::compile(same_family).is_ok());
    // Names are compared as written: requests have theirs in lower case.
    let condition =
        Condition::compile("headers['x-a'] == '' || headers.Xb == '' || 'x-c' in headers").unwrap();
    let headers = ["x-a", "Xb", "x-c"].map(Into::into).into();
    assert_eq!(condition.uses(), &Uses { headers, ..Uses::default() });
    let condition = Condition::compile(
        "'a' in keywords || language != 'de' && keywords.exists(set, set in ['b'])",
    )
    .unwrap();
    assert_eq!(
        condition.uses(),
        &Uses { sets: vec!["a".into()], language: true, keywords: true, ..Uses::default() }
    );
}

/// Internal words of the parser and the evaluator. Messages must not contain them.
const INTERNAL: [&str; 14] = [
    "_[",
    "_+_",
    "_&&_",
    "_||_",
    "_==_",
    "_>_",
    "_._",
    "@",
    "overload",
    "EOF",
    "IDENTIFIER",
    "viable",
    "Int(",
    "String(",
];

fn assert_plain(text: &str, said: &str) {
    let found = INTERNAL.iter().find(|word| said.contains(*word) && !text.contains(*word));
    assert_eq!(found, None, "{text}: {said}");
}

#[test]
fn values_of_the_wrong_kind_are_told_in_plain_words() {
    const WRONG: &str = "model[0] == 'a'; key.labels[1] == 'a'; 'many' < prompt_tokens; \
        stream || prompt_tokens > 'many'; stream >= model; model + 1 == 'a'; \
        model + prompt_tokens == 'a'; prompt_tokens + 'a' == 'a'; prompt_tokens * 1.5 > 100.0; \
        prompt_tokens - stream > 1; prompt_tokens / 'a' > 1; prompt_tokens % 1.5 > 1.0; \
        model - 'a' == ''; stream + stream; -stream; !prompt_tokens; stream && tools; \
        model || stream; stream ? 1 : 2; model; keywords; headers; key.labels; \
        'code' in prompt_tokens; prompt_tokens in model; prompt_tokens in 5; \
        size(prompt_tokens) > 1; size(model, 1) > 1; tools.size() > 1; \
        prompt_tokens.contains('a'); model.contains(1); model.contains(); startsWith(model, 'a'); \
        stream.endsWith('a'); int(stream) > 1; int(headers) > 1; double(keywords) > 1.0; \
        string(headers) == ''; tools.all(x, x > 1); keywords.exists(x, x > 1); \
        keywords.map(x, x + 1); headers.filter(x, x); not stream; (stream";
    for text in WRONG.split("; ") {
        for flaw in Condition::compile(text).unwrap_err() {
            assert_plain(text, &flaw.message);
        }
    }
}

#[test]
fn what_fails_while_running_is_told_in_plain_words() {
    let mut inputs = chat("auto", 1);
    inputs.principal.labels.insert("team".into(), "core".into());
    for (text, wanted) in [
        ("key.labels.nope == 'x'", "there is no `nope`"),
        ("headers['nope'] == 'x'", "there is no `nope`"),
        ("100 / max_tokens > 1", "a division by zero"),
        ("100 % max_tokens > 1", "a division by zero"),
        ("prompt_tokens * 9223372036854775807 > 1", "`*` gives a number that is too large"),
        ("keywords[7] == 'a'", "the list is not as long as that"),
        ("int(model) > 1", "`int` does not take this value"),
        ("[prompt_tokens, 'a'][1] > 1", "`>` does not work on text and a whole number"),
        ("[prompt_tokens, 'a'][1] + 1 > 1", "`+` does not work on text and a whole number"),
        ("[model][0] && !stream", "`&&` does not work on text and a boolean"),
        ("![model][0]", "`!` does not work on text"),
        ("-[model][0] == ''", "`-` does not work on text"),
        ("[model][0] ? true : stream", "text where a boolean is needed"),
        (
            "[model][0].size() > 0 && 'a' in [tools][0]",
            "`in` does not work on text and a whole number",
        ),
        ("[model][0][0] == ''", "`[ ]` does not work on text"),
        ("[tools][0].exists(x, x)", "this does not work on a whole number"),
        ("[tools][0].contains('a')", "`contains` does not work on a whole number and text"),
        ("[[tools]][0][0].a == ''", "`.` does not work on a whole number and text"),
        ("[stream ? 1 : model][0]", "the result is text, not a boolean"),
    ] {
        let error = holds(text, &inputs).expect_err(text);
        assert_eq!(error, wanted, "{text}");
        assert_plain(text, &error);
    }
}

#[test]
fn conditions_that_no_request_meets_compile() {
    for text in [
        "hour > 25",
        "prompt_tokens < 0",
        "endpoint == 'chat'",
        "language in ['xx1']",
        "hour >= 22 && hour < 6",
    ] {
        assert_eq!(holds(text, &chat("auto", 1)), Ok(false), "{text}");
    }
}

#[test]
fn size_and_nesting_are_bounded() {
    let deep = |open: &str, close: &str| format!("{}stream{}", open.repeat(400), close.repeat(400));
    for text in [
        deep("(", ")"),
        deep("[", "]"),
        deep("stream ? ", " : stream"),
        format!("stream{}", ".a".repeat(2000)),
        format!("'{}' + ({}", ")".repeat(2000), "(".repeat(2000)),
        format!("prompt_tokens {} > 1", "+ 1 ".repeat(900)),
        format!("model in [{}'']", "'',".repeat(1000)),
        format!("stream {}", "|| stream ".repeat(300)),
        format!("stream || model == '{}'", "x".repeat(CEL_BYTES)),
    ] {
        assert!(Condition::compile(&text).is_err(), "{}", shorten(&text, 40));
    }
    assert!(Condition::compile(&format!("stream {}", "|| stream ".repeat(50))).is_ok());
    // The parser folds pairs of `!` and pairs of `-`.
    assert!(
        Condition::compile(&deep("!", "")).is_ok() && Condition::compile(&deep("-", "")).is_ok()
    );
}

#[test]
fn an_evaluation_is_cheap() {
    let condition =
        Condition::compile("prompt_tokens > 60000 || key.labels.team == 'core'").unwrap();
    let mut inputs = chat("auto", 1);
    inputs.principal.labels.insert("team".into(), "core".into());
    let zone = TimeZone::UTC;
    let facts = Signals::new(&inputs, &zone);
    let evaluation = EvaluationContext::new(&facts);
    assert_eq!(condition.holds(&evaluation), Ok(true));
    let hundred = || {
        let began = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(condition.holds(&evaluation), Ok(true));
        }
        began.elapsed()
    };
    // The limit is far above the usual time and far below what a decision may take. The best of ten
    // runs counts, as a busy machine delays some of them.
    let best = (0..10).map(|_| hundred()).min().unwrap();
    assert!(best < std::time::Duration::from_millis(20), "{best:?} for a hundred");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        if let Err(flaws) = Condition::compile(&text) {
            assert!(!flaws.iter().any(|flaw| flaw.message.contains("could not")));
            flaws.iter().for_each(|flaw| assert_plain(&text, &flaw.message));
        }
    }

    #[test]
    fn no_expression_panics(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "model", "stream", "key.labels", "headers", "prompt_tokens", "(", ")", "[", "]",
                "{", "}", "?", ":", ".", ",", "'a'", "\"", "1", "-1", "1.5", "9223372036854775807",
                "0u", "b'x'", "r'\\'", "'\\u00'", "==", "<", "&&", "||", "!", "-", "+", "*", "/",
                "%", " in ", "has(", "size(", "int(", "string(", "double(", ".exists(x,", ".map(x,",
                ".filter(x,x)", ".contains(", "null", "true", "x", "//", "`", "\n",
            ]),
            1..14,
        ),
    ) {
        let text = parts.concat();
        match Condition::compile(&text) {
            Ok(condition) => {
                let inputs = chat("auto", 1);
                let zone = TimeZone::UTC;
                let facts = Signals::new(&inputs, &zone);
                if let Err(error) = condition.holds(&EvaluationContext::new(&facts)) {
                    assert_plain(&text, &error);
                }
            }
            Err(flaws) => {
                prop_assert!(!flaws.iter().any(|f| f.message.contains("could not")), "{text}");
                flaws.iter().for_each(|flaw| assert_plain(&text, &flaw.message));
            }
        }
    }
}
