//! The address of the console, and the link by which the first admin registers.

use std::time::Duration;

use super::Gateway;
use super::first_key::url;
use rerouter_base::atomic_file;
use rerouter_base::interface::Interface;
use rerouter_base::secret::Secret;
use rerouter_core::api;
use rerouter_core::app::App;

/// How long the first-admin link of a start is valid.
const FIRST_ADMIN_LINK: Duration = Duration::from_secs(3600);

pub(super) fn console(app: &App) -> Option<String> {
    let has_pin =
        |listener: &rerouter_core::config::Listener| listener.interfaces.contains(&Interface::Pin);
    let url = url(&app.server, has_pin).filter(|_| app.server.console)?;
    Some(format!("{url}/console/"))
}

impl Gateway {
    /// Makes the link for the first admin if `is_wanted`. Returns a text with the link if only a
    /// person sees it (`is_seen`), else with the file that holds the link, because other output
    /// ends up in logs. The link works once and for an hour. `None` if there is an admin.
    pub fn first_admin(&self, is_wanted: bool, is_seen: bool) -> Option<String> {
        let app = &self.app;
        let file = app.server.data_dir.join("first-admin");
        // An earlier start may have left a link.
        let _none = std::fs::remove_file(&file);
        let console = console(app).filter(|_| is_wanted && api::first_admin::is_needed(app))?;
        let mut bytes = [0; 32];
        app.random.fill(&mut bytes);
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let until = app.clock.now().checked_add(FIRST_ADMIN_LINK).ok()?;
        app.first_admin.offer(app.auth.digest(&Secret::new(token.as_str())), until);
        let link = format!("{console}first-admin?token={token}");
        let place = match is_seen {
            true => link,
            false => match atomic_file::write(&file, format!("{link}\n").as_bytes()) {
                Ok(()) => format!("in {}", file.display()),
                Err(why) => format!("none, as {} cannot be written: {why}", file.display()),
            },
        };
        Some(format!("The link that makes the first admin, once and within an hour: {place}\n"))
    }
}
