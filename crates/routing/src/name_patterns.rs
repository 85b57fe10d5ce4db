//! Patterns of names. A pattern is a prefix and `*`, which matches any text. Two patterns that
//! match the same name differ in length, so they never tie. A template forms the name of a target
//! from the requested name.

use std::sync::Arc;

/// Maximum length of an alias or of a provider's model name, in bytes.
pub const MODEL_NAME_BYTES: usize = 256;

/// The text before the `*` of a pattern; `None` for a plain name.
pub(super) fn beginning(name: &str) -> Option<&str> {
    name.strip_suffix('*')
}

/// Whether the name fits a header value and a metric label.
pub(super) fn is_model_name(name: &str) -> bool {
    (1..=MODEL_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

/// Patterns of a document and the items that they lead to, longest pattern first.
#[derive(Debug)]
pub(super) struct Patterns<T>(Vec<(Arc<str>, T)>);

impl<T> Patterns<T> {
    /// Collects the names that end in `*`. Other names are left out.
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

    /// Whether a pattern has exactly this text, `*` included.
    pub(super) fn has(&self, written: &str) -> bool {
        self.0.iter().any(|(pattern, _)| &**pattern == written)
    }
}

pub(super) struct Matched<'p, 'n, T> {
    pub(super) pattern: &'p Arc<str>,
    /// The part of the name that the `*` matches.
    pub(super) rest: &'n str,
    pub(super) to: &'p T,
}

/// Name of a target whose model depends on the requested name: text around one placeholder.
#[derive(Debug)]
pub(super) struct ModelTemplate {
    /// Text before the placeholder; it includes the provider.
    before: Box<str>,
    placeholder: Placeholder,
    after: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    /// `${model}`: the whole requested name.
    Name,
    /// `${match}`: the part of the name that the `*` of the alias matches.
    Rest,
}

impl ModelTemplate {
    /// Parses a target such as `openai/${model}`. `None` if it has no placeholder. The error is a
    /// message.
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

    /// The requested name that leads to `target` by an alias with this beginning: the inverse of
    /// [`ModelTemplate::fill`].
    pub(super) fn asked_for(&self, target: &str, beginning: &str) -> Option<String> {
        let chosen = target.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        Some(match self.placeholder {
            Placeholder::Name => chosen.to_owned(),
            Placeholder::Rest => [beginning, chosen].concat(),
        })
    }

    /// The target for a requested name. `rest` is the part that the `*` of the alias matches.
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
