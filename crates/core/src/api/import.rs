//! `POST /v1/router/replay/import`: imports exported captures of another gateway, one per line.

use std::time::Duration;

use jiff::Timestamp;

use super::call::{Answer, Call};
use crate::app::App;
use crate::config::CaptureSettings;
use rerouter_access::auth::CaptureLevel;
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{ID_PRECISION_US, KeyId, RequestId, UserId};
use rerouter_captures::archive::SEGMENT_SHARE;
use rerouter_captures::capture::record::{Bodies, Capture};
use rerouter_records::replay::{Import, ImportObject, ImportQuery};
use rerouter_store::Action;

/// How far the time of an imported capture may be ahead of this gateway's clock.
const IMPORT_AHEAD: Duration = Duration::from_secs(300);

/// `POST /v1/router/replay/import`. Reads all lines before it stores any: one invalid line refuses
/// them all. Captures older than the retention are skipped and counted. The others are kept under
/// the same settings as this gateway's own captures.
pub(super) async fn post(call: Call<'_>, query: ImportQuery) -> Result<Answer<Import>> {
    let Call { app, request, .. } = call;
    let owner = query.owner.map(|owner| known_user(app, &owner)).transpose()?;
    let settings = &app.server.capture;
    if !settings.enabled {
        return Err(Error::conflict("Captures are disabled: `capture.enabled` is false."));
    }
    let _one = app.imports.try_acquire().map_err(|_| {
        Error::new(Kind::RateLimited, "Another import is running. Retry later.")
            .retry_after(bounds::LIMIT_RETRY)
    })?;
    let (body, now, age) = (request.body().clone(), app.clock.now(), settings.retention.age);
    let read = blocking(move || read(&body, owner.as_ref(), now, age)).await;
    let (captures, expired) = read??;
    let read = captures.len() as u64;
    let of_key = |capture: &Capture| {
        capture.head.key.as_ref().map_or(CaptureLevel::Full, |key| app.auth.capture_level_of(key))
    };
    let captures: Vec<Capture> = captures
        .into_iter()
        .filter_map(|capture| kept(of_key(&capture), settings, capture))
        .collect();
    let left_out = read - captures.len() as u64;
    let of = request.extensions().get::<RequestId>().map_or_else(String::new, ToString::to_string);
    app.store.note(call.event(Action::CaptureImport, "request", &of)).await?;
    let done = app.archive.import(captures, age / SEGMENT_SHARE).await?;
    let import = Import {
        object: ImportObject::It,
        imported: done.imported,
        existing: done.existing,
        expired,
        refused: done.refused + left_out,
    };
    Ok(import.into())
}

fn known_user(app: &App, owner: &str) -> Result<UserId> {
    let user = app.auth.user(&UserId::known(owner));
    user.map(|user| user.id.clone()).ok_or_else(|| Error::invalid("owner", "Unknown user."))
}

/// Applies this gateway's capture settings; `None` if nothing is kept.
fn kept(of_key: CaptureLevel, settings: &CaptureSettings, mut capture: Capture) -> Option<Capture> {
    let Capture { head, bodies } = &mut capture;
    head.imported = true;
    match of_key {
        CaptureLevel::Off => return None,
        CaptureLevel::Full if settings.bodies => {}
        CaptureLevel::Full | CaptureLevel::Heads => {
            head.request_captured = false;
            *bodies = Bodies::default();
        }
    }
    let most = settings.max_body;
    for (body, truncated) in [
        (&mut bodies.request, &mut head.request_truncated),
        (&mut bodies.response, &mut head.response_truncated),
    ] {
        *truncated |= body.len() > most;
        body.truncate(most);
    }
    Some(capture)
}

/// Reads the captures and counts those that are too old. If `owner` is given, it becomes the owner
/// of all.
fn read(
    body: &[u8],
    owner: Option<&UserId>,
    now: Timestamp,
    age: Duration,
) -> Result<(Vec<Capture>, u64)> {
    let oldest = now.checked_sub(age).unwrap_or(Timestamp::MIN);
    let (mut captures, mut expired) = (Vec::new(), 0);
    let lines = body.split(|byte| *byte == b'\n').zip(1_usize..);
    for (line, number) in lines.filter(|(line, _)| !line.trim_ascii().is_empty()) {
        let refused = |why: String| {
            Error::invalid(
                format!("line {number}"),
                format!("Line {number} is not a capture: {why}."),
            )
        };
        let mut capture = Capture::read_whole(line).map_err(refused)?;
        check(&capture, now).map_err(|why| refused(why.to_owned()))?;
        if capture.head.created_at < oldest {
            expired += 1;
            continue;
        }
        if let Some(owner) = owner {
            capture.head.owner = owner.clone();
        }
        captures.push(capture);
    }
    if captures.is_empty() && expired == 0 {
        return Err(Error::new(
            Kind::InvalidRequest,
            "The body must be exported captures, one per line.",
        ));
    }
    Ok((captures, expired))
}

/// Checks what lists and retention rely on: valid ids whose order follows the creation time.
fn check(capture: &Capture, now: Timestamp) -> std::result::Result<(), &'static str> {
    let head = &capture.head;
    let id = |id: &RequestId| RequestId::parse(id.as_str()).is_some();
    if !id(&head.id) || ![&head.replay_of, &head.shadow_of].into_iter().flatten().all(id) {
        return Err("an id is not valid");
    }
    if head.key.as_ref().is_some_and(|key| KeyId::parse(key.as_str()).is_none()) {
        return Err("its `key` is not valid");
    }
    if head.owner != UserId::admin() && UserId::parse(head.owner.as_str()).is_none() {
        return Err("its `user` is not valid");
    }
    let at = head.created_at.as_microsecond();
    let [first, next] = [at, at.saturating_add(ID_PRECISION_US)].map(RequestId::first_at);
    if first.is_none_or(|first| head.id < first)
        || next.as_ref().is_some_and(|next| head.id >= *next)
    {
        return Err("its `id` does not match its `created_at`");
    }
    // Ids are ordered by time only within their precision.
    let older = |of: &RequestId| *of != head.id && next.as_ref().is_none_or(|next| of < next);
    if ![&head.replay_of, &head.shadow_of].into_iter().flatten().all(older) {
        return Err("its original is not older than itself");
    }
    if head.replay_of.is_some() && head.shadow_of.is_some() {
        return Err("it is both a replay and a shadow");
    }
    // Allows for clock skew. A capture from the far future would never expire.
    if now.checked_add(IMPORT_AHEAD).is_ok_and(|latest| head.created_at > latest) {
        return Err("its `created_at` is in the future");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::id::Random;

    fn line(of: &str) -> String {
        let (owner, random) = (UserId::known("usr_00000000000000000000000000"), Random::seeded(1));
        let at: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let head = rerouter_captures::capture::record::Head::new(
            RequestId::new(at, &random),
            at,
            owner,
            "chat.completions",
        );
        let text =
            serde_json::to_string(&Capture { head, bodies: Default::default() }.whole()).unwrap();
        match of {
            "user" => text.replace("usr_00000000000000000000000000", "nobody"),
            "id" => text.replace("\"id\":\"req_", "\"id\":\"reg_"),
            "time" => text.replace("2026-11-21T00:00:00", "2026-11-21T00:00:01"),
            _ => text,
        }
    }

    fn read_at(text: &str, now: &str) -> Result<(Vec<Capture>, u64)> {
        read(text.as_bytes(), None, now.parse().unwrap(), Duration::from_secs(3_600))
    }

    fn read_one() -> Capture {
        read_at(&line(""), "2026-11-21T00:30:00Z").unwrap().0.remove(0)
    }

    #[test]
    fn what_is_repeated_is_older_and_repeated_in_one_way() {
        let now = "2026-11-21T00:30:00Z".parse().unwrap();
        let id = |at: &str| Some(RequestId::new(at.parse().unwrap(), &Random::seeded(7)));
        let (mut capture, own) = (read_one(), read_one().head.id);
        assert_eq!(check(&capture, now), Ok(()));
        let (older, newer) = (id("2026-11-20T23:59:59Z"), id("2026-11-21T00:00:01Z"));
        for (of, good) in [
            (older.clone(), true),
            (id("2026-11-21T00:00:00Z"), true),
            (newer, false),
            (Some(own), false),
        ] {
            (capture.head.replay_of, capture.head.shadow_of) = (of.clone(), None);
            assert_eq!(check(&capture, now).is_ok(), good, "{of:?}");
            (capture.head.replay_of, capture.head.shadow_of) = (None, of.clone());
            assert_eq!(check(&capture, now).is_ok(), good, "{of:?}");
        }
        (capture.head.replay_of, capture.head.shadow_of) = (older.clone(), older);
        assert!(check(&capture, now).is_err_and(|why| why.contains("both")));
    }

    #[test]
    fn what_is_kept_is_what_would_be_kept_of_a_request() {
        let settings =
            |lines: &str| crate::config::read_server("test", lines, &|_| None).unwrap().capture;
        let mut capture = read_one();
        capture.head.request_captured = true;
        capture.bodies =
            Bodies { request: vec![b'q'; 2_000].into(), response: vec![b'a'; 1_024].into() };
        let whole = kept(CaptureLevel::Full, &settings(""), capture.clone()).unwrap();
        assert!(whole.head.imported && !capture.head.imported && whole.bodies == capture.bodies);
        let cut =
            kept(CaptureLevel::Full, &settings("capture: { max_body: 1KiB }"), capture.clone())
                .unwrap();
        assert_eq!((cut.bodies.request.len(), cut.bodies.response.len()), (1_024, 1_024));
        assert_eq!((cut.head.request_truncated, cut.head.response_truncated), (true, false));
        for (of_key, lines) in
            [(CaptureLevel::Full, "capture: { bodies: false }"), (CaptureLevel::Heads, "")]
        {
            let heads = kept(of_key, &settings(lines), capture.clone()).unwrap();
            assert!(!heads.head.request_captured && heads.bodies == Bodies::default(), "{lines}");
        }
        assert_eq!(kept(CaptureLevel::Off, &settings(""), capture), None);
    }

    #[test]
    fn lines_are_captures_or_all_are_refused() {
        let good = line("");
        let (captures, expired) =
            read_at(&format!("{good}\n\n {good}\r\n"), "2026-11-21T00:30:00Z").unwrap();
        assert_eq!((captures.len(), expired), (2, 0));
        assert_eq!(read_at(&good, "2026-11-21T02:00:00Z").unwrap().1, 1);
        for (bad, why) in [
            (line("user"), "`user`"),
            (line("id"), "an id"),
            (line("time"), "does not match"),
            (good.replace("\"id\":", "\"it\":"), "not a capture"),
        ] {
            let error = read_at(&format!("{good}\n{bad}"), "2026-11-21T00:30:00Z").unwrap_err();
            assert!(
                error.field() == Some("line 2") && error.to_string().contains(why),
                "{why}: {error}"
            );
        }
        assert!(read_at(&good, "2026-11-20T00:00:00Z").unwrap_err().to_string().contains("future"));
        assert!(read_at("\n", "2026-11-21T00:30:00Z").is_err());
    }
}
