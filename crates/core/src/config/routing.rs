//! Reads the routing document into a `RoutingSpec`: shapes, words and ranges. The room `routing`
//! checks what its names refer to.

use super::credentials::CredentialReader;
use super::diagnostics::Diagnostics;
use super::provider;
use super::read::{Field, Section};
use super::tree::TreeValue;
use rerouter_routing::{
    Located, ModelSpec, RecipeSpec, RetryOn, RetrySpec, RoutingSpec, RuleSpec, ShadowSpec,
    Strategy, TargetSpec,
};

/// Attempts of one request, whatever its recipe says. Pingora's loop has the same bound.
pub const ATTEMPTS_MAX: usize = 16;
/// Rules of a recipe: a decision may evaluate all of them.
pub const RULES: usize = 64;
/// Targets of a rule: a decision ranks all of them.
const RULE_TARGETS: usize = 64;
/// Words of a keyword set.
const KEYWORDS: usize = 1_000;

/// The capabilities that a model can have.
const CAPABILITIES: [&str; 4] = ["tools", "vision", "json", "audio"];

/// Reads the document from its tree.
pub(super) fn read(
    root: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<RoutingSpec> {
    let mut top = root.section(faults)?;
    let mut spec = RoutingSpec {
        timezone: top.read("timezone", faults, |f, p| f.name(p)),
        providers: named(&mut top, "providers", faults, |name, field, faults| {
            provider::read(name, field, credentials, faults)
        }),
        models: named(&mut top, "models", faults, model),
        keywords: named(&mut top, "keywords", faults, |name, field, faults| {
            Some((name, field.each(faults, KEYWORDS, |word, faults| word.name(faults))))
        }),
        recipes: named(&mut top, "recipes", faults, recipe),
        aliases: named(&mut top, "aliases", faults, |name, field, faults| {
            Some((name, field.name(faults)?))
        }),
        without_price_list: top
            .read("prices", faults, |f, p| f.word(p, &[("shipped", false), ("none", true)]))
            .unwrap_or_default(),
        warnings: Vec::new(),
    };
    // Without them, the document is probably incomplete.
    ["recipes", "aliases"].into_iter().for_each(|key| top.require_explicit(key, faults));
    top.finish(faults);
    spec.warnings = std::mem::take(&mut faults.warnings);
    Some(spec)
}

/// Reads each pair of a mapping whose keys are names chosen in the document.
fn named<'a, T>(
    top: &mut Section<'a>,
    key: &'static str,
    faults: &mut Diagnostics,
    mut read: impl FnMut(Located<String>, &Field<'a>, &mut Diagnostics) -> Option<T>,
) -> Vec<T> {
    let pairs = top.below(key, faults).named();
    pairs.into_iter().filter_map(|(name, field)| read(name, &field, faults)).collect()
}

fn model(name: Located<String>, field: &Field<'_>, faults: &mut Diagnostics) -> Option<ModelSpec> {
    let mut section = field.section(faults)?;
    let mut price = |key, faults: &mut Diagnostics| {
        section.read(key, faults, |field, faults| {
            let price = field.number(faults)?;
            if price < 0.0 {
                field.reject(
                    faults,
                    "a price cannot be negative",
                    "leave out a price that is unknown",
                );
            }
            Some(price)
        })
    };
    let spec = ModelSpec {
        name,
        input_per_mtok: price("input_per_mtok", faults),
        output_per_mtok: price("output_per_mtok", faults),
        cached_input_per_mtok: price("cached_input_per_mtok", faults),
        context: section.read("context", faults, |f, p| f.whole(p, 1, 1 << 40)),
        capabilities: section.read("capabilities", faults, |f, p| {
            let words = CAPABILITIES.map(|word| (word, word));
            Some(f.each(p, CAPABILITIES.len(), |item, p| item.word(p, &words).map(str::to_owned)))
        }),
    };
    section.finish(faults);
    Some(spec)
}

fn recipe(
    name: Located<String>,
    field: &Field<'_>,
    faults: &mut Diagnostics,
) -> Option<RecipeSpec> {
    let mut section = field.section(faults)?;
    let rules = section.take("rules");
    section.require("rules", faults);
    let rules = rules.map(|field| field.each(faults, RULES, rule));
    let retry = retry(section.below("retry", faults), faults);
    let shadow = section.read("shadow", faults, shadow);
    section.finish(faults);
    Some(RecipeSpec { name, rules: rules?, retry, shadow })
}

fn shadow(field: &Field<'_>, faults: &mut Diagnostics) -> Option<ShadowSpec> {
    let mut section = field.section(faults)?;
    let target = section.read("target", faults, |f, p| f.name(p));
    let percent = section.read("percent", faults, |field, faults| {
        let percent = field.number(faults)?;
        if !(0.0..=100.0).contains(&percent) {
            field.reject(
                faults,
                "must be from 0 to 100",
                "for example `1`, or `0.1` for one request in a thousand",
            );
        }
        Some(percent)
    });
    for key in ["target", "percent"] {
        section.require(key, faults);
    }
    section.finish(faults);
    Some(ShadowSpec { target: target?, percent: percent? })
}

fn rule(field: &Field<'_>, faults: &mut Diagnostics) -> Option<RuleSpec> {
    let mut section = field.section(faults)?;
    let name = section.read("name", faults, |f, p| f.name(p));
    section.require("name", faults);
    let when = section.read("when", faults, |f, p| match &f.node.value {
        // `when: true` is an expression too.
        TreeValue::Bool(value) => Some(f.located(value.to_string())),
        _ => f.name(p),
    });
    let strategy = section.read("strategy", faults, |field, faults| {
        field.word(faults, &Strategy::ALL.map(|strategy| (strategy.as_str(), strategy)))
    });
    let mut key = section.read("key", faults, |f, p| f.name(p));
    // Which of weights and keys are allowed depends on the intended strategy.
    let strategy_is_wrong = strategy.is_none() && section.take("strategy").is_some();
    let targets = section.take("targets");
    section.require("targets", faults);
    let mut targets =
        targets.map(|field| field.each(faults, RULE_TARGETS, target)).unwrap_or_default();
    if strategy_is_wrong {
        targets.iter_mut().for_each(|target| target.weight = None);
        key = None;
    }
    section.finish(faults);
    let name = name.unwrap_or_else(|| field.located("unnamed".to_owned()));
    Some(RuleSpec { name, when, strategy: strategy.unwrap_or_default(), key, targets })
}

fn target(field: &Field<'_>, faults: &mut Diagnostics) -> Option<TargetSpec> {
    let mut section = field.section(faults)?;
    let target = section.read("target", faults, |f, p| f.name(p));
    section.require("target", faults);
    let weight = section.read("weight", faults, |f, p| f.number(p).map(|weight| f.located(weight)));
    section.finish(faults);
    Some(TargetSpec { target: target?, weight })
}

fn retry(mut section: Section<'_>, faults: &mut Diagnostics) -> RetrySpec {
    let attempts = section.read("attempts", faults, |f, p| f.whole(p, 1, ATTEMPTS_MAX as u64));
    let on = section.read("on", faults, |field, faults| {
        let mut on = RetryOn::default();
        field.each(faults, 4, |item, faults| {
            if matches!(item.node.value, TreeValue::Int(429)) {
                on.rate_limited = true;
                return Some(());
            }
            match item.word(faults, &[("connect", 0), ("timeout", 1), ("429", 2), ("5xx", 3)])? {
                0 => on.connect = true,
                1 => on.timeout = true,
                2 => on.rate_limited = true,
                _ => on.server_error = true,
            }
            Some(())
        });
        Some(on)
    });
    let budget_percent = section.read("budget", faults, |f, p| f.percent(p, 0, 1_000));
    section.finish(faults);
    RetrySpec { attempts: attempts.and_then(|n| usize::try_from(n).ok()), on, budget_percent }
}
