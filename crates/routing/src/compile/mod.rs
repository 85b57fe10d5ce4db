//! Compiles the routing document as written into the document as run. Every check within the
//! document is here; all problems are reported at once.

mod compiler;
mod keywords;
mod known;
mod providers;
mod recipes;
mod warnings;

use std::sync::Arc;

use self::compiler::Compiler;
pub use self::keywords::KEYWORD_SETS;
pub use self::recipes::WEIGHT_MAX;
use super::compiled::{Recipe, Routing};
use super::document::{Findings, ModelSpec, RoutingSpec};
use rerouter_document::Finding;

/// Maximum number of providers of a routing document.
pub const PROVIDERS: usize = 256;
/// Maximum number of models, of recipes and of aliases of a routing document.
const ROUTING_NAMES: usize = 10_000;

pub use self::compiler::BuildContext;

impl Routing {
    /// `warnings` are those found when the spec was read.
    pub fn build(
        spec: RoutingSpec,
        warnings: Vec<Finding>,
        origin: &BuildContext<'_>,
    ) -> Result<Routing, Findings> {
        let mut compiler = Compiler::new(origin, warnings);
        compiler.without_price_list = !spec.prices;
        let zone = compiler.zone(spec.timezone.as_ref());
        compiler.limit(spec.providers.iter().map(|p| &p.name), PROVIDERS, "providers");
        compiler.limit(spec.models.iter().map(|m| &m.name), ROUTING_NAMES, "models");
        compiler.limit(spec.recipes.iter().map(|r| &r.name), ROUTING_NAMES, "recipes");
        compiler.limit(spec.aliases.iter().map(|(name, _)| name), ROUTING_NAMES, "aliases");
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
        let recipes: Vec<Arc<Recipe>> =
            spec.recipes.into_iter().map(|recipe| Arc::new(compiler.recipe(recipe))).collect();
        let aliases = compiler.aliases(&spec.aliases, &recipes);
        // These targets come after those of recipes. They are reachable by `provider/model` only.
        for model in models {
            compiler.hidden_pattern(&model.name, &aliases);
            compiler.target(&model.name);
        }
        let (true, Some(keywords)) = (compiler.faults.is_empty(), keywords) else {
            return Err(Findings { faults: compiler.faults, warnings: compiler.warnings });
        };
        let mut routing = compiler.finish(zone, keywords, recipes, aliases);
        routing.known_names = known::names(&routing);
        Ok(routing)
    }
}
