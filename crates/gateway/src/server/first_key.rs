//! The first ROUTER key of a gateway that has no keys yet.

use std::sync::Arc;

use super::{BootError, Gateway};
use rerouter_access::auth::{Principal, SESSION_SCOPES};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;
use rerouter_base::secret::{Secret, token};
use rerouter_core::config::{Listener, Server};
use rerouter_store::{Action, Event, KeyRow, KeyState, KeyStatus};

impl Gateway {
    /// Makes a ROUTER key, unless there are or ever were any. The key can make all other keys, read
    /// their captures, and evaluate documents, because without an admin nobody else can grant that.
    pub async fn first_key(&self) -> Result<Option<Secret>, BootError> {
        let (app, interface) = (&self.app, Interface::Router);
        let now = app.clock.now();
        if KeyState::ALL.into_iter().any(|state| app.auth.count_keys(interface, state, now) > 0) {
            return Ok(None);
        }
        let secret = token::mint(interface.key_prefix(), &app.random);
        let (actor, owner) = (Principal::Admin.actor(), UserId::admin());
        let scopes = SESSION_SCOPES.iter().copied().chain(["evaluate"]);
        let key = KeyRow {
            id: KeyId::new(now, &app.random),
            interface,
            name: "first".into(),
            redacted: token::redact(secret.expose()).into(),
            digest: app.auth.digest(&secret),
            scopes: Arc::new(scopes.map(str::to_owned).collect()),
            maker: Some(owner.clone()),
            owner,
            created_by: actor.clone().into(),
            parent: None,
            labels: Default::default(),
            limits: Default::default(),
            status: KeyStatus::Active,
            created_at: now,
            expires_at: None,
            revoked_at: None,
            rotated_at: None,
            generation: 1,
            previous: None,
            made_open: false,
            last_used_at: None,
            metadata: Default::default(),
        };
        let event = Event::new(now, actor, Action::KeyCreate, "key", key.id.as_str());
        let committed = app.store.noting(event).create_key(key).await?;
        app.store.acknowledge(committed.rev).await?;
        Ok(Some(secret))
    }

    /// The URL at which clients reach the first listener with ROUTER, or the first without one.
    pub fn url(&self) -> String {
        let server = &self.app.server;
        url(server, has_router).or_else(|| url(server, |_| true)).unwrap_or_default()
    }
}

fn has_router(listener: &Listener) -> bool {
    listener.interfaces.contains(&Interface::Router)
}

/// The URL of the first listener for which `serves` is true: the public URL, unless that is of
/// another listener, with ROUTER, and this one has no ROUTER.
pub(super) fn url(server: &Server, serves: impl Fn(&Listener) -> bool) -> Option<String> {
    let listener = server.listeners.iter().find(|listener| serves(listener))?;
    let is_public = has_router(listener) || !server.listeners.iter().any(has_router);
    if let Some(url) = server.public_url.as_ref().filter(|_| is_public) {
        return Some(url.clone());
    }
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    let address = listener.address;
    Some(match address.ip().is_unspecified() {
        true => format!("{scheme}://localhost:{}", address.port()),
        false => format!("{scheme}://{address}"),
    })
}
