use super::*;

fn models(names: &[&str]) -> Limits {
    Limits {
        models: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Limits::default()
    }
}

#[test]
fn limits_on_models_nest() {
    assert!(Limits::default().allows_model("anything"));
    assert!(models(&["auto", "openai/*"]).allows_model("openai/gpt-5"));
    assert!(!models(&["auto", "openai/*"]).allows_model("openai"));
    assert!(models(&["openai/gpt-*"]).within(&models(&["openai/*"])));
    assert!(!models(&["openai/*"]).within(&models(&["openai/gpt-*"])));
    assert!(!models(&["*"]).within(&models(&["auto"])));
    assert!(!Limits::default().within(&models(&["auto"])));
    assert!(models(&[]).within(&models(&["auto"])));
    assert_eq!(serde_json::to_string(&Limits::default()).unwrap(), "{}");
}

#[test]
fn limits_that_are_counted_nest() {
    let limits = |text: &str| serde_json::from_str::<Limits>(text).unwrap();
    let outer = limits(concat!(
        r#"{"rpm":10,"tpm":1000,"concurrency":2,"budget":{"usd":2.5,"per":"day"},"#,
        r#""keys_per_user":3}"#,
    ));
    assert_eq!(Limits::default().beyond(&outer), Some("rpm"));
    let mut inner = limits(r#"{"rpm":9}"#);
    inner.inherit(&outer);
    assert_eq!((inner.rpm, inner.tpm, inner.budget), (Some(9), Some(1000), outer.budget));
    assert!(inner.within(&outer) && outer.within(&outer) && !outer.within(&inner));
    for (name, text) in [
        ("tpm", r#"{"tpm":1001}"#),
        ("concurrency", r#"{"concurrency":3}"#),
        ("budget", r#"{"budget":{"usd":2.51,"per":"day"}}"#),
        ("budget", r#"{"budget":{"usd":2.51,"per":"month"}}"#),
        ("keys_per_user", r#"{"keys_per_user":4}"#),
    ] {
        let mut inner = limits(text);
        inner.inherit(&outer);
        assert_eq!(inner.beyond(&outer), Some(name), "{text}");
    }
}

#[test]
fn a_budget_for_another_time_is_within_where_neither_a_day_nor_a_month_of_it_is_refused() {
    use Per::{Day, Month};
    for (inner, outer, fits) in [
        ((10, Day), (10, Month), false),
        ((10, Day), (309, Month), false),
        ((10, Day), (310, Month), true),
        ((310, Month), (10, Day), false),
        ((11, Month), (10, Day), false),
        ((10, Month), (10, Day), true),
    ] {
        let budget = |(nano, per)| Budget { nano, per };
        assert_eq!(budget(inner).within(budget(outer)), fits, "{inner:?} within {outer:?}");
    }
}

proptest::proptest! {
    /// The maximum that a budget allows on a day and in a month never rises, in whatever order
    /// budgets are narrowed.
    #[test]
    fn no_chain_of_budgets_rises(steps in proptest::collection::vec((1u64..2_000,
                proptest::bool::ANY, proptest::bool::ANY), 1..12)) {
        let most = |budget: Budget| match budget.per {
            Per::Day => (budget.nano, budget.nano * DAYS),
            Per::Month => (budget.nano, budget.nano),
        };
        let budget = |nano, month| Budget { nano, per: if month { Per::Month } else { Per::Day } };
        let mut now = budget(500, steps[0].1);
        for (nano, month, clamps) in steps {
            let (asked, (day, all)) = (budget(nano, month), most(now));
            let next = if clamps { asked.common(now) } else if asked.within(now) { asked } else {
                now
            };
            proptest::prop_assert!(
                most(next).0 <= day && most(next).1 <= all, "{now:?} {asked:?} {next:?}"
            );
            proptest::prop_assert!(
                !clamps || next.within(asked) && next.within(now) && next.nano > 0
            );
            now = next;
        }
    }
}

#[test]
fn what_is_clamped_is_within_and_keeps_what_it_may() {
    let limits = |text: &str| serde_json::from_str::<Limits>(text).unwrap();
    let outer = limits(r#"{"rpm":10,"budget":{"usd":2,"per":"day"},"models":["auto","openai/*"]}"#);
    for (inner, expected) in [
        (r#"{}"#, r#"{"rpm":10,"budget":{"usd":2,"per":"day"},"models":["auto","openai/*"]}"#),
        (
            r#"{"rpm":50,"tpm":7,"budget":{"usd":1,"per":"month"},"models":["*"]}"#,
            r#"{"rpm":10,"tpm":7,"budget":{"usd":1,"per":"month"},"models":["auto","openai/*"]}"#,
        ),
        (
            concat!(
                r#"{"rpm":5,"budget":{"usd":31,"per":"month"},"models":["openai/gpt-5","openai*","#,
                r#""b"]}"#,
            ),
            r#"{"rpm":5,"budget":{"usd":1,"per":"day"},"models":["openai/gpt-5","openai/*"]}"#,
        ),
    ] {
        let mut inner = limits(inner);
        assert!(inner.clamp(&outer) && inner.within(&outer));
        assert_eq!(inner, limits(expected));
        assert!(!inner.clamp(&outer), "once is enough");
    }
}

#[test]
fn money_is_written_as_it_was_read() {
    for text in
        [r#"{"budget":{"usd":0.1,"per":"month"}}"#, r#"{"budget":{"usd":1000000.0,"per":"day"}}"#]
    {
        let limits: Limits = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&limits).unwrap(), text);
    }
    assert_eq!(
        (nano_usd(0.1), nano_usd(3e-10), nano_usd(0.0), nano_usd(f64::NAN)),
        (100_000_000, 1, 0, 0)
    );
    for bad in ["0", "-1", "\"1\"", "null"] {
        assert!(
            serde_json::from_str::<Limits>(&format!(r#"{{"budget":{{"usd":{bad},"per":"day"}}}}"#))
                .is_err()
        );
    }
}

/// A sum that is stored can be read again, however small it is.
#[test]
fn a_budget_is_at_least_the_smallest_sum() {
    for usd in ["1e-12", "1e-300", "4e-10", "1e-9"] {
        let read = |text: &str| serde_json::from_str::<Budget>(text).unwrap();
        let budget = read(&format!(r#"{{"usd":{usd},"per":"day"}}"#));
        assert_eq!((budget.nano, read(&serde_json::to_string(&budget).unwrap())), (1, budget));
    }
}
