//! From the document as written to the document as run. Every check within the document is here;
//! all problems are reported at once.

mod compiler;
mod keywords;
mod known;
mod providers;
mod recipes;
mod warnings;

use std::net::SocketAddr;
use std::sync::Arc;

use self::compiler::Compiler;
use super::compiled::{NameIndex, Recipe, Routing};
use super::document::{Findings, ModelSpec, RoutingSpec};
use super::name_patterns::{Patterns, beginning};
use super::request_head::header_of;
use super::target::translated;
use crate::bounds;

/// What a document is built with, besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct BuildContext<'a> {
    /// First 12 hex digits of the document's hash.
    pub revision: &'a str,
    /// The document as written.
    pub text: &'a str,
    /// Address of the in-process mock. Without it a mock provider is unreachable.
    pub mock: Option<SocketAddr>,
    /// Lower-case names of the headers that expressions may read.
    pub signal_headers: &'a [String],
}

impl Routing {
    /// Checks a spec and builds what runs.
    pub fn build(spec: RoutingSpec, origin: &BuildContext<'_>) -> Result<Routing, Findings> {
        let mut compiler = Compiler::new(origin, spec.warnings);
        compiler.without_price_list = spec.without_price_list;
        let zone = compiler.zone(spec.timezone.as_ref());
        compiler.limit(spec.providers.iter().map(|p| &p.name), bounds::PROVIDERS, "providers");
        compiler.limit(spec.models.iter().map(|m| &m.name), bounds::ROUTING_NAMES, "models");
        compiler.limit(spec.recipes.iter().map(|r| &r.name), bounds::ROUTING_NAMES, "recipes");
        compiler.limit(spec.aliases.iter().map(|(name, _)| name), bounds::ROUTING_NAMES, "aliases");
        // Collected first, so that a provider with a problem is not "unknown" as well.
        compiler.provider_names =
            spec.providers.iter().map(|provider| provider.name.value.clone()).collect();
        for provider in spec.providers {
            compiler.provider(provider);
        }
        let models: Vec<&ModelSpec> =
            spec.models.iter().filter(|model| compiler.model(model)).collect();
        compiler.sort_models();
        let keywords = compiler.keywords(&spec.keywords);
        let recipe_names: Vec<String> =
            spec.recipes.iter().map(|recipe| recipe.name.value.clone()).collect();
        let recipes: Vec<Arc<Recipe>> =
            spec.recipes.into_iter().map(|recipe| Arc::new(compiler.recipe(recipe))).collect();
        let recipe_index: NameIndex<Recipe> =
            recipes.iter().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect();
        let mut aliases = Vec::new();
        for (alias, recipe) in &spec.aliases {
            compiler.alias_name(alias);
            match recipe_index.get(recipe.value.as_str()) {
                Some(found) => aliases.push((Arc::from(alias.value.as_str()), Arc::clone(found))),
                None => compiler.unknown("recipe", recipe, &recipe_names),
            }
        }
        // After those of recipes: they are reachable by `provider/model` only.
        for model in models {
            compiler.hidden_pattern(&model.name, &aliases);
            compiler.target(&model.name);
        }
        let (true, Some(keywords)) = (compiler.faults.is_empty(), keywords) else {
            return Err(Findings { faults: compiler.faults, warnings: compiler.warnings });
        };
        let (patterns, exact): (Vec<_>, Vec<_>) =
            compiler.target_index.into_iter().partition(|(_, target)| target.is_pattern());
        let mut routing = Routing {
            translated: translated(compiler.targets.iter()),
            revision: origin.revision.into(),
            shown_revision: header_of(origin.revision),
            text: origin.text.into(),
            zone,
            signals: compiler.signals,
            keywords,
            content: compiler.content,
            providers: compiler.providers,
            targets: compiler.targets,
            target_index: exact.into_iter().collect(),
            target_patterns: Patterns::new(patterns),
            recipes,
            recipe_index,
            direct: "direct".into(),
            alias_index: aliases
                .iter()
                .filter(|(name, _)| beginning(name).is_none())
                .cloned()
                .collect(),
            alias_patterns: Patterns::new(aliases.iter().cloned()),
            aliases,
            known_names: Vec::new(),
            shipped: compiler.shipped,
            warnings: compiler.warnings,
        };
        routing.known_names = known::names(&routing);
        Ok(routing)
    }
}
