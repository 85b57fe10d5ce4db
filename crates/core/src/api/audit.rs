//! `GET /v1/audit`, and which routes write to the audit. A mutation writes its row in its own
//! transaction. A read of another user's capture writes it before the answer: without the row there
//! is no answer. Lists of captures have no bodies and are not audited.

use std::net::IpAddr;

use super::call::{Answer, Call};
use super::page;
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::{AuditId, RequestId, UserId};
use rerouter_records::audit::{AuditEvent, AuditQuery};
use rerouter_records::page::Page;
pub use rerouter_store::Action;
use rerouter_store::{AuditFilter, Event};

/// The routes whose success writes a row, with its action. A `PATCH` that disables a user writes
/// [`Action::UserDisable`].
#[rustfmt::skip]
pub const NOTED: &[(&str, &str, Action)] = &[
    ("POST",   "/v1/auth/register",              Action::UserCreate),
    ("POST",   "/v1/auth/login",                 Action::SessionCreate),
    ("POST",   "/v1/auth/logout",                Action::SessionEnd),
    ("POST",   "/v1/auth/password",              Action::PasswordChange),
    ("POST",   "/v1/apikeys",                    Action::KeyCreate),
    ("PATCH",  "/v1/apikeys/{id}",               Action::KeyUpdate),
    ("DELETE", "/v1/apikeys/{id}",               Action::KeyRevoke),
    ("POST",   "/v1/apikeys/{id}/rotate",        Action::KeyRotate),
    ("POST",   "/v1/users",                      Action::UserCreate),
    ("PATCH",  "/v1/users/{id}",                 Action::UserUpdate),
    ("DELETE", "/v1/users/{id}",                 Action::UserDelete),
    ("POST",   "/v1/agents",                     Action::AgentCreate),
    ("PATCH",  "/v1/agents/{id}",                Action::AgentUpdate),
    ("DELETE", "/v1/agents/{id}",                Action::AgentDelete),
    ("POST",   "/v1/nodes",                      Action::NodeCreate),
    ("DELETE", "/v1/nodes/{id}",                 Action::NodeDelete),
    ("POST",   "/v1/nodes/{id}/rotate",          Action::NodeRotate),
    ("DELETE", "/v1/gateways/{id}",              Action::GatewayForget),
    ("POST",   "/v1/router/replay/import",       Action::CaptureImport),
    ("POST",   "/v1/api-keys",                   Action::KeyCreate),
    ("PATCH",  "/v1/api-keys/{id}",              Action::KeyUpdate),
    ("DELETE", "/v1/api-keys/{id}",              Action::KeyRevoke),
    ("POST",   "/v1/api-keys/{id}/rotate",       Action::KeyRotate),
    ("POST",   "/v1/router/keys",                Action::KeyCreate),
    ("PATCH",  "/v1/router/keys/{id}",           Action::KeyUpdate),
    ("DELETE", "/v1/router/keys/{id}",           Action::KeyRevoke),
    ("POST",   "/v1/router/keys/{id}/rotate",    Action::KeyRotate),
    ("PUT",    "/v1/router/config",              Action::ConfigPut),
    ("POST",   "/v1/router/config/rollback",     Action::ConfigRollback),
    ("DELETE", "/v1/router/replay",              Action::CaptureErase),
    ("DELETE", "/v1/router/replay/{id}",         Action::CaptureDelete),
];

/// The unsafe routes that write no row, with the reason.
#[rustfmt::skip]
#[cfg(test)]
const NOT_NOTED: &[(&str, &str, &str)] = &[
    ("POST", "/v1/router/replay/{id}/reroute",
        "captured; an admin\'s reroute of another user\'s capture is audited as capture.reroute"),
    ("POST", "/v1/router/replay/evaluate",
        "audited as capture.evaluate if it reads captures of others"),
    ("POST", "/v1/router/decide",              "changes nothing"),
    ("POST", "/v1/router/config/validate",     "changes nothing"),
    ("POST", "/v1/agent/register",
        "self-report of a node within its enrolment; logged"),
    ("POST", "/v1/agent/heartbeat",            "self-report of a node, every ten seconds"),
    ("POST", "/v1/agent/events",               "written to the log"),
    ("POST", "/v1/agent/deregister",           "self-report of a node; logged"),
    ("POST", "/v1/chat/completions",           "captured itself"),
    ("POST", "/v1/embeddings",                 "captured itself"),
    ("POST", "/v1/responses",                  "captured itself"),
    ("POST", "/v1/messages",                   "captured itself"),
    ("POST", "/v1/messages/count_tokens",      "captured itself"),
];

/// Audits that an admin reads or reroutes another user's capture. 503 if the row cannot be written:
/// the capture must not be shown then.
pub async fn foreign(
    app: &App,
    who: &Principal,
    action: Action,
    (capture, owner): (&RequestId, &UserId),
    (request, address): (Option<RequestId>, Option<IpAddr>),
) -> Result<()> {
    if who.user_id().as_ref() == Some(owner) {
        return Ok(());
    }
    let event = Event::new(app.clock.now(), who.actor(), action, "capture", capture.as_str())
        .by(request, address);
    Ok(app.store.note(event).await?)
}

/// `GET /v1/audit`, newest first.
pub(super) async fn list(call: Call<'_>, query: AuditQuery) -> Result<Answer<Page<AuditEvent>>> {
    let malformed = || Error::invalid("after", "after must be the id of an audit row.");
    let after = page::after(query.after.as_deref(), "an audit row", AuditId::parse)?;
    let filter = AuditFilter {
        since: query.since.map(|since| since.0),
        until: query.until.map(|until| until.0),
        actor: query.actor,
        action: query.action,
        target: query.target,
    };
    let found = call.app.store.audit(filter, query.limit + 1, after).await?;
    let found = found.ok_or_else(malformed)?.into_iter().map(AuditEvent::from).collect();
    Ok(Page::of(found, query.limit, |event: &AuditEvent| event.id.to_string()).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::ROUTES;

    #[test]
    fn every_unsafe_route_is_noted_or_says_why_not() {
        let noted = NOTED.iter().map(|(method, path, _)| format!("{method} {path}"));
        let named: Vec<String> = noted
            .chain(NOT_NOTED.iter().map(|(method, path, _)| format!("{method} {path}")))
            .collect();
        let routes: BTreeSet<String> = ROUTES
            .iter()
            .filter(|route| !route.method.is_safe())
            .map(|route| format!("{} {}", route.method, route.path))
            .collect();
        assert_eq!(named.iter().cloned().collect::<BTreeSet<_>>(), routes);
        assert_eq!(named.len(), routes.len(), "a route stands twice");
        assert!(NOT_NOTED.iter().all(|(.., reason)| !reason.is_empty()));
    }

    #[test]
    fn every_word_is_read_back() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(*action));
            assert!(action.meaning().ends_with('.'), "{}", action.as_str());
        }
        assert_eq!(Action::parse("key.creat"), None);
    }
}
