//! The edits in each dialect. All other bytes of the client stay.

#[cfg(test)]
#[path = "agent_property_tests.rs"]
mod property_tests;

use proptest::prelude::*;

use super::*;
use crate::request::read_request;

/// What an agent of the tests brings along, as its owner would write it.
struct Written {
    instructions: Option<&'static str>,
    defaults: Value,
    tools: Value,
}

impl Written {
    fn apply(&self, endpoint: Endpoint, body: &str) -> Result<String, Error> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let span = read_request(&body, endpoint)?.model_span;
        let preset = AgentPreset {
            model: "auto",
            instructions: self.instructions,
            defaults: self.defaults.as_object().unwrap(),
            tools: self.tools.as_array().unwrap(),
        };
        let made = apply(&preset, endpoint, &body, &span)?;
        assert_eq!(&*read_request(&made, endpoint).unwrap().model, "auto");
        Ok(String::from_utf8(made.to_vec()).unwrap())
    }
}

fn speaker() -> Written {
    Written { instructions: Some("Be \"brief\".\n"), defaults: json!({}), tools: json!([]) }
}

fn sampler() -> Written {
    let defaults = json!({
        "temperature": 0.5, "top_p": 1, "top_k": 4, "seed": 7, "stop": "END", "max_tokens": 9,
        "presence_penalty": 0,
    });
    Written { instructions: None, defaults, tools: json!([]) }
}

fn toolbox() -> Written {
    let tools = json!([
        {
            "type": "function",
            "function": {
                "name": "look", "description": "d", "parameters": {"type": "object"},
                "strict": true,
            },
        },
        {"type": "function", "function": {"name": "rest"}}]);
    Written { instructions: None, defaults: json!({}), tools }
}

const CHAT: Endpoint = Endpoint::ChatCompletions;

#[test]
fn instructions_stand_before_what_the_client_says() {
    let text = r#""Be \"brief\".\n""#;
    let system = format!(r#"{{"role":"system","content":{text}}}"#);
    let block = format!(r#"{{"type":"text","text":{text}}}"#);
    let prefix = r#"Be \"brief\".\n\n\n"#;
    for (endpoint, body, expected) in [
        (
            CHAT,
            r#"{"model":"agent/a","messages":[]}"#,
            format!(r#"{{"model":"auto","messages":[{system}]}}"#),
        ),
        (
            CHAT,
            r#" { "messages" : [ ] , "model" : "agent/a" } "#,
            format!(r#" {{ "messages" : [{system} ] , "model" : "auto" }} "#),
        ),
        (
            CHAT,
            concat!(
                r#"{"messages":[ {"role":"system","content":"\u00e4 \"messages\":[]"}],"#,
                r#""model":"agent/a","x":{"messages":[1]}}"#,
            ),
            [
                r#"{"messages":["#,
                &system,
                r#", {"role":"system","content":"\u00e4 \"messages\":[]"}],"#,
                r#""model":"auto","x":{"messages":[1]}}"#,
            ]
            .concat(),
        ),
        (CHAT, r#"{"model":"agent/a"}"#, r#"{"model":"auto"}"#.to_owned()),
        (
            Endpoint::Messages,
            r#"{"model":"agent/a","messages":[]}"#,
            format!(r#"{{"model":"auto","system":{text},"messages":[]}}"#),
        ),
        (
            Endpoint::Messages,
            r#"{"system":null,"model":"agent/a"}"#,
            format!(r#"{{"system":{text},"model":"auto"}}"#),
        ),
        (
            Endpoint::Messages,
            r#"{"system":"","model":"agent/a"}"#,
            format!(r#"{{"system":{text},"model":"auto"}}"#),
        ),
        (
            Endpoint::Messages,
            r#"{"system":"\u0041 ü","model":"agent/a"}"#,
            format!(r#"{{"system":"{prefix}\u0041 ü","model":"auto"}}"#),
        ),
        (
            Endpoint::CountTokens,
            r#"{"system": [ ],"model":"agent/a"}"#,
            format!(r#"{{"system": [{block} ],"model":"auto"}}"#),
        ),
        (
            Endpoint::Messages,
            r#"{"system":[{"text":"\u0061","type":"text"}],"model":"agent/a"}"#,
            format!(r#"{{"system":[{block},{{"text":"\u0061","type":"text"}}],"model":"auto"}}"#),
        ),
        (
            Endpoint::Responses,
            r#"{"model":"agent/a","input":"x"}"#,
            format!(r#"{{"model":"auto","instructions":{text},"input":"x"}}"#),
        ),
        (
            Endpoint::Responses,
            r#"{"instructions":"x","model":"agent/a"}"#,
            format!(r#"{{"instructions":"{prefix}x","model":"auto"}}"#),
        ),
        (
            Endpoint::Responses,
            r#"{"instructions":null,"model":"agent/a"}"#,
            format!(r#"{{"instructions":{text},"model":"auto"}}"#),
        ),
    ] {
        assert_eq!(speaker().apply(endpoint, body).unwrap(), expected, "{body}");
    }
    let silent = Written { instructions: Some(""), ..speaker() };
    assert_eq!(
        silent.apply(Endpoint::Messages, r#"{"model":"agent/a"}"#).unwrap(),
        r#"{"model":"auto"}"#
    );
    for (endpoint, body, field) in [
        (Endpoint::Messages, r#"{"system":3,"model":"agent/a"}"#, "system"),
        (Endpoint::CountTokens, r#"{"system":{},"model":"agent/a"}"#, "system"),
        (Endpoint::Responses, r#"{"instructions":[],"model":"agent/a"}"#, "instructions"),
        (Endpoint::Embeddings, r#"{"input":"x","model":"agent/a"}"#, "model"),
    ] {
        assert_eq!(speaker().apply(endpoint, body).unwrap_err().field(), Some(field), "{body}");
    }
}

#[test]
fn the_client_s_fields_win_over_the_agent_s() {
    for (endpoint, body, expected) in [
        (
            CHAT,
            r#"{"model":"agent/a","temperature":null,"Top_P":0.1,"max_completion_tokens":3}"#,
            concat!(
                r#"{"model":"auto","top_k":4,"seed":7,"stop":"END","presence_penalty":0,"#,
                r#""temperature":null,"Top_P":0.1,"max_completion_tokens":3}"#,
            ),
        ),
        (
            CHAT,
            r#"{"x":{"temperature":1},"model":"agent/a"}"#,
            concat!(
                r#"{"x":{"temperature":1},"model":"auto","temperature":0.5,"top_p":1,"top_k":4,"#,
                r#""seed":7,"stop":"END","max_tokens":9,"presence_penalty":0}"#,
            ),
        ),
        (
            Endpoint::Messages,
            r#"{"model":"agent/a","temperature":1}"#,
            concat!(
                r#"{"model":"auto","top_p":1,"top_k":4,"stop_sequences":["END"],"max_tokens":9,"#,
                r#""temperature":1}"#,
            ),
        ),
        (
            Endpoint::Messages,
            concat!(
                r#"{"model":"agent/a","stop_sequences":[],"max_tokens":1,"top_p":1,"top_k":1,"#,
                r#""temperature":1}"#,
            ),
            concat!(
                r#"{"model":"auto","stop_sequences":[],"max_tokens":1,"top_p":1,"top_k":1,"#,
                r#""temperature":1}"#,
            ),
        ),
        (
            Endpoint::Responses,
            r#"{"model":"agent/a"}"#,
            r#"{"model":"auto","temperature":0.5,"top_p":1,"max_output_tokens":9}"#,
        ),
        (Endpoint::CountTokens, r#"{"model":"agent/a"}"#, r#"{"model":"auto"}"#),
    ] {
        assert_eq!(sampler().apply(endpoint, body).unwrap(), expected);
    }
    let both = Written {
        defaults: json!({"max_tokens": 1, "max_completion_tokens": 2, "stop": ["a", "b"]}),
        ..sampler()
    };
    assert_eq!(
        both.apply(CHAT, r#"{"model":"m"}"#).unwrap(),
        r#"{"model":"auto","max_completion_tokens":2,"stop":["a","b"]}"#
    );
    assert_eq!(
        both.apply(Endpoint::Messages, r#"{"model":"m"}"#).unwrap(),
        r#"{"model":"auto","max_tokens":2,"stop_sequences":["a","b"]}"#
    );
}

#[test]
fn the_agent_s_tools_stand_before_the_client_s_in_each_dialect_s_shape() {
    let chat = toolbox()
        .tools
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let messages = concat!(
        r#"{"name":"look","description":"d","input_schema":{"type":"object"},"strict":true},"#,
        r#"{"name":"rest","input_schema":{"type":"object","properties":{}}}"#,
    );
    let responses = concat!(
        r#"{"type":"function","name":"look","description":"d","parameters":{"type":"object"},"#,
        r#""strict":true},{"type":"function","name":"rest","parameters":{"type":"object","#,
        r#""properties":{}},"strict":false}"#,
    );
    let own = r#"{"function":{"na\u006de":"other"},"type":"function"}"#;
    for (endpoint, brought) in [
        (CHAT, chat.as_str()),
        (Endpoint::Messages, messages),
        (Endpoint::CountTokens, messages),
        (Endpoint::Responses, responses),
    ] {
        for (body, expected) in [
            (r#"{"model":"m"}"#.to_owned(), format!(r#"{{"model":"auto","tools":[{brought}]}}"#)),
            (
                r#"{"tools":null,"model":"m"}"#.to_owned(),
                format!(r#"{{"tools":[{brought}],"model":"auto"}}"#),
            ),
            (
                r#"{"tools":[ ],"model":"m"}"#.to_owned(),
                format!(r#"{{"tools":[{brought} ],"model":"auto"}}"#),
            ),
            (
                format!(r#"{{"tools":[ {own}, 3],"model":"m"}}"#),
                format!(r#"{{"tools":[{brought}, {own}, 3],"model":"auto"}}"#),
            ),
        ] {
            assert_eq!(toolbox().apply(endpoint, &body).unwrap(), expected);
            assert_eq!(speaker().apply(endpoint, &body).unwrap().contains(own), body.contains(own));
        }
        for same in [
            r#"{"name":"l\u006fok"}"#,
            r#"{"type":"function","function":{"name":"rest"}}"#,
            r#"{"custom":{"name":"look"}}"#,
        ] {
            let refused = toolbox()
                .apply(endpoint, &format!(r#"{{"tools":[{same}],"model":"m"}}"#))
                .unwrap_err();
            assert_eq!(refused.field(), Some("tools"));
            assert!(
                refused.detail().contains("`look`") || refused.detail().contains("`rest`"),
                "{refused}"
            );
        }
        assert_eq!(
            toolbox().apply(endpoint, r#"{"tools":{},"model":"m"}"#).unwrap_err().field(),
            Some("tools")
        );
    }
}
