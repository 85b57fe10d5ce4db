//! Captures: list, read, compare, delete. A capture out of the caller's reach is 404, like one that
//! does not exist.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::call::{Answer, Call};
use super::route::{ApiRequest, ApiResult, PathParams};
use super::{audit, page};
use crate::app::App;
use crate::evaluate::{self, compare};
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_captures::archive::{Archive, HeadPage};
use rerouter_captures::capture::queue::CaptureQueue;
use rerouter_captures::capture::record::{Capture, Head};
use rerouter_records::Time;
use rerouter_records::page::ListObject;
use rerouter_records::replay::{
    CaptureQuery, CaptureState, DeletionQuery, Erased, ErasureQuery, ReplayList, ReplayQuery,
};
use rerouter_store::{Action, CaptureFilter, Reach, Shadows};

/// Longest wait of a reader for captures that are not written yet.
pub(super) const CAPTURE_SETTLE: Duration = Duration::from_secs(2);
/// Time between two look-ups of a capture that another gateway writes: each one queries the
/// database.
const CAPTURE_COMES_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait of a deletion for captures that are being written: twice the time of all the
/// writer's tries.
const CAPTURE_FLUSH: Duration = Duration::from_secs(5);

/// For a filter that the index does not know: how many pages of the index are read for one page of
/// a list, and how many captures for each of them.
const HEAD_PAGES: (usize, usize) = (10, 200);
/// Maximum number of entries in `status`.
const STATUSES: usize = 32;

pub(super) async fn list(call: Call<'_>, query: ReplayQuery) -> Result<Answer<ReplayList>> {
    let (app, reach) = (call.app, call.app.auth.reach(call.who));
    app.captures.settle(reach.owner(), CAPTURE_SETTLE).await;
    Ok(summaries(&app.archive, &reach, &query).await?.into())
}

pub(super) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let call = Call { app, who, request };
    let with = Readings::read(&call.query()?)?;
    let capture = look_up(&app.archive, &app.captures, &app.auth.reach(who), call.id()).await?;
    note_foreign(call, &capture).await?;
    let revision = capture.head.decision.as_ref().map(|decision| decision.revision.clone());
    let document = match revision.filter(|_| with.explanation) {
        Some(revision) => evaluate::document_of(app, &revision).await,
        None => None,
    };
    let (may_read, live) = (who.has_scope("config"), app.live());
    // On a blocking thread, because rendering megabytes takes long.
    let rendered = blocking(move || {
        let mut whole = capture.whole();
        whole.conversation = with.conversation.then(|| capture.conversation());
        whole.explanation = with.explanation.then(|| {
            let document = document.as_ref().map(evaluate::Document::routing);
            evaluate::why(&capture.head, document, may_read)
        });
        Answer::from(&whole)
            .respond(200)
            .map(|answer| answer.map(|whole| live.routing.masked(whole)))
    });
    rendered.await?
}

/// Readings of a capture that an answer adds to its fields.
#[derive(Clone, Copy, Default)]
struct Readings {
    conversation: bool,
    explanation: bool,
}

impl Readings {
    fn read(query: &CaptureQuery) -> Result<Self> {
        let mut with = Readings::default();
        for word in query.with.iter().flat_map(|words| words.split(',')) {
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

pub(super) async fn compare(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let call = Call { app, who, request };
    call.no_query()?;
    let params = request.extensions().get::<PathParams>().cloned().unwrap_or_default();
    let reach = app.auth.reach(who);
    let a = look_up(&app.archive, &app.captures, &reach, params.get(0)).await?;
    let b = look_up(&app.archive, &app.captures, &reach, params.get(1)).await?;
    note_foreign(call, &a).await?;
    note_foreign(call, &b).await?;
    let live = app.live();
    let compare = move || Answer::from(&compare::compare(&a, &b)).respond(200);
    blocking(move || compare().map(|answer| answer.map(|body| live.routing.masked(body)))).await?
}

pub(super) async fn delete(call: Call<'_>, query: DeletionQuery) -> Result<Answer<()>> {
    let Call { app, who, .. } = call;
    let (whose, _) = visible_soon(app, who, call.id()).await?;
    // Captures and audit are in different databases, so the audit row is written first: no deletion
    // is without a row.
    app.store.note(call.event(Action::CaptureDelete, "capture", whose.as_str())).await?;
    let reach = app.auth.reach(who);
    remove(&app.captures, &app.archive, &reach, call.id(), query.replays).await?;
    Ok(().into())
}

/// `DELETE /v1/router/replay`: deletes all captures that match every given filter. A call that
/// breaks off may be repeated, and continues.
pub(super) async fn erase(call: Call<'_>, query: ErasureQuery) -> Result<Answer<Erased>> {
    let Call { app, who, request } = call;
    let ErasureQuery { user, key, until } = query;
    if user.is_none() && key.is_none() && until.is_none() {
        let why = "Say what to delete: name `user`, `key` or `until`, or several of them.";
        return Err(Error::new(Kind::InvalidRequest, why));
    }
    let of_user = |id: &str| UserId::parse(id).or((id == "usr_admin").then(UserId::admin));
    let reach = match page::value("user", user.as_deref(), "the id of a user", of_user)? {
        None => app.auth.reach(who),
        Some(user) if who.is_admin() => Reach::Owner(user),
        Some(_) => {
            let why = "Only an admin deletes captures by `user`. Name `key` or `until`.";
            return Err(Error::forbidden(why).at("user"));
        }
    };
    let filter = CaptureFilter {
        reach,
        key: page::value("key", key.as_deref(), "the id of a key", KeyId::parse)?,
        until_us: until.map(|until| until.0.as_microsecond()),
        shadows: Shadows::With,
        ..CaptureFilter::default()
    };
    let _counted = super::limits::draw(app, who)?;
    let named = request.uri().query().unwrap_or_default();
    app.store.note(call.event(Action::CaptureErase, "captures", named)).await?;
    Ok(Erased { deleted: erase_all(app, &filter).await? }.into())
}

/// Deletes all captures that match, and those of requests under way in this process. Returns how
/// many written captures it deleted.
pub(super) async fn erase_all(app: &App, filter: &CaptureFilter) -> Result<usize> {
    app.captures.pending().delete_all(filter);
    flush(&app.captures).await?;
    if app.archive.is_shared() {
        // After this wait other gateways have written the captures of what they answered before
        // this call.
        sleep(CAPTURE_SETTLE).await;
    }
    let erased = app.archive.erase(filter).await?;
    // A reroute that read its original before the deletion is pending as its replay by now.
    app.captures.pending().delete_all(filter);
    Ok(erased)
}

async fn flush(queue: &CaptureQueue) -> Result<()> {
    let late = |_| Error::store_unavailable("pending captures were not written in time");
    timeout(CAPTURE_FLUSH, queue.flush()).await.map_err(late)
}

/// Writes an audit row if an admin reads another user's capture.
async fn note_foreign(call: Call<'_>, capture: &Capture) -> Result<()> {
    let by = (call.request.extensions().get::<RequestId>().cloned(), call.client().address);
    let whose = (&capture.head.id, &capture.head.owner);
    audit::foreign(call.app, call.who, Action::CaptureRead, whose, by).await
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

/// Waits for a capture that another gateway has yet to write.
pub async fn visible_soon(app: &App, who: &Principal, id: &str) -> Result<(RequestId, UserId)> {
    let until = Instant::now() + CAPTURE_SETTLE;
    let reach = app.auth.reach(who);
    soon(&app.archive, id, until, || visible(&app.captures, &app.archive, &reach, id)).await
}

/// Repeats a look-up until the capture is there. Another gateway may have answered the request just
/// now: it writes the capture some tenths of a second later.
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
                // The pauses grow, because anybody may ask for a capture that never comes.
                pause *= 2;
            }
            found => return found,
        }
    }
}

/// Deletes a capture, written or pending. A pending capture, even of a running request, is never
/// written. One that the writer may already hold is awaited, then deleted. Replays out of the
/// caller's reach stay.
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
    // A running replay is announced before it reads its original, so once the original is deleted,
    // all its pending replays are known.
    let mut gone = HashSet::from([id.clone()]);
    let mut next = if replays { coming.delete_replays(&mut gone, reach) } else { Vec::new() };
    maybe_in_hand |= replays;
    // The capture itself comes last, so that a repeat of the call finds it until then.
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
        // A pending capture is not found yet, also while the index is incomplete.
        Err(error) if error.kind() == Kind::NotFound => {
            queue.settle(reach.owner(), CAPTURE_SETTLE).await;
            soon(archive, id, until, || find(archive, reach, id)).await
        }
        found => found,
    }
}

async fn find(archive: &Archive, reach: &Reach, id: &str) -> Result<Capture> {
    let id = RequestId::parse(id).ok_or_else(absent)?;
    // Checked before the capture is opened: to others a damaged capture is a 404 too.
    let whose = archive.whose(&id).await?;
    whose.filter(|(owner, key)| reach.covers(owner, key.as_ref())).ok_or_else(absent)?;
    let read = |Capture { head, .. }: &Capture| reach.covers(&head.owner, head.key.as_ref());
    archive.get(&id).await?.filter(read).ok_or_else(absent)
}

async fn summaries(archive: &Archive, reach: &Reach, query: &ReplayQuery) -> Result<ReplayList> {
    let ReplayQuery { limit, stream, replay, refused, .. } = *query;
    let after = page::after(query.after.as_deref(), "a replay", RequestId::parse)?;
    let filter = filter(query, reach.clone())?;
    let fits = |head: &Head| {
        stream.is_none_or(|stream| head.stream == stream)
            && replay.is_none_or(|replay| head.replay_of.is_some() == replay)
            && (refused.is_none() || head.refused == refused)
    };
    let found = match stream.is_some() || replay.is_some() || refused.is_some() {
        true => fitting(archive, &filter, (limit, after), &fits).await?,
        false => archive.page(filter, limit, after).await?,
    };
    Ok(ReplayList {
        object: ListObject::It,
        data: found.heads.iter().map(Head::summary).collect(),
        has_more: found.next.is_some(),
        next: found.next,
        unreadable: Some(found.unreadable).filter(|unreadable| *unreadable > 0),
    })
}

/// A page of captures that match by their heads, found in several pages of the index.
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
            // The next page begins after the last capture of this one.
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

pub(super) fn filter(query: &ReplayQuery, reach: Reach) -> Result<CaptureFilter> {
    let replay = |name, id: &Option<String>| {
        page::value(name, id.as_deref(), "the id of a replay", RequestId::parse)
    };
    let time = |at: Option<Time>| at.map(|at| at.0.as_microsecond());
    let of_status = "a status like 200, a class like 4xx, or a list of them";
    let asked = query.clone();
    // The index does not have the reason, but it has the state.
    let state = query.state.or(query.refused.map(|_| CaptureState::Refused));
    Ok(CaptureFilter {
        reach: page::within(query.owner.as_deref(), reach, "captures")?,
        key: page::value("key", query.key.as_deref(), "the id of a key", KeyId::parse)?,
        since_us: time(query.since),
        until_us: time(query.until),
        alias: asked.alias,
        recipe: asked.recipe,
        provider: asked.provider,
        model: asked.model,
        decided_provider: asked.decided_provider,
        decided_model: asked.decided_model,
        statuses: page::value("status", query.status.as_deref(), of_status, statuses)?
            .unwrap_or_default(),
        state: state.map(|state| state.as_str().to_owned()),
        replay_of: replay("replay_of", &query.replay_of)?,
        shadows: match query.shadow.unwrap_or(query.shadow_of.is_some()) {
            true => Shadows::Only,
            false => Shadows::Without,
        },
        shadow_of: replay("shadow_of", &query.shadow_of)?,
    })
}

/// Reads `200`, `4xx` or a comma-separated list of these as ranges.
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
