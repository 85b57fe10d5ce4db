//! `when` expressions: CEL over the signals of a request. With its two parts below, the only door to the `cel` crate.
//! An expression is bounded and wholly checked when it is compiled (size, nesting, names, functions), so that on the
//! request path nothing is left but a short walk; what still goes wrong there is "false", with a trace.

mod check;
mod pattern;
mod reach;
mod signals;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cel::common::types::{CelBool, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use cel::parser::{Expression, Parser};
use cel::{Context, Env, ExecutionError, Value};
use jiff::tz::TimeZone;

use super::document::did_you_mean;
use super::inputs::Inputs;
use crate::bounds;
use check::Check;
use reach::Reach;
pub use signals::{Facts, SIGNALS};

/// A checked expression that is true or false.
#[derive(Debug)]
pub struct Condition(Checked);

/// A checked expression whose text says what belongs together.
#[derive(Debug)]
pub struct Key(Checked);

#[derive(Debug)]
struct Checked {
    text: String,
    tree: Expression,
    reach: Reach,
    uses: Uses,
}

/// What an expression looks at that has to be there for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Lower-case names of headers, where they are literal.
    pub headers: Vec<String>,
    /// Names of keyword sets, where they are literal.
    pub sets: Vec<String>,
    /// Whether it looks at the language.
    pub language: bool,
    /// Whether it looks at keywords.
    pub keywords: bool,
}

/// What an expression has to give.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Truth,
    Text,
}

/// Why an expression was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Flaw {
    fn with(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    fn new(message: impl Into<String>) -> Self {
        Flaw { message: message.into(), hint: None }
    }

    fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let hint = did_you_mean(name, known.iter().copied()).or_else(|| Some(format!("known: {}", known.join(", "))));
        Flaw { message: format!("unknown {what} `{}`", short(name, 64)), hint }
    }
}

impl Condition {
    /// Compiles and checks.
    pub fn compile(text: &str) -> Result<Condition, Vec<Flaw>> {
        compile(text, Wanted::Truth).map(Condition)
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What it looks at.
    pub fn uses(&self) -> &Uses {
        &self.0.uses
    }

    /// Whether it is plain that this one holds wherever the other does.
    pub fn covers(&self, other: &Condition) -> bool {
        self.0.reach.covers(&other.0.reach)
    }

    /// Whether it holds; an error, or a value that is no boolean, is what is wrong.
    pub fn holds(&self, evaluation: &Evaluation<'_>) -> Result<bool, String> {
        match Value::resolve_val(&self.0.tree, &evaluation.context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(holds) => Ok(*holds.inner()),
                None => Err(format!("the result is {}, not a boolean", value.get_type().name())),
            },
            Err(error) => Err(short(&error.to_string(), bounds::CEL_TRACE_BYTES)),
        }
    }
}

impl Key {
    /// Compiles and checks.
    pub fn compile(text: &str) -> Result<Key, Vec<Flaw>> {
        compile(text, Wanted::Text).map(Key)
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What it looks at.
    pub fn uses(&self) -> &Uses {
        &self.0.uses
    }

    /// Its text; numbers and booleans as they are written. An error, or any other value, is what is wrong.
    pub fn read(&self, evaluation: &Evaluation<'_>) -> Result<String, String> {
        match Value::resolve_val(&self.0.tree, &evaluation.context) {
            Ok(value) => written(&*value).ok_or_else(|| format!("the result is {}, not text", value.get_type().name())),
            Err(error) => Err(short(&error.to_string(), bounds::CEL_TRACE_BYTES)),
        }
    }
}

fn written(value: &dyn Val) -> Option<String> {
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
    text.or_else(|| value.downcast_ref::<CelInt>().map(|number| number.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelUInt>().map(|number| number.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelBool>().map(|truth| truth.inner().to_string()))
}

/// The parser recurses with the nesting of its input and is not ours: it runs on a thread of its own whose stack holds
/// the deepest tree that the bound on bytes allows, and whose panic would be a flaw.
fn compile(text: &str, wanted: Wanted) -> Result<Checked, Vec<Flaw>> {
    before_parsing(text, wanted).map_err(|flaw| vec![flaw])?;
    let owned = text.to_owned();
    let worker = std::thread::Builder::new().stack_size(bounds::CEL_COMPILE_STACK).spawn(move || parse_and_check(owned, wanted));
    let broken = || vec![Flaw::new("the expression could not be compiled")];
    worker.map_err(|_| broken())?.join().map_err(|_| broken())?
}

/// What the expressions of one decision are evaluated against.
pub struct Evaluation<'a> {
    context: Context<'a, 'a>,
}

impl<'a> Evaluation<'a> {
    /// Signals are read from `facts` only where an expression asks for them.
    pub fn new(facts: &'a Facts<'a>) -> Self {
        static LIBRARY: OnceLock<Arc<Env>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let mut library = Env::stdlib();
            // It has no such function in this build; were that to change, its own would do.
            let _there = pattern::add_to(&mut library);
            Arc::new(library)
        });
        let mut context = Context::with_env(Arc::clone(library));
        context.set_variable_resolver(facts);
        Evaluation { context }
    }
}

/// What can be said before the parser sees it. Brackets are counted, not matched: those inside texts count too, as
/// telling them apart is the parser's work.
fn before_parsing(text: &str, wanted: Wanted) -> Result<(), Flaw> {
    if text.len() > bounds::CEL_BYTES {
        return Err(Flaw::new(format!("the expression is longer than {} bytes", bounds::CEL_BYTES)));
    }
    if text.trim().is_empty() {
        let hint = match wanted {
            Wanted::Truth => "leave `when` out for a rule that always matches",
            Wanted::Text => "for example `user.id`",
        };
        return Err(Flaw::new("the expression is empty").with(hint));
    }
    if text.bytes().filter(|b| matches!(b, b'(' | b'[' | b'{' | b'?')).count() > bounds::CEL_BRACKETS {
        return Err(Flaw::new(format!("the expression has more than {} brackets", bounds::CEL_BRACKETS)));
    }
    Ok(())
}

fn parse_and_check(text: String, wanted: Wanted) -> Result<Checked, Vec<Flaw>> {
    let tree = Parser::new().parse(&text).map_err(|errors| {
        let first = errors.errors.first().map(|error| (error.pos.1, short(error.msg.lines().next().unwrap_or(""), 160)));
        let (at, message) = first.unwrap_or((0, "syntax error".to_owned()));
        vec![Flaw::new(format!("not an expression, at its character {at}: {message}"))]
    })?;
    let mut check = Check::default();
    check.expression(&tree, 0);
    if check.flaws.is_empty() && check.signals == 0 {
        let hint = match wanted {
            Wanted::Truth => "leave `when` out, or the rule",
            Wanted::Text => "for example `user.id`",
        };
        check.flaws.push(Flaw::new("the expression looks at no signal: it is always the same").with(hint));
    }
    if !check.flaws.is_empty() {
        check.flaws.truncate(8);
        return Err(check.flaws);
    }
    let reach = Reach::of(&tree);
    if wanted == Wanted::Truth && reach.is_empty() {
        return Err(vec![Flaw::new("the expression never holds: no number is within all of its bounds")]);
    }
    let checked = Checked { text, tree, reach, uses: check.uses };
    match checked.try_once(wanted) {
        Some(flaw) => Err(vec![flaw]),
        None => Ok(checked),
    }
}

impl Checked {
    /// One evaluation on a blank request: a type error that any request would meet shows here.
    fn try_once(&self, wanted: Wanted) -> Option<Flaw> {
        let blank = Inputs {
            version: Inputs::VERSION,
            at: jiff::Timestamp::UNIX_EPOCH,
            request: super::inputs::RequestFacts::default(),
            keywords: BTreeMap::new(),
            principal: super::inputs::Who::default(),
            seed: 0,
            health: BTreeMap::new(),
        };
        let zone = TimeZone::UTC;
        let facts = Facts::new(&blank, &zone);
        let evaluation = Evaluation::new(&facts);
        match Value::resolve_val(&self.tree, &evaluation.context) {
            Ok(value) => match wanted {
                Wanted::Truth if value.downcast_ref::<CelBool>().is_none() => {
                    Some(Flaw::new(format!("the expression gives {}, not true or false", value.get_type().name())))
                }
                Wanted::Text if written(&*value).is_none() => {
                    let hint = "a text, a whole number or a boolean";
                    Some(Flaw::new(format!("the expression gives {}, which is no key", value.get_type().name())).with(hint))
                }
                _ => None,
            },
            Err(error @ (ExecutionError::NoSuchOverload(_) | ExecutionError::UnsupportedBinaryOperator(..))) => {
                Some(Flaw::new(short(&error.to_string(), 160)))
            }
            _ => None,
        }
    }
}

/// At most `limit` bytes of a text, cut between characters.
fn short(text: &str, limit: usize) -> String {
    if text.len() <= limit { text.to_owned() } else { format!("{}…", text.get(..text.floor_char_boundary(limit)).unwrap_or("")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::routing::inputs::tests::chat;
    use crate::routing::inputs::{AgentRef, KeywordHit};

    fn holds(text: &str, inputs: &Inputs) -> Result<bool, String> {
        let condition = Condition::compile(text).map_err(|flaws| format!("{flaws:?}"))?;
        let zone = TimeZone::get("Asia/Tokyo").unwrap();
        let facts = Facts::new(inputs, &zone);
        condition.holds(&Evaluation::new(&facts))
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
            ("model.matches('^a.t[no]$') && !model.matches('^[0-9]+$') && matches(headers['x-tier'], '(?i)GOLD')", true),
            ("'auto'.contains(model) ? tools + images + audio == 0 : json_output", true),
        ] {
            assert_eq!(holds(text, &inputs), Ok(wanted), "{text}");
        }
        inputs.request.language = Some("de".into());
        inputs.request.agent = Some(AgentRef { id: "agent_1".into(), name: "helpdesk".into(), etag: "1".into() });
        assert_eq!(holds("language == 'de' && agent == 'helpdesk'", &inputs), Ok(true));
        assert!(holds("key.labels.nope == 'x'", &inputs).unwrap_err().contains("nope"));
        assert!(holds("100 / max_tokens > 1", &inputs).is_err());
    }

    #[test]
    fn mistakes_show_when_compiled() {
        for (text, wanted) in [
            ("promt_tokens > 1", "unknown signal `promt_tokens` / did you mean `prompt_tokens`?"),
            ("key.label == ''", "unknown field of `key`: `label` / did you mean `labels`?"),
            ("key == ''", "`key` is no signal by itself / key.id or key.labels"),
            ("languages == 'de'", "unknown signal `languages` / did you mean `language`?"),
            ("keywords.code", "`.code`: this signal has no fields / 'code' in keywords"),
            ("keywords == 'code'", "`keywords` is a list of names / 'code' in keywords"),
            ("keywords.contains('code')", "`keywords` is a list of names / 'code' in keywords"),
            ("agent.id == ''", "`.id`: this signal has no fields"),
            ("model.name == ''", "`.name`: this signal has no fields"),
            ("model.matches('a(')", "the pattern of `matches` is wrong: unclosed group"),
            ("model.matches(language)", "the pattern of `matches` has to be written out"),
            ("matches(model)", "`matches` takes a text and a pattern"),
            ("model.matches('(a{1000}){1000}')", "the pattern of `matches` is wrong: it is too large"),
            ("prompt_tokens.matches('a')", "no matching overload"),
            ("model.startWith('a')", "unknown function `startWith` / did you mean `startsWith`?"),
            ("prompt_tokens +", "not an expression"),
            ("prompt_tokens + 1", "the expression gives int"),
            ("prompt_tokens > 'a'", "no matching overload"),
            ("1 < 2", "the expression looks at no signal"),
            ("[1].exists(x, [2].exists(y, x == y))", "macros cannot be nested"),
            ("key.labels.exists(model, model == '')", "`model` is a signal"),
            ("{'a': model}['a'] == ''", "maps and messages cannot be written"),
            ("  ", "the expression is empty"),
        ] {
            let found = flaw(text);
            assert!(found.contains(wanted), "{text}: {found}");
        }
        let condition = Condition::compile("headers['x-a'] == '' || headers.xb == ''").unwrap();
        assert_eq!(condition.uses(), &Uses { headers: vec!["x-a".into(), "xb".into()], ..Uses::default() });
        let condition = Condition::compile("'a' in keywords || language != 'de' && keywords.exists(set, set in ['b'])").unwrap();
        assert_eq!(condition.uses(), &Uses { sets: vec!["a".into()], language: true, keywords: true, ..Uses::default() });
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
            format!("stream || model == '{}'", "x".repeat(bounds::CEL_BYTES)),
        ] {
            assert!(Condition::compile(&text).is_err(), "{}", short(&text, 40));
        }
        assert!(Condition::compile(&format!("stream {}", "|| stream ".repeat(50))).is_ok());
        // The parser folds pairs of these.
        assert!(Condition::compile(&deep("!", "")).is_ok() && Condition::compile(&deep("-", "")).is_ok());
    }

    #[test]
    fn an_evaluation_is_cheap() {
        let condition = Condition::compile("prompt_tokens > 60000 || key.labels.team == 'core'").unwrap();
        let mut inputs = chat("auto", 1);
        inputs.principal.labels.insert("team".into(), "core".into());
        let zone = TimeZone::UTC;
        let facts = Facts::new(&inputs, &zone);
        let evaluation = Evaluation::new(&facts);
        assert_eq!(condition.holds(&evaluation), Ok(true));
        let hundred = || {
            let began = std::time::Instant::now();
            for _ in 0..100 {
                assert_eq!(condition.holds(&evaluation), Ok(true));
            }
            began.elapsed()
        };
        // Far above what it takes, far below what a decision may take; a busy machine leaves one of ten alone.
        let best = (0..10).map(|_| hundred()).min().unwrap();
        assert!(best < std::time::Duration::from_millis(20), "{best:?} for a hundred");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = Condition::compile(&text).map(|_| ()).map_err(|flaws| assert!(!flaws.iter().any(|f| f.message.contains("could not"))));
        }

        #[test]
        fn no_expression_panics(parts in prop::collection::vec(prop::sample::select(vec![
            "model", "stream", "key.labels", "headers", "prompt_tokens", "(", ")", "[", "]", "{", "}", "?", ":", ".", ",", "'a'", "\"", "1", "-1", "1.5",
            "9223372036854775807", "0u", "b'x'", "r'\\'", "'\\u00'", "==", "<", "&&", "||", "!", "-", "+", "*", "/", "%", " in ", "has(", "size(", "int(",
            "string(", "double(", ".exists(x,", ".map(x,", ".filter(x,x)", ".contains(", "null", "true", "x", "//", "`", "\n",
        ]), 1..14)) {
            let text = parts.concat();
            match Condition::compile(&text) {
                Ok(condition) => {
                    let inputs = chat("auto", 1);
                    let zone = TimeZone::UTC;
                    let facts = Facts::new(&inputs, &zone);
                    let _ = condition.holds(&Evaluation::new(&facts));
                }
                Err(flaws) => prop_assert!(!flaws.iter().any(|f| f.message.contains("could not")), "{text}"),
            }
        }
    }
}
