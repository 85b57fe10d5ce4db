use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{closed, write_tool};
use crate::json_writer::object;
use crate::neutral::request::Tool;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn written(schema: &str) -> (Option<String>, Value) {
    let tool = Tool { parameters: Some(raw(schema)), ..Tool::default() };
    let mut item: Value = serde_json::from_slice(&object(|item| write_tool(item, &tool))).unwrap();
    let description = item["description"].as_str().map(str::to_owned);
    (description, item["input_schema"].take())
}

#[test]
fn a_schema_without_a_type_gets_one_and_keeps_the_rest() {
    for schema in [
        json!({"properties": {"a": {"type": "string"}}, "required": ["a"]}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}}),
    ] {
        let (description, mut input) = written(&schema.to_string());
        assert_eq!(description, None);
        assert_eq!(input.as_object_mut().unwrap().remove("type"), Some(json!("object")));
        assert_eq!(input, schema);
    }
    assert_eq!(written("{}").1, json!({"type": "object"}));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    let deepest = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    assert!(written(&deep).1["a"]["a"].is_object() && closed(&raw(&deepest)).is_none());
}

#[test]
fn combined_schemas_are_told_in_the_description() {
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = json!({
            "properties": {"a": {"type": "number"}, "b": {}}, keyword: [{"required": ["a"]}],
        })
        .to_string();
        let (description, input) = written(&schema);
        assert!(description.unwrap().ends_with(&schema));
        let kept = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {}}});
        assert_eq!(input, kept);
    }
}

#[test]
fn each_object_of_an_output_is_closed() {
    let schema = r#"{"type":"object","properties":{"type":{"type":["object","null"]},
        "properties":{"type":"number","maximum":1.50e3},"open":{"properties":{},
        "additionalProperties":true},"enum":{"anyOf":[{"type":"object"},
        {"const":{"type":"object"}}]}},
        "$defs":{"x":{"type":"array","items":{"type":"object","properties":{}}}}}"#;
    let made = closed(&raw(schema)).unwrap();
    let expected = json!({
        "type": "object",
        "properties": {
            "type": {"type": ["object", "null"], "additionalProperties": false},
            "properties": {"type": "number", "description": "maximum: 1500.0"},
            "open": {"properties": {}, "additionalProperties": true},
            "enum": {"anyOf": [
                {"type": "object", "additionalProperties": false},
                {"const": {"type": "object"}},
            ]},
        },
        "$defs": {"x": {
            "type": "array",
            "items": {"type": "object", "properties": {}, "additionalProperties": false},
        }},
        "additionalProperties": false,
    });
    assert_eq!(made, expected);
}

#[test]
fn bounds_of_an_output_are_described() {
    let schema = json!({ "type": "object", "additionalProperties": false, "properties": {
        "maximum": { "type": "integer", "minimum": 1, "maximum": 5, "description": "A mark." },
        "names": { "type": "array", "minItems": 1, "maxItems": 3, "items": { "maxLength": 9 } },
    } });
    let raw = raw(&schema.to_string());
    let expected = json!({ "type": "object", "additionalProperties": false, "properties": {
        "maximum": { "type": "integer", "description": "A mark.\nmaximum: 5\nminimum: 1" },
        "names": { "type": "array", "minItems": 1, "description": "maxItems: 3",
            "items": { "description": "maxLength: 9" } },
    } });
    assert_eq!(closed(&raw), Some(expected));
}

#[test]
fn an_output_format_has_no_bounds_of_sets_and_no_one_of() {
    let schema = r#"{"type":"array","uniqueItems":true,"items":{"oneOf":[{"type":"string"}]}}"#;
    let wanted = json!({"type": "array", "description": "uniqueItems: true",
        "items": {"anyOf": [{"type": "string"}]}});
    assert_eq!(closed(&raw(schema)), Some(wanted));
}
