//! `POST /v1/router/replay/import`: captures of another gateway, one a line as an export has them, become this one's.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::json;

use super::page::Query;
use super::{answer, audit};
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::capture::record::Capture;
use crate::error::{Error, Kind, Result};
use crate::id::{KeyId, RequestId, UserId};
use crate::store::Action;

/// `POST /v1/router/replay/import`. All lines are read before any is kept: one that is no capture refuses them all. What is
/// past the age that captures are kept for is left out, and counted.
pub async fn post(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let query = Query::read(request.uri().query(), &["owner"])?;
    let owner = query.get("owner").map(|owner| known_user(app, owner)).transpose()?;
    let _one = app.imports.try_acquire().map_err(|_| {
        Error::new(Kind::RateLimited, "An import is under way already; this one may follow it.").retry_after(bounds::LIMIT_RETRY)
    })?;
    let (body, now, age) = (request.body().clone(), app.clock.now(), app.server.capture.retention.age);
    let read = tokio::task::spawn_blocking(move || read(&body, owner.as_ref(), now, age)).await;
    let (captures, expired) = read.map_err(Error::internal)??;
    let of = request.extensions().get::<RequestId>().map_or_else(String::new, ToString::to_string);
    app.store.note(audit::event(app, who, request, Action::CaptureImport, "request", &of)).await?;
    let done = app.archive.import(captures).await?;
    let body = json!({
        "object": "import", "imported": done.imported, "existing": done.existing, "deleted": done.deleted,
        "expired": expired, "refused": done.refused,
    });
    Ok(answer::json(StatusCode::OK, &body))
}

fn known_user(app: &App, owner: &str) -> Result<UserId> {
    let user = app.auth.user(&UserId::known(owner));
    user.map(|user| user.id.clone()).ok_or_else(|| Error::invalid("owner", "There is no such user."))
}

/// The captures, as `owner`'s where one is given, and how many were left out for their age.
fn read(body: &[u8], owner: Option<&UserId>, now: Timestamp, age: Duration) -> Result<(Vec<Capture>, u64)> {
    let oldest = now.checked_sub(age).unwrap_or(Timestamp::MIN);
    let (mut captures, mut expired) = (Vec::new(), 0);
    let lines = body.split(|byte| *byte == b'\n').zip(1_usize..);
    for (line, number) in lines.filter(|(line, _)| !line.trim_ascii().is_empty()) {
        let refused = |why: String| Error::invalid(format!("line {number}"), format!("Line {number} is no capture: {why}."));
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
        return Err(Error::new(Kind::InvalidRequest, "A capture a line is expected, as an export has them."));
    }
    Ok((captures, expired))
}

/// What lists and retention lean on: ids in the order of time, and ids that are such.
fn check(capture: &Capture, now: Timestamp) -> std::result::Result<(), &'static str> {
    let head = &capture.head;
    let id = |id: &RequestId| RequestId::parse(id.as_str()).is_some();
    if !id(&head.id) || ![&head.replay_of, &head.shadow_of].into_iter().flatten().all(id) {
        return Err("an id of it is not one");
    }
    if head.key.as_ref().is_some_and(|key| KeyId::parse(key.as_str()).is_none()) {
        return Err("its `key` is not one");
    }
    if head.owner != UserId::admin() && UserId::parse(head.owner.as_str()).is_none() {
        return Err("its `user` is not one");
    }
    let at = head.created_at.as_microsecond();
    let [first, next] = [at, at.saturating_add(bounds::ID_PRECISION_US)].map(RequestId::first_at);
    if first.is_none_or(|first| head.id < first) || next.is_some_and(|next| head.id >= next) {
        return Err("its `id` is not of the time when it was made");
    }
    // Clocks differ by so much, not by more; a capture of the future would never be over its age.
    if now.checked_add(bounds::IMPORT_AHEAD).is_ok_and(|latest| head.created_at > latest) {
        return Err("it was made in the future");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Random;

    fn line(of: &str) -> String {
        let (owner, random) = (UserId::known("usr_00000000000000000000000000"), Random::seeded(1));
        let at: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let head = crate::capture::record::Head::new(RequestId::new(at, &random), at, owner, "chat.completions");
        let text = Capture { head, bodies: Default::default() }.whole().to_string();
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

    #[test]
    fn lines_are_captures_or_all_are_refused() {
        let good = line("");
        let (captures, expired) = read_at(&format!("{good}\n\n {good}\r\n"), "2026-11-21T00:30:00Z").unwrap();
        assert_eq!((captures.len(), expired), (2, 0));
        assert_eq!(read_at(&good, "2026-11-21T02:00:00Z").unwrap().1, 1);
        for (bad, why) in [
            (line("user"), "`user`"),
            (line("id"), "an id"),
            (line("time"), "not of the time"),
            (good.replace("\"id\":", "\"it\":"), "not a capture"),
        ] {
            let error = read_at(&format!("{good}\n{bad}"), "2026-11-21T00:30:00Z").unwrap_err();
            assert!(error.field() == Some("line 2") && error.to_string().contains(why), "{why}: {error}");
        }
        assert!(read_at(&good, "2026-11-20T00:00:00Z").unwrap_err().to_string().contains("future"));
        assert!(read_at("\n", "2026-11-21T00:30:00Z").is_err());
    }
}
