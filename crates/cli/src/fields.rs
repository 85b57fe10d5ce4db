//! Options that become members of a JSON body: limits, pairs, merge patches.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::{Map, Value, json};

use super::failure::CommandFailure;
use rerouter_records::{ByCount, COUNTS};

/// Limits of a key or a user.
#[derive(Args)]
pub(super) struct LimitArguments {
    #[command(flatten)]
    counts: CountArguments,
    /// US dollars a day or a month, for example 5/day or 100/month.
    #[arg(long, value_name = "USD/PERIOD", value_parser = budget, allow_hyphen_values = true,
        help_heading = LIMITS)]
    budget: Option<Value>,
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
                .help(kind.label())
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
    /// The member `limits`, if one is given.
    pub(super) fn member(&self) -> Option<Value> {
        let mut limits = Map::new();
        for (kind, count) in COUNTS.iter().zip(self.counts.0) {
            limits.extend(count.map(|count| (kind.name.to_owned(), count.into())));
        }
        limits.extend(self.budget.clone().map(|budget| ("budget".to_owned(), budget)));
        if !self.models.is_empty() {
            limits.insert("models".to_owned(), json!(self.models));
        }
        (!limits.is_empty()).then_some(Value::Object(limits))
    }
}

fn budget(text: &str) -> Result<Value, String> {
    let wrong = || "has to be dollars a day or a month, for example 5/day".to_owned();
    let (usd, per) = text.split_once('/').ok_or_else(wrong)?;
    let usd: f64 = usd.trim_start_matches('$').parse().map_err(|_| wrong())?;
    if !usd.is_finite() || usd < 0.0 || !["day", "month"].contains(&per) {
        return Err(wrong());
    }
    Ok(json!({ "usd": usd, "per": per }))
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

/// The object of these pairs, if there are any.
pub(super) fn object(pairs: &[(String, String)]) -> Option<Value> {
    let object: Map<String, Value> =
        pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    (!object.is_empty()).then_some(Value::Object(object))
}

/// A JSON object, for `--patch`.
pub(super) fn json_object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err("has to be a JSON object".to_owned()),
    }
}

/// A body of the members that are given, over those of `patch`.
pub(super) fn body(
    patch: Option<Value>,
    members: impl IntoIterator<Item = (&'static str, Option<Value>)>,
) -> Value {
    let mut body = match patch {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    for (name, value) in members {
        body.extend(value.map(|value| (name.to_owned(), value)));
    }
    Value::Object(body)
}

/// A patch that changes something.
pub(super) fn some_change(body: Value) -> Result<Value, CommandFailure> {
    match body.as_object().is_some_and(Map::is_empty) {
        true => Err(CommandFailure::Usage("nothing to change: see --help".to_owned())),
        false => Ok(body),
    }
}
