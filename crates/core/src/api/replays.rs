//! Captures: list, read, compare, delete. A capture out of the caller's reach is 404, like one that
//! does not exist.

use std::collections::HashSet;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::call::event;
use super::page::{self, Query};
use super::route::{ApiRequest, ApiResult, ClientOrigin, PathParams};
use super::{answer, audit};
use crate::app::App;
use crate::evaluate::{self, compare};
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_captures::archive::{Archive, HeadPage};
use rerouter_captures::capture::queue::CaptureQueue;
use rerouter_captures::capture::record::{Capture, CaptureState, Head};
use rerouter_store::{Action, CaptureFilter, Reach, Shadows};

/// Longest wait of a reader for captures that are still to be written.
pub(super) const CAPTURE_SETTLE: Duration = Duration::from_secs(2);
/// Time between two looks for a capture that another gateway writes: each asks the database.
const CAPTURE_COMES_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait of a deletion for captures being written: the writer's tries with their waits,
/// twice.
const CAPTURE_FLUSH: Duration = Duration::from_secs(5);

/// Query parameters of the list.
pub const PARAMETERS: &[&str] = &[
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
    "stream",
    "replay",
];
/// What captures are deleted by: one of these is needed.
pub(super) const ERASED_BY: &[&str] = &["user", "key", "until"];
/// Parameters of the list that are read from the captures themselves, not from the index.
pub(super) const OF_HEADS: &[&str] = &["stream", "replay"];
/// Pages of the index that one page of a list reads to satisfy [`OF_HEADS`], and their captures.
const HEAD_PAGES: (usize, usize) = (10, 200);
/// Maximum number of entries in `status`.
const STATUSES: usize = 32;

pub async fn list(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let reach = app.auth.reach(who);
    app.captures.settle(reach.owner(), CAPTURE_SETTLE).await;
    let body = summaries(&app.archive, &reach, request.uri().query()).await?;
    Ok(answer::json(StatusCode::OK, &body))
}

pub async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let with = Readings::read(&Query::read(request.uri().query(), &["with"])?)?;
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let capture = look_up(&app.archive, &app.captures, &app.auth.reach(who), id).await?;
    note_foreign(app, who, request, &capture).await?;
    let revision = capture.head.decision.as_ref().map(|decision| decision.revision.clone());
    let document = match revision.filter(|_| with.explanation) {
        Some(revision) => evaluate::document_of(app, &revision).await,
        None => None,
    };
    let (may_read, live) = (who.has_scope("config"), app.live());
    // Rendering megabytes takes long: on a blocking thread.
    let rendered = blocking(move || {
        let mut whole = capture.whole();
        if let Some(fields) = whole.as_object_mut() {
            if with.conversation {
                fields.insert("conversation".into(), capture.conversation());
            }
            if with.explanation {
                let document = document.as_ref().map(evaluate::Document::routing);
                let why = evaluate::why(&capture.head, document, may_read);
                fields.insert("explanation".into(), why);
            }
        }
        answer::json(StatusCode::OK, &whole).map(|whole| live.routing.masked(whole))
    });
    Ok(rendered.await?)
}

/// What a capture is given with, beside its fields.
#[derive(Clone, Copy, Default)]
struct Readings {
    conversation: bool,
    explanation: bool,
}

impl Readings {
    fn read(query: &Query) -> Result<Self> {
        let mut with = Readings::default();
        for word in query.get("with").into_iter().flat_map(|words| words.split(',')) {
            match word.trim() {
                "conversation" => with.conversation = true,
                "explanation" => with.explanation = true,
                _ => {
                    let detail = "with must be conversation, explanation or both.";
                    return Err(Error::invalid("with", detail));
                }
            }
        }
        Ok(with)
    }
}

pub async fn compare(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let params = request.extensions().get::<PathParams>().cloned().unwrap_or_default();
    let reach = app.auth.reach(who);
    let a = look_up(&app.archive, &app.captures, &reach, params.get(0)).await?;
    let b = look_up(&app.archive, &app.captures, &reach, params.get(1)).await?;
    note_foreign(app, who, request, &a).await?;
    note_foreign(app, who, request, &b).await?;
    let live = app.live();
    let compare = move || answer::json(StatusCode::OK, &compare::compare(&a, &b));
    Ok(blocking(move || compare().map(|body| live.routing.masked(body))).await?)
}

pub async fn delete(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), &["replays"])?;
    let replays = match query.get("replays") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::invalid("replays", "replays must be true or false.")),
    };
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let (whose, _) = visible_soon(app, who, id).await?;
    // Captures and audit are different databases: the row comes first, so that no deletion lacks
    // one.
    app.store
        .note(event(app, who, request, Action::CaptureDelete, "capture", whose.as_str()))
        .await?;
    remove(&app.captures, &app.archive, &app.auth.reach(who), id, replays).await?;
    Ok(answer::no_content())
}

/// `DELETE /v1/router/replay`: all captures that match everything that is named. A call that breaks
/// off may be repeated, and goes on.
pub(super) async fn erase(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), ERASED_BY)?;
    if ERASED_BY.iter().all(|name| query.get(name).is_none()) {
        let why = "Say what to delete: name `user`, `key` or `until`, or several of them.";
        return Err(Error::new(Kind::InvalidRequest, why));
    }
    let of_user = |id: &str| UserId::parse(id).or((id == "usr_admin").then(UserId::admin));
    let reach = match read(&query, "user", "the id of a user", of_user)? {
        None => app.auth.reach(who),
        Some(user) if who.is_admin() => Reach::Owner(user),
        Some(_) => {
            let why = "Only an admin deletes captures by `user`. Name `key` or `until`.";
            return Err(Error::new(Kind::Forbidden, why).at("user"));
        }
    };
    let filter = CaptureFilter { shadows: Shadows::With, ..filter(&query, reach)? };
    let _counted = super::limits::draw(app, who)?;
    let named = request.uri().query().unwrap_or_default();
    let event = event(app, who, request, Action::CaptureErase, "captures", named);
    app.store.note(event).await?;
    let deleted = erase_all(app, &filter).await?;
    Ok(answer::json(StatusCode::OK, &json!({ "deleted": deleted })))
}

/// Deletes all captures that match, also those under way here. Returns how many were written.
pub(super) async fn erase_all(app: &App, filter: &CaptureFilter) -> Result<usize> {
    app.captures.pending().delete_all(filter);
    flush(&app.captures).await?;
    if app.archive.is_shared() {
        // By then other gateways have written what they answered before this call.
        sleep(CAPTURE_SETTLE).await;
    }
    let erased = app.archive.erase(filter).await?;
    // A reroute that read its original before the deletion is known as its replay by now.
    app.captures.pending().delete_all(filter);
    Ok(erased)
}

async fn flush(queue: &CaptureQueue) -> Result<()> {
    let late = |_| Error::store_unavailable("pending captures were not written in time");
    timeout(CAPTURE_FLUSH, queue.flush()).await.map_err(late)
}

/// Audits that an admin reads this capture, if it is another user's.
async fn note_foreign(
    app: &App,
    who: &Principal,
    request: &ApiRequest,
    capture: &Capture,
) -> Result<()> {
    let address = request.extensions().get::<ClientOrigin>().and_then(|client| client.address);
    let by = (request.extensions().get::<RequestId>().cloned(), address);
    audit::foreign(app, who, Action::CaptureRead, (&capture.head.id, &capture.head.owner), by).await
}

fn absent() -> Error {
    Error::not_found("replay")
}

/// The id and the owner of a capture in reach, written or pending; else 404.
pub async fn visible(
    queue: &CaptureQueue,
    archive: &Archive,
    reach: &Reach,
    id: &str,
) -> Result<(RequestId, UserId)> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    let (owner, key) = match queue.pending().whose(&id) {
        Some(whose) => whose,
        None => archive.whose(&id).await?.ok_or_else(absent)?,
    };
    reach.covers(&owner, key.as_ref()).then_some((id, owner)).ok_or_else(absent)
}

/// The same; waits for what another gateway has yet to write.
pub async fn visible_soon(app: &App, who: &Principal, id: &str) -> Result<(RequestId, UserId)> {
    let until = Instant::now() + CAPTURE_SETTLE;
    let reach = app.auth.reach(who);
    soon(&app.archive, id, until, || visible(&app.captures, &app.archive, &reach, id)).await
}

/// Looks for a capture until it is there. Another gateway may have answered its request just now,
/// and writes it some tenths of a second later.
async fn soon<T, F: Future<Output = Result<T>>>(
    archive: &Archive,
    id: &str,
    until: Instant,
    look: impl Fn() -> F,
) -> Result<T> {
    let comes = RequestId::parse(id).is_some_and(|id| archive.may_come(&id));
    let mut pause = CAPTURE_COMES_INTERVAL;
    loop {
        match look().await {
            Err(error) if comes && error.kind() == Kind::NotFound && Instant::now() < until => {
                sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
                // Anybody may ask for what never comes.
                pause *= 2;
            }
            found => return found,
        }
    }
}

/// Deletes a capture, written or pending. A pending one, even of a running request, is never
/// written; one that the writer may already hold is waited for, then deleted. Replays that are out
/// of reach stay.
async fn remove(
    queue: &CaptureQueue,
    archive: &Archive,
    reach: &Reach,
    id: &str,
    replays: bool,
) -> Result<()> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    let coming = queue.pending();
    let mut maybe_in_hand = coming.delete(&id, reach);
    if !maybe_in_hand {
        let found = archive.whose(&id).await?;
        found.filter(|(owner, key)| reach.covers(owner, key.as_ref())).ok_or_else(absent)?;
    }
    // A running replay is announced before it reads its original. So once the original is deleted,
    // the table holds all of its pending replays.
    let mut gone = HashSet::from([id.clone()]);
    let mut next = if replays { coming.delete_replays(&mut gone, reach) } else { Vec::new() };
    maybe_in_hand |= replays;
    // The capture itself last, so that a repetition of the call finds it until then.
    next.push(id);
    while !next.is_empty() {
        if maybe_in_hand {
            flush(queue).await?;
        }
        for id in std::mem::take(&mut next) {
            gone.extend(archive.delete(&id, replays, reach.clone()).await?);
            gone.insert(id);
        }
        if replays {
            next = coming.delete_replays(&mut gone, reach);
        }
    }
    Ok(())
}

/// Returns a capture in reach, else 404. Waits for a pending one.
pub async fn look_up(
    archive: &Archive,
    queue: &CaptureQueue,
    reach: &Reach,
    id: &str,
) -> Result<Capture> {
    let until = Instant::now() + CAPTURE_SETTLE;
    match find(archive, reach, id).await {
        // While the index is incomplete, also for a pending capture.
        Err(error) if error.kind() == Kind::NotFound => {
            queue.settle(reach.owner(), CAPTURE_SETTLE).await;
            soon(archive, id, until, || find(archive, reach, id)).await
        }
        found => found,
    }
}

async fn find(archive: &Archive, reach: &Reach, id: &str) -> Result<Capture> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    // Before the capture is opened: a damaged one is 404 to others, too.
    let whose = archive.whose(&id).await?;
    whose.filter(|(owner, key)| reach.covers(owner, key.as_ref())).ok_or_else(absent)?;
    let read = |Capture { head, .. }: &Capture| reach.covers(&head.owner, head.key.as_ref());
    archive.get(&id).await?.filter(read).ok_or_else(absent)
}

async fn summaries(archive: &Archive, reach: &Reach, query: Option<&str>) -> Result<Value> {
    let query = Query::read(query, PARAMETERS)?;
    let limit = query.limit()?;
    let after = read(&query, "after", "the id of a replay", RequestId::parse)?;
    let filter = filter(&query, reach.clone())?;
    let flag = |name| read(&query, name, "true or false", |text| text.parse::<bool>().ok());
    let (stream, replay) = (flag("stream")?, flag("replay")?);
    let fits = |head: &Head| {
        stream.is_none_or(|stream| head.stream == stream)
            && replay.is_none_or(|replay| head.replay_of.is_some() == replay)
    };
    let found = match stream.is_some() || replay.is_some() {
        true => fitting(archive, &filter, (limit, after), &fits).await?,
        false => archive.page(filter, limit, after).await?,
    };
    let summaries: Vec<Value> = found.heads.iter().map(Head::summary).collect();
    let mut part =
        page::part(&summaries, found.next.map_or(Value::Null, |next| next.as_str().into()));
    if let Some(fields) = part.as_object_mut().filter(|_| found.unreadable > 0) {
        fields.insert("unreadable".to_owned(), found.unreadable.into());
    }
    Ok(part)
}

/// A page of captures whose heads fit, out of several pages of the index.
async fn fitting(
    archive: &Archive,
    filter: &CaptureFilter,
    (limit, mut after): (usize, Option<RequestId>),
    fits: &(impl Fn(&Head) -> bool + Sync),
) -> Result<HeadPage> {
    let mut found = HeadPage::default();
    let (pages, captures) = HEAD_PAGES;
    for _ in 0..pages {
        let read = archive.page(filter.clone(), captures, after.take()).await?;
        let room = limit - found.heads.len();
        found.heads.extend(read.heads.into_iter().filter(fits).take(room + 1));
        found.unreadable += read.unreadable;
        found.next = read.next;
        if found.heads.len() > limit {
            // The next page goes on behind the last capture of this one.
            found.heads.truncate(limit);
            found.next = found.heads.last().map(|last| last.id.clone());
        }
        if found.heads.len() == limit || found.next.is_none() {
            break;
        }
        after.clone_from(&found.next);
    }
    Ok(found)
}

/// The filter of a list or an evaluation.
pub(super) fn filter(query: &Query, reach: Reach) -> Result<CaptureFilter> {
    let reach = page::narrowed(query, reach, "captures")?;
    let text = |name| query.get(name).map(str::to_owned);
    let time = |name| {
        read(query, name, "an RFC 3339 time", |text| {
            text.parse().ok().map(Timestamp::as_microsecond)
        })
    };
    let shadow_of = read(query, "shadow_of", "the id of a replay", RequestId::parse)?;
    let shadows = read(query, "shadow", "true or false", |text| text.parse::<bool>().ok())?;
    let state = |text: &str| {
        CaptureState::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .map(|state| state.as_str().to_owned())
    };
    Ok(CaptureFilter {
        reach,
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
        None => Err(Error::invalid(name, format!("{name} must be {what}."))),
    }
}

/// Reads `200`, `4xx` or a comma-separated list of such as ranges.
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
