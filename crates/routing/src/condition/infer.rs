//! Infers the kind of signals and calls. The rules of operators are not written down here: each
//! operator is evaluated with a sample of each kind, so that the check and the evaluation cannot
//! drift apart.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cel::Value;
use cel::common::ast::{CallExpr, Expr, ListExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelString, CelUInt};
use cel::context::VariableResolver;
use cel::parser::Expression;
use jiff::tz::TimeZone;

use super::evaluation::EvaluationContext;
use super::kind::ValueKind;
use super::messages;
use super::signals::Signals;
use crate::inputs::{Inputs, PrincipalFacts, RequestFacts};

/// The kind of a signal, by its value in an empty request.
pub(super) fn of_signal(name: &str) -> ValueKind {
    facts().resolve(name).map_or(ValueKind::Unknown, |value| ValueKind::of(&*value))
}

/// The result kind of a call with operands of these kinds, the receiver first. `Err` if the
/// function does not accept them.
pub(super) fn of_call(call: &CallExpr, kinds: &[ValueKind]) -> Result<ValueKind, ()> {
    if kinds.contains(&ValueKind::Unknown) {
        return Ok(of_any(&call.func_name, kinds));
    }
    if never_equal(&call.func_name, kinds) {
        return Err(());
    }
    let mut samples = kinds.iter().map(|kind| sample(*kind));
    let target = call.target.is_some().then(|| samples.next()).flatten().map(Box::new);
    let tried = CallExpr { func_name: call.func_name.clone(), target, args: samples.collect() };
    let tried = Expression { id: 0, expr: Expr::Call(tried) };
    let facts = facts();
    let evaluation = EvaluationContext::new(&facts);
    match Value::resolve_val(&tried, &evaluation.context) {
        Ok(value) => Ok(ValueKind::of(&*value)),
        Err(error) if messages::depends_on_value(&error) => Ok(of_any(&call.func_name, kinds)),
        Err(_) => Err(()),
    }
}

/// Whether the operands of a comparison can never be equal, or a value that is no text is searched
/// in a collection of texts. The evaluation would not fail, but the result would always be the
/// same.
fn never_equal(function: &str, kinds: &[ValueKind]) -> bool {
    match (function, kinds) {
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => !left.may_equal(*right),
        (operators::IN, [wanted, ValueKind::Keywords | ValueKind::Labels | ValueKind::Headers]) => {
            *wanted != ValueKind::Text
        }
        _ => false,
    }
}

/// The result kind of a call if not all operands are known.
fn of_any(function: &str, kinds: &[ValueKind]) -> ValueKind {
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
        | "matches" => ValueKind::Boolean,
        "size" | "int" => ValueKind::Whole,
        "uint" => ValueKind::Unsigned,
        "double" => ValueKind::Decimal,
        "string" => ValueKind::Text,
        operators::INDEX
            if matches!(
                kinds,
                [ValueKind::Labels | ValueKind::Headers | ValueKind::Keywords, ..]
            ) =>
        {
            ValueKind::Text
        }
        _ => ValueKind::Unknown,
    }
}

/// The signals of an empty request.
fn facts() -> Signals<'static> {
    static BLANK: LazyLock<Inputs> = LazyLock::new(|| Inputs {
        version: Inputs::VERSION,
        at: jiff::Timestamp::UNIX_EPOCH,
        request: RequestFacts::default(),
        keywords: BTreeMap::new(),
        texts: BTreeMap::new(),
        principal: PrincipalFacts::default(),
        seed: 0,
        health: BTreeMap::new(),
    });
    static ZONE: TimeZone = TimeZone::UTC;
    Signals::new(&BLANK, &ZONE)
}

/// An expression of this kind: a literal, or a signal.
fn sample(kind: ValueKind) -> Expression {
    let literal = |value| Expr::Literal(value);
    let expr = match kind {
        ValueKind::Boolean => literal(LiteralValue::Boolean(CelBool::from(true))),
        ValueKind::Whole => literal(LiteralValue::Int(CelInt::from(1))),
        ValueKind::Unsigned => literal(LiteralValue::UInt(CelUInt::from(1_u64))),
        ValueKind::Decimal => literal(LiteralValue::Double(CelDouble::from(1.0))),
        ValueKind::Text => literal(LiteralValue::String(CelString::from("1".to_owned()))),
        ValueKind::Bytes => literal(LiteralValue::Bytes(CelBytes::from(b"1".to_vec()))),
        ValueKind::Null | ValueKind::Unknown => literal(LiteralValue::Null),
        ValueKind::List => Expr::List(ListExpr::new(Vec::new())),
        ValueKind::Keywords => Expr::Ident("keywords".to_owned()),
        ValueKind::Labels | ValueKind::Headers => Expr::Ident("headers".to_owned()),
    };
    Expression { id: 0, expr }
}
