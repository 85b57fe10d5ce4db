use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::endpoint::Endpoint;
use crate::request::media::TOKENS_PER_IMAGE;
use crate::request::{ModelRequest, last_user_text, read_request};

fn read(body: &Value) -> ModelRequest {
    read_request(body.to_string().as_bytes(), Endpoint::Messages).unwrap()
}

#[test]
fn the_facts_of_a_request() {
    let body = json!({
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What is"}, {"text": "in these?", "type": "text"},
                {
                    "type": "image",
                    "source": {
                        "type": "base64", "media_type": "image/png", "data": "AAAA".repeat(1000),
                    },
                },
                {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "one two three"},
                }]},
            {"role": "assistant", "content": [
                {
                    "type": "thinking", "thinking": "A long thought about this and that.",
                    "signature": "abc",
                },
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}]},
            {"role": "user", "content": [{
                "type": "tool_result", "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "a cat"},
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://example.com/b.png"},
                    },
                ]}]}],
        "model": "auto", "max_tokens": 77, "stream": true,
        "tools": [{"name": "look", "input_schema": {}}],
        "output_config": {
            "effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
    });
    let request = read(&body);
    assert_eq!(
        (&*request.model, request.max_tokens, request.stream, request.json_output),
        ("auto", Some(77), true, true)
    );
    assert_eq!((request.messages, request.tools, request.images, request.audio), (3, 1, 2, 0));
    let texts = ["Be brief.", "What is", "in these?", "one two three", "a cat"]
        .map(|text| tokens::estimate(text.as_bytes()));
    let call = TOKENS_PER_CALL + tokens::estimate(br#""look""#) + tokens::estimate(br#"{"at":1}"#);
    let tools = tokens::estimate(body["tools"][0].to_string().as_bytes())
        + tokens::tool_instructions("claude");
    let format = tokens::estimate(br#"{"type":"object"}"#) / 2;
    let rest = 4 * TOKENS_PER_MESSAGE + TOKENS_PER_MESSAGE + 2 * TOKENS_PER_IMAGE + TOKENS_PER_FILE;
    assert_eq!(request.prompt_tokens, rest + texts.iter().sum::<u64>() + call + tools + format);
    // A tool result is no text of the user.
    assert_eq!(last_user_text(body.to_string().as_bytes(), &request), "What is\nin these?");
}

#[test]
fn plain_texts_and_counts() {
    let body = json!({
        "model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}],
        "stream": 1,
    });
    let request = read_request(body.to_string().as_bytes(), Endpoint::CountTokens).unwrap();
    let texts = ["Be brief.", "Hello"].map(|text| tokens::estimate(text.as_bytes()));
    assert_eq!(
        (request.prompt_tokens, request.stream),
        (3 * TOKENS_PER_MESSAGE + texts.iter().sum::<u64>(), false)
    );
    for (body, field) in [
        (r#"{"messages":[]}"#, "model"),
        (r#"{"model":"m","model":"m"}"#, "model"),
        (r#"{"model":"m","messages":"x"}"#, "messages"),
        (r#"{"model":"m","stream":"yes"}"#, "stream"),
    ] {
        assert_eq!(
            read_request(body.as_bytes(), Endpoint::Messages).unwrap_err().field(),
            Some(field),
            "{body}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_stands_in_a_list_is_passed_over(
        names in prop::collection::vec(
            prop::sample::select(&[
                "messages", "system", "tools", "content", "type", "source", "output_config",
                "input",
            ][..]),
            1..6,
        ),
        leaf in prop::sample::select(&[
            "1", "\"x\"", "null", "[]", "{}", "[[\"a\",{}]]",
            "{\"type\":\"text\",\"text\":\"t\"}", "[{\"content\":[{}]}]",
        ][..]),
    ) {
        let mut body = leaf.to_owned();
        for name in &names {
            body = format!("{{\"{name}\":[{body},{leaf}],\"model\":\"m\"}}");
        }
        for endpoint in Endpoint::ALL {
            prop_assert_eq!(&*read_request(body.as_bytes(), endpoint).unwrap().model, "m");
        }
    }
}
