//! Checks a parsed expression before it may run: size, names, fields, functions and value kinds.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, SourceInfo, operators,
};
use cel::parser::Expression;

use super::content::TextPart;
use super::flaw::{Flaw, shorten};
use super::kind::ValueKind;
use super::signals::SIGNALS;
use super::{infer, messages, pattern, texts};

/// Maximum number of nodes of a CEL expression. Bounds the work of one evaluation.
pub const CEL_NODES: usize = 500;
/// Maximum depth of a CEL expression's tree. Bounds the stack of one evaluation.
const CEL_DEPTH: usize = 64;

/// Allowed functions, each with an example.
const FUNCTIONS: [(&str, &str); 9] = [
    ("size", "size(keywords) > 1"),
    ("contains", "model.contains('mini')"),
    ("startsWith", "model.startsWith('gpt-')"),
    ("endsWith", "model.endsWith('-mini')"),
    ("matches", "model.matches('^gpt-[0-9]')"),
    ("int", "int(headers['x-tier']) > 1"),
    ("uint", "uint(headers['x-tier']) > 1u"),
    ("double", "double(prompt_tokens) * 1.5"),
    ("string", "string(hour)"),
];
const MACROS: [&str; 7] = ["has", "all", "exists", "exists_one", "existsOne", "map", "filter"];

/// Signals that an expression reads and that need preparation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Headers that the expression names, as written.
    pub headers: Vec<String>,
    /// Keyword sets that the expression names by literals.
    pub sets: Vec<String>,
    pub language: bool,
    pub keywords: bool,
    /// Patterns for texts of the request.
    pub patterns: Vec<(TextPart, String)>,
}

/// A walk over an expression that collects flaws and uses.
pub(super) struct Check<'s> {
    source: &'s SourceInfo,
    pub(super) flaws: Vec<Flaw>,
    nodes: usize,
    pub(super) signals: usize,
    pub(super) uses: Uses,
    /// Variables of the enclosing macro.
    locals: Vec<(String, ValueKind)>,
    in_macro: bool,
}

impl<'s> Check<'s> {
    pub(super) fn new(source: &'s SourceInfo) -> Self {
        Check {
            source,
            flaws: Vec::new(),
            nodes: 0,
            signals: 0,
            uses: Uses::default(),
            locals: Vec::new(),
            in_macro: false,
        }
    }

    fn flaw(&mut self, flaw: Flaw) -> ValueKind {
        if !self.flaws.contains(&flaw) {
            self.flaws.push(flaw);
        }
        ValueKind::Unknown
    }

    fn flaw_at(&mut self, tree: &Expression, mut flaw: Flaw) -> ValueKind {
        if let Some((start, _)) = self.source.offset_for(tree.id) {
            // The offset counts bytes.
            let source = &self.source.source;
            let before =
                source.get(..usize::try_from(start).unwrap_or_default()).unwrap_or_default();
            flaw.message =
                format!("{}: {}", messages::position(source, before.chars().count()), flaw.message);
        }
        self.flaw(flaw)
    }

    pub(super) fn expression(&mut self, tree: &Expression, depth: usize) -> ValueKind {
        self.nodes += 1;
        if self.nodes > CEL_NODES {
            return self
                .flaw(Flaw::new(format!("the expression has more than {} parts", CEL_NODES)));
        }
        if depth > CEL_DEPTH {
            return self
                .flaw(Flaw::new(format!("the expression is nested more than {} deep", CEL_DEPTH)));
        }
        match &tree.expr {
            Expr::Literal(literal) => ValueKind::of_literal(literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select, depth),
            Expr::Call(call) => self.call(tree, call, depth),
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element, depth + 1);
                }
                ValueKind::List
            }
            Expr::Comprehension(comprehension) => self.comprehension(tree, comprehension, depth),
            Expr::Map(_) | Expr::Struct(_) => self.flaw(
                Flaw::new("maps and messages cannot be written here")
                    .with("lists can: [\"a\", \"b\"]"),
            ),
            Expr::Unspecified => self.flaw(Flaw::new("the expression is incomplete")),
        }
    }

    fn name(&mut self, name: &str) -> ValueKind {
        if let Some((_, kind)) = self.locals.iter().find(|(local, _)| local == name) {
            return *kind;
        }
        if name.starts_with('@') {
            return ValueKind::Unknown;
        }
        match name {
            "key" | "user" => self.flaw(
                Flaw::new(format!("`{name}` is not a signal itself"))
                    .with(&format!("{name}.id or {name}.labels")),
            ),
            "headers" => {
                self.signals += 1;
                ValueKind::Headers
            }
            "keywords" => {
                self.signals += 1;
                self.uses.keywords = true;
                ValueKind::Keywords
            }
            _ if TextPart::of_signal(name).is_some() => self.flaw(
                Flaw::new(format!("`{name}` is for `matches` with a literal pattern only"))
                    .with(&format!("{name}.matches('(?i)invoice')")),
            ),
            _ if !name.contains('.') && SIGNALS.contains(&name) => {
                self.signals += 1;
                self.uses.language |= name == "language";
                infer::of_signal(name)
            }
            _ => self.flaw(Flaw::unknown("signal", name, &SIGNALS)),
        }
    }

    fn select(&mut self, select: &SelectExpr, depth: usize) -> ValueKind {
        if let Expr::Ident(root) = &select.operand.expr
            && matches!(root.as_str(), "key" | "user")
            && !self.locals.iter().any(|(local, _)| local == root)
        {
            return match select.field.as_str() {
                _ if select.test => self.flaw(
                    Flaw::new(format!("`has({root}.…)` is always true"))
                        .with(&format!("has({root}.labels.name)")),
                ),
                "id" => {
                    self.signals += 1;
                    ValueKind::Text
                }
                "labels" => {
                    self.signals += 1;
                    ValueKind::Labels
                }
                other => self.flaw(Flaw::unknown(
                    &format!("field of `{root}`:"),
                    other,
                    &["id", "labels"],
                )),
            };
        }
        let kind = self.expression(&select.operand, depth + 1);
        let field = shorten(&select.field, 64);
        match kind {
            ValueKind::Unknown => return ValueKind::Unknown,
            ValueKind::Headers => self.uses.headers.push(select.field.clone()),
            ValueKind::Labels => {}
            ValueKind::Keywords => {
                let flaw = Flaw::new(format!("`.{field}`: this signal has no fields"));
                return self.flaw(flaw.with(&format!("'{field}' in keywords")));
            }
            other => {
                return self
                    .flaw(Flaw::new(format!("`.{field}`: {} has no fields", other.words())));
            }
        }
        if select.test { ValueKind::Boolean } else { ValueKind::Text }
    }

    fn call(&mut self, tree: &Expression, call: &CallExpr, depth: usize) -> ValueKind {
        let name = call.func_name.as_str();
        let before = self.flaws.len();
        let operator = name.starts_with(['_', '!', '-', '@'])
            && !matches!(name, operators::OPT_INDEX | operators::OPT_SELECT);
        if !operator && !FUNCTIONS.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> =
                FUNCTIONS.iter().map(|(known, _)| *known).chain(MACROS).collect();
            self.flaw(Flaw::unknown("function", name, &known));
        }
        if name == "matches" {
            let pattern = self.pattern(call);
            if let Some(part) = texts::searched(call).filter(|part| !self.is_local(part.signal())) {
                self.signals += 1;
                // Both operands count as nodes of the expression.
                self.nodes += 2;
                self.uses.patterns.extend(pattern.map(|pattern| (part, pattern)));
                return ValueKind::Boolean;
            }
        }
        let target = call.target.as_deref().into_iter();
        let kinds: Vec<ValueKind> =
            target.chain(&call.args).map(|part| self.expression(part, depth + 1)).collect();
        let header = match (name, &kinds[..]) {
            (operators::INDEX, [ValueKind::Headers, _]) => call.args.get(1),
            (operators::IN, [_, ValueKind::Headers]) => call.args.first(),
            _ => None,
        };
        if let Some(Expr::Literal(LiteralValue::String(header))) = header.map(|text| &text.expr) {
            self.uses.headers.push(header.inner().to_owned());
        }
        if kinds.contains(&ValueKind::Keywords) {
            self.on_keywords(call);
        }
        if self.flaws.len() > before { ValueKind::Unknown } else { self.result(tree, call, &kinds) }
    }

    /// The kind of a call's result. Reports a flaw if the function does not accept operands of
    /// these kinds.
    fn result(&mut self, tree: &Expression, call: &CallExpr, kinds: &[ValueKind]) -> ValueKind {
        let name = call.func_name.as_str();
        let conditions = match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT => kinds,
            operators::CONDITIONAL => kinds.get(..1).unwrap_or_default(),
            _ => &[],
        };
        if let Some(other) =
            conditions.iter().find(|kind| !matches!(kind, ValueKind::Boolean | ValueKind::Unknown))
        {
            let message =
                format!("`{}` needs true or false, not {}", messages::written(name), other.words());
            return self
                .flaw_at(tree, Flaw::new(message).with("compare it, for example `tools > 0`"));
        }
        if name == operators::CONDITIONAL {
            return match kinds {
                [_, yes, no] if yes == no => *yes,
                _ => ValueKind::Unknown,
            };
        }
        if !conditions.is_empty() {
            return ValueKind::Boolean;
        }
        infer::of_call(call, kinds).unwrap_or_else(|()| {
            let example = FUNCTIONS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, example)| format!("for example `{example}`"));
            let hint = example.or_else(|| unfit_hint(name, kinds).map(str::to_owned));
            self.flaw_at(tree, Flaw { message: messages::unfit(name, kinds), hint })
        })
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(local, _)| local == name)
    }

    /// The pattern of `matches` has to be a literal: a request must not choose it.
    fn pattern(&mut self, call: &CallExpr) -> Option<String> {
        let pattern = match (&call.target, call.args.as_slice()) {
            (Some(_), [pattern]) | (None, [_, pattern]) => pattern,
            _ => {
                self.flaw(
                    Flaw::new("`matches` takes a text and a pattern")
                        .with("model.matches('^gpt-[0-9]')"),
                );
                return None;
            }
        };
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            self.flaw(
                Flaw::new("the pattern of `matches` must be a literal")
                    .with("model.matches('^gpt-[0-9]')"),
            );
            return None;
        };
        match pattern::compile(text.inner()) {
            Ok(_) => Some(text.inner().to_owned()),
            Err(why) => {
                let hint = "patterns are those of RE2: no look-around, no references back";
                let message = format!("the pattern of `matches` is wrong: {why}");
                self.flaw(Flaw::new(message).with(hint));
                None
            }
        }
    }

    /// A call with the operand `keywords`: only list operations are allowed.
    fn on_keywords(&mut self, call: &CallExpr) {
        let literal = |part: &Expression| match &part.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
            _ => None,
        };
        match call.func_name.as_str() {
            operators::IN => self.uses.sets.extend(call.args.first().and_then(literal)),
            operators::INDEX | "size" => {}
            _ => {
                let name = call.args.iter().find_map(literal).unwrap_or_else(|| "name".to_owned());
                self.flaw(
                    Flaw::new("`keywords` is a list of names")
                        .with(&format!("'{}' in keywords", shorten(&name, 64))),
                );
            }
        }
    }

    fn comprehension(
        &mut self,
        tree: &Expression,
        comprehension: &ComprehensionExpr,
        depth: usize,
    ) -> ValueKind {
        if self.in_macro {
            return self.flaw(Flaw::new("macros cannot be nested: their work would multiply"));
        }
        self.in_macro = true;
        let element = match self.expression(&comprehension.iter_range, depth + 1) {
            ValueKind::Keywords | ValueKind::Labels | ValueKind::Headers => ValueKind::Text,
            ValueKind::List | ValueKind::Unknown => ValueKind::Unknown,
            other => {
                let flaw = Flaw::new(format!(
                    "a macro goes through a list, labels or headers, not {}",
                    other.words()
                ));
                self.flaw_at(tree, flaw.with("for example `keywords.exists(set, set == 'code')`"))
            }
        };
        let local = &comprehension.iter_var;
        if SIGNALS.contains(&local.as_str()) || matches!(local.as_str(), "key" | "user") {
            self.flaw(Flaw::new(format!(
                "`{local}` is a signal; the macro's variable needs another name"
            )));
        }
        self.locals.push((local.clone(), element));
        self.locals
            .extend(comprehension.iter_var2.clone().map(|local| (local, ValueKind::Unknown)));
        let parts = [
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ];
        let [gathered, ..] = parts.map(|part| self.expression(part, depth + 1));
        self.locals.clear();
        self.in_macro = false;
        // `map` and `filter` accumulate a list; the other macros return a boolean.
        if gathered == ValueKind::List { ValueKind::List } else { ValueKind::Boolean }
    }
}

fn unfit_hint(operator: &str, kinds: &[ValueKind]) -> Option<&'static str> {
    let is_number = |kind: &ValueKind| {
        matches!(kind, ValueKind::Whole | ValueKind::Unsigned | ValueKind::Decimal)
    };
    match (operator, kinds) {
        (operators::INDEX, [ValueKind::Keywords, _]) => Some("for example `'code' in keywords`"),
        (operators::INDEX, _) => {
            Some("labels and headers are asked for by name: `headers['x-tier']`")
        }
        (operators::IN, _) => Some("for example `'code' in keywords` or `model in ['a', 'b']`"),
        (_, [left, right]) if is_number(left) && is_number(right) => {
            Some("for example `double(prompt_tokens) * 1.5`")
        }
        (operators::ADD, [ValueKind::Text, other] | [other, ValueKind::Text])
            if is_number(other) =>
        {
            Some("`string(hour)` makes text of a number")
        }
        (_, [ValueKind::Text, other] | [other, ValueKind::Text]) if is_number(other) => {
            Some("numbers stand without quotes, texts within")
        }
        _ => None,
    }
}
