//! Comparisons with a constant result: a signal with a literal outside its range, or values of
//! different kinds. Only single comparisons are judged.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;

use super::flaw::{Flaw, shorten};
use super::kind::ValueKind;
use super::messages;
use crate::dialect::endpoint::Endpoint;
use crate::routing::language;

/// The range of a signal.
enum Domain {
    /// A whole number from the first to the second.
    Numbers(f64, f64),
    /// One of these, or nothing.
    Words(Vec<&'static str>),
    /// An id with this prefix, or nothing.
    Ids(&'static str),
}

impl Domain {
    fn of(signal: &str) -> Option<Domain> {
        Some(match signal {
            "hour" => Domain::Numbers(0.0, 23.0),
            "prompt_tokens" | "messages" | "max_tokens" | "tools" | "images" | "audio" => {
                Domain::Numbers(0.0, f64::INFINITY)
            }
            "endpoint" => {
                Domain::Words(Endpoint::ALL.iter().map(|endpoint| endpoint.as_str()).collect())
            }
            "language" => Domain::Words(language::codes().collect()),
            "key.id" => Domain::Ids("key_"),
            "user.id" => Domain::Ids("usr_"),
            _ => return None,
        })
    }

    fn describe(&self, signal: &str) -> String {
        match self {
            Domain::Numbers(least, most) if most.is_finite() => {
                format!("`{signal}` is from {least} to {most}")
            }
            Domain::Numbers(least, _) => format!("`{signal}` is at least {least}"),
            Domain::Words(words) => format!("`{signal}` is one of {}", words.join(", ")),
            Domain::Ids(prefix) => format!("`{signal}` begins with {prefix}"),
        }
    }

    /// The constant result of `signal operator literal`, if it is constant.
    fn outcome(&self, operator: &str, literal: &LiteralValue) -> Option<bool> {
        match (self, literal) {
            (Domain::Numbers(least, most), _) => numbers(operator, *least, *most, number(literal)?),
            (Domain::Words(words), LiteralValue::String(text)) => {
                let text = text.inner();
                unequal(operator).filter(|_| !text.is_empty() && !words.contains(&text))
            }
            (Domain::Ids(prefix), LiteralValue::String(text)) => {
                let text = text.inner();
                unequal(operator).filter(|_| !text.is_empty() && !text.starts_with(prefix))
            }
            _ => None,
        }
    }
}

/// Result of `==` or `!=` for values that are never equal.
fn unequal(operator: &str) -> Option<bool> {
    match operator {
        operators::EQUALS => Some(false),
        operators::NOT_EQUALS => Some(true),
        _ => None,
    }
}

fn numbers(operator: &str, least: f64, most: f64, literal: f64) -> Option<bool> {
    let (never, always) = match operator {
        operators::GREATER => (literal >= most, literal < least),
        operators::GREATER_EQUALS => (literal > most, literal <= least),
        operators::LESS => (literal <= least, literal > most),
        operators::LESS_EQUALS => (literal < least, literal >= most),
        _ if literal < least || literal > most || literal.fract() != 0.0 => {
            return unequal(operator);
        }
        _ => return None,
    };
    (never || always).then_some(always)
}

fn number(literal: &LiteralValue) -> Option<f64> {
    match literal {
        LiteralValue::Int(number) => Some(*number.inner() as f64),
        LiteralValue::UInt(number) => Some(*number.inner() as f64),
        LiteralValue::Double(number) => Some(*number.inner()),
        _ => None,
    }
}

/// Flaws of a comparison with a constant result. `kinds` are those of its operands.
pub(super) fn doubts(call: &CallExpr, kinds: &[ValueKind]) -> Vec<Flaw> {
    let ([left, right], [left_kind, right_kind]) = (call.args.as_slice(), kinds) else {
        return Vec::new();
    };
    let operator = call.func_name.as_str();
    if let (operators::IN, Expr::List(list), Some(signal)) = (operator, &right.expr, signal(left)) {
        let Some(domain) = Domain::of(&signal) else { return Vec::new() };
        let never = list.elements.iter().filter_map(|element| literal(element));
        let never =
            never.filter(|literal| domain.outcome(operators::EQUALS, literal) == Some(false));
        return never
            .map(|never| {
                Flaw::new(format!("`{signal}` is never {}", shown(never)))
                    .with(&domain.describe(&signal))
            })
            .collect();
    }
    let names = matches!(right_kind, ValueKind::Keywords | ValueKind::Labels | ValueKind::Headers);
    if operator == operators::IN && names && !left_kind.may_equal(ValueKind::Text) {
        let message = format!("`in` never holds: {} is looked for among names", left_kind.words());
        return vec![Flaw::new(message).with("for example `'code' in keywords`")];
    }
    if let (Some(always), false) = (unequal(operator), left_kind.may_equal(*right_kind)) {
        let message = format!(
            "`{}` {}: {} is compared with {}",
            messages::written(operator),
            holds(always),
            left_kind.words(),
            right_kind.words()
        );
        return vec![Flaw::new(message).with("compare values of one kind")];
    }
    let (of, value, operator, turned) =
        match (signal(left), literal(right), signal(right), literal(left)) {
            (Some(signal), Some(value), ..) => (signal, value, operator, false),
            (_, _, Some(signal), Some(value)) => (signal, value, mirrored(operator), true),
            _ => return Vec::new(),
        };
    let Some((always, domain)) =
        Domain::of(&of).and_then(|domain| Some((domain.outcome(operator, value)?, domain)))
    else {
        return Vec::new();
    };
    let (first, last) =
        if turned { (shown(value), of.clone()) } else { (of.clone(), shown(value)) };
    let message =
        format!("`{first} {} {last}` {}", messages::written(&call.func_name), holds(always));
    vec![Flaw::new(message).with(&domain.describe(&of))]
}

fn holds(always: bool) -> &'static str {
    if always { "always holds" } else { "never holds" }
}

/// The operator with the same meaning for exchanged operands.
fn mirrored(operator: &str) -> &str {
    match operator {
        operators::LESS => operators::GREATER,
        operators::LESS_EQUALS => operators::GREATER_EQUALS,
        operators::GREATER => operators::LESS,
        operators::GREATER_EQUALS => operators::LESS_EQUALS,
        other => other,
    }
}

fn signal(tree: &Expression) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => match &select.operand.expr {
            Expr::Ident(root) => Some(format!("{root}.{}", select.field)),
            _ => None,
        },
        _ => None,
    }
}

fn literal(tree: &Expression) -> Option<&LiteralValue> {
    match &tree.expr {
        Expr::Literal(literal) => Some(literal),
        _ => None,
    }
}

fn shown(literal: &LiteralValue) -> String {
    match literal {
        LiteralValue::String(text) => format!("'{}'", shorten(text.inner(), 64)),
        LiteralValue::Int(number) => number.inner().to_string(),
        LiteralValue::UInt(number) => format!("{}u", number.inner()),
        LiteralValue::Double(number) => number.inner().to_string(),
        _ => "…".to_owned(),
    }
}
