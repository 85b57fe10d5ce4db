//! `GET /v1/audit`. A mutation writes its audit row in its own transaction. A read of another
//! user's capture writes the row before the answer: without the row there is no answer. Lists of
//! captures show no bodies and are not audited.

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
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(action));
            assert!(action.meaning().ends_with('.'), "{}", action.as_str());
        }
        assert_eq!(Action::parse("key.creat"), None);
    }
}
