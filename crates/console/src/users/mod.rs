//! Users, for admins.

mod list;
mod one;

pub(super) use list::{blank, create, list};
pub(super) use one::{change, set_disabled, set_password, show};

use maud::{Markup, html};

use super::pieces;
use rerouter_records::user::UserRecord;

const ROLES: [(&str, &str); 2] = [("user", "user"), ("admin", "admin")];

fn status(user: &UserRecord) -> Markup {
    html! {
        @if user.disabled {
            (pieces::badge("bad", "disabled"))
        } @else {
            (pieces::badge("ok", "enabled"))
        }
    }
}
