//! Conditions (`when`) and sticky keys (`key`) of rules: CEL over the signals of a request. Only
//! this folder uses the `cel` crate. An expression is bounded and fully checked when it is
//! compiled: size, nesting, names, functions, value kinds. On the request path only a short
//! evaluation remains. If it fails, the condition is false and the decision's trace holds the
//! error.

mod check;
mod compile;
mod content;
mod evaluation;
mod flaw;
mod infer;
mod kind;
mod messages;
mod pattern;
mod signals;
#[cfg(test)]
mod tests;
mod texts;

use cel::Value;
use cel::common::types::CelBool;

use self::compile::{CheckedExpression, ResultKind, compile};
use self::flaw::shorten;
use self::kind::{ValueKind, text_of};

pub use self::check::{CEL_NODES, Uses};
pub use self::compile::CEL_BYTES;
pub(crate) use self::content::ContentPatterns;
pub use self::content::TextPart;
pub use self::evaluation::EvaluationContext;
pub use self::flaw::Flaw;
pub use self::signals::Signals;

/// Maximum length in bytes of a runtime error of a CEL expression in a trace.
const CEL_TRACE_BYTES: usize = 200;

/// A compiled expression that is true or false.
#[derive(Debug)]
pub struct Condition(CheckedExpression);

/// A compiled expression whose text is the sticky key of a request.
#[derive(Debug)]
pub struct StickyKey(CheckedExpression);

pub trait Compiled {
    fn uses(&self) -> &Uses;
}

impl Compiled for Condition {
    fn uses(&self) -> &Uses {
        &self.0.uses
    }
}

impl Compiled for StickyKey {
    fn uses(&self) -> &Uses {
        &self.0.uses
    }
}

impl Condition {
    pub fn compile(text: &str) -> Result<Condition, Vec<Flaw>> {
        compile(text, ResultKind::Boolean).map(Condition)
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether it reads which keyword sets a request hits.
    pub fn reads_keywords(&self) -> bool {
        self.0.uses.keywords
    }

    /// Whether the condition is true. The error says why the evaluation failed.
    pub fn holds(&self, evaluation: &EvaluationContext<'_>) -> Result<bool, String> {
        match Value::resolve_val(&self.0.tree, &evaluation.context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(holds) => Ok(*holds.inner()),
                None => {
                    Err(format!("the result is {}, not a boolean", ValueKind::of(&*value).words()))
                }
            },
            Err(error) => Err(shorten(&messages::failed(&error), CEL_TRACE_BYTES)),
        }
    }
}

impl StickyKey {
    pub fn compile(text: &str) -> Result<StickyKey, Vec<Flaw>> {
        compile(text, ResultKind::Text).map(StickyKey)
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The sticky key as text. The error says why the evaluation failed.
    pub fn read(&self, evaluation: &EvaluationContext<'_>) -> Result<String, String> {
        match Value::resolve_val(&self.0.tree, &evaluation.context) {
            Ok(value) => text_of(&*value).ok_or_else(|| {
                format!("the result is {}, not text", ValueKind::of(&*value).words())
            }),
            Err(error) => Err(shorten(&messages::failed(&error), CEL_TRACE_BYTES)),
        }
    }
}
