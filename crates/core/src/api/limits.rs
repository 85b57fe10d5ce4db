//! Reads and checks the `limits` of keys and users.

use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::limits::{self, LimitPermit};
use rerouter_base::error::{Error, Result};
use rerouter_base::interface::Interface;
use rerouter_records::patch::{MergePatch, Patch};
use rerouter_store::Limits;

/// Counts a call that needs no provider against the caller's limits: deciding and evaluating take
/// work. The call counts as one request per minute, and as a concurrent request until it ends. 429
/// if a limit is reached.
pub fn draw(app: &App, who: &Principal) -> Result<CountedCall> {
    let draws = limits::draws(&app.auth, who);
    let admitted = app.limits.admit(&draws, 0, app.clock.now());
    admitted.map(|permit| CountedCall(Some(permit))).map_err(|refused| refused.error)
}

/// A counted call, which is a concurrent request until it is dropped.
pub struct CountedCall(Option<LimitPermit>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.settle(Some(0), Some(0), false);
        }
    }
}

/// 400 for limits that the interface does not count.
pub(super) fn allowed(interface: Interface, limits: Limits) -> Result<Limits> {
    if let Some(name) = limits.counted().filter(|_| interface != Interface::Router) {
        let why = format!("The limit {name} applies to ROUTER keys only.");
        return Err(Error::invalid(format!("limits.{name}"), why));
    }
    let well = |name: &String| {
        let plain = name.strip_suffix('*').unwrap_or(name);
        !plain.contains('*') && !plain.chars().any(char::is_control)
    };
    match limits.models.iter().flatten().all(well) {
        true => Ok(limits),
        false => {
            let why = "limits.models must be a list of names; each may end with a *.";
            Err(Error::invalid("limits.models", why))
        }
    }
}

/// The limits after a merge patch; `None` if the patch has none.
pub(super) fn merged(before: &Limits, patch: &Patch<MergePatch<Limits>>) -> Result<Option<Limits>> {
    match patch {
        Patch::Absent => Ok(None),
        Patch::Null => Ok(Some(Limits::default())),
        Patch::Set(patch) => patch.apply("limits", before).map(Some),
    }
}

/// The limits of a key that another key creates: by default those of its creator, never wider.
pub(super) fn narrow(mut limits: Limits, outer: Option<&Limits>) -> Result<Limits> {
    let Some(outer) = outer else {
        return Ok(limits);
    };
    limits.inherit(outer);
    match limits.beyond(outer) {
        None => Ok(limits),
        Some(name) => Err(Error::forbidden(format!(
            "The limit {name} may not be wider than that of the creator."
        ))
        .at(format!("limits.{name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::error::Kind;
    use rerouter_records::read::read_at;
    use serde_json::{Value, json};

    fn asked(value: Value) -> Result<Limits> {
        allowed(Interface::Router, read_at("limits", value)?)
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
            ("rpm", json!(100_000_001)),
            ("tpm", json!(10_000_000_001_u64)),
            ("concurrency", json!(1_000_001)),
            ("keys_per_user", json!(101)),
            ("budget", json!(5)),
            ("models", json!(["a*b"])),
            ("rps", json!(1)),
            ("budget.per", json!({"usd": 5})),
            ("budget.usd", json!({"usd": 0, "per": "day"})),
            ("budget.usd", json!({"usd": -1, "per": "day"})),
            ("budget.per", json!({"usd": 5, "per": "week"})),
            ("budget.x", json!({"usd": 5, "per": "day", "x": 1})),
            ("budget.usd", json!({"usd": 200_000_000, "per": "day"})),
        ] {
            let (limit, _) = name.split_once('.').unwrap_or((name, ""));
            let error = asked(json!({ limit: bad })).unwrap_err();
            assert_eq!(
                (error.kind(), error.field()),
                (Kind::InvalidRequest, Some(format!("limits.{name}").as_str())),
                "{name} {bad}"
            );
        }
        for interface in [Interface::Pin, Interface::Agent] {
            let rpm = asked(json!({"rpm": 1})).unwrap();
            assert_eq!(allowed(interface, rpm).unwrap_err().field(), Some("limits.rpm"));
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
