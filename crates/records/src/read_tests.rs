use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::agent::NewAgent;
use crate::audit::AuditQuery;
use crate::key::{KeyPatch, KeyQuery, NewKey, Rotation};
use crate::node::{NewRegistration, NodeEvents, NodeHeartbeat};
use crate::patch::MergePatch;
use crate::user::{NewUser, UserPatch};
use rerouter_base::error::Kind;

fn told<T>(result: Result<T>) -> (Option<String>, String) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), Kind::InvalidRequest);
    (error.field().map(str::to_owned), error.detail().to_owned())
}

fn body<T: DeserializeOwned + JsonSchema + 'static>(value: Value) -> Result<T> {
    read(value.as_object().unwrap().clone())
}

#[test]
fn an_error_names_the_field_and_says_what_it_must_be() {
    let user = |more: Value| {
        let mut user = json!({"email": "a@b", "password": "secret secret"});
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        told(body::<NewUser>(user))
    };
    for (more, field, detail) in [
        (json!({"email": 3}), "email", "email must be a string of up to 254 characters."),
        (json!({"role": "root"}), "role", "role must be user or admin."),
        (json!({"mail": 1}), "mail", "Unknown field mail."),
        (json!({"name": ""}), "name", "name must be a string of 1 to 128 characters."),
        (json!({"limits": 3}), "limits", "limits must be an object."),
        (
            json!({"limits": {"tpm": -1}}),
            "limits.tpm",
            "limits.tpm must be a whole number from 1 to 10000000000.",
        ),
        (
            json!({"limits": {"budget": 7}}),
            "limits.budget",
            "limits.budget must be an object with usd and per.",
        ),
        (
            json!({"limits": {"models": [""]}}),
            "limits.models",
            "limits.models must be a list of up to 100 strings of 1 to 256 characters.",
        ),
        (
            json!({"limits": {"budget": {"usd": 1}}}),
            "limits.budget.per",
            "limits.budget.per is required.",
        ),
    ] {
        assert_eq!(user(more), (Some(field.to_owned()), detail.to_owned()));
    }
    assert_eq!(
        told(body::<NewUser>(json!({"password": "secret secret"}))),
        (Some("email".to_owned()), "email is required.".to_owned())
    );
    for (key, field, detail) in [
        (json!({"owner": 7}), "owner", "owner must be the id of a user."),
        (json!({"scopes": "user"}), "scopes", "scopes must be a list of strings."),
        (json!({"scopes": [1]}), "scopes", "scopes must be a list of strings."),
        (json!({"expires_at": "soon"}), "expires_at", "expires_at must be an RFC 3339 time."),
        (
            json!({"metadata": {"a": 1}}),
            "metadata",
            "metadata must be an object of up to 16 strings.",
        ),
    ] {
        assert_eq!(told(body::<NewKey>(key)), (Some(field.to_owned()), detail.to_owned()));
    }
    assert_eq!(
        told(body::<Rotation>(json!({"grace_period_seconds": 604_801}))).1,
        "grace_period_seconds must be a whole number from 0 to 604800."
    );
    let events = json!({"events": [{"id": "a", "at": "2026-01-01T00:00:00Z", "level": "loud",
        "message": "m"}]});
    assert_eq!(
        told(body::<NodeEvents>(events)),
        (
            Some("events[0].level".to_owned()),
            "events[0].level must be debug, info, warn, warning or error.".to_owned()
        )
    );
}

#[test]
fn a_value_is_in_no_error() {
    let told = told(body::<NewUser>(json!({"email": "a@b", "password": ["hunter2"]})));
    assert_eq!(told.1, "password must be a string of up to 1024 characters.");
}

#[test]
fn a_query_has_the_types_of_its_record() {
    let query = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        read_query::<KeyQuery>(pairs.collect())
    };
    let read = query(&[("limit", "7"), ("budget_used", "0.5"), ("status", "expired")]).unwrap();
    assert_eq!((read.limit, read.budget_used, read.after), (7, Some(0.5), None));
    assert_eq!(query(&[]).unwrap().limit, 20);
    for (name, value, detail) in [
        ("limit", "0", "limit must be a whole number from 1 to 100."),
        ("limit", "+5", "limit must be a whole number from 1 to 100."),
        ("limit", "", "limit must be a whole number from 1 to 100."),
        ("status", "odd", "status must be revoked, expired, inactive or active."),
        ("expires_before", "soon", "expires_before must be an RFC 3339 time."),
        ("budget_used", "NaN", "budget_used must be a number from 0 to 1."),
        ("page", "2", "Unknown parameter page."),
    ] {
        let told = told(query(&[(name, value)]));
        assert_eq!(told, (Some(name.to_owned()), detail.to_owned()), "{name}={value}");
    }
}

/// JSON that resembles bodies of requests.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..200).prop_map(Value::from),
        (0.0..3.0).prop_map(|number: f64| json!(number)),
        prop_oneof![
            "[a-z]{0,4}",
            Just("2026-01-01T00:00:00Z".to_owned()),
            Just("active".to_owned()),
            Just("ready".to_owned()),
            Just("day".to_owned()),
        ]
        .prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "name",
        "email",
        "password",
        "role",
        "limits",
        "rpm",
        "tpm",
        "budget",
        "usd",
        "per",
        "models",
        "scopes",
        "expires_at",
        "metadata",
        "labels",
        "status",
        "id",
        "context",
        "capabilities",
        "events",
        "at",
        "level",
        "message",
        "data",
        "seq",
        "running",
        "queued",
        "epoch",
        "version",
        "endpoint",
        "api_key",
        "max_concurrency",
        "model",
        "tools",
        "defaults",
    ]);
    leaf.prop_recursive(4, 48, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..8).prop_map(|members| {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    /// Each body that fits its schema can be read. Other bodies are refused with the name of a
    /// field.
    #[test]
    fn a_body_is_read_or_its_field_is_named(value in any_json()) {
        let body = Value::Object(value.as_object().cloned().unwrap_or_default());
        macro_rules! each {
            ($($record:ty),*) => {
                $(if let Err(error) = read_at::<$record>("", body.clone()) {
                    let (field, detail) = (error.field().unwrap_or_default(), error.detail());
                    prop_assert!(!field.is_empty() && !detail.contains("cannot be read"),
                        "{} {body}: {detail}", stringify!($record));
                })*
            };
        }
        each!(NewUser, UserPatch, NewKey, KeyPatch, Rotation, NewAgent, MergePatch<NewAgent>,
            NewRegistration, NodeHeartbeat, NodeEvents, AuditQuery);
    }
}

#[test]
fn a_shown_secret_is_in_json_alone() {
    let shown = crate::ShownSecret(rerouter_base::secret::Secret::new("rtr_hunter2"));
    assert!(!format!("{shown:?}").contains("hunter2"));
    assert_eq!(serde_json::to_string(&shown).unwrap(), "\"rtr_hunter2\"");
}
