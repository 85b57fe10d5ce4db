//! Users, managed by admins. The built-in `usr_admin` of `ADMIN_API_KEY` can be read by id, but is
//! not listed and cannot be changed.

use std::sync::Arc;

use super::body::check_name;
use super::call::{Answer, Call};
use super::page;
use super::{limits, pin, replays};
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::{RequestId, UserId};
use rerouter_base::interface::Interface;
use rerouter_base::secret::Secret;
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::user::{NewUser, UserPatch, UserRecord};
use rerouter_store::{
    Action, CaptureFilter, ChangeUser, Reach, Role, Shadows, StoreError, UserRow,
};

pub(super) async fn create(call: Call<'_>, new: NewUser) -> Result<Answer<UserRecord>> {
    let Call { app, who, .. } = call;
    let email = pin::normal_email(&new.email)?;
    pin::check_new_password("password", &new.password.0)?;
    new.name.as_deref().map_or(Ok(()), check_name)?;
    let limits = limits::allowed(Interface::Router, new.limits.unwrap_or_default())?;
    if app.auth.user_by_email(&email).is_some() {
        return Err(pin::email_is_taken());
    }
    let password = app.passwords.hash(new.password.0).await?;
    let now = call.now();
    app.auth.recheck(who, now)?;
    let (id, role) = (UserId::new(now, &app.random), new.role.unwrap_or(Role::User));
    let user = UserRow { name: new.name, limits, ..UserRow::new(id, email, role, password, now) };
    let record = UserRecord::from(&user);
    let store = call.noting(Action::UserCreate, "user", user.id.as_str());
    let made = store.create_user_by(user, who.user_id()).await.map_err(pin::of_new_user)?;
    let path = format!("/v1/users/{}", record.id);
    call.commit(&made, record).await?.at(&path)
}

/// `GET /v1/users`, newest first.
pub(super) async fn list(call: Call<'_>, query: PageQuery) -> Result<Answer<Page<UserRecord>>> {
    let after = page::after(query.after.as_deref(), "a user", UserId::parse)?;
    let found = call.app.auth.user_page(after.as_ref(), query.limit + 1);
    let found = found.iter().map(|user| UserRecord::from(&**user)).collect();
    Ok(Page::of(found, query.limit, |user| user.id.to_string()).into())
}

pub(super) async fn get(call: Call<'_>) -> Result<Answer<UserRecord>> {
    Ok(UserRecord::from(&*find(call)?).into())
}

/// `PATCH /v1/users/{id}`, a merge patch (RFC 7396). A new password ends all sessions of the user.
/// Disabling applies in memory first, like a revocation: if the store fails, the user is disabled
/// nevertheless, the caller gets 503, and the write is retried.
pub(super) async fn update(call: Call<'_>, patch: UserPatch) -> Result<Answer<UserRecord>> {
    let Call { app, who, .. } = call;
    check(&patch)?;
    let user = find(call)?;
    if user.id == UserId::admin() {
        return Err(Error::conflict("The built-in user cannot be changed."));
    }
    // Checked before anything happens; later the store applies the patch to the then current state.
    let mut wanted = UserRow::clone(&user);
    apply(&patch, None, &mut wanted, who)?;
    let hash = hash(call, &patch).await?;
    // A repeated call retries a pending write at once.
    let disables = wanted.disabled && (!user.disabled || app.auth.is_being_disabled(&user.id));
    // Without any admin user, ADMIN_API_KEY still works.
    let last_may_go = matches!(who, Principal::Admin);
    if !disables && !last_may_go && wanted.role != Role::Admin && app.auth.is_last_admin(&user.id) {
        // The store checks this too, but does not know of pending disablings yet.
        return Err(StoreError::LastAdmin.into());
    }
    if disables {
        wanted.disabled = user.disabled;
    }
    let actions = [
        (disables, Action::UserDisable),
        (hash.is_some(), Action::PasswordChange),
        (wanted != *user || (!disables && hash.is_none()), Action::UserUpdate),
    ];
    let mut actions = actions.into_iter().filter(|(done, _)| *done).map(|(_, action)| action);
    let first = call.event(actions.next().unwrap_or(Action::UserUpdate), "user", user.id.as_str());
    let event = actions.fold(first, |event, action| event.also(action, "user", user.id.as_str()));
    let store = app.store.noting(event);
    let by = who.clone();
    let change = Arc::new(move |user: &mut UserRow| {
        apply(&patch, hash.as_deref(), user, &by).map_err(|_| StoreError::Conflict)
    });
    let committed = match disables {
        true => app.auth.disable(&store, &user.id, last_may_go, change).await,
        false if app.auth.is_being_disabled(&user.id) => {
            Err(StoreError::unavailable("the user is being disabled"))
        }
        false => store.update_user(&user.id, last_may_go, change).await,
    };
    let committed = committed.map_err(|error| match error {
        StoreError::Conflict => Error::conflict("The user changed during this request."),
        StoreError::NotFound => Error::not_found("user"),
        other => other.into(),
    })?;
    let user = app.auth.user(&user.id).ok_or_else(|| Error::not_found("user"))?;
    call.commit(&committed, UserRecord::from(&*user)).await
}

/// `DELETE /v1/users/{id}`: disables the user, then deletes the captures, then the row. A call that
/// broke off leaves a disabled user, and a repeat continues.
pub(super) async fn delete(call: Call<'_>) -> Result<Answer<()>> {
    let Call { app, who, .. } = call;
    let id = find(call)?.id.clone();
    if id == UserId::admin() {
        return Err(Error::conflict("The built-in user cannot be deleted."));
    }
    let event = call.event(Action::UserDelete, "user", id.as_str());
    let (store, last_may_go) = (app.store.noting(event.clone()), matches!(who, Principal::Admin));
    let disable: ChangeUser = Arc::new(|user| {
        user.disabled = true;
        Ok(())
    });
    let disabled = app.auth.disable(&store, &id, last_may_go, disable).await?;
    app.store.acknowledge(disabled.rev).await?;
    if disabled.changes.is_empty() {
        app.store.note(event).await?;
    }
    // A tombstone under the owner's id: with it PostgreSQL stores nothing more of this owner. No
    // effect on SQLite.
    app.archive.delete(&RequestId::known(id.as_str()), false, Reach::All).await?;
    let reach = Reach::Owner(id.clone());
    let of_user = CaptureFilter { reach, shadows: Shadows::With, ..CaptureFilter::default() };
    replays::erase_all(app, &of_user).await?;
    let deleted = app.store.delete_user(&id, app.clock.now()).await?;
    call.commit(&deleted, ()).await
}

fn check(patch: &UserPatch) -> Result<()> {
    if let Some(password) = patch.password.set() {
        pin::check_new_password("password", password)?;
    }
    patch.name.set().map_or(Ok(()), |name| check_name(name))
}

/// Hashing waits for a turn, so the caller is checked again afterwards.
async fn hash(call: Call<'_>, patch: &UserPatch) -> Result<Option<String>> {
    let Some(password) = patch.password.set() else { return Ok(None) };
    let hash = call.app.passwords.hash(Secret::clone(password)).await?;
    call.app.auth.recheck(call.who, call.now())?;
    Ok(Some(hash))
}

/// Applies a patch. `hash` is that of its password, once known.
fn apply(patch: &UserPatch, hash: Option<&str>, user: &mut UserRow, by: &Principal) -> Result<()> {
    // With the password an admin could act as the other admin, even after losing the role.
    let resets = patch.password.is_present();
    if resets && user.role == Role::Admin && !matches!(by, Principal::Admin) {
        let why = "Only ADMIN_API_KEY may set the password of an admin.";
        return Err(Error::forbidden(why).at("password"));
    }
    if let Some(hash) = hash {
        hash.clone_into(&mut user.password);
    }
    if let Some(name) = patch.name.change() {
        user.name = name.cloned();
    }
    user.role = patch.role.set().copied().unwrap_or(user.role);
    user.disabled = patch.disabled.set().copied().unwrap_or(user.disabled);
    if let Some(limits) = limits::merged(&user.limits, &patch.limits)? {
        user.limits = limits::allowed(Interface::Router, limits)?;
    }
    Ok(())
}

fn find(call: Call<'_>) -> Result<Arc<UserRow>> {
    call.app.auth.user(&UserId::known(call.id())).ok_or_else(|| Error::not_found("user"))
}
