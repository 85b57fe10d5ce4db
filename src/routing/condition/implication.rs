//! Implication between conditions: whether a condition never holds, or holds only where another one
//! does. It compares terms syntactically, so it may miss an implication but never claims a false
//! one.

use cel::common::ast::{Expr, LiteralValue, operators};
use cel::parser::Expression;

/// A condition in disjunctive form: alternatives, each a conjunction of terms.
#[derive(Debug)]
pub(super) struct Alternatives(Vec<Vec<Term>>);

/// One term of a conjunction.
#[derive(Debug, PartialEq)]
enum Term {
    /// A number within bounds.
    Range { of: String, least: RangeBound, most: RangeBound },
    /// Anything else, by its normalised text.
    Other(String),
}

/// A bound of a range, and whether it is inclusive. `None`: unbounded.
type RangeBound = Option<(i64, bool)>;

impl Alternatives {
    pub(super) fn of(tree: &Expression) -> Alternatives {
        Alternatives(
            flat(tree, operators::LOGICAL_OR)
                .into_iter()
                .map(|all| flat(all, operators::LOGICAL_AND).into_iter().map(term).collect())
                .collect(),
        )
    }

    /// Whether this condition holds wherever the other one does.
    pub(super) fn covers(&self, other: &Alternatives) -> bool {
        let follows =
            |wanted: &Term, known: &[Term]| known.iter().any(|known| known.implies(wanted));
        other
            .0
            .iter()
            .all(|known| self.0.iter().any(|wanted| wanted.iter().all(|part| follows(part, known))))
    }

    /// Whether it never holds, because no number is within all bounds.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|all| {
            all.iter()
                .enumerate()
                .any(|(at, part)| all.iter().skip(at + 1).any(|other| part.excludes(other)))
        })
    }
}

impl Term {
    fn implies(&self, wanted: &Term) -> bool {
        match (self, wanted) {
            (Term::Range { of, least, most }, Term::Range { of: other, least: from, most: to }) => {
                let above = from.is_none_or(|from| {
                    least.is_some_and(|least| {
                        least.0 > from.0 || (least.0 == from.0 && (from.1 || !least.1))
                    })
                });
                let below = to.is_none_or(|to| {
                    most.is_some_and(|most| most.0 < to.0 || (most.0 == to.0 && (to.1 || !most.1)))
                });
                of == other && above && below
            }
            (own, wanted) => own == wanted,
        }
    }

    fn excludes(&self, other: &Term) -> bool {
        let apart = |most: &RangeBound, least: &RangeBound| match (most, least) {
            (Some(most), Some(least)) => {
                most.0 < least.0 || (most.0 == least.0 && !(most.1 && least.1))
            }
            _ => false,
        };
        match (self, other) {
            (Term::Range { of, least, most }, Term::Range { of: other, least: from, most: to }) => {
                of == other && (apart(most, from) || apart(to, least))
            }
            _ => false,
        }
    }
}

/// The operands of nested applications of an operator.
fn flat<'e>(tree: &'e Expression, operator: &str) -> Vec<&'e Expression> {
    match &tree.expr {
        Expr::Call(call) if call.func_name == operator => {
            call.args.iter().flat_map(|part| flat(part, operator)).collect()
        }
        _ => vec![tree],
    }
}

fn term(tree: &Expression) -> Term {
    range(tree).unwrap_or_else(|| Term::Other(normal_form(tree)))
}

/// A comparison with a whole number on either side.
fn range(tree: &Expression) -> Option<Term> {
    let Expr::Call(call) = &tree.expr else { return None };
    let [left, right] = call.args.as_slice() else { return None };
    let (of, number, turned) = match (number(left), number(right)) {
        (None, Some(number)) => (normal_form(left), number, false),
        (Some(number), None) => (normal_form(right), number, true),
        _ => return None,
    };
    let (least, most) = match (call.func_name.as_str(), turned) {
        (operators::GREATER, false) | (operators::LESS, true) => (Some((number, false)), None),
        (operators::GREATER_EQUALS, false) | (operators::LESS_EQUALS, true) => {
            (Some((number, true)), None)
        }
        (operators::LESS, false) | (operators::GREATER, true) => (None, Some((number, false))),
        (operators::LESS_EQUALS, false) | (operators::GREATER_EQUALS, true) => {
            (None, Some((number, true)))
        }
        (operators::EQUALS, _) => (Some((number, true)), Some((number, true))),
        _ => return None,
    };
    Some(Term::Range { of, least, most })
}

fn number(tree: &Expression) -> Option<i64> {
    match &tree.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
        _ => None,
    }
}

/// A normal form of an expression, independent of blanks and brackets.
fn normal_form(tree: &Expression) -> String {
    match &tree.expr {
        Expr::Literal(value) => format!("{value:?}"),
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!(
            "({}).{}{}",
            normal_form(&select.operand),
            select.field,
            if select.test { "?" } else { "" }
        ),
        Expr::Call(call) => {
            let parts: Vec<String> =
                call.target.as_deref().into_iter().chain(&call.args).map(normal_form).collect();
            format!("{}({})", call.func_name, parts.join(", "))
        }
        Expr::List(list) => {
            format!("[{}]", list.elements.iter().map(normal_form).collect::<Vec<_>>().join(", "))
        }
        // Macros are equal to nothing: their ids are unique.
        other => format!("#{} {other:?}", tree.id),
    }
}

#[cfg(test)]
mod tests {
    use crate::routing::condition::Condition;

    fn covers(earlier: &str, later: &str) -> bool {
        let condition =
            |text| Condition::compile(text).unwrap_or_else(|flaws| panic!("{text}: {flaws:?}"));
        condition(earlier).covers(&condition(later))
    }

    #[test]
    fn what_held_before_is_found() {
        for (earlier, later) in [
            ("prompt_tokens > 100", "prompt_tokens > 200"),
            ("prompt_tokens > 100", "200 < prompt_tokens && stream"),
            ("prompt_tokens >= 100", "prompt_tokens == 100"),
            ("prompt_tokens < 5", "prompt_tokens <= 4"),
            ("stream", "tools > 0 && (stream)"),
            ("stream || tools > 0", "tools > 3 || stream && images == 0"),
            ("'code' in keywords", "!stream && \"code\" in keywords"),
            ("key.labels.team == 'a'", "key.labels.team=='a'&&hour<8"),
            ("model in ['a', 'b']", "model in ['a','b'] && stream"),
        ] {
            assert!(covers(earlier, later), "{earlier} / {later}");
        }
        for (earlier, later) in [
            ("prompt_tokens > 200", "prompt_tokens > 100"),
            ("prompt_tokens > 100", "prompt_tokens >= 100"),
            ("prompt_tokens > 100", "messages > 200"),
            ("prompt_tokens > 100", "prompt_tokens != 200"),
            ("stream && tools > 0", "stream"),
            ("stream", "stream || tools > 0"),
            ("!stream", "stream"),
            ("language == 'de'", "language == 'en'"),
            ("key.labels.exists(name, name == 'a')", "key.labels.exists(name, name == 'b')"),
            ("key.labels.team == 'a'", "user.labels.team == 'a'"),
            ("has(key.labels.team)", "key.labels.team == 'a'"),
        ] {
            assert!(!covers(earlier, later), "{earlier} / {later}");
        }
    }

    #[test]
    fn what_never_holds_is_refused() {
        for text in [
            "prompt_tokens > 10 && prompt_tokens < 10",
            "stream && hour >= 22 && hour < 6",
            "tools == 1 && tools == 2 || 3 < audio && audio <= 3",
        ] {
            let flaws = Condition::compile(text).unwrap_err();
            assert!(flaws[0].message.contains("never holds"), "{text}: {flaws:?}");
        }
        for text in [
            "hour >= 22 || hour < 6",
            "prompt_tokens >= 10 && prompt_tokens <= 10",
            "tools > 1 && images < 1",
        ] {
            assert!(Condition::compile(text).is_ok(), "{text}");
        }
    }
}
