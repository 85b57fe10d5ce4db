//! Answers in the formats of the servers.

use serde_json::json;

use super::*;

fn load(running: u32, queued: u32) -> Option<ServerLoad> {
    Some(ServerLoad { running, queued })
}

#[test]
fn gauges_of_running_and_queued_requests_are_summed() {
    let vllm = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 2.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"b b\"} 1.0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 5.0\n\
        vllm:num_requests_waiting_by_reason{reason=\"x\"} 9.0\n";
    assert_eq!(metrics_load(vllm), load(3, 5));
    assert_eq!(
        metrics_load("llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"),
        load(1, 4)
    );
    assert_eq!(
        metrics_load(
            "sglang:num_running_reqs{model_name=\"a\"} 7.0\n\
             sglang:num_queue_reqs{model_name=\"a\"} 2.0\n"
        ),
        load(7, 2)
    );
    assert_eq!(
        metrics_load("llamacpp:requests_processing 0\nllamacpp:requests_deferred -1\n"),
        load(0, 0)
    );
    for unknown in
        ["vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nother 7\n", "{}", ""]
    {
        assert_eq!(metrics_load(unknown), None, "unknown is not idle: {unknown}");
    }
}

#[test]
fn taken_slots_are_counted() {
    let slot = |id: u64, taken: bool| {
        json!({
            "id": id, "id_task": 135, "n_ctx": 65536, "speculative": false, "is_processing": taken
        })
    };
    assert_eq!(llama_cpp_slots(&json!([slot(0, true), slot(1, false), slot(2, true)])), load(2, 0));
    assert_eq!(llama_cpp_slots(&json!([slot(0, false)])), load(0, 0));
    for unknown in [json!([{"id": 0}]), json!({"error": {"code": 501}}), json!(null)] {
        assert_eq!(llama_cpp_slots(&unknown), None, "{unknown}");
    }
}

#[test]
fn props_have_context_and_capabilities() {
    let read = |modalities: Value, caps: Value| {
        let settings = json!({"n_ctx": 131_072, "params": {}});
        llama_cpp_props(&json!({
            "default_generation_settings": settings, "total_slots": 2, "modalities": modalities,
            "chat_template_caps": caps
        }))
    };
    for (modalities, caps, expected) in [
        (
            json!({"vision": true, "audio": false}),
            json!({"supports_tools": true, "supports_tool_calls": true}),
            vec!["tools", "vision", "json"],
        ),
        (
            json!({"vision": false, "audio": true}),
            json!({"supports_tools": false, "supports_tool_calls": false}),
            vec!["json", "audio"],
        ),
        (json!({"vision": false}), json!({}), vec!["tools", "json"]),
    ] {
        assert_eq!(
            read(modalities, caps),
            LlamaCppProps {
                context: Some(131_072),
                capabilities: Some(expected),
                is_sleeping: false
            }
        );
    }
    let older =
        json!({"default_generation_settings": {"n_ctx": 0}, "total_slots": 1, "is_sleeping": true});
    assert_eq!(
        llama_cpp_props(&older),
        LlamaCppProps { context: None, capabilities: None, is_sleeping: true },
        "what is not reported is unknown"
    );
}

#[test]
fn an_ollama_model_has_the_smaller_context_and_the_named_capabilities() {
    let shown = json!({
        "parameters": "temperature                    0.6\nnum_ctx                        40960\n\
            stop                           \"<|im_end|>\"",
        "details": {"family": "qwen3", "parameter_size": "8.2B"},
        "capabilities": ["completion", "tools", "thinking"],
        "model_info": {
            "general.architecture": "qwen3", "qwen3.context_length": 262_144,
            "qwen3.embedding_length": 4096
        },
    });
    let read = |shown: &Value| (ollama_model(shown).context, ollama_model(shown).capabilities);
    assert_eq!(read(&shown), (Some(40_960), Some(vec!["tools", "json"])));
    let mut whole = shown.clone();
    whole["parameters"] = json!("");
    whole["capabilities"] = json!(["embedding"]);
    assert_eq!(read(&whole), (Some(262_144), Some(vec![])));
    whole["parameters"] = json!("num_ctx 999999");
    assert_eq!(read(&whole).0, Some(262_144), "the context of the architecture is the maximum");
    assert_eq!(
        read(&json!({"parameters": "num_ctx many", "model_info": {"general.architecture": "x"}})),
        (None, None)
    );
    assert_eq!(
        read(&json!({"capabilities": ["completion", "vision", "audio"]})).1,
        Some(vec!["vision", "json", "audio"])
    );
}
