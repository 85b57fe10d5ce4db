//! Options that become members of a JSON body: limits, pairs, merge patches.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::{Map, Value};

use super::failure::{CommandFailure, Result};
use rerouter_base::money::nano_usd;
use rerouter_records::{ByCount, COUNTS, Limits};
use rerouter_store::{Budget, Per};

/// Reads an option whose values are the words of an enumeration.
macro_rules! word {
    ($of:ty) => {
        clap::builder::TypedValueParser::try_map(
            clap::builder::PossibleValuesParser::new(<$of>::ALL.map(<$of>::as_str)),
            |word: String| <$of>::parse(&word).ok_or("unknown"),
        )
    };
}
pub(super) use word;

/// Limits of a key or a user.
#[derive(Args)]
pub(super) struct LimitArguments {
    #[command(flatten)]
    counts: CountArguments,
    /// US dollars a day or a month, for example 5/day or 100/month.
    #[arg(long, value_name = "USD/PERIOD", value_parser = budget, allow_hyphen_values = true,
        help_heading = LIMITS)]
    budget: Option<Budget>,
    /// Name that may be asked for; a trailing `*` matches the rest. Repeatable. Default: all.
    #[arg(long = "model", value_name = "NAME", help_heading = LIMITS)]
    models: Vec<String>,
}

const LIMITS: &str = "Limits";

/// An option for each limit on requests or tokens.
struct CountArguments(ByCount<u64>);

impl Args for CountArguments {
    fn augment_args(command: Command) -> Command {
        command.args(COUNTS.iter().map(|kind| {
            Arg::new(kind.name)
                .long(kind.name)
                .value_name("COUNT")
                .value_parser(value_parser!(u64))
                .help(kind.label)
                .help_heading(LIMITS)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CountArguments {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(CountArguments(COUNTS.each_ref().map(|kind| found.get_one(kind.name).copied())))
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(found)?;
        Ok(())
    }
}

impl LimitArguments {
    /// The limits, if one is given.
    pub(super) fn given(self) -> Option<Limits> {
        let models = Some(self.models).filter(|models| !models.is_empty());
        let mut limits = Limits { budget: self.budget, models, ..Limits::default() };
        limits.set_counts(self.counts.0);
        Some(limits).filter(|limits| *limits != Limits::default())
    }
}

fn budget(text: &str) -> Result<Budget, String> {
    let wrong = || "has to be dollars a day or a month, for example 5/day".to_owned();
    let (usd, per) = text.split_once('/').ok_or_else(wrong)?;
    let usd: f64 = usd.trim_start_matches('$').parse().map_err(|_| wrong())?;
    if !usd.is_finite() || usd < 0.0 {
        return Err(wrong());
    }
    Ok(Budget { nano: nano_usd(usd), per: Per::parse(per).ok_or_else(wrong)? })
}

/// A number of records, at least 1.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "has to be a number from 1".to_owned())
}

/// `name=value`, as one member of an object.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("has to be name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn pairs(given: Vec<(String, String)>) -> Option<BTreeMap<String, String>> {
    (!given.is_empty()).then(|| given.into_iter().collect())
}

/// A JSON object, for `--patch`.
pub(super) fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|_| "has to be a JSON object".to_owned())
}

/// A body of those members that are not null, over the members of `patch`. Objects are merged.
pub(super) fn body(patch: Option<Map<String, Value>>, members: Value) -> Map<String, Value> {
    let mut body = patch.unwrap_or_default();
    let Value::Object(members) = members else { return body };
    for (name, value) in members.into_iter().filter(|(_, value)| !value.is_null()) {
        match (body.get_mut(&name), value) {
            (Some(Value::Object(given)), Value::Object(value)) => given.extend(value),
            (_, value) => _ = body.insert(name, value),
        }
    }
    body
}

/// Fails with a usage error if it is empty.
pub(super) fn some_change(body: Map<String, Value>) -> Result<Map<String, Value>> {
    match body.is_empty() {
        true => Err(CommandFailure::Usage("nothing to change: see --help".to_owned())),
        false => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_merged_into_a_patch() {
        let patch = json_object(r#"{"limits":{"rpm":null},"name":"a"}"#).unwrap();
        let members = json!({"limits": {"tpm": 2}, "name": "b", "expires_at": null});
        let merged = Value::Object(body(Some(patch), members));
        assert_eq!(merged, json!({"limits": {"rpm": null, "tpm": 2}, "name": "b"}));
    }
}
