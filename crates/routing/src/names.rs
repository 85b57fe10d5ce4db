//! Resolves names: an exact alias first, then an exact `provider/model`, then the longest pattern.

use std::sync::Arc;

use super::compiled::{Recipe, Routing, Rule, WeightedTarget};
use super::name_patterns::{Matched, is_model_name};
use super::target::Target;
use rerouter_dialect::endpoint::Endpoint;

/// The alias or target that a name leads to.
pub(super) enum Destination<'r, 'n> {
    Alias {
        /// The alias as written.
        alias: &'r Arc<str>,
        recipe: &'r Arc<Recipe>,
        /// The part of the name that the `*` of the alias matches; the whole name if it has no `*`.
        rest: &'n str,
    },
    Target(&'r Arc<Target>),
    /// The name matches the pattern of this target.
    Pattern(&'r Arc<Target>),
}

impl Routing {
    /// Without patterns this takes two lookups at most.
    pub(super) fn destination<'r, 'n>(&'r self, name: &'n str) -> Option<Destination<'r, 'n>> {
        if let Some((alias, recipe)) = self.alias_index.get_key_value(name) {
            return Some(Destination::Alias { alias, recipe, rest: name });
        }
        if let Some(target) = self.target(name) {
            return Some(Destination::Target(target));
        }
        let alias = self.alias_patterns.matching(name).next();
        let target = self.direct_pattern(name);
        match (alias, target) {
            // If both patterns have the same text, the alias wins, as with exact names.
            (Some(alias), target)
                if target.is_none_or(|target| target.name.len() <= alias.pattern.len()) =>
            {
                let Matched { pattern, rest, to } = alias;
                Some(Destination::Alias { alias: pattern, recipe: to, rest })
            }
            (_, target) => target.map(Destination::Pattern),
        }
    }

    /// The longest pattern of `models` that matches `provider/model`.
    fn direct_pattern(&self, name: &str) -> Option<&Arc<Target>> {
        let (_, model) = name.split_once('/').filter(|(_, model)| is_model_name(model))?;
        let mut matching = self.target_patterns.matching(name).map(|found| found.to);
        matching.find(|target| target.is_direct && target.provider.base.takes(model))
    }

    /// The recipe behind an alias, or behind the pattern of aliases that a name leads to.
    pub fn alias(&self, name: &str) -> Option<&Arc<Recipe>> {
        match self.destination(name)? {
            Destination::Alias { recipe, .. } => Some(recipe),
            _ => None,
        }
    }

    /// Whether clients may ask for this name.
    pub fn is_askable(&self, name: &str) -> bool {
        self.destination(name).is_some()
    }

    /// Whether a request for this name may have to be translated.
    pub fn translates(&self, name: &str, endpoint: Endpoint) -> bool {
        self.translated.contains(&endpoint)
            && match self.destination(name) {
                Some(Destination::Alias { recipe, .. }) => recipe.translated.contains(&endpoint),
                Some(Destination::Target(target) | Destination::Pattern(target)) => {
                    target.is_translated(endpoint)
                }
                None => false,
            }
    }

    /// The alias or `provider/model` of the document that a name resolves to, as written; a pattern
    /// if no exact name matches. The number of different results is bounded by the document, not by
    /// the names that clients send.
    pub fn entry<'r>(&'r self, name: &'r str) -> Option<&'r str> {
        Some(match self.destination(name)? {
            Destination::Alias { alias, .. } => alias,
            Destination::Target(target) | Destination::Pattern(target) => &target.name,
        })
    }

    pub(crate) fn has_patterns(&self) -> bool {
        !(self.alias_patterns.is_empty() && self.target_patterns.is_empty())
    }

    /// The target with a name `provider/model` from a plan: an exact target, else one under the
    /// longest pattern.
    pub fn target_for(&self, name: &str) -> Option<Arc<Target>> {
        if let Some(target) = self.target(name) {
            return Some(Arc::clone(target));
        }
        let (_, model) = name.split_once('/').filter(|(_, model)| is_model_name(model))?;
        let found = self.target_patterns.matching(name).next()?;
        found.to.provider.base.takes(model).then(|| Arc::new(found.to.under(name, model)))
    }

    /// Whether a target or a pattern has exactly this name.
    pub fn has_target(&self, name: &str) -> bool {
        self.target(name).is_some() || self.target_patterns.has(name)
    }

    /// The model under which a target is counted: its pattern, if it is not named exactly.
    pub fn counted_as<'r>(&'r self, provider: &str, model: &'r str) -> &'r str {
        if self.target_patterns.is_empty() {
            return model;
        }
        let name = [provider, "/", model].concat();
        if self.target(&name).is_some() {
            return model;
        }
        self.target_patterns.matching(&name).next().map_or(model, |found| &found.to.model)
    }

    /// A rule's targets for a requested name. Targets without a valid name are left out, and so are
    /// duplicates of an earlier target.
    pub(super) fn choices_for(&self, rule: &Rule, name: &str, rest: &str) -> Vec<WeightedTarget> {
        let mut choices: Vec<WeightedTarget> = Vec::with_capacity(rule.choices.len());
        for choice in &rule.choices {
            let target = match &choice.template {
                None => Some(Arc::clone(&choice.target)),
                Some(template) => self.target_for(&template.fill(name, rest)),
            };
            let new = target
                .filter(|target| choices.iter().all(|before| before.target.name != target.name));
            let weight = choice.weight;
            choices.extend(new.map(|target| WeightedTarget { target, weight, template: None }));
        }
        choices
    }

    pub(super) fn shadow_for(&self, recipe: &Recipe, name: &str) -> Option<Arc<Target>> {
        let shadow = recipe.shadow.as_ref()?;
        let Some(template) = &shadow.template else { return Some(Arc::clone(&shadow.target)) };
        let Some(Destination::Alias { rest, .. }) = self.destination(name) else { return None };
        self.target_for(&template.fill(name, rest))
    }
}
