//! Models that a key may request, in OpenAI's or Anthropic's form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::page::{ListObject, object};

/// Limit on the models of a page in Anthropic's list. Its API has the same limit.
pub const MODELS_PAGE: usize = 1_000;

object!(ModelObject "model");
object!(ModelLifecycle "active");

/// A model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Model")]
pub enum ModelRecord {
    OpenAi {
        id: String,
        object: ModelObject,
        created: i64,
        owned_by: String,
    },
    /// With `anthropic-version`.
    Anthropic {
        #[serde(rename = "type")]
        kind: ModelObject,
        id: String,
        display_name: String,
        created_at: Time,
        lifecycle: ModelLifecycle,
    },
}

/// A list of models.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ModelList {
    OpenAi {
        object: ListObject,
        data: Vec<ModelRecord>,
    },
    /// With `anthropic-version`.
    Anthropic {
        data: Vec<ModelRecord>,
        has_more: bool,
        first_id: Option<String>,
        last_id: Option<String>,
    },
}

/// Query of the list; only with `anthropic-version`, otherwise the list is complete.
#[derive(JsonSchema)]
pub struct ModelQuery {
    /// With `anthropic-version`: maximum number of models of the page.
    #[schemars(range(min = 1, max = MODELS_PAGE))]
    pub limit: Option<usize>,
    /// With `anthropic-version`: models after this one.
    pub after_id: Option<String>,
    /// With `anthropic-version`: models before this one.
    pub before_id: Option<String>,
}
