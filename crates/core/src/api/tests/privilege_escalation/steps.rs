//! The random steps: callers and calls in any order, and how many of them succeeded.

use super::*;

/// The caller of a step. An index of a key wraps around at the number of keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Key(usize),
    /// A session of one of [`USERS`].
    Session(usize),
    /// The key that created the one in question, or the first key if a key did not create it.
    Maker,
    Operator,
}

#[derive(Clone, Debug)]
pub(super) enum KeyAction {
    Create {
        by: Caller,
        body: Value,
    },
    Patch {
        by: Caller,
        of: usize,
        body: Value,
    },
    Rotate {
        by: Caller,
        of: usize,
    },
    Revoke {
        by: Caller,
        of: usize,
    },
    /// Gives the admin role to the admin of the start, or takes it away.
    Role(bool),
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..200).prop_map(Value::from),
        (-1f64..200.0).prop_map(Value::from),
        proptest::sample::select(vec![
            "",
            "a",
            "active",
            "inactive",
            "revoked",
            "usr_admin",
            "auto",
            "*"
        ])
        .prop_map(Value::from),
        (0i64..400).prop_map(|hours| Value::from(rfc3339(at(hours * 3600)))),
    ]
}

/// Any JSON of small depth.
fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("[a-c]|rpm|tpm|budget|usd|per|models", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect()))
        ]
    })
}

fn limit(on: KeySpace) -> impl Strategy<Value = (String, Value)> {
    // A case has more than a few keys, so `keys_per_user` needs larger numbers.
    let (least, usual) = if on.interface == Interface::Router { (1, 1) } else { (60, 3) };
    let number = move || prop_oneof![4 => (least..least + 11).prop_map(Value::from), 1 => scalar()];
    let name = || proptest::sample::select(vec!["a", "a/x", "a/*", "b*", "*", "auto"]);
    prop_oneof![
        usual => (on.numbers, number()),
        1 => (1u64..9, proptest::sample::select(vec!["day", "month"]))
            .prop_map(|(usd, per)| ("budget".to_owned(), json!({"usd": usd, "per": per}))),
        usual => proptest::collection::vec(name(), 0..4).prop_map(
            |names| ("models".to_owned(), json!(names))
        ),
        1 => ("rpm|tpm|concurrency|budget|models|rps", anything()),
    ]
}

/// Label pairs, some with a meaning: `capture` sets what is captured, `recipe` is a label that a
/// document's rules may test.
fn labels() -> impl Strategy<Value = Value> {
    proptest::sample::select(vec![
        json!({}),
        json!({"capture": "off"}),
        json!({"capture": "heads"}),
        json!({"capture": "on", "recipe": "dear"}),
        json!({"recipe": "dear"}),
        json!({"a": "b"}),
        json!({"capture": "never"}),
        json!({"a": null}),
        Value::Null,
    ])
}

/// A member of a body: mostly an existing one with a mostly valid value. An owner `@n` means the
/// user at index n of [`USERS`].
fn member(on: KeySpace) -> impl Strategy<Value = (String, Value)> {
    let limits = move || {
        proptest::collection::vec(limit(on), 0..4)
            .prop_map(|limits| Value::Object(limits.into_iter().collect()))
    };
    let scope = move || proptest::sample::select(on.scopes);
    let pairs =
        || proptest::collection::hash_map("[a-b]", "[a-b]", 0..2).prop_map(|pairs| json!(pairs));
    let owner = vec!["usr_admin", "usr_agent", "usr_00000000000000000000000000", "@0", "@1", "@2"];
    let record = "object|id|interface|redacted|owner|created_by|scopes|labels|limits|status|\
        created_at|expires_at|last_used_at|revoked_at|rotated_at|previous_secret_expires_at|\
        metadata|name|key|parent|maker|generation|made_open";
    prop_oneof![
        6 => limits().prop_map(|limits| ("limits".to_owned(), limits)),
        4 => proptest::collection::vec(scope(), 0..4).prop_map(
            |scopes| ("scopes".to_owned(), json!(scopes))
        ),
        3 => (1i64..400).prop_map(|hours| {
            ("expires_at".to_owned(), json!(rfc3339(at(hours * 3600))))
        }),
        2 => labels().prop_map(|labels| ("labels".to_owned(), labels)),
        1 => pairs().prop_map(|pairs| ("metadata".to_owned(), pairs)),
        1 => proptest::sample::select(vec!["active", "inactive"]).prop_map(
            |status| ("status".to_owned(), json!(status))
        ),
        2 => proptest::sample::select(owner).prop_map(|user| ("owner".to_owned(), json!(user))),
        1 => (record, anything()),
    ]
}

pub(in crate::api::tests) fn body(on: KeySpace) -> impl Strategy<Value = Value> {
    proptest::collection::vec(member(on), 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn by() -> impl Strategy<Value = Caller> {
    prop_oneof![
        6 => (0usize..12).prop_map(Caller::Key),
        4 => (0..USERS.len()).prop_map(Caller::Session),
        3 => Just(Caller::Maker),
        1 => Just(Caller::Operator),
    ]
}

pub(super) fn step(on: KeySpace) -> impl Strategy<Value = KeyAction> {
    prop_oneof![
        6 => (by(), body(on)).prop_map(|(by, body)| KeyAction::Create { by, body }),
        6 => (by(), 0usize..12, body(on)).prop_map(
            |(by, of, body)| KeyAction::Patch { by, of, body }
        ),
        3 => (by(), 0usize..12).prop_map(|(by, of)| KeyAction::Rotate { by, of }),
        1 => (by(), 0usize..12).prop_map(|(by, of)| KeyAction::Revoke { by, of }),
        1 => any::<bool>().prop_map(KeyAction::Role),
    ]
}

/// Counts of steps that succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coverage {
    /// Keys created by keys.
    pub(super) made: u32,
    /// Keys with a scope that only an admin grants.
    pub(super) reserved: u32,
    /// Patches that changed something.
    pub(super) changed: u32,
    /// Rotations of a key other than the caller's.
    pub(super) rotated: u32,
    /// Revocations of a key other than the caller's.
    pub(super) ended: u32,
    /// Checked keys whose granter was no longer an admin.
    pub(super) lapsed: u32,
}

impl Coverage {
    pub(super) fn and(self, other: Coverage) -> Coverage {
        Coverage {
            made: self.made + other.made,
            reserved: self.reserved + other.reserved,
            changed: self.changed + other.changed,
            rotated: self.rotated + other.rotated,
            ended: self.ended + other.ended,
            lapsed: self.lapsed + other.lapsed,
        }
    }
}
