//! The routing document.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::page::object;

object!(ConfigObject "config");
object!(RevisionObject "revision");

rerouter_base::words! {
    /// Where the live document comes from.
    pub enum ConfigSource {
        File = "file",
        Store = "store",
        BuiltIn = "built_in",
    }
}

/// The live routing document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Config {
    pub object: ConfigObject,
    pub revision: String,
    pub live_since: Time,
    pub source: ConfigSource,
    pub file: Option<String>,
    /// As written, `${…}` unexpanded; as JSON without them if it holds literal credentials.
    pub document: String,
    pub outline: Outline,
}

/// The ways through the document, in its order, with names resolved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct Outline {
    pub aliases: Vec<OutlinedAlias>,
    pub recipes: Vec<OutlinedRecipe>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct OutlinedAlias {
    pub name: String,
    pub recipe: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct OutlinedRecipe {
    pub name: String,
    pub rules: Vec<OutlinedRule>,
    pub shadow: Option<OutlinedShadow>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct OutlinedRule {
    pub name: String,
    /// The condition as written; null: always.
    pub when: Option<String>,
    pub strategy: String,
    pub targets: Vec<OutlinedTarget>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct OutlinedTarget {
    /// `provider/model`, or the pattern by which it is counted.
    pub target: String,
    pub weight: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct OutlinedShadow {
    pub target: String,
    pub percent: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem", deny_unknown_fields)]
pub struct ProblemRecord {
    pub path: String,
    #[schemars(range(min = 1))]
    pub line: usize,
    #[schemars(range(min = 1))]
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

/// What is wrong with a document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Validation {
    pub valid: bool,
    pub problems: Vec<ProblemRecord>,
    /// Valid settings that are most likely unintended.
    pub warnings: Vec<ProblemRecord>,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ConfigTaken {
    pub revision: String,
    pub previous: String,
    pub warnings: Vec<String>,
}

/// A document that was live, in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Revision", deny_unknown_fields, inline)]
pub struct ListedRevision {
    pub object: RevisionObject,
    pub id: String,
    pub revision: String,
    pub created_at: Time,
    pub live_at: Time,
    pub live: bool,
}

/// A document that was live.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Revision", deny_unknown_fields)]
pub struct RevisionRecord {
    pub object: RevisionObject,
    pub id: String,
    pub revision: String,
    pub live: bool,
    /// As written, `${…}` unexpanded; as JSON without them if it holds literal credentials.
    pub document: String,
}

/// A routing document in JSON or YAML. It may hold credentials as `${NAME}` only.
#[derive(JsonSchema)]
pub struct RoutingDocument {}

/// The conditions of a change of the document.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateQuery {
    /// Evaluates the change on the captures of the last 24 hours first: at most this share may get
    /// another target. A percentage like `2%` or a fraction like `0.02`.
    #[serde(default)]
    #[schemars(schema_with = "share", skip_serializing_if = "Option::is_none")]
    pub max_changed: Option<String>,
    /// Refuse the change if a request of the last 24 hours would lose its last target.
    #[serde(default)]
    pub forbid_unroutable: bool,
    /// At most this share of the requests of the last 24 hours may lose their last target.
    #[serde(default)]
    #[schemars(schema_with = "share", skip_serializing_if = "Option::is_none")]
    pub max_unroutable: Option<String>,
    /// Accept the change if there are no captures to evaluate it on.
    #[serde(default)]
    pub allow_empty: bool,
}

fn share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "number", "minimum": 0, "maximum": 1 }, { "pattern": "^[0-9.]+%$" },
    ] })
}
