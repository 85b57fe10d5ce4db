//! Captures as their owners see them: a list of summaries, and one whole. Somebody else's is as absent as one that never was.

use std::collections::HashSet;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout;

use super::page::{self, Query};
use super::{Client, PathParams, answer, audit};
use crate::app::App;
use crate::auth::Principal;
use crate::blocking::blocking;
use crate::bounds;
use crate::capture::index::Archive;
use crate::capture::queue::CaptureQueue;
use crate::capture::record::{Capture, Head, State};
use crate::error::{Error, Kind, Result};
use crate::evaluate::compare;
use crate::id::{KeyId, RequestId, UserId};
use crate::store::{Action, CaptureFilter, Shadows};

/// What a list may be asked for.
pub(super) const PARAMETERS: &[&str] = &[
    "limit",
    "after",
    "since",
    "until",
    "alias",
    "recipe",
    "provider",
    "model",
    "decided_provider",
    "decided_model",
    "status",
    "state",
    "key",
    "replay_of",
    "shadow",
    "shadow_of",
    "owner",
];
/// Entries of a list of statuses: there are no more classes and codes worth telling apart.
const STATUSES: usize = 32;

/// `GET /v1/router/replay`
pub async fn list(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    app.captures.settle(seen_by(who).as_ref(), bounds::CAPTURE_SETTLE).await;
    let body = summaries(&app.archive, who, request.uri().query()).await?;
    Ok(answer::json(StatusCode::OK, &body))
}

/// `GET /v1/router/replay/{id}`
pub async fn get(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let capture = look_up(&app.archive, &app.captures, who, id).await?;
    note_foreign(app, who, request, &capture).await?;
    // Of megabytes, a stream's put together too: for a thread that may take its time.
    Ok(blocking(move || answer::json(StatusCode::OK, &capture.whole())).await?)
}

/// `GET /v1/router/replay/{id}/compare/{other}`
pub async fn compare(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    let params = request.extensions().get::<PathParams>().cloned().unwrap_or_default();
    let a = look_up(&app.archive, &app.captures, who, params.get(0)).await?;
    let b = look_up(&app.archive, &app.captures, who, params.get(1)).await?;
    note_foreign(app, who, request, &a).await?;
    note_foreign(app, who, request, &b).await?;
    Ok(blocking(move || answer::json(StatusCode::OK, &compare::compare(&a, &b))).await?)
}

/// `DELETE /v1/router/replay/{id}`
pub async fn delete(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    let query = Query::read(request.uri().query(), &["replays"])?;
    let replays = match query.get("replays") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::invalid("replays", "replays has to be true or false.")),
    };
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let whose = visible(&app.captures, &app.archive, who, id).await?;
    // Captures are not in the database of the audit: the row comes first, so that no deletion is without one.
    app.store
        .note(audit::event(app, who, request, Action::CaptureDelete, "capture", whose.as_str()))
        .await?;
    remove(&app.captures, &app.archive, who, id, replays).await?;
    Ok(answer::no_content())
}

/// Notes that an admin is about to see this capture, if it is somebody else's.
async fn note_foreign(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
    capture: &Capture,
) -> Result<()> {
    let address = request.extensions().get::<Client>().and_then(|client| client.address);
    let by = (request.extensions().get::<RequestId>().cloned(), address);
    audit::foreign(app, who, Action::CaptureRead, (&capture.head.id, &capture.head.owner), by).await
}

/// What is said of a capture that is somebody else's: the same as of one that is not there, also while nobody can say that.
fn hidden(archive: &Archive) -> Error {
    archive.check_complete().err().unwrap_or_else(absent)
}

fn absent() -> Error {
    Error::not_found("replay")
}

/// The id of a capture that is the caller's to see, written or on its way.
async fn visible(
    queue: &CaptureQueue,
    archive: &Archive,
    who: &Principal,
    id: &str,
) -> Result<RequestId> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    let owner = match queue.coming().owner(&id) {
        Some(owner) => owner,
        None => archive.owner(&id).await?.ok_or_else(absent)?,
    };
    if who.is_admin() || who.user_id().as_ref() == Some(&owner) {
        Ok(id)
    } else {
        Err(hidden(archive))
    }
}

/// Deletes a capture wherever it is. One that is still on its way, its request under way even, is never written; one that
/// the writer may have in hand is waited for, then deleted as any other. Replays of somebody else go for an admin only.
async fn remove(
    queue: &CaptureQueue,
    archive: &Archive,
    who: &Principal,
    id: &str,
    replays: bool,
) -> Result<()> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    let owner = match who.is_admin() {
        true => None,
        false => Some(who.user_id().ok_or_else(absent)?),
    };
    let coming = queue.coming();
    let mut maybe_in_hand = coming.delete(&id, owner.as_ref());
    if !maybe_in_hand {
        let found = archive.owner(&id).await?;
        found
            .filter(|found| owner.as_ref().is_none_or(|owner| owner == found))
            .ok_or_else(|| hidden(archive))?;
    }
    // Replays are their original's owner's. One under way was announced before its original was looked up, so what is
    // gone has no others than those that the table then holds; they are few, and no more begin.
    let mut gone = HashSet::from([id.clone()]);
    let mut next =
        if replays { coming.delete_replays(&mut gone, owner.as_ref()) } else { Vec::new() };
    maybe_in_hand |= replays;
    // The one that was asked for last: until then a repetition finds it.
    next.push(id);
    while !next.is_empty() {
        if maybe_in_hand {
            let late = |_| Error::store_unavailable("captures are not written in time");
            timeout(bounds::CAPTURE_FLUSH, queue.flush()).await.map_err(late)?;
        }
        for id in std::mem::take(&mut next) {
            gone.extend(archive.delete_of(&id, replays, owner.clone()).await?);
            gone.insert(id);
        }
        if replays {
            next = coming.delete_replays(&mut gone, owner.as_ref());
        }
    }
    Ok(())
}

/// The capture of this id, if it is the caller's to see: the same 404 for one that is not there and one of somebody else.
/// One that is still on its way to the archive is waited for.
pub async fn look_up(
    archive: &Archive,
    queue: &CaptureQueue,
    who: &Principal,
    id: &str,
) -> Result<Capture> {
    match find(archive, who, id).await {
        // While the index is made again, that is what is said of one that was not written yet, too.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unavailable) => {
            queue.settle(seen_by(who).as_ref(), bounds::CAPTURE_SETTLE).await;
            find(archive, who, id).await
        }
        found => found,
    }
}

/// Whose answers the caller may have seen; none: anybody's.
fn seen_by(who: &Principal) -> Option<UserId> {
    who.user_id().filter(|_| !who.is_admin())
}

async fn find(archive: &Archive, who: &Principal, id: &str) -> Result<Capture> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    let allowed = |owner: &UserId| who.is_admin() || who.user_id().as_ref() == Some(owner);
    // Before it is opened: also one that is damaged is absent to everybody else.
    archive.owner(&id).await?.filter(|owner| allowed(owner)).ok_or_else(|| hidden(archive))?;
    archive
        .get(&id)
        .await?
        .filter(|capture| allowed(&capture.head.owner))
        .ok_or_else(|| hidden(archive))
}

async fn summaries(archive: &Archive, who: &Principal, query: Option<&str>) -> Result<Value> {
    let query = Query::read(query, PARAMETERS)?;
    let limit = query.limit()?;
    let after = read(&query, "after", "the id of a replay", RequestId::parse)?;
    let filter = filter(&query, who)?;
    let found = archive.page(filter, limit, after).await?;
    let summaries: Vec<Value> = found.heads.iter().map(Head::summary).collect();
    let mut part =
        page::part(&summaries, found.next.map_or(Value::Null, |next| next.as_str().into()));
    if let Some(fields) = part.as_object_mut().filter(|_| found.unreadable > 0) {
        fields.insert("unreadable".to_owned(), found.unreadable.into());
    }
    Ok(part)
}

/// What a list or an evaluation asks for; only an admin's is about the captures of others.
pub(super) fn filter(query: &Query, who: &Principal) -> Result<CaptureFilter> {
    let user =
        who.user_id().ok_or_else(|| Error::new(Kind::Forbidden, "Only users have replays."))?;
    let owner = match query.get("owner") {
        None => (!who.is_admin()).then_some(user),
        Some(owner) if who.is_admin() || owner == user.as_str() => Some(UserId::known(owner)),
        Some(_) => {
            return Err(Error::new(Kind::Forbidden, "Only an admin lists the replays of others.")
                .at("owner"));
        }
    };
    let text = |name| query.get(name).map(str::to_owned);
    let time = |name| {
        read(query, name, "an RFC 3339 time", |text| {
            text.parse().ok().map(Timestamp::as_microsecond)
        })
    };
    let shadow_of = read(query, "shadow_of", "the id of a replay", RequestId::parse)?;
    let shadows = read(query, "shadow", "true or false", |text| text.parse::<bool>().ok())?;
    let state = |text: &str| {
        State::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .map(|state| state.as_str().to_owned())
    };
    Ok(CaptureFilter {
        owner,
        key: read(query, "key", "the id of a key", KeyId::parse)?,
        since_us: time("since")?,
        until_us: time("until")?,
        alias: text("alias"),
        recipe: text("recipe"),
        provider: text("provider"),
        model: text("model"),
        decided_provider: text("decided_provider"),
        decided_model: text("decided_model"),
        statuses: read(
            query,
            "status",
            "a status like 200, a class like 4xx, or a list of them",
            statuses,
        )?
        .unwrap_or_default(),
        state: read(query, "state", "completed, failed, aborted or refused", state)?,
        replay_of: read(query, "replay_of", "the id of a replay", RequestId::parse)?,
        shadows: match shadows.unwrap_or(shadow_of.is_some()) {
            true => Shadows::Only,
            false => Shadows::Without,
        },
        shadow_of,
    })
}

fn read<T>(
    query: &Query,
    name: &str,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    match parse(text) {
        Some(value) => Ok(Some(value)),
        None => Err(Error::invalid(name, format!("{name} has to be {what}."))),
    }
}

/// `200`, `4xx`, or several with commas between, as ranges.
fn statuses(text: &str) -> Option<Vec<(u16, u16)>> {
    let ranges: Option<Vec<(u16, u16)>> =
        text.split(',').take(STATUSES + 1).map(|word| range(word.trim())).collect();
    ranges.filter(|ranges| ranges.len() <= STATUSES)
}

fn range(word: &str) -> Option<(u16, u16)> {
    let class = word.strip_suffix("xx");
    let digits = class.unwrap_or(word);
    if digits.len() != if class.is_some() { 1 } else { 3 }
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let number: u16 = digits.parse().ok()?;
    match class {
        Some(_) => (1..=5).contains(&number).then_some((number * 100, number * 100 + 99)),
        None => Some((number, number)),
    }
}

#[cfg(test)]
#[path = "replays_tests.rs"]
mod tests;
