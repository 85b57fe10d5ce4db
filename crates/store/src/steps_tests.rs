use super::*;

/// The statements of the first step, for a store that lacks the later steps.
pub(crate) fn first_step(base: Base) -> String {
    words_of(STEPS[0].sql, base)
}

pub(crate) const LAST: u32 = KNOWN;

#[test]
fn marked_lines_are_for_the_databases_that_they_name() {
    let step = "a\nb INTEGER, -- only: accounts postgres\n-- only: postgres\nc BLOB STRICT;\n\n\
                -- only: captures accounts\nd TEXT -- what it is";
    for (base, lines) in [
        (Base::Accounts, "a\nb INTEGER, \nd TEXT -- what it is\n"),
        (Base::Captures, "a\nd TEXT -- what it is\n"),
        (Base::Postgres, "a\nb BIGINT, \nc BYTEA ;\n\n"),
    ] {
        assert_eq!(words_of(step, base), lines, "{base:?}");
    }
}

#[test]
fn no_step_is_compatible_with_more_than_the_one_before() {
    let mut least = 0;
    for (step, number) in STEPS.iter().zip(1..) {
        assert!((least..=number).contains(&step.compatible), "{number}");
        least = step.compatible;
    }
}
