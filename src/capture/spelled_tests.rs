//! Texts in every spelling, and others that are only like them.

use serde_json::Value;

use super::*;

#[test]
fn a_text_is_known_in_every_spelling() {
    let quoted = |text: &str| Value::from(text).to_string().trim_matches('"').to_owned();
    let spelled = "m\\u0063p\\u005Fserve\\u0052s";
    for text in ["mcp_servers", "MCP_Servers", spelled, &quoted(spelled), &quoted(&quoted(spelled))]
    {
        assert_eq!(
            after(format!("{text}\": 1").as_bytes(), b"mcp_servers"),
            Some(&b"\": 1"[..]),
            "{text}"
        );
    }
    for other in
        ["", "mcp_server", "mcp\\nservers", "mcp\\u002eservers", "mcp\\u00", "\\", "\\\\\\u006d\\"]
    {
        assert_eq!(after(other.as_bytes(), b"mcp_servers"), None, "{other}");
    }
    assert_eq!((after(b"\\", b""), after(b"tool", b"tools")), (Some(&b"\\"[..]), None));
}
