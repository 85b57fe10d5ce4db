//! Error messages for expressions. The texts of the parser and the evaluator name internal
//! operators and grammar symbols, so they are never shown.

use cel::common::ast::operators;
use cel::parser::ParseErrors;
use cel::{ExecutionError, Value};

use super::flaw::{Flaw, shorten};
use super::kind::ValueKind;

/// The position of a character in an expression, from one.
pub(super) fn position(text: &str, index: usize) -> String {
    let before: String = text.chars().take(index).collect();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let of_line =
        if text.trim_end().contains('\n') { format!("line {}, ", line + 1) } else { String::new() };
    format!("at {of_line}character {column}")
}

/// The first syntax error.
pub(super) fn parsing(text: &str, errors: &ParseErrors) -> Flaw {
    let Some(first) = errors.errors.first() else { return Flaw::new("not an expression") };
    let count = |number: isize| usize::try_from(number).unwrap_or_default().saturating_sub(1);
    let (line, column) = (count(first.pos.0), count(first.pos.1));
    let index =
        text.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum::<usize>()
            + column;
    let rest: String = text.chars().skip(index).collect();
    let (wrong, hint) = wrong(&first.msg, &rest);
    Flaw {
        message: format!("not an expression, {}: {wrong}", position(text, index)),
        hint: hint.map(str::to_owned),
    }
}

/// Message and hint for the place where the parser stopped. The parser's own message is
/// never shown: it selects which of these messages applies.
fn wrong(message: &str, rest: &str) -> (String, Option<&'static str>) {
    let known = |part: &str| message.contains(part);
    if known("simple name") {
        return (
            "a macro's variable has to be a name".into(),
            Some("for example `keywords.exists(set, set == 'code')`"),
        );
    }
    if known("has() macro") {
        return (
            "`has` takes a label or a header".into(),
            Some("for example `has(key.labels.team)`"),
        );
    }
    if known("Recursion limit") {
        return ("it is nested too deep".into(), Some("use fewer brackets"));
    }
    if known("string literal") || known("bytes literal") {
        return (
            "this text has an escape that is not known".into(),
            Some("`\\\\` stands for a backslash"),
        );
    }
    if known("int literal") || known("uint literal") || known("double literal") {
        return ("this number is too large".into(), None);
    }
    let word = first_word(rest);
    let unexpected = format!("unexpected `{}`", shorten(word, 40));
    match word {
        "" => ("unexpected end".into(), None),
        "=" => (unexpected, Some("`==` compares")),
        "and" | "&" => (unexpected, Some("`&&` stands for and")),
        "or" | "|" => (unexpected, Some("`||` stands for or")),
        "not" => (unexpected, Some("`!` stands for not")),
        "'" | "\"" => ("unterminated string".into(), Some("texts stand in quotes: 'text'")),
        _ if known("reserved identifier") => {
            (format!("`{}` is a reserved word", shorten(word, 40)), None)
        }
        _ => (unexpected, None),
    }
}

/// The name or number at the start, else the first character.
fn first_word(text: &str) -> &str {
    let end = text
        .find(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .unwrap_or(text.len());
    let one = || text.chars().next().map_or(0, char::len_utf8);
    text.get(..if end == 0 { one() } else { end }).unwrap_or_default()
}

/// An operator as written in CEL.
pub(super) fn written(function: &str) -> &str {
    match function {
        operators::CONDITIONAL => "? :",
        operators::INDEX => "[ ]",
        operators::IN => "in",
        operators::NEGATE | "negate" | "sub" => "-",
        "add" => "+",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "_._" => ".",
        other => other.trim_matches(['_', '@']),
    }
}

/// Message for an operator or function that does not accept values of these kinds.
pub(super) fn unfit(function: &str, kinds: &[ValueKind]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.words()).collect();
    if let (operators::INDEX, [of, _], [name, by]) = (function, kinds, words.as_slice()) {
        return match of {
            ValueKind::Labels | ValueKind::Headers => {
                format!("{name} are asked for by name, not by {by}")
            }
            ValueKind::List | ValueKind::Keywords => {
                format!("{name} is asked for by number, not by {by}")
            }
            _ => format!("`[ ]` does not work on {name}"),
        };
    }
    match words.as_slice() {
        [] => format!("`{}` needs a value", written(function)),
        [all @ .., last] if !all.is_empty() => {
            format!("`{}` does not work on {} and {last}", written(function), all.join(", "))
        }
        _ => format!("`{}` does not work on {}", written(function), words.concat()),
    }
}

/// Whether an evaluation failed because of the value, not because of its kind.
pub(super) fn depends_on_value(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::NoSuchKey(_)
            | ExecutionError::IndexOutOfBounds(_)
            | ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..)
            | ExecutionError::FunctionError { .. }
    )
}

pub(super) fn failed(error: &ExecutionError) -> String {
    let kind = |value: &Value| match value {
        Value::Int(_) => ValueKind::Whole,
        Value::UInt(_) => ValueKind::Unsigned,
        Value::Float(_) => ValueKind::Decimal,
        Value::String(_) => ValueKind::Text,
        Value::Bytes(_) => ValueKind::Bytes,
        Value::Bool(_) => ValueKind::Boolean,
        Value::List(_) => ValueKind::List,
        Value::Map(_) => ValueKind::Labels,
        _ => ValueKind::Unknown,
    };
    match error {
        ExecutionError::NoSuchKey(name) => format!("there is no `{}`", shorten(name, 64)),
        ExecutionError::IndexOutOfBounds(_) => "the list is not as long as that".to_owned(),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "a division by zero".to_owned()
        }
        ExecutionError::Overflow(operator, ..) => {
            format!("`{}` gives a number that is too large", written(operator))
        }
        ExecutionError::FunctionError { function, .. } => {
            format!("`{}` does not take this value", written(function))
        }
        ExecutionError::NoSuchOverload(call) => {
            let kinds: Vec<ValueKind> =
                call.argument_types().iter().map(|name| ValueKind::named(name)).collect();
            unfit(call.function(), &kinds)
        }
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            unfit(operator, &[kind(left), kind(right)])
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} cannot be compared with {}", kind(left).words(), kind(right).words())
        }
        ExecutionError::UnexpectedType { got, want } => match ValueKind::named(want) {
            ValueKind::Unknown => {
                format!("this does not work on {}", ValueKind::named(got).words())
            }
            want => format!("{} where {} is needed", ValueKind::named(got).words(), want.words()),
        },
        _ => "it cannot be evaluated".to_owned(),
    }
}
