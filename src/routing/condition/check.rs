//! The walk over a parsed expression: sizes, names, fields and functions, before it may ever run.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators};
use cel::parser::Expression;

use super::{Flaw, SIGNALS, Uses, pattern, short};
use crate::bounds;

/// Functions beside operators and macros.
const FUNCTIONS: [&str; 9] = ["size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string"];
const MACROS: [&str; 7] = ["has", "all", "exists", "exists_one", "existsOne", "map", "filter"];

/// The walk that refuses what must not run.
#[derive(Default)]
pub(super) struct Check {
    pub(super) flaws: Vec<Flaw>,
    nodes: usize,
    pub(super) signals: usize,
    pub(super) uses: Uses,
    locals: Vec<String>,
    in_macro: bool,
}

/// What is known of a part of an expression.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Scalar,
    Keywords,
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

    pub(super) fn expression(&mut self, tree: &Expression, depth: usize) -> Shape {
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
            "keywords" => {
                self.signals += 1;
                self.uses.keywords = true;
                Shape::Keywords
            }
            _ if !name.contains('.') && SIGNALS.contains(&name) => {
                self.signals += 1;
                self.uses.language |= name == "language";
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
            Shape::Keywords => {
                let flaw = Flaw::new(format!("`.{}`: this signal has no fields", short(&select.field, 64)));
                self.flaw(flaw.with(&format!("'{}' in keywords", short(&select.field, 64))))
            }
            Shape::Headers => {
                self.uses.headers.push(select.field.to_ascii_lowercase());
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
        if name == "matches" {
            self.pattern(call);
        }
        let target = call.target.as_deref().into_iter();
        let shapes: Vec<Shape> = target.chain(&call.args).map(|part| self.expression(part, depth + 1)).collect();
        if name == operators::INDEX
            && shapes.first() == Some(&Shape::Headers)
            && let Some(Expr::Literal(LiteralValue::String(header))) = call.args.get(1).map(|index| &index.expr)
        {
            self.uses.headers.push(header.inner().to_owned());
        }
        if shapes.contains(&Shape::Keywords) {
            self.on_keywords(call);
        }
        Shape::Other
    }

    /// The pattern of `matches` is known before any request comes: one from a request could be any.
    fn pattern(&mut self, call: &CallExpr) {
        let pattern = match (&call.target, call.args.as_slice()) {
            (Some(_), [pattern]) | (None, [_, pattern]) => pattern,
            _ => {
                self.flaw(Flaw::new("`matches` takes a text and a pattern").with("model.matches('^gpt-[0-9]')"));
                return;
            }
        };
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            self.flaw(Flaw::new("the pattern of `matches` has to be written out").with("model.matches('^gpt-[0-9]')"));
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
                self.flaw(Flaw::new("`keywords` is a list of names").with(&format!("'{}' in keywords", short(&name, 64))));
            }
        }
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
