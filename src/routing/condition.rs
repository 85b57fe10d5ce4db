//! `when` expressions: CEL over the signals of a request. The only door to the `cel` crate.
//! An expression is bounded and wholly checked when it is compiled (size, nesting, names, functions), so that on the
//! request path nothing is left but a short walk; what still goes wrong there is "false", with a trace.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators};
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Items, Sizer};
use cel::common::types::{CelBool, CelInt, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::parser::Expression;
use cel::{Context, Env, ExecutionError, Value};
use jiff::tz::TimeZone;

use super::document::did_you_mean;
use super::inputs::Inputs;
use crate::bounds;

/// What an expression may name. `max_tokens` is 0 when the client set none, so that comparisons read as expected;
/// `hour` is that of `inputs.at` in the document's time zone; ids are `""` when there is none.
pub const SIGNALS: [&str; 16] = [
    "model",
    "endpoint",
    "prompt_tokens",
    "messages",
    "max_tokens",
    "stream",
    "tools",
    "images",
    "audio",
    "json_output",
    "headers",
    "hour",
    "key.id",
    "key.labels",
    "user.id",
    "user.labels",
];
/// Functions beside operators and macros. None takes a pattern: `matches` is not part of this build.
const FUNCTIONS: [&str; 8] = ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string"];
const MACROS: [&str; 7] = ["has", "all", "exists", "exists_one", "existsOne", "map", "filter"];

/// A checked expression.
#[derive(Debug)]
pub struct Condition {
    text: String,
    tree: Expression,
    headers: Vec<String>,
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
    fn new(message: impl Into<String>) -> Self {
        Flaw { message: message.into(), hint: None }
    }

    fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let hint = did_you_mean(name, known.iter().copied()).or_else(|| Some(format!("known: {}", known.join(", "))));
        Flaw { message: format!("unknown {what} `{}`", short(name, 64)), hint }
    }
}

impl Condition {
    /// Compiles and checks. The parser recurses with the nesting of its input and is not ours: it runs on a thread of
    /// its own whose stack holds the deepest tree that the bound on bytes allows, and whose panic would be a flaw.
    pub fn compile(text: &str) -> Result<Condition, Vec<Flaw>> {
        before_parsing(text).map_err(|flaw| vec![flaw])?;
        let owned = text.to_owned();
        let worker = std::thread::Builder::new().stack_size(bounds::CEL_COMPILE_STACK).spawn(move || parse_and_check(owned));
        let broken = || vec![Flaw::new("the expression could not be compiled")];
        worker.map_err(|_| broken())?.join().map_err(|_| broken())?
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Lower-case names of the headers that it looks at by a literal name.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    /// Whether it holds; an error, or a value that is no boolean, is what is wrong.
    pub fn holds(&self, evaluation: &Evaluation<'_>) -> Result<bool, String> {
        match Value::resolve_val(&self.tree, &evaluation.context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(holds) => Ok(*holds.inner()),
                None => Err(format!("the result is {}, not a boolean", value.get_type().name())),
            },
            Err(error) => Err(short(&error.to_string(), bounds::CEL_TRACE_BYTES)),
        }
    }
}

/// What the expressions of one decision are evaluated against.
pub struct Evaluation<'a> {
    context: Context<'a, 'a>,
}

impl<'a> Evaluation<'a> {
    /// Signals are read from `facts` only where an expression asks for them.
    pub fn new(facts: &'a Facts<'a>) -> Self {
        static LIBRARY: OnceLock<Arc<Env>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| Arc::new(Env::stdlib()));
        let mut context = Context::with_env(Arc::clone(library));
        context.set_variable_resolver(facts);
        Evaluation { context }
    }
}

/// The signals of one request.
pub struct Facts<'a> {
    inputs: &'a Inputs,
    zone: &'a TimeZone,
}

impl<'a> Facts<'a> {
    /// The signals in `inputs`, with `hour` in `zone`.
    pub fn new(inputs: &'a Inputs, zone: &'a TimeZone) -> Self {
        Facts { inputs, zone }
    }
}

fn number<'b>(value: u64) -> CowVal<'b, 'b> {
    CowVal::owned(CelInt::from(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn truth<'b>(value: bool) -> CowVal<'b, 'b> {
    CowVal::owned(CelBool::from(value))
}

fn words(value: &str) -> CowVal<'_, '_> {
    CowVal::owned(CelString::from(value))
}

impl VariableResolver for Facts<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        let (request, who) = (&self.inputs.request, &self.inputs.principal);
        Some(match name {
            "model" => words(&request.model),
            "endpoint" => words(&request.endpoint),
            "prompt_tokens" => number(request.prompt_tokens),
            "messages" => number(request.messages),
            "max_tokens" => number(request.max_tokens.unwrap_or(0)),
            "stream" => truth(request.stream),
            "tools" => number(request.tools),
            "images" => number(request.images),
            "audio" => number(request.audio),
            "json_output" => truth(request.json_output),
            "headers" => CowVal::owned(Pairs::of(&request.headers)),
            "hour" => number(u64::from(self.zone.to_datetime(self.inputs.at).hour().unsigned_abs())),
            "key.id" => words(who.key.as_deref().unwrap_or("")),
            "key.labels" => CowVal::owned(Pairs::of(&who.labels)),
            "user.id" => words(who.user.as_deref().unwrap_or("")),
            "user.labels" => CowVal::owned(Pairs::of(&who.user_labels)),
            _ => return None,
        })
    }
}

/// Labels or headers as a CEL map. The crate's own map iterates in hash order, which differs between runs.
#[derive(Clone, Debug)]
struct Pairs<'a>(Vec<(CelString<'a>, CelString<'a>)>);

impl<'a> Pairs<'a> {
    fn of(map: &'a BTreeMap<String, String>) -> Self {
        Pairs(map.iter().map(|(name, value)| (CelString::from(name.as_str()), CelString::from(value.as_str()))).collect())
    }

    fn find(&self, key: &dyn Val) -> Option<&CelString<'a>> {
        let key = key.downcast_ref::<CelString>()?.inner();
        let at = self.0.binary_search_by(|(name, _)| name.inner().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    fn missing(key: &dyn Val) -> ExecutionError {
        match key.downcast_ref::<CelString>() {
            Some(key) => ExecutionError::NoSuchKey(Arc::new(key.inner().to_owned())),
            None => ExecutionError::UnexpectedType { got: key.get_type().name().to_owned(), want: "string".to_owned() },
        }
    }
}

impl Val for Pairs<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }
}

impl Container for Pairs<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.find(key).is_some())
    }
}

impl Indexer for Pairs<'_> {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.find(key).map(|value| CowVal::Borrowed(value as &dyn Val)).ok_or_else(|| Pairs::missing(key))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for Pairs<'_> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Items<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Names(self.0.iter()))
    }
}

impl Sizer for Pairs<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.0.len()).unwrap_or(i64::MAX))
    }
}

struct Names<'b, 'a>(std::slice::Iter<'b, (CelString<'a>, CelString<'a>)>);

impl<'b, 'v, 'a: 'v> Items<'b, 'v> for Names<'b, 'a> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|(name, _)| name as &(dyn Val + 'v))
    }
}

/// What can be said before the parser sees it. Brackets are counted, not matched: those inside texts count too, as
/// telling them apart is the parser's work.
fn before_parsing(text: &str) -> Result<(), Flaw> {
    if text.len() > bounds::CEL_BYTES {
        return Err(Flaw::new(format!("the expression is longer than {} bytes", bounds::CEL_BYTES)));
    }
    if text.trim().is_empty() {
        return Err(Flaw::new("the expression is empty").with("leave `when` out for a rule that always matches"));
    }
    if text.bytes().filter(|b| matches!(b, b'(' | b'[' | b'{' | b'?')).count() > bounds::CEL_BRACKETS {
        return Err(Flaw::new(format!("the expression has more than {} brackets", bounds::CEL_BRACKETS)));
    }
    Ok(())
}

impl Flaw {
    fn with(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

fn parse_and_check(text: String) -> Result<Condition, Vec<Flaw>> {
    let tree = Env::stdlib().with_optional_support(false).parser().parse(&text).map_err(|errors| {
        let first = errors.errors.first().map(|error| (error.pos.1, short(error.msg.lines().next().unwrap_or(""), 160)));
        let (at, message) = first.unwrap_or((0, "syntax error".to_owned()));
        vec![Flaw::new(format!("not an expression, at its character {at}: {message}"))]
    })?;
    let mut check = Check::default();
    check.expression(&tree, 0);
    if check.flaws.is_empty() && check.signals == 0 {
        check.flaws.push(Flaw::new("the expression looks at no signal: it is always the same").with("leave `when` out, or the rule"));
    }
    if !check.flaws.is_empty() {
        check.flaws.truncate(8);
        return Err(check.flaws);
    }
    let condition = Condition { text, tree, headers: check.headers };
    match condition.try_once() {
        Some(flaw) => Err(vec![flaw]),
        None => Ok(condition),
    }
}

impl Condition {
    /// One evaluation on a blank request: a type error that any request would meet shows here.
    fn try_once(&self) -> Option<Flaw> {
        let blank = Inputs {
            version: Inputs::VERSION,
            at: jiff::Timestamp::UNIX_EPOCH,
            request: super::inputs::RequestFacts::default(),
            principal: super::inputs::Who::default(),
            seed: 0,
            health: BTreeMap::new(),
        };
        let zone = TimeZone::UTC;
        let facts = Facts::new(&blank, &zone);
        let evaluation = Evaluation::new(&facts);
        match Value::resolve_val(&self.tree, &evaluation.context) {
            Ok(value) if value.downcast_ref::<CelBool>().is_none() => {
                Some(Flaw::new(format!("the expression gives {}, not true or false", value.get_type().name())))
            }
            Err(error @ (ExecutionError::NoSuchOverload(_) | ExecutionError::UnsupportedBinaryOperator(..))) => {
                Some(Flaw::new(short(&error.to_string(), 160)))
            }
            _ => None,
        }
    }
}

/// The walk that refuses what must not run.
#[derive(Default)]
struct Check {
    flaws: Vec<Flaw>,
    nodes: usize,
    signals: usize,
    headers: Vec<String>,
    locals: Vec<String>,
    in_macro: bool,
}

/// What is known of a part of an expression.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Scalar,
    Headers,
    Other,
}

impl Check {
    fn flaw(&mut self, flaw: Flaw) -> Shape {
        if !self.flaws.contains(&flaw) {
            self.flaws.push(flaw);
        }
        Shape::Other
    }

    fn expression(&mut self, tree: &Expression, depth: usize) -> Shape {
        self.nodes += 1;
        if self.nodes > bounds::CEL_NODES {
            return self.flaw(Flaw::new(format!("the expression has more than {} parts", bounds::CEL_NODES)));
        }
        if depth > bounds::CEL_DEPTH {
            return self.flaw(Flaw::new(format!("the expression is nested more than {} deep", bounds::CEL_DEPTH)));
        }
        match &tree.expr {
            Expr::Literal(_) => Shape::Scalar,
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select, depth),
            Expr::Call(call) => self.call(call, depth),
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element, depth + 1);
                }
                Shape::Other
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, depth),
            Expr::Map(_) | Expr::Struct(_) => {
                self.flaw(Flaw::new("maps and messages cannot be written here").with("lists can: [\"a\", \"b\"]"))
            }
            Expr::Unspecified => self.flaw(Flaw::new("the expression is incomplete")),
        }
    }

    fn name(&mut self, name: &str) -> Shape {
        if name.starts_with('@') || self.locals.iter().any(|local| local == name) {
            return Shape::Other;
        }
        match name {
            "key" | "user" => self.flaw(Flaw::new(format!("`{name}` is no signal by itself")).with(&format!("{name}.id or {name}.labels"))),
            "headers" => {
                self.signals += 1;
                Shape::Headers
            }
            _ if !name.contains('.') && SIGNALS.contains(&name) => {
                self.signals += 1;
                Shape::Scalar
            }
            _ => self.flaw(Flaw::unknown("signal", name, &SIGNALS)),
        }
    }

    fn select(&mut self, select: &SelectExpr, depth: usize) -> Shape {
        if let Expr::Ident(root) = &select.operand.expr
            && matches!(root.as_str(), "key" | "user")
            && !self.locals.contains(root)
        {
            return match select.field.as_str() {
                _ if select.test => {
                    self.flaw(Flaw::new(format!("`has({root}.…)` is always true")).with(&format!("has({root}.labels.name)")))
                }
                "id" => {
                    self.signals += 1;
                    Shape::Scalar
                }
                "labels" => {
                    self.signals += 1;
                    Shape::Other
                }
                other => self.flaw(Flaw::unknown(&format!("field of `{root}`:"), other, &["id", "labels"])),
            };
        }
        match self.expression(&select.operand, depth + 1) {
            Shape::Scalar => self.flaw(Flaw::new(format!("`.{}`: this signal has no fields", short(&select.field, 64)))),
            Shape::Headers => {
                self.headers.push(select.field.to_ascii_lowercase());
                Shape::Other
            }
            Shape::Other => Shape::Other,
        }
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Shape {
        let name = call.func_name.as_str();
        let operator = name.starts_with(['_', '!', '-', '@']) && !matches!(name, operators::OPT_INDEX | operators::OPT_SELECT);
        if !operator && !FUNCTIONS.contains(&name) {
            let known: Vec<&str> = FUNCTIONS.into_iter().chain(MACROS).collect();
            self.flaw(Flaw::unknown("function", name, &known));
        }
        let target = call.target.as_deref().into_iter();
        let shapes: Vec<Shape> = target.chain(&call.args).map(|part| self.expression(part, depth + 1)).collect();
        if name == operators::INDEX
            && shapes.first() == Some(&Shape::Headers)
            && let Some(Expr::Literal(LiteralValue::String(header))) = call.args.get(1).map(|index| &index.expr)
        {
            self.headers.push(header.inner().to_owned());
        }
        Shape::Other
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr, depth: usize) -> Shape {
        if self.in_macro {
            return self.flaw(Flaw::new("macros cannot be nested: their work would multiply"));
        }
        self.in_macro = true;
        self.expression(&comprehension.iter_range, depth + 1);
        let local = &comprehension.iter_var;
        if SIGNALS.contains(&local.as_str()) || matches!(local.as_str(), "key" | "user") {
            self.flaw(Flaw::new(format!("`{local}` is a signal; the macro's variable needs another name")));
        }
        self.locals.push(local.clone());
        self.locals.extend(comprehension.iter_var2.clone());
        for part in [&comprehension.accu_init, &comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
            self.expression(part, depth + 1);
        }
        self.locals.clear();
        self.in_macro = false;
        Shape::Other
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
            ("headers['x-tier'] == 'gold' && size(headers) == 1", true),
            ("'auto'.contains(model) ? tools + images + audio == 0 : json_output", true),
        ] {
            assert_eq!(holds(text, &inputs), Ok(wanted), "{text}");
        }
        assert!(holds("key.labels.nope == 'x'", &inputs).unwrap_err().contains("nope"));
        assert!(holds("100 / max_tokens > 1", &inputs).is_err());
    }

    #[test]
    fn mistakes_show_when_compiled() {
        for (text, wanted) in [
            ("promt_tokens > 1", "unknown signal `promt_tokens` / did you mean `prompt_tokens`?"),
            ("key.label == ''", "unknown field of `key`: `label` / did you mean `labels`?"),
            ("key == ''", "`key` is no signal by itself / key.id or key.labels"),
            ("language == 'de'", "unknown signal `language`"),
            ("model.name == ''", "`.name`: this signal has no fields"),
            ("model.matches('a+')", "unknown function `matches`"),
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
        assert_eq!(condition.headers(), ["x-a", "xb"]);
    }

    #[test]
    fn size_and_nesting_are_bounded() {
        let deep = |open: &str, close: &str| format!("{}stream{}", open.repeat(400), close.repeat(400));
        for text in [
            deep("(", ")"),
            deep("[", "]"),
            deep("!", ""),
            deep("-", ""),
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
    }

    #[test]
    fn an_evaluation_is_cheap() {
        let condition = Condition::compile("prompt_tokens > 60000 || key.labels.team == 'core'").unwrap();
        let mut inputs = chat("auto", 1);
        inputs.principal.labels.insert("team".into(), "core".into());
        let zone = TimeZone::UTC;
        let facts = Facts::new(&inputs, &zone);
        let evaluation = Evaluation::new(&facts);
        let began = std::time::Instant::now();
        for _ in 0..1000 {
            assert_eq!(condition.holds(&evaluation), Ok(true));
        }
        // Far above what it takes, far below what a decision may take.
        assert!(began.elapsed() < std::time::Duration::from_millis(100), "{:?} for a thousand", began.elapsed());
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
