//! Who may change limits, labels and status, and the effect on descendants.

use super::*;

#[tokio::test]
async fn limits_labels_and_status_are_not_the_held_key_s_to_change() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({"limits": {"rpm": 10}})).await;
    let (child, by_child) = world.key_of(&by_top, json!({"limits": {"rpm": 5}})).await;
    let (grandchild, _) = world.key_of(&by_child, json!({})).await;
    let (other, by_other) = world.key_of(&ann, json!({})).await;
    let id = |key: &Value| text(&key["id"]).to_owned();
    for (by, above) in [(&child, &top), (&grandchild, &top), (&grandchild, &child)] {
        let who = world.router(text(&by["key"]));
        for patch in [json!({"limits": {"rpm": 1}}), json!({"name": "held"})] {
            assert_eq!(kind(world.patch(&who, &id(above), patch).await).0, Kind::NotFound);
        }
    }
    for key in [&top, &child] {
        let who = world.router(text(&key["key"]));
        for (field, patch) in [
            ("limits", json!({"limits": {"rpm": 1}})),
            ("labels", json!({"labels": {}})),
            ("status", json!({"status": "active"})),
        ] {
            assert_eq!(
                kind(world.patch(&who, &id(key), patch).await),
                (Kind::Forbidden, Some(field.to_owned())),
                "{field}"
            );
        }
        world
            .patch(&who, &id(key), json!({"name": "held", "metadata": {"by": "me"}}))
            .await
            .unwrap();
        // The caller's key was changed meanwhile, so the call must be repeated with the key's
        // current state.
        let again =
            world.patch(&who, &id(key), json!({"name": "key"})).await.map_err(|error| error.kind());
        assert_eq!(again.err(), Some(Kind::Conflict));
    }
    let by_top = world.router(text(&top["key"]));
    assert_eq!(other["status"], "active");
    // The creator narrows and widens the limits, up to its own. Siblings and grandparents may not.
    assert_eq!(
        world
            .patch(&by_top, &id(&child), json!({"limits": {"rpm": 10, "tpm": 100}}))
            .await
            .unwrap()["limits"],
        json!({"rpm": 10, "tpm": 100})
    );
    let wide = world.patch(&by_top, &id(&child), json!({"limits": {"rpm": 11}})).await;
    assert_eq!(kind(wide), (Kind::Forbidden, Some("limits.rpm".to_owned())));
    assert_eq!(
        world.patch(&by_top, &id(&child), json!({"limits": null})).await.unwrap()["limits"],
        json!({"rpm": 10}),
        "as in its making"
    );
    for (who, refused) in [(&by_top, Kind::Forbidden), (&by_other, Kind::NotFound)] {
        let patched = world.patch(who, &id(&grandchild), json!({"limits": {"tpm": 9}})).await;
        assert_eq!(kind(patched).0, refused);
    }
    assert_eq!(
        kind(world.patch(&ann, &id(&child), json!({"limits": {"tpm": 9}})).await).0,
        Kind::Forbidden,
        "a key made it"
    );
    // An admin may not exceed the creator's limits either.
    assert_eq!(
        kind(world.patch(&Principal::Admin, &id(&child), json!({"limits": {"rpm": 11}})).await).0,
        Kind::Forbidden
    );
    world
        .patch(
            &Principal::Admin,
            &id(&top),
            json!({"limits": {"rpm": 20}, "labels": {"tier": "gold"}}),
        )
        .await
        .unwrap();
    world.patch(&Principal::Admin, &id(&child), json!({"limits": {"rpm": 11}})).await.unwrap();
    // Only the labels of the creator are allowed.
    let by_top = world.router(text(&top["key"]));
    assert_eq!(
        kind(world.patch(&by_top, &id(&child), json!({"labels": {"tier": "x"}})).await),
        (Kind::Forbidden, Some("labels".to_owned()))
    );
    let patched = world.patch(&by_top, &id(&child), json!({"labels": {"tier": "gold"}})).await;
    assert_eq!(patched.unwrap()["labels"], json!({"tier": "gold"}));
    assert_eq!(
        kind(world.patch(&by_top, &id(&child), json!({"labels": null})).await).0,
        Kind::Forbidden
    );
    // Ann may not widen a key that an admin made for her, whichever session she uses.
    let given = json!({"owner": ann.user_id(), "scopes": ["config"], "limits": {"rpm": 1}});
    let given = world.create(&Principal::Admin, given).await.unwrap();
    for patch in [json!({"limits": null}), json!({"labels": {}})] {
        assert_eq!(kind(world.patch(&ann, &id(&given), patch).await).0, Kind::Forbidden);
    }
    world.patch(&ann, &id(&given), json!({"status": "inactive"})).await.unwrap();
    // A key with fewer rights may not activate another, but may deactivate every key that it may
    // end.
    let wide = json!({"owner": ann.user_id(), "scopes": ["inference", "keys", "replay:all"]});
    let (wide, by_wide) = world.key_of(&Principal::Admin, wide).await;
    assert_eq!(
        kind(world.patch(&by_wide, &id(&given), json!({"status": "active"})).await),
        (Kind::Forbidden, Some("status".to_owned()))
    );
    world.patch(&by_wide, &id(&other), json!({"status": "inactive"})).await.unwrap();
    let soon = json!({"expires_at": "2025-11-24T17:00:00Z"});
    assert_eq!(
        kind(world.patch(&by_wide, &id(&top), soon.clone()).await),
        (Kind::Forbidden, Some("expires_at".to_owned())),
        "its labels are others"
    );
    world.patch(&by_wide, &id(&wide), soon).await.unwrap();
    assert_eq!((world.why(&other["key"]), world.why(&top["key"])), ("inactive", "good"));
}

#[tokio::test]
async fn what_an_admin_put_on_a_key_its_user_does_not_take_off() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let made = world.create(&ann, json!({})).await.unwrap();
    let id = text(&made["id"]);
    let put = json!({
        "limits": {"rpm": 5, "budget": {"usd": 1, "per": "day"}}, "labels": {"tier": "bronze"}
    });
    world.patch(&Principal::Admin, id, put.clone()).await.unwrap();
    for (patch, field) in [
        (json!({"limits": null}), "limits.rpm"),
        (json!({"limits": {"rpm": 6}}), "limits.rpm"),
        (json!({"limits": {"rpm": 4, "budget": null}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 2}}}), "limits.budget"),
        (json!({"limits": {"budget": {"per": "month"}}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 0.01, "per": "month"}}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 31, "per": "month"}}}), "limits.budget"),
        (json!({"labels": null}), "labels"),
        (json!({"labels": {}}), "labels"),
        (json!({"labels": {"tier": "gold"}}), "labels"),
    ] {
        assert_eq!(
            kind(world.patch(&ann, id, patch.clone()).await),
            (Kind::Forbidden, Some(field.to_owned())),
            "{patch}"
        );
    }
    let shown = world.get(&ann, id).await.unwrap();
    assert_eq!((&shown["limits"]["rpm"], &shown["labels"]), (&json!(5), &put["labels"]));
    let narrowed = world.patch(&ann, id, json!({"limits": {"rpm": 4, "tpm": 100}})).await.unwrap();
    assert_eq!((&narrowed["limits"]["rpm"], &narrowed["limits"]["tpm"]), (&json!(4), &json!(100)));
    assert_eq!(
        kind(world.patch(&ann, id, json!({"limits": {"rpm": 5}})).await).0,
        Kind::Forbidden,
        "nor back again"
    );
    world
        .patch(&Principal::Admin, id, json!({"limits": {"budget": {"usd": 10, "per": "month"}}}))
        .await
        .unwrap();
    for budget in [json!({"usd": 10, "per": "day"}), json!({"usd": 0.1, "per": "day"})] {
        let patched = world.patch(&ann, id, json!({"limits": {"budget": budget}})).await;
        assert_eq!(kind(patched), (Kind::Forbidden, Some("limits.budget".to_owned())), "{budget}");
    }
    let (_, by_key) =
        world.key_of(&ann, json!({"limits": {"budget": {"usd": 10, "per": "month"}}})).await;
    for (budget, fits) in
        [(json!({"usd": 10, "per": "day"}), false), (json!({"usd": 0.3, "per": "day"}), true)]
    {
        assert_eq!(
            world.create(&by_key, json!({"limits": {"budget": budget}})).await.is_ok(),
            fits,
            "{budget}"
        );
    }
}

#[tokio::test]
async fn labels_of_a_key_are_those_of_what_it_makes_also_when_they_change() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({})).await;
    let (child, by_child) = world.key_of(&by_top, json!({})).await;
    let (grandchild, _) = world.key_of(&by_child, json!({})).await;
    let (other, by_other) = world.key_of(&by_top, json!({})).await;
    let (of_other, _) = world.key_of(&by_other, json!({})).await;
    world
        .patch(&Principal::Admin, text(&other["id"]), json!({"labels": {"own": "yes"}}))
        .await
        .unwrap();
    world
        .patch(&Principal::Admin, text(&top["id"]), json!({"labels": {"capture": "off"}}))
        .await
        .unwrap();
    for _ in 0..2 {
        for (key, labels) in [
            (&top, json!({"capture": "off"})),
            (&child, json!({"capture": "off"})),
            (&grandchild, json!({"capture": "off"})),
            (&other, json!({"own": "yes"})),
            (&of_other, json!({"own": "yes"})),
        ] {
            assert_eq!(world.get(&ann, text(&key["id"])).await.unwrap()["labels"], labels);
        }
        world.start_again(None).await;
    }
}

#[tokio::test]
async fn what_a_key_may_no_more_none_that_descends_from_it_may() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({"limits": {"models": ["a*", "b"]}})).await;
    let (child, by_child) =
        world.key_of(&by_top, json!({"limits": {"models": ["a-1", "b"], "rpm": 5}})).await;
    let (grandchild, _) = world
        .key_of(
            &by_child,
            json!({"limits": {"models": ["b"]}, "expires_at": "2025-11-26T00:00:00Z"}),
        )
        .await;
    let (ended, _) = world.key_of(&by_child, json!({})).await;
    world.revoke(&ann, text(&ended["id"])).await.unwrap();
    let patch =
        json!({"limits": {"rpm": 9, "models": ["a*"]}, "expires_at": "2025-11-25T00:00:00Z"});
    world.patch(&ann, text(&top["id"]), patch).await.unwrap();
    for _ in 0..2 {
        for (key, models, rpm) in
            [(&top, json!(["a*"]), 9), (&child, json!(["a-1"]), 5), (&grandchild, json!([]), 5)]
        {
            let shown = world.get(&ann, text(&key["id"])).await.unwrap();
            assert_eq!(
                (&shown["limits"]["models"], &shown["limits"]["rpm"]),
                (&models, &json!(rpm))
            );
            assert_eq!(shown["expires_at"], "2025-11-25T00:00:00.000000Z");
        }
        world.start_again(None).await;
    }
    // A caller with an outdated state of its key cannot pass on the rights that the key had.
    for stale in [&by_top, &by_child] {
        assert_eq!(kind(world.create(stale, json!({})).await).0, Kind::Conflict);
    }
    let later = world
        .patch(&ann, text(&grandchild["id"]), json!({"expires_at": "2025-11-25T00:00:01Z"}))
        .await;
    assert_eq!(kind(later).0, Kind::InvalidRequest);
}
