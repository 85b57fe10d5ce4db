//! The parser's and the evaluator's errors in our own words. Their texts name internal operators
//! and grammar symbols, so none of them is shown.

use cel::common::ast::operators;
use cel::parser::ParseErrors;
use cel::{ExecutionError, Value};

use super::kinds::Kind;
use super::{Flaw, short};

/// Where a character of an expression is, counted from one.
pub(super) fn place(text: &str, index: usize) -> String {
    let before: String = text.chars().take(index).collect();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let of_line =
        if text.trim_end().contains('\n') { format!("line {}, ", line + 1) } else { String::new() };
    format!("at its {of_line}character {column}")
}

/// The first thing that keeps a text from being an expression.
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
        message: format!("not an expression, {}: {wrong}", place(text, index)),
        hint: hint.map(str::to_owned),
    }
}

/// What is wrong where the parser stopped, and what to do about it. Of its message only the kind is
/// used.
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
    let told = format!("`{}` is not expected here", short(word, 40));
    match word {
        "" => ("it ends too early".into(), None),
        "=" => (told, Some("`==` compares")),
        "and" | "&" => (told, Some("`&&` stands for and")),
        "or" | "|" => (told, Some("`||` stands for or")),
        "not" => (told, Some("`!` stands for not")),
        "'" | "\"" => ("a quote without its end".into(), Some("texts stand in quotes: 'text'")),
        _ if known("reserved identifier") => {
            (format!("`{}` is a reserved word", short(word, 40)), None)
        }
        _ => (told, None),
    }
}

/// The name or number at the beginning, else the one character.
fn first_word(text: &str) -> &str {
    let end = text
        .find(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .unwrap_or(text.len());
    let one = || text.chars().next().map_or(0, char::len_utf8);
    text.get(..if end == 0 { one() } else { end }).unwrap_or_default()
}

/// An operator as it is written.
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

/// That an operator or function takes no such values.
pub(super) fn unfit(function: &str, kinds: &[Kind]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.words()).collect();
    if let (operators::INDEX, [of, _], [name, by]) = (function, kinds, words.as_slice()) {
        return match of {
            Kind::Labels | Kind::Headers => format!("{name} are asked for by name, not by {by}"),
            Kind::List | Kind::Keywords => format!("{name} is asked for by number, not by {by}"),
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

/// Whether an evaluation failed by what a value is, where another of its kind might do.
pub(super) fn is_of_the_value(error: &ExecutionError) -> bool {
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

/// Why an evaluation failed.
pub(super) fn failed(error: &ExecutionError) -> String {
    let kind = |value: &Value| match value {
        Value::Int(_) => Kind::Whole,
        Value::UInt(_) => Kind::Unsigned,
        Value::Float(_) => Kind::Decimal,
        Value::String(_) => Kind::Text,
        Value::Bytes(_) => Kind::Bytes,
        Value::Bool(_) => Kind::Boolean,
        Value::List(_) => Kind::List,
        Value::Map(_) => Kind::Labels,
        _ => Kind::Unknown,
    };
    match error {
        ExecutionError::NoSuchKey(name) => format!("there is no `{}`", short(name, 64)),
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
            let kinds: Vec<Kind> =
                call.argument_types().iter().map(|name| Kind::named(name)).collect();
            unfit(call.function(), &kinds)
        }
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            unfit(operator, &[kind(left), kind(right)])
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} cannot be compared with {}", kind(left).words(), kind(right).words())
        }
        ExecutionError::UnexpectedType { got, want } => match Kind::named(want) {
            Kind::Unknown => format!("this does not work on {}", Kind::named(got).words()),
            want => format!("{} where {} is needed", Kind::named(got).words(), want.words()),
        },
        _ => "it cannot be evaluated".to_owned(),
    }
}
