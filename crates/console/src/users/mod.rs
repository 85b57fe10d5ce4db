//! Users, for admins.

mod list;
mod one;

pub(super) use list::{blank, create, list};
pub(super) use one::{change, set_disabled, set_password, show};

use maud::{Markup, html};
use serde_json::Value;

use super::pieces;

const ROLES: [(&str, &str); 2] = [("user", "user"), ("admin", "admin")];

fn status(user: &Value) -> Markup {
    let disabled = user.get("disabled").and_then(Value::as_bool).unwrap_or(false);
    html! {
        @if disabled {
            (pieces::badge("bad", "disabled"))
        } @else {
            (pieces::badge("ok", "enabled"))
        }
    }
}
