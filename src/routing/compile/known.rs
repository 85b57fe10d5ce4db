//! The names under patterns that a list of models can show: those of models that the document
//! names exactly.

use std::collections::HashSet;
use std::sync::Arc;

use crate::routing::compiled::{Recipe, Routing};
use crate::routing::name_patterns::beginning;
use crate::routing::names::Destination;

/// The known names under each pattern of aliases, in document order.
pub(super) fn names(routing: &Routing) -> Vec<(Arc<str>, Option<Arc<str>>)> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut names = Vec::new();
    for (alias, recipe) in routing.aliases() {
        let Some(beginning) = beginning(alias) else { continue };
        let of_recipe = askable(routing, recipe, beginning);
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
    names
}

/// Names for which the recipe has a known target. If its targets do not depend on the name, these
/// are the names of all known models.
fn askable(routing: &Routing, recipe: &Recipe, beginning: &str) -> Vec<String> {
    let templates = recipe.rules().iter().flat_map(|rule| rule.choices());
    let templates: Vec<_> = templates.filter_map(|choice| choice.template.as_deref()).collect();
    let known = || routing.targets().filter(|target| !target.is_pattern());
    if templates.is_empty() {
        return known().map(|target| target.model.to_string()).collect();
    }
    let asked = |name: &str| -> Vec<String> {
        templates.iter().filter_map(|template| template.asked_for(name, beginning)).collect()
    };
    known().flat_map(|target| asked(&target.name)).collect()
}
