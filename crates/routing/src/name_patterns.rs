//! Patterns of names. A pattern ends in `*`, which stands for any text, so of two that match one
//! name the shorter is a part of the longer: they never tie. A template names the model of a target
//! by the name asked for.

use std::sync::Arc;

/// Bytes of an alias, or of a provider's name of a model.
pub const MODEL_NAME_BYTES: usize = 256;

/// The text before the `*` of a pattern; `None` for a plain name.
pub(super) fn beginning(name: &str) -> Option<&str> {
    name.strip_suffix('*')
}

/// Whether the name fits a header value and a metric label.
pub(super) fn is_model_name(name: &str) -> bool {
    (1..=MODEL_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

/// What patterns of a document lead to, longest first.
#[derive(Debug)]
pub(super) struct Patterns<T>(Vec<(Arc<str>, T)>);

impl<T> Patterns<T> {
    /// From patterns with their `*`. Names without one are left out.
    pub(super) fn new(named: impl IntoIterator<Item = (Arc<str>, T)>) -> Patterns<T> {
        let mut patterns: Vec<(Arc<str>, T)> =
            named.into_iter().filter(|(name, _)| beginning(name).is_some()).collect();
        patterns.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Patterns(patterns)
    }

    /// The patterns that match a name, longest first.
    pub(super) fn matching<'p, 'n>(
        &'p self,
        name: &'n str,
    ) -> impl Iterator<Item = Matched<'p, 'n, T>> + use<'p, 'n, T> {
        self.0.iter().filter_map(move |(pattern, to)| {
            Some(Matched { pattern, rest: name.strip_prefix(beginning(pattern)?)?, to })
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one is written like this.
    pub(super) fn has(&self, written: &str) -> bool {
        self.0.iter().any(|(pattern, _)| &**pattern == written)
    }
}

/// A pattern that matches a name.
pub(super) struct Matched<'p, 'n, T> {
    pub(super) pattern: &'p Arc<str>,
    /// What its `*` stands for.
    pub(super) rest: &'n str,
    pub(super) to: &'p T,
}

/// The model of a target that depends on the name asked for: text around one placeholder.
#[derive(Debug)]
pub(super) struct ModelTemplate {
    /// Text before the placeholder, with the provider.
    before: Box<str>,
    placeholder: Placeholder,
    after: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    /// `${model}`: the whole name.
    Name,
    /// `${match}`: what the `*` of the alias stands for.
    Rest,
}

impl ModelTemplate {
    /// Reads a target. `None`: it has no placeholder. The error is a message.
    pub(super) fn parse(target: &str) -> Option<Result<ModelTemplate, &'static str>> {
        let (before, rest) = target.split_once("${")?;
        let template = || {
            let (name, after) = rest.split_once('}').ok_or("a `${` without `}`")?;
            let placeholder = match name {
                "model" => Placeholder::Name,
                "match" => Placeholder::Rest,
                _ => return Err("a target knows `${model}` and `${match}` only"),
            };
            if after.contains("${") {
                return Err("a target has one placeholder at most");
            }
            if !before.contains('/') {
                return Err("the provider of a target is written out");
            }
            Ok(ModelTemplate { before: before.into(), placeholder, after: after.into() })
        };
        Some(template())
    }

    /// The pattern of all targets that it can name.
    pub(super) fn pattern(&self) -> String {
        format!("{}*", self.before)
    }

    /// The name under an alias that begins like this which leads to a target, the inverse of
    /// [`ModelTemplate::fill`].
    pub(super) fn asked_for(&self, target: &str, beginning: &str) -> Option<String> {
        let chosen = target.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        Some(match self.placeholder {
            Placeholder::Name => chosen.to_owned(),
            Placeholder::Rest => [beginning, chosen].concat(),
        })
    }

    /// The target for a name, whose part `rest` the alias left open.
    pub(super) fn fill(&self, name: &str, rest: &str) -> String {
        let chosen = match self.placeholder {
            Placeholder::Name => name,
            Placeholder::Rest => rest,
        };
        [&self.before, chosen, &self.after].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_that_matches_is_found(
            patterns in proptest::collection::vec("[ab/]{0,4}", 0..8),
            name in "[ab/]{0,6}",
        ) {
            let found = Patterns::new(patterns.iter().map(|p| (format!("{p}*").into(), ())));
            let longest =
                patterns.iter().filter(|p| name.starts_with(&***p)).max_by_key(|p| p.len());
            let first = found.matching(&name).next();
            prop_assert_eq!(
                first.as_ref().map(|first| first.rest),
                longest.map(|p| &name[p.len()..])
            );
            prop_assert_eq!(first.map(|first| first.pattern.len()), longest.map(|p| p.len() + 1));
        }

        #[test]
        fn what_a_template_fills_is_asked_for_again(
            before in "p/[ab]{0,3}",
            after in "[ab]{0,3}",
            alias in "[ab]{0,3}",
            rest in "[ab]{0,4}",
        ) {
            let name = [alias.as_str(), &rest].concat();
            for word in ["model", "match"] {
                let written = format!("{before}${{{word}}}{after}");
                let template = ModelTemplate::parse(&written).unwrap().unwrap();
                let filled = template.fill(&name, &rest);
                prop_assert!(filled.starts_with(template.pattern().trim_end_matches('*')));
                prop_assert_eq!(template.asked_for(&filled, &alias), Some(name.clone()));
            }
        }
    }

    #[test]
    fn templates_say_what_is_wrong_with_them() {
        assert!(ModelTemplate::parse("p/plain").is_none());
        for wrong in ["p/${model", "p/${other}", "p/${model}${match}", "${model}", "${model}/x"] {
            assert!(ModelTemplate::parse(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}
