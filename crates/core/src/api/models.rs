//! The models that a key may request, in OpenAI's format, or in Anthropic's for clients that send
//! `anthropic-version`: aliases in document order, agents by name, `provider/model` in document
//! order, then known names under patterns. Unknown parameters are ignored, as by providers.
//! OpenAI's list has no pages; Anthropic's supports `limit`, `after_id` and `before_id`.

use std::borrow::Cow;

use jiff::Timestamp;

use super::call::Answer;
use super::page;
use super::route::{ApiRequest, ApiResult, PathParams};
use crate::app::{App, Live};
use crate::prompt::{AGENT_PREFIX, may_call};
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_records::model::{MODELS_PAGE, ModelLifecycle, ModelList, ModelObject, ModelRecord};
use rerouter_records::page::ListObject;
use rerouter_routing::RoutingRefusal;

/// `owned_by` of aliases and agents.
const OURS: &str = "rerouter";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Model<'a> {
    id: Cow<'a, str>,
    owner: &'a str,
    since: Timestamp,
}

pub(super) async fn list(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let live = app.live();
    let models = known(app, &live, who);
    let body = if wants_anthropic(request) {
        let (shown, has_more) = cut(&models, request.uri().query())?;
        ModelList::Anthropic {
            data: shown.iter().map(anthropic).collect(),
            has_more,
            first_id: shown.first().map(|model| model.id.to_string()),
            last_id: shown.last().map(|model| model.id.to_string()),
        }
    } else {
        ModelList::OpenAi { object: ListObject::It, data: models.iter().map(openai).collect() }
    };
    Answer::from(&body).respond(200)
}

/// `GET /v1/models/{id}`; slashes may be written as `%2F`.
pub(super) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let written = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let id = page::decode_path(written)
        .ok_or_else(|| Error::invalid("model", "The model name is not validly percent-encoded."))?;
    let live = app.live();
    let models = known(app, &live, who);
    let found = models.into_iter().find(|model| model.id == id);
    let found = found.or_else(|| under_pattern(&live, who, &id));
    let model =
        found.ok_or_else(|| Error::from(RoutingRefusal::ModelNotFound { model: id.clone() }))?;
    let body = if wants_anthropic(request) { anthropic(&model) } else { openai(&model) };
    Answer::from(&body).respond(200)
}

/// The models that the caller may request, without duplicates: an alias hides a direct name.
fn known<'a>(app: &App, live: &'a Live, who: &Principal) -> Vec<Model<'a>> {
    let (routing, since) = (&live.routing, live.since);
    let is_exact = |name: &str| !name.ends_with('*');
    let aliases = routing.aliases().filter(|(id, _)| is_exact(id));
    let aliases = aliases.map(|(id, _)| Model { id: id.into(), owner: OURS, since });
    let agents = app
        .auth
        .agents()
        .by_name()
        .into_iter()
        .filter(|agent| may_call(app, agent) && routing.alias(&agent.model).is_some());
    let agents = agents.map(|agent| Model {
        id: [AGENT_PREFIX, &agent.name].concat().into(),
        owner: OURS,
        since: agent.created_at,
    });
    let direct = routing.targets().filter(|target| is_exact(&target.name)).map(|target| Model {
        id: (*target.name).into(),
        owner: &target.provider.name,
        since,
    });
    let direct = direct.filter(|model| routing.alias(&model.id).is_none());
    let known = routing.known_names().map(|(id, owner)| Model {
        id: id.into(),
        owner: owner.unwrap_or(OURS),
        since,
    });
    let all = aliases.chain(agents).chain(direct).chain(known);
    all.filter(|model| who.allows_model(&model.id)).collect()
}

/// A name that a pattern matches. Only a request shows whether the provider has the model.
fn under_pattern<'a>(live: &'a Live, who: &Principal, id: &'a str) -> Option<Model<'a>> {
    let entry = live.routing.entry(id).filter(|_| who.allows_model(id))?;
    let provider = entry.split_once('/').map(|(provider, _)| provider);
    let is_alias = live.routing.alias(id).is_some();
    let owner = provider.filter(|_| !is_alias).unwrap_or(OURS);
    Some(Model { id: id.into(), owner, since: live.since })
}

fn wants_anthropic(request: &ApiRequest) -> bool {
    request.headers().contains_key("anthropic-version")
}

fn openai(model: &Model<'_>) -> ModelRecord {
    ModelRecord::OpenAi {
        id: model.id.to_string(),
        object: ModelObject::It,
        created: model.since.as_second(),
        owned_by: model.owner.to_owned(),
    }
}

fn anthropic(model: &Model<'_>) -> ModelRecord {
    ModelRecord::Anthropic {
        kind: ModelObject::It,
        id: model.id.to_string(),
        display_name: model.id.to_string(),
        created_at: model.since.into(),
        // Listed models are always active.
        lifecycle: ModelLifecycle::It,
    }
}

/// A page of Anthropic's list, and whether more models follow. Without `limit`: all models.
fn cut<'a, 'b>(models: &'a [Model<'b>], query: Option<&str>) -> Result<(&'a [Model<'b>], bool)> {
    let place = |name: &str| {
        let at = |id: &str| models.iter().position(|model| model.id == id);
        let id = page::parameter(query, name);
        page::value(name, id.as_deref(), "the id of a model of this list", at)
    };
    let (after, before) = (place("after_id")?, place("before_id")?);
    if after.is_some() && before.is_some() {
        return Err(Error::invalid("before_id", "after_id and before_id are mutually exclusive."));
    }
    let rest = models
        .get(after.map_or(0, |at| at + 1)..before.unwrap_or(models.len()))
        .unwrap_or_default();
    let Some(limit) = page::parameter(query, "limit") else { return Ok((rest, false)) };
    match limit.parse::<usize>() {
        Ok(limit) if (1..=MODELS_PAGE).contains(&limit) => {
            let more = rest.len().saturating_sub(limit);
            // With `before_id` the page ends before that model.
            let shown =
                if before.is_some() { rest.get(more..) } else { rest.get(..rest.len() - more) };
            Ok((shown.unwrap_or_default(), more > 0))
        }
        _ => Err(Error::invalid("limit", format!("limit must be 1 to {}.", MODELS_PAGE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 4] = ["auto", "fast", "demo/echo", "demo/b c+d"];

    fn page(query: &str) -> Result<(Vec<&'static str>, bool)> {
        let models =
            NAMES.map(|id| Model { id: id.into(), owner: OURS, since: Timestamp::UNIX_EPOCH });
        let place = |model: &Model<'_>| NAMES.into_iter().find(|name| *name == model.id).unwrap();
        cut(&models, Some(query)).map(|(shown, more)| (shown.iter().map(place).collect(), more))
    }

    #[test]
    fn anthropic_s_pages_follow_each_other() {
        assert_eq!(page("").unwrap(), (NAMES.to_vec(), false));
        assert_eq!(page("limit=4&colour=red").unwrap(), (NAMES.to_vec(), false));
        assert_eq!(page("limit=2").unwrap(), (vec!["auto", "fast"], true));
        assert_eq!(
            page("limit=2&after_id=fast").unwrap(),
            (vec!["demo/echo", "demo/b c+d"], false)
        );
        assert_eq!(page("after_id=demo%2Fecho").unwrap(), (vec!["demo/b c+d"], false));
        assert_eq!(page("after_id=demo/b+c%2Bd").unwrap(), (vec![], false));
        assert_eq!(
            page("limit=2&before_id=demo/b+c%2Bd").unwrap(),
            (vec!["fast", "demo/echo"], true)
        );
        assert_eq!(page("limit=2&before_id=fast").unwrap(), (vec!["auto"], false));
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=x", "limit"),
            ("limit=", "limit"),
            ("after_id=no", "after_id"),
            ("before_id=no", "before_id"),
            ("after_id=auto&before_id=fast", "before_id"),
        ] {
            assert_eq!(page(query).unwrap_err().field(), Some(field), "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_query_gives_a_part_or_a_refusal(query in "(limit|after_id|before_id|x|&|=|%|\
            [0-9a-f]|auto){0,12}") {
            if let Ok((shown, _)) = page(&query) {
                prop_assert!(
                    NAMES.ends_with(&shown) || NAMES.windows(shown.len().max(1)).any(
                        |part| part == shown
                    )
                );
            }
        }
    }
}
