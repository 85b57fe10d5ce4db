//! The outline of a routing document: aliases, recipes, rules and targets, with names resolved.

use rerouter_records::routing::{
    Outline, OutlinedAlias, OutlinedRecipe, OutlinedRule, OutlinedShadow, OutlinedTarget,
};
use rerouter_routing::{Routing, Rule, WeightedTarget};

/// The document as a graph, in document order. Targets have the names under which usage counts
/// them.
pub(super) fn outline(routing: &Routing) -> Outline {
    let aliases = routing.aliases().map(|(name, recipe)| OutlinedAlias {
        name: name.to_owned(),
        recipe: recipe.name().to_owned(),
    });
    let recipes = routing.recipes.iter().map(|recipe| OutlinedRecipe {
        name: recipe.name().to_owned(),
        rules: recipe.rules.iter().map(rule).collect(),
        shadow: recipe.shadow.as_ref().map(|shadow| OutlinedShadow {
            target: shadow.target.entry().name.to_string(),
            percent: shadow.percent,
        }),
    });
    Outline { aliases: aliases.collect(), recipes: recipes.collect() }
}

fn rule(rule: &Rule) -> OutlinedRule {
    let target = |choice: &WeightedTarget| OutlinedTarget {
        target: choice.target.entry().name.to_string(),
        weight: choice.weight,
    };
    OutlinedRule {
        name: rule.name().to_owned(),
        when: rule.when.as_ref().map(|when| when.text().to_owned()),
        strategy: rule.strategy.as_str().to_owned(),
        targets: rule.choices.iter().map(target).collect(),
    }
}
