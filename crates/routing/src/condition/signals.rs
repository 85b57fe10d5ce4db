//! The signals as CEL variables: resolved when an expression names them, borrowed from the inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Items, Sizer};
use cel::common::types::{CelBool, CelInt, CelList, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use jiff::tz::TimeZone;

use super::kind::text_of;
use super::texts;
use crate::inputs::Inputs;

/// Names of all signals. `max_tokens` is 0 if the client set none. `hour` is the hour of
/// `inputs.at` in the document's time zone. Ids, `agent` and `language` are `""` if there is none.
/// `keywords` lists the sets with a hit. `user_message` and `system_prompt` can only be searched
/// with `matches`.
pub(super) const SIGNALS: [&str; 21] = [
    "model",
    "endpoint",
    "prompt_tokens",
    "messages",
    "max_tokens",
    "stream",
    "tools",
    "images",
    "audio",
    "json_output",
    "language",
    "keywords",
    "user_message",
    "system_prompt",
    "agent",
    "headers",
    "hour",
    "key.id",
    "key.labels",
    "user.id",
    "user.labels",
];

pub struct Signals<'a> {
    inputs: &'a Inputs,
    zone: &'a TimeZone,
}

impl<'a> Signals<'a> {
    /// The signals in `inputs`, with `hour` in `zone`.
    pub fn new(inputs: &'a Inputs, zone: &'a TimeZone) -> Self {
        Signals { inputs, zone }
    }

    /// The signals that an expression names, with their values as text. The texts of a request are
    /// not among them.
    pub(crate) fn named_in(&self, expression: &str) -> Vec<(&'static str, String)> {
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
        let words: Vec<&str> = expression.split(|letter| !is_word(letter)).collect();
        let is_named = |name: &&str| {
            let follows = |rest: &str| rest.is_empty() || rest.starts_with('.');
            words.iter().any(|word| word.strip_prefix(*name).is_some_and(follows))
        };
        let value = |name| Some((name, self.shown(name)?));
        SIGNALS.into_iter().filter(is_named).filter_map(value).collect()
    }

    fn shown(&self, name: &str) -> Option<String> {
        let (request, who) = (&self.inputs.request, &self.inputs.principal);
        let listed = |map: &BTreeMap<String, String>| {
            let pairs: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            pairs.join(", ")
        };
        Some(match name {
            "keywords" => {
                let hits = self.inputs.keywords.iter().filter(|(_, found)| found.hit);
                hits.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            }
            "headers" => listed(&request.headers),
            "key.labels" => listed(&who.labels),
            "user.labels" => listed(&who.user_labels),
            _ => text_of(self.resolve(name)?.as_ref())?,
        })
    }
}

fn number<'b>(value: u64) -> CowVal<'b, 'b> {
    CowVal::owned(CelInt::from(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn boolean<'b>(value: bool) -> CowVal<'b, 'b> {
    CowVal::owned(CelBool::from(value))
}

fn text(value: &str) -> CowVal<'_, '_> {
    CowVal::owned(CelString::from(value))
}

impl VariableResolver for Signals<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        let (request, who) = (&self.inputs.request, &self.inputs.principal);
        Some(match name {
            "model" => text(&request.model),
            "endpoint" => text(&request.endpoint),
            "prompt_tokens" => number(request.prompt_tokens),
            "messages" => number(request.messages),
            "max_tokens" => number(request.max_tokens.unwrap_or(0)),
            "stream" => boolean(request.stream),
            "tools" => number(request.tools),
            "images" => number(request.images),
            "audio" => number(request.audio),
            "json_output" => boolean(request.json_output),
            "language" => text(request.language.as_deref().unwrap_or("")),
            "keywords" => {
                let hits = self.inputs.keywords.iter().filter(|(_, found)| found.hit);
                let names: Vec<Box<dyn Val>> = hits
                    .map(|(name, _)| Box::new(CelString::from(name.as_str())) as Box<dyn Val>)
                    .collect();
                CowVal::owned(CelList::from(names))
            }
            "agent" => text(request.agent.as_ref().map_or("", |agent| &agent.name)),
            "headers" => CowVal::owned(TextMap::of(&request.headers)),
            "hour" => {
                number(u64::from(self.zone.to_datetime(self.inputs.at).hour().unsigned_abs()))
            }
            "key.id" => text(who.key.as_deref().unwrap_or("")),
            "key.labels" => CowVal::owned(TextMap::of(&who.labels)),
            "user.id" => text(who.user.as_deref().unwrap_or("")),
            "user.labels" => CowVal::owned(TextMap::of(&who.user_labels)),
            // The result of an unknown search is false, for example if the text was not kept.
            _ => {
                let (signal, pattern) = texts::search(name)?;
                let found = self.inputs.texts.get(signal);
                boolean(found.is_some_and(|found| found.matches.get(pattern) == Some(&true)))
            }
        })
    }
}

/// Labels or headers as a CEL map in name order. The crate's own map has hash order, which differs
/// between runs.
#[derive(Clone, Debug)]
struct TextMap<'a>(Vec<(CelString<'a>, CelString<'a>)>);

impl<'a> TextMap<'a> {
    fn of(map: &'a BTreeMap<String, String>) -> Self {
        TextMap(
            map.iter()
                .map(|(name, value)| {
                    (CelString::from(name.as_str()), CelString::from(value.as_str()))
                })
                .collect(),
        )
    }

    fn find(&self, key: &dyn Val) -> Option<&CelString<'a>> {
        let key = key.downcast_ref::<CelString>()?.inner();
        let at = self.0.binary_search_by(|(name, _)| name.inner().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    fn missing(key: &dyn Val) -> ExecutionError {
        match key.downcast_ref::<CelString>() {
            Some(key) => ExecutionError::NoSuchKey(Arc::new(key.inner().to_owned())),
            None => ExecutionError::UnexpectedType {
                got: key.get_type().name().to_owned(),
                want: "string".to_owned(),
            },
        }
    }
}

impl Val for TextMap<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }
}

impl Container for TextMap<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.find(key).is_some())
    }
}

impl Indexer for TextMap<'_> {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.find(key)
            .map(|value| CowVal::Borrowed(value as &dyn Val))
            .ok_or_else(|| TextMap::missing(key))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for TextMap<'_> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Items<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(TextMapKeys(self.0.iter()))
    }
}

impl Sizer for TextMap<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.0.len()).unwrap_or(i64::MAX))
    }
}

struct TextMapKeys<'b, 'a>(std::slice::Iter<'b, (CelString<'a>, CelString<'a>)>);

impl<'b, 'v, 'a: 'v> Items<'b, 'v> for TextMapKeys<'b, 'a> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|(name, _)| name as &(dyn Val + 'v))
    }
}
