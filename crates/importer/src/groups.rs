//! The names that clients ask for, with their targets: first those of the name's own entries, then
//! those of its fallbacks.

use serde_json::Value;

use super::address::check_name;
use super::deployment::{DeploymentList, LitellmDeployment};
use super::notes::Notes;
use super::settings::{LitellmDefaults, group_aliases};
use rerouter_routing::{ATTEMPTS_MAX, WEIGHT_MAX};

/// The targets of one name.
#[derive(Debug)]
pub(super) struct ModelGroup {
    /// The name that clients ask for.
    pub(super) name: String,
    pub(super) recipe: String,
    pub(super) strategy: &'static str,
    /// Targets, with weights if the strategy uses them.
    pub(super) targets: Vec<(String, Option<f64>)>,
    /// Number of attempts in total; `None` for the default.
    pub(super) attempts: Option<usize>,
}

/// Default number of attempts in total.
const ATTEMPTS: usize = 3;

/// Makes a group for each name in the entries, in order.
pub(super) fn groups(
    list: &DeploymentList,
    defaults: &LitellmDefaults,
    notes: &mut Notes,
) -> Vec<ModelGroup> {
    let deployments = &list.deployments[..];
    let mut groups: Vec<ModelGroup> = Vec::new();
    for LitellmDeployment { name, .. } in deployments {
        if groups.iter().any(|group| group.name == *name) {
            continue;
        }
        let own = for_all(of_name(deployments, name), defaults, notes);
        let later = later(list, name, defaults, notes);
        let (strategy, weights) = strategy(&own, !later.is_empty(), defaults, notes);
        let mut targets: Vec<(String, Option<f64>)> = Vec::new();
        for (at, deployment) in own.iter().enumerate() {
            add(
                &mut targets,
                &deployment.target,
                weights.as_ref().and_then(|w| w.get(at).copied()),
            );
        }
        for target in &later {
            // A target with weight 0 is tried last.
            add(&mut targets, target, weights.as_ref().map(|_| 0.0));
        }
        let wanted = defaults
            .retries
            .map_or(ATTEMPTS, |retries| (retries.max(0.0) as usize).saturating_add(1));
        let attempts = wanted.max(targets.len()).min(ATTEMPTS_MAX);
        groups.push(ModelGroup {
            name: name.clone(),
            recipe: recipe(name, &groups),
            strategy,
            targets,
            attempts: (attempts != ATTEMPTS).then_some(attempts),
        });
    }
    groups
}

/// All names with their recipes: those of the groups, and their aliases.
pub(super) fn names(
    configuration: &Value,
    groups: &[ModelGroup],
    notes: &mut Notes,
) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> =
        groups.iter().map(|group| (group.name.clone(), group.recipe.clone())).collect();
    for (alias, to) in group_aliases(configuration) {
        let place = format!("router_settings.model_group_alias.{alias}");
        if let Err(why) = check_name(&alias) {
            notes.add(&place, why);
            continue;
        }
        match names.iter().find(|(name, _)| *name == to).map(|(_, recipe)| recipe.clone()) {
            _ if names.iter().any(|(name, _)| *name == alias) => {
                notes.add(&place, "a model has this name");
            }
            None => notes.add(&place, "leads to a name that was not carried"),
            Some(recipe) => names.push((alias, recipe)),
        }
    }
    names
}

fn of_name<'d>(deployments: &'d [LitellmDeployment], name: &str) -> Vec<&'d LitellmDeployment> {
    deployments.iter().filter(|deployment| deployment.name == name).collect()
}

/// The entries that serve requests without a tag, in order.
fn for_all<'d>(
    mut own: Vec<&'d LitellmDeployment>,
    defaults: &LitellmDefaults,
    notes: &mut Notes,
) -> Vec<&'d LitellmDeployment> {
    let is_default = |one: &&LitellmDeployment| one.tags.iter().any(|tag| tag == "default");
    if defaults.by_tags && own.iter().any(is_default) {
        for one in own.iter().filter(|one| !is_default(one)) {
            let place = format!("model_list ({}): {}", one.name, one.target);
            notes.add(&place, "left out, as only requests with its tags go there: write a rule");
        }
        own.retain(is_default);
    }
    // Entries without an order come last.
    own.sort_by(|a, b| a.order.unwrap_or(f64::MAX).total_cmp(&b.order.unwrap_or(f64::MAX)));
    own
}

/// Adds a target unless it is there already, as several entries may have it.
fn add(targets: &mut Vec<(String, Option<f64>)>, target: &str, weight: Option<f64>) {
    if targets.iter().all(|(known, _)| known != target) {
        targets.push((target.to_owned(), weight));
    }
}

/// The targets that a name falls back to, in order.
fn later(
    list: &DeploymentList,
    name: &str,
    defaults: &LitellmDefaults,
    notes: &mut Notes,
) -> Vec<String> {
    let of = |pairs: &[(String, Vec<String>)], name: &str| {
        let pairs = pairs.iter().filter(|(from, _)| from == name).flat_map(|(_, to)| to.clone());
        pairs.collect::<Vec<String>>()
    };
    let mut wanted = of(&defaults.fallbacks, name);
    if wanted.is_empty() {
        wanted = of(&defaults.fallbacks, "*");
    }
    wanted.extend(of(&defaults.context_fallbacks, name));
    wanted.extend(defaults.default_fallbacks.iter().filter(|to| *to != name).cloned());
    let mut targets = Vec::new();
    for to in wanted {
        let found = resolve(list, &to);
        if found.is_empty() {
            notes.add(&format!("fallbacks of {name}"), &format!("`{to}` was not carried"));
        }
        targets.extend(found);
    }
    targets
}

/// The targets of a name, found by an equal name, by the id of an entry, or by a pattern. A pattern
/// does not stand in for an entry that was left out: LiteLLM would not ask the pattern's provider.
fn resolve(list: &DeploymentList, name: &str) -> Vec<String> {
    let deployments = &list.deployments[..];
    let exact = deployments
        .iter()
        .filter(|deployment| deployment.name == name || deployment.id.as_deref() == Some(name));
    let exact: Vec<String> = exact.map(|deployment| deployment.target.clone()).collect();
    if !exact.is_empty() || list.left_out.iter().any(|left| left == name) {
        return exact;
    }
    let rest = |pattern: &str| name.strip_prefix(pattern.strip_suffix('*')?).map(str::len);
    let longest = deployments.iter().filter(|one| rest(&one.name).is_some());
    let longest = longest.max_by_key(|one| one.name.len()).map(|one| one.name.clone());
    let Some(pattern) = longest else { return Vec::new() };
    let rest = name.strip_prefix(pattern.trim_end_matches('*')).unwrap_or_default();
    let of_pattern = of_name(deployments, &pattern).into_iter();
    of_pattern.map(|one| one.target.replace("${match}", rest)).collect()
}

/// The strategy of a name, and the weights if the strategy uses them.
fn strategy(
    own: &[&LitellmDeployment],
    falls_back: bool,
    defaults: &LitellmDefaults,
    notes: &mut Notes,
) -> (&'static str, Option<Vec<f64>>) {
    let first = own.first().map(|one| one.target.as_str());
    if own.iter().all(|one| Some(one.target.as_str()) == first) {
        return ("priority", None);
    }
    if own.iter().any(|one| one.order.is_some()) {
        let mut others = own.iter().enumerate().map(|(at, one)| (one, own.iter().skip(at + 1)));
        if others.any(|(one, mut rest)| rest.any(|other| other.order == one.order)) {
            notes.add("order", "entries of one `order` are tried one after the other, not drawn");
        }
        return ("priority", None);
    }
    let place = "router_settings.routing_strategy";
    let wanted = match defaults.strategy.as_deref() {
        None | Some("simple-shuffle") => "weighted",
        Some("least-busy") => "least_busy",
        Some("latency-based-routing") => "least_latency",
        Some("cost-based-routing") => "cheapest",
        Some(_) => {
            notes.add(place, "has no counterpart: targets are drawn by weight");
            "weighted"
        }
    };
    if wanted != "weighted" && !falls_back {
        return (wanted, None);
    }
    if wanted != "weighted" {
        notes.add(
            place,
            "a rule has one strategy: names with several entries and fallbacks are drawn by weight",
        );
    }
    let by =
        (0..3).find(|at| own.iter().any(|one| one.shares.get(*at).is_some_and(Option::is_some)));
    let share = |one: &&LitellmDeployment| {
        let share = by.and_then(|by| one.shares.get(by).copied().flatten());
        share.unwrap_or(1.0).clamp(0.001, WEIGHT_MAX)
    };
    ("weighted", Some(own.iter().map(share).collect()))
}

/// A free name for the recipe, of letters, digits and `-_.`.
fn recipe(name: &str, groups: &[ModelGroup]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let mut base: String = name.chars().map(plain).take(40).collect();
    base = base.trim_matches('-').to_owned();
    if base.is_empty() || ["agent", "nodes", "direct"].contains(&base.as_str()) {
        base = "any".to_owned();
    }
    let is_free = |recipe: &String| groups.iter().all(|group| group.recipe != *recipe);
    let mut numbered = (2..).map(|n| format!("{base}-{n}"));
    Some(base.clone()).filter(is_free).or_else(|| numbered.find(is_free)).unwrap_or(base)
}
