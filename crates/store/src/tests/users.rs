//! Users and their sessions.

use std::sync::Arc;

use super::*;

pub(crate) async fn a_user_keeps_the_newest_sessions(bed: &impl Bed) {
    let random = Random::seeded(3);
    let store = bed.open().await;
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let sessions: Vec<SessionRow> =
        (0..4).map(|second| session(&ann.id, second, &random)).collect();
    for login in &sessions[..3] {
        store.create_session(login.clone(), ann.password.clone(), 3).await.unwrap();
    }
    let last = store.create_session(sessions[3].clone(), ann.password.clone(), 3).await.unwrap();
    assert_eq!(
        last.changes,
        [Change::SessionEnded(sessions[0].id.clone()), Change::Session(sessions[3].clone())]
    );
    let swept = store
        .sweep_sessions(
            vec![(sessions[2].id.clone(), at(60))],
            vec![sessions[1].id.clone()],
            (at(30), at(90)),
        )
        .await
        .unwrap();
    assert_eq!(swept.changes, [Change::SessionEnded(sessions[1].id.clone())]);
    // Another gateway has used it since.
    let used = store.sweep_sessions(vec![], vec![sessions[2].id.clone()], (at(30), at(90))).await;
    assert_eq!(used.unwrap().changes, []);
    let mut left = store.load().await.unwrap().sessions;
    left.sort_by_key(|row| row.created_at);
    assert_eq!(
        left,
        [SessionRow { last_seen: at(60), ..sessions[2].clone() }, sessions[3].clone()]
    );
}

pub(crate) async fn a_session_begins_with_the_present_password_of_an_enabled_user(bed: &impl Bed) {
    let random = Random::seeded(33);
    let store = bed.open().await;
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let begin = async |password: &str| {
        store.create_session(session(&ann.id, 1, &random), password.to_owned(), 20).await
    };
    let first = session(&ann.id, 0, &random);
    store.create_session(first.clone(), ann.password.clone(), 20).await.unwrap();
    store.change_password(&ann.id, ann.password.clone(), "new".into(), &first.id).await.unwrap();
    assert!(matches!(begin(&ann.password).await, Err(StoreError::Conflict)));
    begin("new").await.unwrap();
    let disable = |disabled: bool| -> ChangeUser {
        Arc::new(move |user: &mut UserRow| {
            user.disabled = disabled;
            Ok(())
        })
    };
    store.update_user(&ann.id, true, disable(true)).await.unwrap();
    assert!(matches!(begin("new").await, Err(StoreError::Conflict)));
    assert!(store.load().await.unwrap().sessions.is_empty());
    store.update_user(&ann.id, true, disable(false)).await.unwrap();
    begin("new").await.unwrap();
    let other = session(&UserId::known("usr_nobody"), 1, &random);
    assert!(matches!(
        store.create_session(other, "new".into(), 20).await,
        Err(StoreError::Conflict)
    ));
}

pub(crate) async fn of_two_changes_of_a_password_one_is_refused(bed: &impl Bed) {
    let random = Random::seeded(8);
    let store = bed.open().await;
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let sessions: Vec<SessionRow> =
        (0..3).map(|second| session(&ann.id, second, &random)).collect();
    for login in &sessions {
        store.create_session(login.clone(), ann.password.clone(), 20).await.unwrap();
    }
    let committed = store
        .change_password(&ann.id, ann.password.clone(), "new".into(), &sessions[1].id)
        .await
        .unwrap();
    let changed = UserRow { password: "new".into(), ..ann.clone() };
    assert!(committed.changes.contains(&Change::User(changed.clone().into())));
    for ended in [0, 2] {
        assert!(committed.changes.contains(&Change::SessionEnded(sessions[ended].id.clone())));
    }
    let late =
        store.change_password(&ann.id, ann.password.clone(), "other".into(), &sessions[1].id).await;
    assert!(matches!(late, Err(StoreError::Conflict)));
    let read = store.load().await.unwrap();
    assert_eq!((read.users, read.sessions), (vec![changed.clone()], vec![sessions[1].clone()]));
    let reset: ChangeUser = Arc::new(|user: &mut UserRow| {
        user.password = "reset".into();
        Ok(())
    });
    let committed = store.update_user(&ann.id, false, reset).await.unwrap();
    let changed = UserRow { password: "reset".into(), ..changed };
    let expected = [Change::User(changed.into()), Change::SessionEnded(sessions[1].id.clone())];
    assert_eq!(committed.changes, expected);
}

pub(crate) async fn the_last_admin_stays_and_only_an_admin_makes_users(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(43));
    let change = |role: Role, disabled: bool| -> ChangeUser {
        Arc::new(move |user: &mut UserRow| {
            (user.role, user.disabled) = (role, disabled);
            Ok(())
        })
    };
    let [ann, bob] = ["ann@example.com", "bob@example.com"].map(|email| user(email, &random));
    store.create_user_by(ann.clone(), Some(UserId::admin())).await.unwrap();
    let by_ann = async |user: UserRow| store.create_user_by(user, Some(ann.id.clone())).await;
    assert!(matches!(by_ann(bob.clone()).await, Err(StoreError::Stale)), "she is no admin");
    store.update_user(&ann.id, false, change(Role::Admin, false)).await.unwrap();
    by_ann(bob.clone()).await.unwrap();
    for (role, disabled) in [(Role::User, false), (Role::Admin, true)] {
        let refused = store.update_user(&ann.id, false, change(role, disabled)).await;
        assert!(matches!(refused, Err(StoreError::LastAdmin)));
    }
    store.update_user(&bob.id, false, change(Role::Admin, false)).await.unwrap();
    let login = session(&ann.id, 1, &random);
    store.create_session(login.clone(), ann.password.clone(), 9).await.unwrap();
    let disabled = UserRow { role: Role::Admin, disabled: true, ..ann.clone() };
    let disable = store.update_user(&ann.id, false, change(Role::Admin, true)).await.unwrap();
    let expected = [Change::User(disabled.into()), Change::SessionEnded(login.id)];
    assert_eq!(disable.changes, expected);
    let again = store.update_user(&ann.id, false, change(Role::Admin, true)).await.unwrap();
    assert_eq!((again.rev, again.changes.len()), (disable.rev, 0));
    assert!(matches!(by_ann(user("c@example.com", &random)).await, Err(StoreError::Stale)));
    store.update_user(&bob.id, true, change(Role::User, false)).await.unwrap();
    let nobody = UserId::new(at(0), &random);
    let absent = store.update_user(&nobody, true, change(Role::User, false)).await;
    assert!(matches!(absent, Err(StoreError::NotFound)));
    let refuse: ChangeUser = Arc::new(|_: &mut UserRow| Err(StoreError::Conflict));
    let refused = store.update_user(&bob.id, true, refuse).await;
    assert!(matches!(refused, Err(StoreError::Conflict)));
}

pub(crate) async fn of_two_first_admins_one_is_refused(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(44));
    let admin = |email: &str| UserRow { role: Role::Admin, ..user(email, &random) };
    store.create_user(user("someone@example.com", &random)).await.unwrap();
    let make = |email: &str| store.create_first_admin(admin(email));
    assert!(matches!(make("someone@example.com").await, Err(StoreError::Conflict)));
    let made = tokio::join!(make("ann@example.com"), make("bob@example.com"));
    let refused = [made.0, made.1].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(matches!(refused[..], [StoreError::Stale]), "{refused:?}");
    let read = store.load().await.unwrap().users;
    let made = read.iter().find(|user| user.role == Role::Admin).unwrap();
    let disable: ChangeUser = Arc::new(|user: &mut UserRow| {
        user.disabled = true;
        Ok(())
    });
    store.update_user(&made.id, true, disable).await.unwrap();
    assert!(matches!(make("eve@example.com").await, Err(StoreError::Stale)), "nor one disabled");
}

pub(crate) async fn a_deleted_user_leaves_ended_keys_without_names(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(45));
    let [ann, bob] = ["ann@example.com", "bob@example.com"].map(|email| user(email, &random));
    let pairs = std::collections::BTreeMap::from([("of".to_owned(), "Ann".to_owned())]);
    let live = KeyRow {
        name: "Ann's".into(),
        labels: pairs.clone().into(),
        metadata: pairs.into(),
        ..fixtures::key(&ann.id, &random)
    };
    let ended = fixtures::key(&ann.id, &random);
    let child = KeyRow { parent: Some(live.id.clone()), ..fixtures::key(&bob.id, &random) };
    for one in [&ann, &bob] {
        store.create_user(one.clone()).await.unwrap();
    }
    store.create_keys(vec![live.clone(), ended.clone(), child.clone()]).await.unwrap();
    store.revoke_key(&ended.id, at(1)).await.unwrap();
    let login = session(&ann.id, 1, &random);
    store.create_session(login.clone(), ann.password.clone(), 9).await.unwrap();
    let deleted = store.delete_user(&ann.id, at(2)).await.unwrap();
    assert_eq!(deleted.changes.len(), 4, "{deleted:?}");
    assert!(deleted.changes.contains(&Change::SessionEnded(login.id)));
    assert_eq!(deleted.changes.last(), Some(&Change::UserDeleted(ann.id.clone())));
    let left = store.load().await.unwrap();
    assert_eq!((left.users, left.sessions), (vec![bob], vec![]));
    let nameless = |key: &KeyRow, second: i64| KeyRow {
        name: "deleted".into(),
        labels: Default::default(),
        metadata: Default::default(),
        revoked_at: Some(at(second)),
        ..key.clone()
    };
    let of = |id: &KeyId| left.keys.iter().find(|key| key.id == *id).unwrap();
    assert_eq!(*of(&live.id), nameless(&live, 2));
    assert_eq!(*of(&ended.id), nameless(&ended, 1));
    assert_eq!(*of(&child.id), child);
    assert!(matches!(store.delete_user(&ann.id, at(3)).await, Err(StoreError::NotFound)));
    let again = user("ann@example.com", &random);
    store.create_user(again.clone()).await.unwrap();
    assert_ne!(again.id, ann.id);
}
