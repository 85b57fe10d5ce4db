//! Sample requests for each feature of the table.

use serde_json::{Value, json};

use super::Dialect;
use super::feature::Feature;
use super::setting_fixtures::settings;

/// A request in the client's dialect with one text and no feature.
pub(super) fn plain(source: Dialect) -> Value {
    match source {
        Dialect::Responses => json!({"model": "m", "input": [{"role": "user", "content": "hi"}]}),
        Dialect::Messages => {
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
        }
        _ => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    }
}

/// Requests that use the feature: the client's dialect, and members that extend or replace those of
/// [`plain`].
pub(super) fn samples(feature: Feature) -> Vec<(Dialect, Value)> {
    use Dialect::{Chat as C, Messages as M, Responses as R};
    let function = json!({"type": "function", "function": {"name": "f", "strict": true}});
    let url = "https://example.com/a.pdf";
    let says = |client: Dialect, role: &str, parts: Value| {
        let member = if client == R { "input" } else { "messages" };
        (
            client,
            json!({member: [{"role": "user", "content": "hi"}, {"role": role, "content": parts}]}),
        )
    };
    let uses = |client: Dialect, tool: Value| (client, json!({"tools": [tool]}));
    let items = |item: Value| (R, json!({"input": [{"role": "user", "content": "hi"}, item]}));
    let call = |id: &str| {
        json!({
            "id": id, "type": "function", "function": {"name": "f", "arguments": "{}"},
        })
    };
    let data = "data:application/pdf;base64,AAAA";
    match feature {
        Feature::Text => vec![
            says(C, "user", json!("x")),
            says(M, "user", json!("x")),
            says(R, "user", json!("x")),
        ],
        Feature::SystemText => vec![
            (C, json!({"messages": [{"role": "developer", "content": "x"}]})),
            (M, json!({"system": "x"})),
            (R, json!({"instructions": "x"})),
        ],
        Feature::LaterSystemText => vec![
            says(C, "system", json!("x")),
            says(M, "system", json!("x")),
            says(R, "developer", json!("x")),
        ],
        Feature::Images => vec![
            says(C, "user", json!([{"type": "image_url", "image_url": {"url": url}}])),
            says(
                M,
                "user",
                json!([{
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                }]),
            ),
            says(
                R,
                "user",
                json!([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]),
            ),
        ],
        Feature::ImageDetail => vec![
            says(
                C,
                "user",
                json!([{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]),
            ),
            says(R, "user", json!([{"type": "input_image", "image_url": url, "detail": "low"}])),
        ],
        Feature::Files => vec![
            says(
                C,
                "user",
                json!([{"type": "file", "file": {"file_data": data, "filename": "a.pdf"}}]),
            ),
            says(
                M,
                "user",
                json!([{
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                }]),
            ),
            says(
                R,
                "user",
                json!([{"type": "input_file", "file_data": data, "filename": "a.pdf"}]),
            ),
        ],
        Feature::OtherFiles => vec![
            says(
                C,
                "user",
                json!([{
                    "type": "file",
                    "file": {"file_data": "data:application/msword;base64,AAAA"},
                }]),
            ),
            says(
                R,
                "user",
                json!([{"type": "input_file", "file_data": "data:application/msword;base64,AAAA"}]),
            ),
        ],
        Feature::FileUrls => vec![
            says(M, "user", json!([{"type": "document", "source": {"type": "url", "url": url}}])),
            says(R, "user", json!([{"type": "input_file", "file_url": url}])),
        ],
        Feature::ProviderFiles => vec![
            says(C, "user", json!([{"type": "file", "file": {"file_id": "file-1"}}])),
            says(
                M,
                "user",
                json!([{"type": "image", "source": {"type": "file", "file_id": "file-1"}}]),
            ),
            says(R, "user", json!([{"type": "input_image", "file_id": "file-1"}])),
            uses(
                R,
                json!({
                    "type": "code_interpreter",
                    "container": {"type": "auto", "file_ids": ["file-1"]},
                }),
            ),
        ],
        Feature::Audio => vec![says(
            C,
            "user",
            json!([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]),
        )],
        Feature::OtherContent => vec![
            says(C, "user", json!([{"type": "video_url", "video_url": {"url": url}}])),
            says(
                M,
                "user",
                json!([{"type": "document", "source": {"type": "content", "content": [
                    {"type": "image", "source": {"type": "url", "url": url}},
                ]}}]),
            ),
            says(R, "user", json!([{"type": "input_video"}])),
        ],
        Feature::SearchResults => vec![says(
            M,
            "user",
            json!([{
                "type": "search_result", "source": url, "title": "t",
                "content": [{"type": "text", "text": "x"}],
            }]),
        )],
        Feature::Tools => vec![
            uses(C, json!({"type": "function", "function": {"name": "f"}})),
            uses(M, json!({"name": "f", "input_schema": {"type": "object"}})),
            uses(R, json!({"type": "function", "name": "f"})),
        ],
        Feature::StrictTools => vec![
            uses(C, function),
            uses(M, json!({"name": "f", "input_schema": {"type": "object"}, "strict": true})),
            uses(R, json!({"type": "function", "name": "f", "strict": true})),
        ],
        Feature::Prefill => vec![says(M, "assistant", json!("{"))],
        Feature::ToolCalls => vec![
            (
                C,
                json!({
                    "messages": [{
                        "role": "assistant", "content": null, "tool_calls": [call("a"), call("b")],
                    }],
                }),
            ),
            says(
                M,
                "assistant",
                json!([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
            ),
            items(json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"})),
        ],
        Feature::ToolResults => vec![
            (C, json!({"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]})),
            says(M, "user", json!([{"type": "tool_result", "tool_use_id": "a", "content": "x"}])),
            items(json!({"type": "function_call_output", "call_id": "a", "output": "x"})),
        ],
        Feature::ResultMedia => vec![
            (
                C,
                json!({
                    "messages": [{
                        "role": "tool", "tool_call_id": "a",
                        "content": [{"type": "image_url", "image_url": {"url": url}}],
                    }],
                }),
            ),
            says(
                M,
                "user",
                json!([{
                    "type": "tool_result", "tool_use_id": "a",
                    "content": [{"type": "image", "source": {"type": "url", "url": url}}],
                }]),
            ),
            items(json!({
                "type": "function_call_output", "call_id": "a",
                "output": [{"type": "input_image", "image_url": url}],
            })),
        ],
        Feature::ResultErrors => vec![says(
            M,
            "user",
            json!([{"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": true}]),
        )],
        Feature::ToolChoice => vec![
            (
                C,
                json!({
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                    "tool_choice": "required",
                }),
            ),
            (
                M,
                json!({
                    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                    "tool_choice": {"type": "tool", "name": "f"},
                }),
            ),
            (
                R,
                json!({
                    "tools": [{"type": "function", "name": "f"}],
                    "tool_choice": {"type": "function", "name": "f"},
                }),
            ),
        ],
        Feature::AllowedTools => vec![
            (
                C,
                json!({
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "function", "function": {"name": "g"}},
                    ],
                    "tool_choice": {
                        "type": "allowed_tools",
                        "allowed_tools": {
                            "mode": "auto",
                            "tools": [{"type": "function", "function": {"name": "f"}}],
                        },
                    },
                }),
            ),
            (
                R,
                json!({
                    "tools": [{"type": "function", "name": "f"}],
                    "tool_choice": {
                        "type": "allowed_tools", "mode": "required",
                        "tools": [{"type": "function", "name": "f"}],
                    },
                }),
            ),
        ],
        Feature::ParallelCalls => vec![
            (
                C,
                json!({
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                    "parallel_tool_calls": false,
                }),
            ),
            (
                M,
                json!({
                    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                    "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
                }),
            ),
            (
                R,
                json!({"tools": [{"type": "function", "name": "f"}], "parallel_tool_calls": false}),
            ),
        ],
        Feature::ClientTools => ["bash_20250124", "text_editor_20250728", "memory_20250818"]
            .map(|kind| uses(M, json!({"type": kind, "name": "t"})))
            .to_vec(),
        Feature::CustomTools => vec![
            uses(C, json!({"type": "custom", "custom": {"name": "f"}})),
            uses(
                C,
                json!({
                    "type": "custom",
                    "custom": {
                        "name": "f",
                        "format": {
                            "type": "grammar",
                            "grammar": {"syntax": "lark", "definition": "start: /a/"},
                        },
                    },
                }),
            ),
            uses(R, json!({"type": "custom", "name": "f"})),
            uses(
                R,
                json!({
                    "type": "custom", "name": "f",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
                }),
            ),
            items(json!({"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"})),
        ],
        Feature::Namespaces => {
            let tools = json!([{"type": "function", "name": "f"}]);
            vec![uses(R, json!({"type": "namespace", "name": "n", "tools": tools}))]
        }
        Feature::SameNames => {
            let tools = json!([{"type": "function", "name": "f"}]);
            let namespace = json!({"type": "namespace", "name": "n", "tools": tools});
            let plain = json!({"type": "function", "name": "n__f"});
            vec![(R, json!({ "tools": [plain, namespace] }))]
        }
        Feature::DeferredTools => vec![
            uses(
                M,
                json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
            ),
            uses(R, json!({"type": "tool_search"})),
        ],
        Feature::WebSearch => vec![
            (C, json!({"web_search_options": {}})),
            uses(C, json!({"type": "openrouter:web_search"})),
            uses(M, json!({"type": "web_search_20250305", "name": "web_search"})),
            uses(R, json!({"type": "web_search_preview"})),
        ],
        Feature::OfferedSearch => vec![
            (
                C,
                json!({
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "openrouter:web_search"},
                    ],
                }),
            ),
            (
                M,
                json!({
                    "tools": [
                        {"name": "f", "input_schema": {"type": "object"}},
                        {"type": "web_search_20250305", "name": "web_search"},
                    ],
                }),
            ),
            (R, json!({"tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]})),
        ],
        Feature::WebSearchAllowed => vec![
            uses(
                M,
                json!({
                    "type": "web_search_20250305", "name": "web_search",
                    "allowed_domains": ["a.example"],
                }),
            ),
            uses(R, json!({"type": "web_search", "filters": {"allowed_domains": ["a.example"]}})),
            uses(
                C,
                json!({
                    "type": "openrouter:web_search",
                    "parameters": {"allowed_domains": ["a.example"]},
                }),
            ),
        ],
        Feature::WebSearchBlocked => vec![
            uses(
                M,
                json!({
                    "type": "web_search_20250305", "name": "web_search",
                    "blocked_domains": ["a.example"],
                }),
            ),
            uses(
                C,
                json!({
                    "type": "openrouter:web_search",
                    "parameters": {"excluded_domains": ["a.example"]},
                }),
            ),
        ],
        Feature::WebSearchPlace => vec![
            (
                C,
                json!({
                    "web_search_options": {
                        "user_location": {"type": "approximate", "approximate": {"city": "Ulm"}},
                    },
                }),
            ),
            uses(
                M,
                json!({
                    "type": "web_search_20250305", "name": "web_search",
                    "user_location": {"type": "approximate", "city": "Ulm"},
                }),
            ),
            uses(
                R,
                json!({
                    "type": "web_search", "user_location": {"type": "approximate", "city": "Ulm"},
                }),
            ),
        ],
        Feature::WebSearchSize => vec![
            (C, json!({"web_search_options": {"search_context_size": "low"}})),
            uses(R, json!({"type": "web_search", "search_context_size": "low"})),
        ],
        Feature::WebFetch => {
            vec![uses(M, json!({"type": "web_fetch_20250910", "name": "web_fetch"}))]
        }
        Feature::CodeExecution => vec![
            uses(M, json!({"type": "code_execution_20260120", "name": "code_execution"})),
            uses(R, json!({"type": "code_interpreter", "container": {"type": "auto"}})),
        ],
        Feature::McpServers => vec![
            (M, json!({"mcp_servers": [{"type": "url", "name": "m", "url": url}]})),
            (
                M,
                json!({
                    "mcp_servers": [{
                        "type": "url", "name": "m", "url": url, "authorization_token": "t",
                    }],
                    "tools": [{
                        "type": "mcp_toolset", "mcp_server_name": "m",
                        "default_config": {"enabled": false}, "configs": {"a": {"enabled": true}},
                    }],
                }),
            ),
            uses(
                R,
                json!({
                    "type": "mcp", "server_label": "m", "server_url": url,
                    "require_approval": "never", "allowed_tools": {"tool_names": ["a"]},
                }),
            ),
        ],
        Feature::McpTerms => vec![
            uses(M, json!({"type": "mcp_toolset", "mcp_server_name": "m"})),
            uses(R, json!({"type": "mcp", "server_label": "m", "server_url": url})),
            uses(
                R,
                json!({
                    "type": "mcp", "server_label": "m", "server_url": url,
                    "require_approval": "never", "headers": {"x-team": "t"},
                }),
            ),
            uses(
                R,
                json!({
                    "type": "mcp", "server_label": "m", "server_url": url,
                    "require_approval": "never", "allowed_tools": {"read_only": true},
                }),
            ),
        ],
        Feature::ToolUses => vec![
            uses(M, json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 3})),
            (R, json!({"max_tool_calls": 3})),
        ],
        Feature::ServerTools => vec![
            uses(C, json!({"type": "openrouter:advisor"})),
            uses(M, json!({"type": "computer_20250124", "name": "computer"})),
            uses(R, json!({"type": "file_search", "vector_store_ids": ["v"]})),
            items(json!({"type": "computer_call", "call_id": "a"})),
        ],
        Feature::ServerToolHistory => vec![
            says(
                M,
                "assistant",
                json!([
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {
                        "type": "web_search_tool_result", "tool_use_id": "s",
                        "content": [{
                            "type": "web_search_result", "url": url, "title": "t",
                            "encrypted_content": "e",
                        }],
                    },
                    {
                        "type": "bash_code_execution_tool_result", "tool_use_id": "s",
                        "content": {"type": "bash_code_execution_result", "stdout": "1"},
                    },
                ]),
            ),
            items(json!({
                "type": "web_search_call", "id": "ws", "status": "completed",
                "action": {"type": "search"},
            })),
        ],
        Feature::Thinking => vec![
            (
                C,
                json!({
                    "messages": [
                        {"role": "user", "content": "hi"},
                        {"role": "assistant", "content": "x", "reasoning_content": "t"},
                    ],
                }),
            ),
            says(
                M,
                "assistant",
                json!([
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                ]),
            ),
            items(
                json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}),
            ),
        ],
        feature => settings(feature),
    }
}
