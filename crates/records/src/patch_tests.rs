use super::*;
use rerouter_base::error::Kind;
use rerouter_store::Limits;

/// The examples of RFC 7396, appendix A, without those that differ in letters only.
#[test]
fn merge_patches_do_as_their_rfc_says() {
    for (target, patch, merged) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(merge(read(target), read(patch)), read(merged), "{target} {patch}");
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Change {
    name: Patch<String>,
    #[schemars(with = "bool")]
    on: Patch<bool>,
    limits: Patch<MergePatch<Limits>>,
}

fn change(body: Value) -> Result<Change> {
    read_at("", body)
}

#[test]
fn a_field_is_absent_null_or_set() {
    let read = change(json!({"name": null, "on": true})).unwrap();
    assert_eq!((read.name.change(), read.on.change()), (Some(None), Some(Some(&true))));
    assert_eq!(read.limits, Patch::Absent);
    assert_eq!(change(json!({"name": "a"})).unwrap().name.set(), Some(&"a".to_owned()));
    let refused = change(json!({"on": null})).unwrap_err();
    assert_eq!(refused.detail(), "on must be true or false.");
}

#[test]
fn a_record_is_merged_member_by_member() {
    let before = Limits { rpm: Some(3), tpm: Some(4), ..Limits::default() };
    let merged = |patch: Value| {
        let Patch::Set(patch) = change(json!({ "limits": patch })).unwrap().limits else {
            panic!("no patch");
        };
        patch.apply("limits", &before)
    };
    let after = merged(json!({"rpm": null, "tpm": 9})).unwrap();
    assert_eq!((after.rpm, after.tpm), (None, Some(9)));
    // Members that a patch leaves out keep their values.
    let budget = json!({"budget": {"usd": 5, "per": "day"}});
    let rich: Limits = serde_json::from_value(budget).unwrap();
    let Patch::Set(more) = change(json!({"limits": {"budget": {"usd": 7}}})).unwrap().limits else {
        panic!("no patch");
    };
    let after = serde_json::to_value(more.apply("limits", &rich).unwrap()).unwrap();
    assert_eq!(after, json!({"budget": {"usd": 7.0, "per": "day"}}));
    let missing = merged(json!({"budget": {"usd": 7}})).unwrap_err();
    assert_eq!(
        (missing.kind(), missing.detail()),
        (Kind::InvalidRequest, "limits.budget.per is required.")
    );
    for (patch, detail) in [
        (json!({"rpm": 0}), "limits.rpm must be a whole number from 1 to 100000000."),
        (json!({"rpn": 1}), "Unknown field limits.rpn."),
        (
            json!({"models": [3]}),
            "limits.models must be a list of up to 100 strings of 1 to 256 characters.",
        ),
        (
            json!({"budget": {"usd": 0}}),
            "limits.budget.usd must be a number above 0 and up to 100000000.",
        ),
        (json!({"budget": {"per": "week"}}), "limits.budget.per must be day or month."),
    ] {
        assert_eq!(change(json!({ "limits": patch })).unwrap_err().detail(), detail);
    }
}
