//! Names that match patterns and that a list of models can show. They are names of models that the
//! document names exactly, and of models in the shipped price list.

use std::collections::HashSet;
use std::sync::Arc;

use crate::compiled::{Recipe, Routing};
use crate::name_patterns::beginning;
use crate::names::Destination;
use crate::price_list;

/// The known names under each pattern. Names under aliases come first, in document order and
/// without a provider. Names of targets follow, with their provider.
pub(super) fn names(routing: &Routing) -> Vec<(Arc<str>, Option<Arc<str>>)> {
    let known = models(routing);
    let mut seen: HashSet<String> = HashSet::new();
    let mut names = Vec::new();
    for (alias, recipe) in routing.aliases() {
        let Some(beginning) = beginning(alias) else { continue };
        let of_recipe = askable(&known, recipe, beginning);
        for name in of_recipe.into_iter().filter(|name| name.starts_with(beginning)) {
            let leads_here = matches!(
                routing.destination(&name),
                Some(Destination::Alias { alias: to, .. }) if &**to == alias
            );
            if leads_here && seen.insert(name.clone()) {
                names.push((name.into(), None));
            }
        }
    }
    for (provider, model) in known {
        let name = format!("{provider}/{model}");
        if matches!(routing.destination(&name), Some(Destination::Pattern(_))) {
            names.push((name.into(), Some(Arc::clone(provider))));
        }
    }
    names
}

/// Provider and model of the exact targets, then of each provider's part of the price list.
fn models(routing: &Routing) -> Vec<(&Arc<str>, &str)> {
    let exact = routing.targets().filter(|target| !target.is_pattern());
    let exact = exact.map(|target| (&target.provider.name, &*target.model));
    let listed = routing.providers.iter().flat_map(|provider| {
        price_list::models(provider.price_list).map(|model| (&provider.name, model))
    });
    exact.chain(listed).collect()
}

/// Requested names for which the recipe has a known target. If its targets do not depend on the
/// requested name, these are the names of all known models.
fn askable(known: &[(&Arc<str>, &str)], recipe: &Recipe, beginning: &str) -> Vec<String> {
    let templates = recipe.rules.iter().flat_map(|rule| &rule.choices);
    let templates: Vec<_> = templates.filter_map(|choice| choice.template.as_deref()).collect();
    if templates.is_empty() {
        return known.iter().map(|(_, model)| (*model).to_owned()).collect();
    }
    let asked = |(provider, model): &(&Arc<str>, &str)| -> Vec<String> {
        let name = format!("{provider}/{model}");
        templates.iter().filter_map(|template| template.asked_for(&name, beginning)).collect()
    };
    known.iter().flat_map(asked).collect()
}
