//! What can be told of conditions without a request: that one never holds, or only where another held before it. Nothing
//! is said where that takes more than comparing parts, so what is said is true.

use cel::common::ast::{Expr, LiteralValue, operators};
use cel::parser::Expression;

/// A condition as alternatives of parts that have to hold together.
#[derive(Debug)]
pub(super) struct Reach(Vec<Vec<Part>>);

/// Part of a condition.
#[derive(Debug, PartialEq)]
enum Part {
    /// A number within bounds.
    Range { of: String, least: End, most: End },
    /// Anything else, by how it is built.
    Other(String),
}

/// An end of a range: a number, and whether it is within. `None`: there is none.
type End = Option<(i64, bool)>;

impl Reach {
    pub(super) fn of(tree: &Expression) -> Reach {
        Reach(
            flat(tree, operators::LOGICAL_OR)
                .into_iter()
                .map(|all| flat(all, operators::LOGICAL_AND).into_iter().map(part).collect())
                .collect(),
        )
    }

    /// Whether this one holds wherever the other does.
    pub(super) fn covers(&self, other: &Reach) -> bool {
        let follows =
            |wanted: &Part, known: &[Part]| known.iter().any(|known| known.implies(wanted));
        other
            .0
            .iter()
            .all(|known| self.0.iter().any(|wanted| wanted.iter().all(|part| follows(part, known))))
    }

    /// Whether it cannot hold, as no number is within all of its bounds.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|all| {
            all.iter()
                .enumerate()
                .any(|(at, part)| all.iter().skip(at + 1).any(|other| part.excludes(other)))
        })
    }
}

impl Part {
    fn implies(&self, wanted: &Part) -> bool {
        match (self, wanted) {
            (Part::Range { of, least, most }, Part::Range { of: other, least: from, most: to }) => {
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

    fn excludes(&self, other: &Part) -> bool {
        let apart = |most: &End, least: &End| match (most, least) {
            (Some(most), Some(least)) => {
                most.0 < least.0 || (most.0 == least.0 && !(most.1 && least.1))
            }
            _ => false,
        };
        match (self, other) {
            (Part::Range { of, least, most }, Part::Range { of: other, least: from, most: to }) => {
                of == other && (apart(most, from) || apart(to, least))
            }
            _ => false,
        }
    }
}

/// The parts that an operator joins, however they are nested.
fn flat<'e>(tree: &'e Expression, operator: &str) -> Vec<&'e Expression> {
    match &tree.expr {
        Expr::Call(call) if call.func_name == operator => {
            call.args.iter().flat_map(|part| flat(part, operator)).collect()
        }
        _ => vec![tree],
    }
}

fn part(tree: &Expression) -> Part {
    range(tree).unwrap_or_else(|| Part::Other(built(tree)))
}

/// A comparison with a whole number, on either side.
fn range(tree: &Expression) -> Option<Part> {
    let Expr::Call(call) = &tree.expr else { return None };
    let [left, right] = call.args.as_slice() else { return None };
    let (of, number, turned) = match (number(left), number(right)) {
        (None, Some(number)) => (built(left), number, false),
        (Some(number), None) => (built(right), number, true),
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
    Some(Part::Range { of, least, most })
}

fn number(tree: &Expression) -> Option<i64> {
    match &tree.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
        _ => None,
    }
}

/// The same for expressions that are built the same, whatever their blanks and brackets.
fn built(tree: &Expression) -> String {
    match &tree.expr {
        Expr::Literal(value) => format!("{value:?}"),
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!(
            "({}).{}{}",
            built(&select.operand),
            select.field,
            if select.test { "?" } else { "" }
        ),
        Expr::Call(call) => {
            let parts: Vec<String> =
                call.target.as_deref().into_iter().chain(&call.args).map(built).collect();
            format!("{}({})", call.func_name, parts.join(", "))
        }
        Expr::List(list) => {
            format!("[{}]", list.elements.iter().map(built).collect::<Vec<_>>().join(", "))
        }
        // Macros are compared with nothing: their numbers tell each from every other.
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
