//! The walk over a parsed expression: sizes, names, fields and functions, before it may ever run.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, SourceInfo, operators,
};
use cel::parser::Expression;

use super::kinds::{self, Kind};
use super::{Flaw, SIGNALS, Uses, constants, pattern, plain, short};
use crate::bounds;

/// Functions beside operators and macros, each with an example.
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

/// The walk that refuses what must not run.
pub(super) struct Check<'s> {
    source: &'s SourceInfo,
    pub(super) flaws: Vec<Flaw>,
    /// What may run, but always comes out the same.
    pub(super) doubts: Vec<Flaw>,
    nodes: usize,
    pub(super) signals: usize,
    pub(super) uses: Uses,
    /// The variables of the macro that the walk is in.
    locals: Vec<(String, Kind)>,
    in_macro: bool,
}

impl<'s> Check<'s> {
    pub(super) fn new(source: &'s SourceInfo) -> Self {
        Check {
            source,
            flaws: Vec::new(),
            doubts: Vec::new(),
            nodes: 0,
            signals: 0,
            uses: Uses::default(),
            locals: Vec::new(),
            in_macro: false,
        }
    }

    fn flaw(&mut self, flaw: Flaw) -> Kind {
        if !self.flaws.contains(&flaw) {
            self.flaws.push(flaw);
        }
        Kind::Unknown
    }

    /// A flaw with its place in the expression.
    fn flaw_at(&mut self, tree: &Expression, mut flaw: Flaw) -> Kind {
        if let Some((start, _)) = self.source.offset_for(tree.id) {
            // It counts bytes.
            let source = &self.source.source;
            let before =
                source.get(..usize::try_from(start).unwrap_or_default()).unwrap_or_default();
            flaw.message =
                format!("{}: {}", plain::place(source, before.chars().count()), flaw.message);
        }
        self.flaw(flaw)
    }

    pub(super) fn expression(&mut self, tree: &Expression, depth: usize) -> Kind {
        self.nodes += 1;
        if self.nodes > bounds::CEL_NODES {
            return self.flaw(Flaw::new(format!(
                "the expression has more than {} parts",
                bounds::CEL_NODES
            )));
        }
        if depth > bounds::CEL_DEPTH {
            return self.flaw(Flaw::new(format!(
                "the expression is nested more than {} deep",
                bounds::CEL_DEPTH
            )));
        }
        match &tree.expr {
            Expr::Literal(literal) => Kind::of_literal(literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select, depth),
            Expr::Call(call) => self.call(tree, call, depth),
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element, depth + 1);
                }
                Kind::List
            }
            Expr::Comprehension(comprehension) => self.comprehension(tree, comprehension, depth),
            Expr::Map(_) | Expr::Struct(_) => self.flaw(
                Flaw::new("maps and messages cannot be written here")
                    .with("lists can: [\"a\", \"b\"]"),
            ),
            Expr::Unspecified => self.flaw(Flaw::new("the expression is incomplete")),
        }
    }

    fn name(&mut self, name: &str) -> Kind {
        if let Some((_, kind)) = self.locals.iter().find(|(local, _)| local == name) {
            return *kind;
        }
        if name.starts_with('@') {
            return Kind::Unknown;
        }
        match name {
            "key" | "user" => self.flaw(
                Flaw::new(format!("`{name}` is no signal by itself"))
                    .with(&format!("{name}.id or {name}.labels")),
            ),
            "headers" => {
                self.signals += 1;
                Kind::Headers
            }
            "keywords" => {
                self.signals += 1;
                self.uses.keywords = true;
                Kind::Keywords
            }
            _ if !name.contains('.') && SIGNALS.contains(&name) => {
                self.signals += 1;
                self.uses.language |= name == "language";
                Kind::of_signal(name)
            }
            _ => self.flaw(Flaw::unknown("signal", name, &SIGNALS)),
        }
    }

    fn select(&mut self, select: &SelectExpr, depth: usize) -> Kind {
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
                    Kind::Text
                }
                "labels" => {
                    self.signals += 1;
                    Kind::Labels
                }
                other => self.flaw(Flaw::unknown(
                    &format!("field of `{root}`:"),
                    other,
                    &["id", "labels"],
                )),
            };
        }
        let kind = self.expression(&select.operand, depth + 1);
        let field = short(&select.field, 64);
        match kind {
            Kind::Unknown => return Kind::Unknown,
            Kind::Headers => self.uses.headers.push(select.field.to_ascii_lowercase()),
            Kind::Labels => {}
            Kind::Keywords => {
                let flaw = Flaw::new(format!("`.{field}`: this signal has no fields"));
                return self.flaw(flaw.with(&format!("'{field}' in keywords")));
            }
            other => {
                return self
                    .flaw(Flaw::new(format!("`.{field}`: {} has no fields", other.words())));
            }
        }
        if select.test { Kind::Boolean } else { Kind::Text }
    }

    fn call(&mut self, tree: &Expression, call: &CallExpr, depth: usize) -> Kind {
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
            self.pattern(call);
        }
        let target = call.target.as_deref().into_iter();
        let kinds: Vec<Kind> =
            target.chain(&call.args).map(|part| self.expression(part, depth + 1)).collect();
        if name == operators::INDEX
            && kinds.first() == Some(&Kind::Headers)
            && let Some(Expr::Literal(LiteralValue::String(header))) =
                call.args.get(1).map(|index| &index.expr)
        {
            self.uses.headers.push(header.inner().to_owned());
        }
        if kinds.contains(&Kind::Keywords) {
            self.on_keywords(call);
        }
        if self.flaws.len() > before { Kind::Unknown } else { self.result(tree, call, &kinds) }
    }

    /// What a call gives, if it takes values of these kinds.
    fn result(&mut self, tree: &Expression, call: &CallExpr, kinds: &[Kind]) -> Kind {
        let name = call.func_name.as_str();
        let conditions = match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT => kinds,
            operators::CONDITIONAL => kinds.get(..1).unwrap_or_default(),
            _ => &[],
        };
        if let Some(other) =
            conditions.iter().find(|kind| !matches!(kind, Kind::Boolean | Kind::Unknown))
        {
            let message =
                format!("`{}` needs true or false, not {}", plain::written(name), other.words());
            return self
                .flaw_at(tree, Flaw::new(message).with("compare it, for example `tools > 0`"));
        }
        if name == operators::CONDITIONAL {
            return match kinds {
                [_, yes, no] if yes == no => *yes,
                _ => Kind::Unknown,
            };
        }
        if !conditions.is_empty() {
            return Kind::Boolean;
        }
        self.doubts.extend(constants::doubts(call, kinds));
        kinds::of_call(call, kinds).unwrap_or_else(|()| {
            let example = FUNCTIONS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, example)| format!("for example `{example}`"));
            let hint = example.or_else(|| unfit_hint(name, kinds).map(str::to_owned));
            self.flaw_at(tree, Flaw { message: plain::unfit(name, kinds), hint })
        })
    }

    /// The pattern of `matches` is known before any request comes: one from a request could be any.
    fn pattern(&mut self, call: &CallExpr) {
        let pattern = match (&call.target, call.args.as_slice()) {
            (Some(_), [pattern]) | (None, [_, pattern]) => pattern,
            _ => {
                self.flaw(
                    Flaw::new("`matches` takes a text and a pattern")
                        .with("model.matches('^gpt-[0-9]')"),
                );
                return;
            }
        };
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            self.flaw(
                Flaw::new("the pattern of `matches` has to be written out")
                    .with("model.matches('^gpt-[0-9]')"),
            );
            return;
        };
        if let Err(why) = pattern::compile(text.inner()) {
            let hint = "patterns are those of RE2: no look-around, no references back";
            self.flaw(Flaw::new(format!("the pattern of `matches` is wrong: {why}")).with(hint));
        }
    }

    /// A call that takes `keywords`: what is asked for has to be among the sets, and a list is no text.
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
                        .with(&format!("'{}' in keywords", short(&name, 64))),
                );
            }
        }
    }

    fn comprehension(
        &mut self,
        tree: &Expression,
        comprehension: &ComprehensionExpr,
        depth: usize,
    ) -> Kind {
        if self.in_macro {
            return self.flaw(Flaw::new("macros cannot be nested: their work would multiply"));
        }
        self.in_macro = true;
        let element = match self.expression(&comprehension.iter_range, depth + 1) {
            Kind::Keywords | Kind::Labels | Kind::Headers => Kind::Text,
            Kind::List | Kind::Unknown => Kind::Unknown,
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
        self.locals.extend(comprehension.iter_var2.clone().map(|local| (local, Kind::Unknown)));
        let parts = [
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ];
        let [gathered, ..] = parts.map(|part| self.expression(part, depth + 1));
        self.locals.clear();
        self.in_macro = false;
        // `map` and `filter` begin with a list, `exists_one` with a count that it compares in the
        // end.
        if gathered == Kind::List { Kind::List } else { Kind::Boolean }
    }
}

/// What to do about an operator that does not take what it is given.
fn unfit_hint(operator: &str, kinds: &[Kind]) -> Option<&'static str> {
    let is_number = |kind: &Kind| matches!(kind, Kind::Whole | Kind::Unsigned | Kind::Decimal);
    match (operator, kinds) {
        (operators::INDEX, [Kind::Keywords, _]) => Some("for example `'code' in keywords`"),
        (operators::INDEX, _) => {
            Some("labels and headers are asked for by name: `headers['x-tier']`")
        }
        (operators::IN, _) => Some("for example `'code' in keywords` or `model in ['a', 'b']`"),
        (_, [left, right]) if is_number(left) && is_number(right) => {
            Some("for example `double(prompt_tokens) * 1.5`")
        }
        (operators::ADD, [Kind::Text, other] | [other, Kind::Text]) if is_number(other) => {
            Some("`string(hour)` makes text of a number")
        }
        (_, [Kind::Text, other] | [other, Kind::Text]) if is_number(other) => {
            Some("numbers stand without quotes, texts within")
        }
        _ => None,
    }
}
