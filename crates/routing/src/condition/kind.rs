//! Kinds of values: what a part of an expression evaluates to, as far as it is known before a
//! request.

use cel::common::ast::LiteralValue;
use cel::common::types::{CelBool, CelInt, CelString, CelUInt};
use cel::common::value::Val;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
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
    Headers,
    /// Known only with a request.
    Unknown,
}

impl ValueKind {
    /// Its name in messages.
    pub(super) fn words(self) -> &'static str {
        match self {
            ValueKind::Boolean => "a boolean",
            ValueKind::Whole => "a whole number",
            ValueKind::Unsigned => "an unsigned number",
            ValueKind::Decimal => "a decimal number",
            ValueKind::Text => "text",
            ValueKind::Bytes => "bytes",
            ValueKind::Null => "null",
            ValueKind::List => "a list",
            ValueKind::Keywords => "the list of keyword sets",
            ValueKind::Labels => "labels",
            ValueKind::Headers => "headers",
            ValueKind::Unknown => "a value",
        }
    }

    pub(super) fn of(value: &dyn Val) -> ValueKind {
        ValueKind::named(value.get_type().name())
    }

    /// The kind by the evaluator's type name.
    pub(super) fn named(name: &str) -> ValueKind {
        match name {
            "bool" => ValueKind::Boolean,
            "int" => ValueKind::Whole,
            "uint" => ValueKind::Unsigned,
            "double" => ValueKind::Decimal,
            "string" => ValueKind::Text,
            "bytes" => ValueKind::Bytes,
            "null_type" => ValueKind::Null,
            "list" => ValueKind::List,
            "map" => ValueKind::Labels,
            _ => ValueKind::Unknown,
        }
    }

    pub(super) fn of_literal(literal: &LiteralValue) -> ValueKind {
        match literal {
            LiteralValue::Boolean(_) => ValueKind::Boolean,
            LiteralValue::Bytes(_) => ValueKind::Bytes,
            LiteralValue::Double(_) => ValueKind::Decimal,
            LiteralValue::Int(_) => ValueKind::Whole,
            LiteralValue::Null => ValueKind::Null,
            LiteralValue::String(_) => ValueKind::Text,
            LiteralValue::UInt(_) => ValueKind::Unsigned,
        }
    }

    pub(super) fn may_equal(self, other: ValueKind) -> bool {
        let family = |kind| match kind {
            ValueKind::Unsigned | ValueKind::Decimal => ValueKind::Whole,
            ValueKind::Headers => ValueKind::Labels,
            kind => kind,
        };
        family(self) == family(other)
    }
}

/// A text, number or boolean as text.
pub(super) fn text_of(value: &dyn Val) -> Option<String> {
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
    text.or_else(|| value.downcast_ref::<CelInt>().map(|number| number.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelUInt>().map(|number| number.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelBool>().map(|truth| truth.inner().to_string()))
}
