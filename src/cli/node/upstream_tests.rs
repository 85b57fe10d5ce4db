//! What each server's answers tell, in the shapes that it writes them.

use super::*;

fn load(running: u64, queued: u64) -> Option<Load> {
    Some(Load { running, queued })
}

fn server() -> Upstream {
    let patterns = Vec::new();
    Upstream::new(BaseUrl::parse("http://127.0.0.1:9").unwrap(), None, None, patterns).unwrap()
}

#[test]
fn the_load_is_what_the_servers_metrics_say() {
    let vllm = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 2.0\nvllm:num_requests_running{engine=\"1\",model_name=\"b b\"} 1.0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 5.0\nvllm:num_requests_waiting_by_reason{reason=\"x\"} 9.0\n";
    assert_eq!(read_load(vllm), load(3, 5));
    assert_eq!(
        read_load("llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"),
        load(1, 4)
    );
    assert_eq!(
        read_load(
            "sglang:num_running_reqs{model_name=\"a\"} 7.0\nsglang:num_queue_reqs{model_name=\"a\"} 2.0\n"
        ),
        load(7, 2)
    );
    assert_eq!(
        read_load("llamacpp:requests_processing 0\nllamacpp:requests_deferred -1\n"),
        load(0, 0)
    );
    for unknown in
        ["vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nother 7\n", "{}", ""]
    {
        assert_eq!(
            read_load(unknown),
            None,
            "that nothing is known is not that nothing runs: {unknown}"
        );
    }
}

#[test]
fn slots_are_counted_where_each_says_whether_it_is_taken() {
    let slot = |id: u64, taken: bool| json!({"id": id, "id_task": 135, "n_ctx": 65536, "speculative": false, "is_processing": taken});
    assert_eq!(read_slots(&json!([slot(0, true), slot(1, false), slot(2, true)])), load(2, 0));
    assert_eq!(read_slots(&json!([slot(0, false)])), load(0, 0));
    for unknown in [json!([{"id": 0}]), json!({"error": {"code": 501}}), json!(null)] {
        assert_eq!(read_slots(&unknown), None, "{unknown}");
    }
}

#[test]
fn props_tell_the_context_of_a_request_and_what_it_may_hold() {
    let read = |modalities: Value, caps: Value| {
        let settings = json!({"n_ctx": 131_072, "params": {}});
        read_props(
            &json!({"default_generation_settings": settings, "total_slots": 2, "modalities": modalities, "chat_template_caps": caps}),
        )
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
            Props { context: Some(131_072), capabilities: Some(expected), asleep: false }
        );
    }
    let older =
        json!({"default_generation_settings": {"n_ctx": 0}, "total_slots": 1, "is_sleeping": true});
    assert_eq!(
        read_props(&older),
        Props { context: None, capabilities: None, asleep: true },
        "what is not said is not known"
    );
}

#[test]
fn what_ollama_shows_is_the_least_context_and_the_abilities_it_names() {
    let shown = json!({
        "parameters": "temperature                    0.6\nnum_ctx                        40960\nstop                           \"<|im_end|>\"",
        "details": {"family": "qwen3", "parameter_size": "8.2B"}, "capabilities": ["completion", "tools", "thinking"],
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 262_144, "qwen3.embedding_length": 4096},
    });
    let read = |shown: &Value| (read_show(shown).context, read_show(shown).capabilities);
    assert_eq!(read(&shown), (Some(40_960), Some(vec!["tools", "json"])));
    let mut whole = shown.clone();
    whole["parameters"] = json!("");
    whole["capabilities"] = json!(["embedding"]);
    assert_eq!(read(&whole), (Some(262_144), Some(vec![])));
    whole["parameters"] = json!("num_ctx 999999");
    assert_eq!(read(&whole).0, Some(262_144), "no model has more than it was made for");
    assert_eq!(
        read(&json!({"parameters": "num_ctx many", "model_info": {"general.architecture": "x"}})),
        (None, None)
    );
    assert_eq!(
        read(&json!({"capabilities": ["completion", "vision", "audio"]})).1,
        Some(vec!["vision", "json", "audio"])
    );
}

#[test]
fn models_come_with_their_context_once_and_as_many_as_a_node_has() {
    let mut server = server();
    assert_eq!(
        server.describe(&[json!({"id": "q", "max_model_len": 4096})]),
        [json!({"id": "q", "context": 4096})]
    );
    let listed = [
        json!({"id": "q", "meta": {"n_ctx": 8192, "n_ctx_train": 131_072}}),
        json!({"id": "q"}),
        json!({"name": "r"}),
        json!({"id": "ü"}),
    ];
    assert_eq!(server.describe(&listed), [json!({"id": "q", "context": 8192})]);
    assert_eq!(server.left_out, ["ü"]);
    let many: Vec<Value> = (0..=bounds::NODE_MODELS)
        .map(|number| json!({"id": format!("m{number}"), "max_model_len": null}))
        .collect();
    let told = server.describe(&many);
    assert_eq!(
        (told.len(), &told[0], server.left_out.len()),
        (bounds::NODE_MODELS, &json!({"id": "m0"}), 1)
    );
}

#[test]
fn models_are_told_as_patterns_name_them() {
    let mut server = server();
    server.patterns = vec!["qwen*".to_owned(), "llama".to_owned()];
    let mut told = |id: &str| !server.describe(&[json!({ "id": id })]).is_empty();
    assert_eq!(
        [told("qwen-large"), told("llama"), told("llama-2"), told("embed")],
        [true, true, false, false]
    );
}
