//! Searches in texts of the request: `user_message.matches('…')`. They run before the decision
//! (`content.rs`). In a checked expression, each search is therefore replaced by a variable for its
//! result.

use cel::common::ast::{CallExpr, Expr, LiteralValue};
use cel::parser::Expression;

use super::content::{TextPart, hash};

/// Prefix of a result's name. No name in an expression can begin like this.
const MARK: &str = "@matches/";

/// The signal and the hash of the pattern, from the name of a result.
pub(super) fn search(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(MARK)?.split_once('/')
}

/// The text of the request that a call of `matches` searches; `None` if it searches another text.
pub(super) fn searched(call: &CallExpr) -> Option<TextPart> {
    let text = call.target.as_deref().or(call.args.first())?;
    match &text.expr {
        Expr::Ident(name) => TextPart::of_signal(name),
        _ => None,
    }
}

/// Replaces each search by the name of its result.
pub(super) fn replace_searches(tree: &mut Expression) {
    match &mut tree.expr {
        Expr::Call(call) => {
            if let (true, Some(part), Some(Expr::Literal(LiteralValue::String(pattern)))) = (
                call.func_name == "matches",
                searched(call),
                call.args.last().map(|pattern| &pattern.expr),
            ) {
                let hash = hash(pattern.inner().as_bytes());
                tree.expr = Expr::Ident(format!("{MARK}{}/{hash}", part.signal()));
                return;
            }
            call.target.iter_mut().for_each(|target| replace_searches(target));
            call.args.iter_mut().for_each(replace_searches);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(replace_searches),
        Expr::Select(select) => replace_searches(&mut select.operand),
        Expr::Comprehension(comprehension) => {
            let whole = &mut **comprehension;
            [
                &mut whole.iter_range,
                &mut whole.accu_init,
                &mut whole.loop_cond,
                &mut whole.loop_step,
                &mut whole.result,
            ]
            .into_iter()
            .for_each(replace_searches);
        }
        _ => {}
    }
}
