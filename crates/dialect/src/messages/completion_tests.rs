use super::*;

#[test]
fn an_answer_in_the_words_of_a_chat_completion() {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "stop_reason": "tool_use", "stop_sequence": null,
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "I look, "}, {"type": "text", "text": "wait."},
            {"type": "server_tool_use", "id": "srv_1", "name": "search", "input": {}},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": 1.50}}],
        "usage": {
            "input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2,
            "output_tokens": 7,
        },
    });
    let arguments = message["content"][4]["input"].to_string();
    assert_eq!(
        as_chat_completion(&message),
        json!({
            "id": "msg_1", "object": "chat.completion", "model": "claude-x",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "I look, wait.", "reasoning_content": "Hm.",
                "tool_calls": [{
                    "id": "toolu_1", "type": "function",
                    "function": {"name": "look", "arguments": arguments},
                }]}}],
            "usage": {
                "prompt_tokens": 17, "completion_tokens": 7, "total_tokens": 24,
                "prompt_tokens_details": {"cached_tokens": 5},
            },
        })
    );
    for (stop, finish) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
    ] {
        assert_eq!(
            as_chat_completion(&json!({"stop_reason": stop}))["choices"][0]["finish_reason"],
            finish
        );
    }
    for (usage, told) in [
        (json!({"output_tokens": 3}), json!({"completion_tokens": 3})),
        (json!({"input_tokens": 4, "output_tokens": null}), json!({"prompt_tokens": 4})),
        (json!([]), json!({})),
    ] {
        assert_eq!(
            as_chat_completion(&json!({ "usage": usage }))["usage"],
            told,
            "what is not told is missing"
        );
    }
    let plain = as_chat_completion(&json!({"content": "plain"}));
    assert_eq!(plain["choices"][0]["message"]["content"], "plain");
    assert_eq!(
        as_chat_completion(&json!({}))["choices"][0]["message"],
        json!({"role": "assistant", "content": null})
    );
}
