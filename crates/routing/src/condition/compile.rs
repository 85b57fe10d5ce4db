//! Parses and checks an expression.

use cel::parser::{Expression, Parser};

use super::check::{Check, Uses};
use super::flaw::Flaw;
use super::kind::ValueKind;
use super::messages;
use super::texts;

/// Maximum length of a CEL expression in bytes.
pub const CEL_BYTES: usize = 4 << 10;
/// Maximum number of opening brackets and `?` in a CEL expression. Bounds the recursion of the
/// parser.
const CEL_BRACKETS: usize = 96;
/// Stack of the thread that compiles a CEL expression: enough for the deepest tree within
/// [`CEL_BYTES`].
const CEL_COMPILE_STACK: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct CheckedExpression {
    pub(super) text: String,
    pub(super) tree: Expression,
    pub(super) uses: Uses,
}

/// The required result of an expression.
#[derive(Clone, Copy)]
pub(super) enum ResultKind {
    Boolean,
    Text,
}

impl ResultKind {
    /// Why a result of this kind is wrong.
    fn flaw_of(self, kind: ValueKind) -> Option<Flaw> {
        let given = kind.words();
        match (self, kind) {
            (_, ValueKind::Boolean | ValueKind::Unknown)
            | (ResultKind::Text, ValueKind::Text | ValueKind::Whole | ValueKind::Unsigned) => None,
            (ResultKind::Boolean, _) => {
                let flaw = Flaw::new(format!("the expression gives {given}, not true or false"));
                Some(flaw.with("compare it, for example `tools > 0`"))
            }
            (ResultKind::Text, _) => {
                let flaw =
                    Flaw::new(format!("the expression gives {given}, which cannot be a key"));
                Some(flaw.with("a text, a whole number or a boolean"))
            }
        }
    }
}

/// The external parser recurses with the nesting of its input. It runs on a thread whose stack fits
/// the deepest tree within the limit on bytes. A panic of the parser becomes a flaw.
pub(super) fn compile(text: &str, wanted: ResultKind) -> Result<CheckedExpression, Vec<Flaw>> {
    check_size(text, wanted).map_err(|flaw| vec![flaw])?;
    let owned = text.to_owned();
    let worker = std::thread::Builder::new()
        .stack_size(CEL_COMPILE_STACK)
        .spawn(move || parse_and_check(owned, wanted));
    let broken = || vec![Flaw::new("the expression could not be compiled")];
    worker.map_err(|_| broken())?.join().map_err(|_| broken())?
}

/// Checks before the parser runs. Brackets inside string literals count as well, as only the parser
/// can tell them apart.
fn check_size(text: &str, wanted: ResultKind) -> Result<(), Flaw> {
    if text.len() > CEL_BYTES {
        return Err(Flaw::new(format!("the expression is longer than {} bytes", CEL_BYTES)));
    }
    if text.trim().is_empty() {
        let hint = match wanted {
            ResultKind::Boolean => "leave `when` out for a rule that always matches",
            ResultKind::Text => "for example `user.id`",
        };
        return Err(Flaw::new("the expression is empty").with(hint));
    }
    if text.bytes().filter(|b| matches!(b, b'(' | b'[' | b'{' | b'?')).count() > CEL_BRACKETS {
        return Err(Flaw::new(format!("the expression has more than {} brackets", CEL_BRACKETS)));
    }
    Ok(())
}

fn parse_and_check(text: String, wanted: ResultKind) -> Result<CheckedExpression, Vec<Flaw>> {
    let parsed = Parser::new().parse_with_source_info(&text);
    let (mut tree, source) = parsed.map_err(|errors| vec![messages::parsing(&text, &errors)])?;
    let mut check = Check::new(&source);
    let kind = check.expression(&tree, 0);
    if check.flaws.is_empty() && check.signals == 0 {
        let hint = match wanted {
            ResultKind::Boolean => "leave `when` out, or the rule",
            ResultKind::Text => "for example `user.id`",
        };
        check
            .flaws
            .push(Flaw::new("the expression uses no signal, so its result is constant").with(hint));
    }
    if check.flaws.is_empty() {
        check.flaws.extend(wanted.flaw_of(kind));
    }
    if !check.flaws.is_empty() {
        check.flaws.truncate(8);
        return Err(check.flaws);
    }
    texts::replace_searches(&mut tree);
    Ok(CheckedExpression { text, tree, uses: check.uses })
}
