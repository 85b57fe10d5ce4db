//! What kind of value a part of an expression has, as far as that is known before any request. What
//! an operator makes of its operands is not written down here: it is tried on a sample of each
//! kind, so that the check and the evaluation cannot drift apart.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cel::Value;
use cel::common::ast::{CallExpr, Expr, ListExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use cel::context::VariableResolver;
use cel::parser::Expression;
use jiff::tz::TimeZone;

use super::{Evaluation, Facts, plain};
use crate::routing::inputs::{Inputs, RequestFacts, Who};

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Whole,
    Unsigned,
    Decimal,
    Text,
    Bytes,
    Null,
    List,
    /// The signal `keywords`, a list of text.
    Keywords,
    /// Labels of a key or user.
    Labels,
    /// The signal `headers`.
    Headers,
    /// Only a request tells.
    Unknown,
}

impl Kind {
    /// In the words of problems and traces.
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Boolean => "a boolean",
            Kind::Whole => "a whole number",
            Kind::Unsigned => "an unsigned number",
            Kind::Decimal => "a decimal number",
            Kind::Text => "text",
            Kind::Bytes => "bytes",
            Kind::Null => "null",
            Kind::List => "a list",
            Kind::Keywords => "the list of keyword sets",
            Kind::Labels => "labels",
            Kind::Headers => "headers",
            Kind::Unknown => "a value",
        }
    }

    /// Of a value that was evaluated.
    pub(super) fn of(value: &dyn Val) -> Kind {
        Kind::named(value.get_type().name())
    }

    /// By the evaluator's name for it.
    pub(super) fn named(name: &str) -> Kind {
        match name {
            "bool" => Kind::Boolean,
            "int" => Kind::Whole,
            "uint" => Kind::Unsigned,
            "double" => Kind::Decimal,
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "null_type" => Kind::Null,
            "list" => Kind::List,
            "map" => Kind::Labels,
            _ => Kind::Unknown,
        }
    }

    /// Of a literal.
    pub(super) fn of_literal(literal: &LiteralValue) -> Kind {
        match literal {
            LiteralValue::Boolean(_) => Kind::Boolean,
            LiteralValue::Bytes(_) => Kind::Bytes,
            LiteralValue::Double(_) => Kind::Decimal,
            LiteralValue::Int(_) => Kind::Whole,
            LiteralValue::Null => Kind::Null,
            LiteralValue::String(_) => Kind::Text,
            LiteralValue::UInt(_) => Kind::Unsigned,
        }
    }

    /// Of a signal that has no kind of its own, by what it is in a request.
    pub(super) fn of_signal(name: &str) -> Kind {
        facts().resolve(name).map_or(Kind::Unknown, |value| Kind::of(&*value))
    }

    /// Whether a value of this kind may equal one of the other.
    pub(super) fn may_equal(self, other: Kind) -> bool {
        let family = |kind| match kind {
            Kind::Whole | Kind::Unsigned | Kind::Decimal => Kind::Whole,
            Kind::List | Kind::Keywords => Kind::List,
            Kind::Labels | Kind::Headers => Kind::Labels,
            kind => kind,
        };
        [self, other].contains(&Kind::Unknown) || family(self) == family(other)
    }

    fn sample(self) -> Expression {
        let literal = |value| Expr::Literal(value);
        let expr = match self {
            Kind::Boolean => literal(LiteralValue::Boolean(CelBool::from(true))),
            Kind::Whole => literal(LiteralValue::Int(CelInt::from(1))),
            Kind::Unsigned => literal(LiteralValue::UInt(CelUInt::from(1_u64))),
            Kind::Decimal => literal(LiteralValue::Double(CelDouble::from(1.0))),
            Kind::Text => literal(LiteralValue::String(CelString::from("1".to_owned()))),
            Kind::Bytes => literal(LiteralValue::Bytes(CelBytes::from(b"1".to_vec()))),
            Kind::Null | Kind::Unknown => literal(LiteralValue::Null),
            Kind::List => Expr::List(ListExpr::new(Vec::new())),
            Kind::Keywords => Expr::Ident("keywords".to_owned()),
            Kind::Labels | Kind::Headers => Expr::Ident("headers".to_owned()),
        };
        Expression { id: 0, expr }
    }
}

/// What a call gives for values of these kinds (the receiver first), or that it takes none such.
pub(super) fn of_call(call: &CallExpr, kinds: &[Kind]) -> Result<Kind, ()> {
    if kinds.contains(&Kind::Unknown) {
        return Ok(of_any(&call.func_name, kinds));
    }
    let mut samples = kinds.iter().map(|kind| kind.sample());
    let target = call.target.is_some().then(|| samples.next()).flatten().map(Box::new);
    let tried = CallExpr { func_name: call.func_name.clone(), target, args: samples.collect() };
    let tried = Expression { id: 0, expr: Expr::Call(tried) };
    let facts = facts();
    let evaluation = Evaluation::new(&facts);
    match Value::resolve_val(&tried, &evaluation.context) {
        Ok(value) => Ok(Kind::of(&*value)),
        Err(error) if plain::is_of_the_value(&error) => Ok(of_any(&call.func_name, kinds)),
        Err(_) => Err(()),
    }
}

/// What a call gives where not all of its operands are known.
fn of_any(function: &str, kinds: &[Kind]) -> Kind {
    match function {
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::IN
        | operators::NOT_STRICTLY_FALSE
        | "contains"
        | "startsWith"
        | "endsWith"
        | "matches" => Kind::Boolean,
        "size" | "int" => Kind::Whole,
        "uint" => Kind::Unsigned,
        "double" => Kind::Decimal,
        "string" => Kind::Text,
        operators::INDEX
            if matches!(kinds, [Kind::Labels | Kind::Headers | Kind::Keywords, ..]) =>
        {
            Kind::Text
        }
        _ => Kind::Unknown,
    }
}

/// The signals of a request that says nothing.
fn facts() -> Facts<'static> {
    static BLANK: LazyLock<Inputs> = LazyLock::new(|| Inputs {
        version: Inputs::VERSION,
        at: jiff::Timestamp::UNIX_EPOCH,
        request: RequestFacts::default(),
        keywords: BTreeMap::new(),
        principal: Who::default(),
        seed: 0,
        health: BTreeMap::new(),
    });
    static ZONE: TimeZone = TimeZone::UTC;
    Facts::new(&BLANK, &ZONE)
}
