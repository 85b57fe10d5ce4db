//! Compares the edits of an agent on arbitrary requests with a model that works on parsed values.

use super::*;

/// Any JSON value; nested objects may use names that the edits look for.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~ü\"\\\\\n\u{1f600}]{0,8}".prop_map(Value::from),
        Just(Value::from("\"messages\":[],\"system\":\"")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let name = prop::sample::select(
            &["messages", "system", "tools", "model", "x", "content", "role"][..],
        );
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// Writes a value the way a client may: blanks anywhere, and letters as escapes.
fn write(value: &Value, odd: &mut impl Iterator<Item = u8>, out: &mut String) {
    let blank = |odd: u8| [" ", "", "\n\t", "", "\r\n", ""][usize::from(odd % 6)];
    let text = |text: &str, odd: u8| match text.chars().next() {
        Some(first) if odd.is_multiple_of(3) && first.is_ascii() => {
            let rest = Value::from(&text[1..]).to_string();
            format!("\"\\u{:04x}{}", u32::from(first), &rest[1..])
        }
        _ => Value::from(text).to_string(),
    };
    let mut next = || odd.next().unwrap();
    out.push_str(blank(next()));
    match value {
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                write(item, odd, out);
            }
            out.push_str(" ]");
        }
        Value::Object(members) => {
            out.push('{');
            for (n, (name, value)) in members.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                let odd_name = odd.next().unwrap();
                // The names that the gateway reads must not have escapes.
                let is_free = ["a", "b", "metadata"].contains(&name.as_str());
                out.push_str(&if is_free {
                    text(name, odd_name)
                } else {
                    Value::from(name.as_str()).to_string()
                });
                out.push_str(blank(odd.next().unwrap()));
                out.push(':');
                write(value, odd, out);
            }
            out.push_str("\n}");
        }
        Value::String(said) => out.push_str(&text(said, next())),
        other => out.push_str(&other.to_string()),
    }
}

/// The object that the agent is to make of a request, by values instead of bytes.
fn expected(body: &Value, written: &Written, endpoint: Endpoint) -> Map<String, Value> {
    let mut expected = body.as_object().unwrap().clone();
    expected["model"] = json!("auto");
    let preset = AgentPreset {
        model: "auto",
        instructions: None,
        defaults: written.defaults.as_object().unwrap(),
        tools: &[],
    };
    let rules = endpoint.row().agent.as_ref().unwrap();
    for (name, value) in sampling(&preset, rules) {
        let other = MOST_TOKENS.contains(&name)
            && MOST_TOKENS.iter().any(|name| expected.contains_key(*name));
        if !other {
            expected.entry(name).or_insert(value.into_owned());
        }
    }
    let brought: Vec<Value> = written
        .tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| (rules.tool)(tool).into_owned())
        .collect();
    let own = expected.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    expected.insert("tools".into(), [brought, own].concat().into());
    let (name, text) = (rules.speech, written.instructions.unwrap());
    let speech = match expected.get(name).cloned().unwrap_or_default() {
        Value::Array(said) if endpoint == CHAT => {
            [vec![json!({"role": "system", "content": text})], said].concat().into()
        }
        Value::Array(said) => [vec![json!({"type": "text", "text": text})], said].concat().into(),
        Value::String(said) if !said.is_empty() => format!("{text}\n\n{said}").into(),
        _ if endpoint == CHAT => return expected,
        _ => text.into(),
    };
    expected.insert(name.into(), speech);
    expected
}

/// Whether the client's bytes occur in `made` in their order. Callers leave out the model's bytes.
fn is_within(client: &str, made: &str) -> bool {
    let mut rest = made.bytes();
    client.bytes().all(|byte| rest.any(|other| other == byte))
}

proptest! {
    #[test]
    fn the_edits_are_all_that_changes(
        endpoint in prop::sample::select(
            &[CHAT, Endpoint::Messages, Endpoint::CountTokens, Endpoint::Responses][..],
        ),
        members in prop::collection::vec(
            (
                prop::sample::select(&[
                    "a", "temperature", "max_tokens", "top_p", "stop", "metadata", "Stop_",
                    "input_",
                ][..]),
                value(),
            ),
            0..5,
        ),
        speech in prop_oneof![
            Just(None),
            Just(Some(Value::Null)),
            Just(Some(json!([]))),
            prop::collection::vec(value(), 0..3).prop_map(|list| Some(list.into())),
            "[ -~]{0,6}".prop_map(|text| Some(text.into()))
        ],
        tools in prop_oneof![
            Just(None),
            Just(Some(Value::Null)),
            prop::collection::vec(value(), 0..3).prop_map(|list| Some(list.into()))
        ],
        front in any::<bool>(),
        odd in prop::collection::vec(any::<u8>(), 32),
    ) {
        let written = Written {
            instructions: Some("In \"short\".\n\u{1f600}"),
            defaults: sampler().defaults,
            tools: toolbox().tools,
        };
        let rules = endpoint.row().agent.as_ref().unwrap();
        let name = rules.speech;
        // Bodies that the dialect itself refuses are not part of this test.
        let speech = speech
            .filter(|speech| endpoint != CHAT || speech.is_array())
            .filter(|speech| endpoint != Endpoint::Responses || !speech.is_array());
        let mut body = Map::new();
        if front {
            body.insert("model".into(), "agent/a".into());
        }
        body.extend(speech.map(|speech| (name.to_owned(), speech)));
        // `max_tokens` has to be a count or null.
        let member = |(name, value): (&str, Value)| {
            (
                name.to_owned(),
                if name == "max_tokens" && !value.is_u64() { Value::Null } else { value },
            )
        };
        body.extend(members.into_iter().map(member));
        body.extend(tools.map(|tools| ("tools".to_owned(), tools)));
        body.entry("model").or_insert("agent/a".into());
        let body = Value::Object(body);
        let mut text = String::new();
        write(&body, &mut odd.into_iter().cycle(), &mut text);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), body.clone());
        let made = written.apply(endpoint, &text).unwrap();
        prop_assert_eq!(
            serde_json::from_str::<Value>(&made).unwrap(),
            Value::Object(expected(&body, &written, endpoint)),
            "{}",
            made
        );
        let span = read_request(text.as_bytes(), endpoint).unwrap().model_span;
        // All that the client wrote before and after the model is still there.
        let (before, after) = (&text[..span.start], &text[span.end..]);
        let null = |text: &str| text.contains("null");
        if !null(&text) {
            prop_assert!(
                is_within(before, &made)
                    && is_within(after, &made)
                    && is_within(&[before, after].concat(), &made),
                "{}\n{}",
                text,
                made
            );
        }
        // A member that no edit touches keeps its bytes.
        for (name, value) in body.as_object().unwrap() {
            if ![rules.speech, "tools", "model"].contains(&name.as_str()) {
                let mut found = None;
                let _ = json::read_object(text.as_bytes(), |cursor, member| {
                    let span = cursor.skip()?;
                    if *member.text() == **name {
                        found = text.get(member.start..span.end);
                    }
                    Ok(())
                });
                prop_assert!(made.contains(found.unwrap()), "{} is not as it was: {}", value, made);
            }
        }
    }

    #[test]
    fn any_body_that_is_read_is_taken_or_refused(
        body in "\\{(\"(model|messages|tools|system|name)\":|\"x\"|[\\[\\]{},: ]|null|3){0,14}\\}",
    ) {
        for endpoint in Endpoint::ALL {
            let written = Written { tools: toolbox().tools, ..speaker() };
            if let Ok(made) = written.apply(endpoint, &body) {
                prop_assert!(serde_json::from_str::<Value>(&made).is_ok(), "{}", made);
            }
        }
    }
}
