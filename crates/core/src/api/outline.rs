//! The ways through a routing document: aliases, recipes, rules and targets, with names resolved.

use serde_json::{Value, json};

use rerouter_routing::{Routing, Rule, WeightedTarget};

/// The document as a graph, in document order. Targets have the names that usage counts them by.
pub(super) fn outline(routing: &Routing) -> Value {
    let aliases =
        routing.aliases().map(|(name, recipe)| json!({ "name": name, "recipe": recipe.name() }));
    let aliases: Vec<Value> = aliases.collect();
    let recipes = routing.recipes().iter().map(|recipe| {
        let shadow = recipe.shadow().map(
            |shadow| json!({ "target": &*shadow.target.entry().name, "percent": shadow.percent }),
        );
        let rules: Vec<Value> = recipe.rules().iter().map(rule).collect();
        json!({ "name": recipe.name(), "rules": rules, "shadow": shadow })
    });
    let recipes: Vec<Value> = recipes.collect();
    json!({ "aliases": aliases, "recipes": recipes })
}

fn rule(rule: &Rule) -> Value {
    let target = |choice: &WeightedTarget| {
        let name = &*choice.target().entry().name;
        json!({ "target": name, "weight": choice.weight() })
    };
    json!({
        "name": rule.name(), "when": rule.when().map(|when| when.text()),
        "strategy": rule.strategy().as_str(),
        "targets": rule.choices().iter().map(target).collect::<Vec<Value>>(),
    })
}
