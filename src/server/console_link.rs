//! Where the console is, and the link that makes the first admin.

use super::Gateway;
use super::first_key::url;
use crate::api;
use crate::app::App;
use crate::bounds;
use crate::interface::Interface;
use crate::secret::Secret;

/// The address of the console, if it is served.
pub(super) fn console(app: &App) -> Option<String> {
    let has_pin =
        |listener: &crate::config::Listener| listener.interfaces.contains(&Interface::Pin);
    let url = url(&app.server, has_pin).filter(|_| app.server.console)?;
    Some(format!("{url}/console/"))
}

/// A link that makes the first admin, once and for an hour. `None` if there is an admin.
pub(super) fn first_admin(app: &App) -> Option<String> {
    let console = console(app)?;
    if !api::first_admin::is_needed(app) {
        return None;
    }
    let mut bytes = [0; 32];
    app.random.fill(&mut bytes);
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let until = app.clock.now().checked_add(bounds::FIRST_ADMIN_LINK).ok()?;
    app.first_admin.offer(app.auth.digest(&Secret::new(token.as_str())), until);
    Some(format!("{console}first-admin?token={token}"))
}

impl Gateway {
    /// The address of the console, if it is served.
    pub(crate) fn console(&self) -> Option<String> {
        console(&self.app)
    }
}
