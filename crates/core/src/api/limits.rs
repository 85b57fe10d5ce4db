//! Reads and checks the `limits` of keys and users.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::limits::{self, LimitPermit};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Interface;
use rerouter_base::money::nano_usd;
use rerouter_store::{KEYS_PER_OWNER, LIMIT_MODELS, Limits};

/// Characters of a pattern of `limits.models`.
const LIMIT_MODEL_CHARS: usize = 256;
/// Largest `limits.rpm`: more than one gateway answers in a minute.
const LIMIT_RPM: u64 = 100_000_000;
/// Largest `limits.tpm`: in the unit of its bucket (a minute's microseconds a token) it fits 63
/// bits twice.
const LIMIT_TPM: u64 = 10_000_000_000;
/// Largest `limits.concurrency`: beyond the connections of any gateway.
const LIMIT_CONCURRENCY: u64 = 1_000_000;
/// Largest `limits.budget.usd`: sums of it in billionths stay far within 64 bits.
const LIMIT_USD: f64 = 100_000_000.0;

/// Counts a call on the limits of the caller: deciding and evaluating cost work, so a call counts
/// as one request per minute, and as a concurrent one until it ends. 429 if a limit is reached.
pub fn draw(app: &App, who: &Principal) -> Result<CountedCall> {
    let draws = limits::draws(&app.auth, who);
    let admitted = app.limits.admit(&draws, 0, app.clock.now());
    admitted.map(|permit| CountedCall(Some(permit))).map_err(|refused| refused.error)
}

/// A counted call; the concurrent request ends when it is dropped.
pub struct CountedCall(Option<LimitPermit>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.settle(Some(0), Some(0));
        }
    }
}

/// Reads limits; null counts as absent. Limits that the interface does not count are refused.
pub(super) fn read(interface: Interface, asked: Map<String, Value>) -> Result<Limits> {
    let mut limits = Limits::default();
    for (name, value) in asked {
        let field = format!("limits.{name}");
        if value.is_null() {
            continue;
        }
        if interface != Interface::Router
            && matches!(name.as_str(), "rpm" | "tpm" | "concurrency" | "budget")
        {
            return Err(Error::invalid(
                field,
                format!("The limit {name} applies to ROUTER keys only."),
            ));
        }
        match name.as_str() {
            "models" => limits.models = Some(models(value)?),
            "rpm" => limits.rpm = Some(count(field, value, LIMIT_RPM)?),
            "tpm" => limits.tpm = Some(count(field, value, LIMIT_TPM)?),
            "concurrency" => limits.concurrency = Some(count(field, value, LIMIT_CONCURRENCY)?),
            "keys_per_user" => {
                limits.keys_per_user = Some(count(field, value, KEYS_PER_OWNER as u64)?)
            }
            "budget" => {
                limits.budget = Some(parse(&value).filter(within_bounds).ok_or_else(bad_budget)?)
            }
            _ => return Err(Error::invalid(field, format!("Unknown limit {name}."))),
        }
    }
    Ok(limits)
}

/// The limits of a key that another creates: those of its creator by default, never wider.
pub(super) fn narrow(mut limits: Limits, outer: Option<&Limits>) -> Result<Limits> {
    let Some(outer) = outer else {
        return Ok(limits);
    };
    limits.inherit(outer);
    match limits.beyond(outer) {
        None => Ok(limits),
        Some(name) => Err(Error::new(
            Kind::Forbidden,
            format!("The limit {name} may not be wider than that of the creator."),
        )
        .at(format!("limits.{name}"))),
    }
}

fn count(field: String, value: Value, most: u64) -> Result<u64> {
    let refused = || {
        Error::invalid(field.clone(), format!("{field} must be a whole number from 1 to {most}."))
    };
    value.as_u64().filter(|count| (1..=most).contains(count)).ok_or_else(refused)
}

fn parse<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

fn within_bounds(budget: &rerouter_store::Budget) -> bool {
    (1..=nano_usd(LIMIT_USD)).contains(&budget.nano)
}

fn bad_budget() -> Error {
    let most = LIMIT_USD;
    Error::invalid(
        "limits.budget",
        format!(
            "limits.budget must be {{\"usd\": more than 0 and up to {most}, \"per\": \"day\" or \
             \"month\"}} and nothing else."
        ),
    )
}

fn models(value: Value) -> Result<Vec<String>> {
    let models: Vec<String> = serde_json::from_value(value)
        .map_err(|_| Error::invalid("limits.models", "limits.models must be a list of names."))?;
    let well = |name: &String| {
        let plain = name.strip_suffix('*').unwrap_or(name);
        !name.is_empty()
            && name.chars().count() <= LIMIT_MODEL_CHARS
            && !plain.contains('*')
            && !plain.chars().any(char::is_control)
    };
    if models.len() > LIMIT_MODELS || !models.iter().all(well) {
        let most = LIMIT_MODELS;
        return Err(Error::invalid(
            "limits.models",
            format!("limits.models may have up to {most} names; each may end with a *."),
        ));
    }
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(value: Value) -> Result<Limits> {
        read(Interface::Router, value.as_object().unwrap().clone())
    }

    #[test]
    fn each_limit_has_its_bounds_and_its_name() {
        let whole = json!({
            "rpm": 60, "tpm": 90_000, "concurrency": 4, "budget": {"usd": 12.5, "per": "month"},
            "models": ["a*"], "keys_per_user": 3
        });
        let limits = asked(whole.clone()).unwrap();
        assert_eq!(serde_json::to_value(&limits).unwrap(), whole);
        assert_eq!(asked(json!({"rpm": null})).unwrap(), Limits::default());
        for (name, bad) in [
            ("rpm", json!(0)),
            ("rpm", json!(-1)),
            ("rpm", json!(1.5)),
            ("rpm", json!("5")),
            ("rpm", json!(LIMIT_RPM + 1)),
            ("tpm", json!(LIMIT_TPM + 1)),
            ("concurrency", json!(LIMIT_CONCURRENCY + 1)),
            ("keys_per_user", json!(101)),
            ("budget", json!(5)),
            ("budget", json!({"usd": 5})),
            ("budget", json!({"usd": 0, "per": "day"})),
            ("budget", json!({"usd": -1, "per": "day"})),
            ("budget", json!({"usd": 5, "per": "week"})),
            ("budget", json!({"usd": 5, "per": "day", "x": 1})),
            ("budget", json!({"usd": LIMIT_USD * 2.0, "per": "day"})),
            ("models", json!(["a*b"])),
            ("rps", json!(1)),
        ] {
            let error = asked(json!({ name: bad })).unwrap_err();
            assert_eq!(
                (error.kind(), error.field()),
                (Kind::InvalidRequest, Some(format!("limits.{name}").as_str())),
                "{name} {bad}"
            );
        }
        for interface in [Interface::Pin, Interface::Agent] {
            let rpm = json!({"rpm": 1}).as_object().unwrap().clone();
            assert_eq!(read(interface, rpm).unwrap_err().field(), Some("limits.rpm"));
        }
    }

    #[test]
    fn what_a_key_makes_is_never_wider() {
        let outer = asked(json!({"rpm": 10, "models": ["auto"]})).unwrap();
        assert_eq!(narrow(Limits::default(), Some(&outer)).unwrap(), outer);
        assert_eq!(narrow(asked(json!({"rpm": 5})).unwrap(), Some(&outer)).unwrap().rpm, Some(5));
        let error = narrow(asked(json!({"rpm": 11})).unwrap(), Some(&outer)).unwrap_err();
        assert_eq!((error.kind(), error.field()), (Kind::Forbidden, Some("limits.rpm")));
    }
}
