//! Tools that Anthropic defines and the client runs. Their schemas are documented, so other
//! dialects get them as function tools.

use serde_json::value::RawValue;

use crate::neutral::request::Tool;

struct ClientTool {
    /// The prefix of the tool's type, before the date.
    kind: &'static str,
    description: &'static str,
    parameters: &'static str,
}

const TOOLS: [ClientTool; 3] = [
    ClientTool {
        kind: "bash_",
        description: "Run a command in a persistent bash session.",
        parameters: r#"{"type":"object","properties":{
            "command":{"type":"string","description":"The command to run."},
            "restart":{"type":"boolean","description":"Restart the session."}}}"#,
    },
    ClientTool {
        kind: "text_editor_",
        description: "View, create and edit text files.",
        parameters: r#"{"type":"object","properties":{
            "command":{"type":"string","enum":["view","create","str_replace","insert"]},
            "path":{"type":"string","description":"Absolute path of a file or directory."},
            "view_range":{"type":"array","items":{"type":"integer"},
                "description":"First and last line, for view."},
            "file_text":{"type":"string","description":"Content, for create."},
            "old_str":{"type":"string","description":"Text to replace, for str_replace."},
            "new_str":{"type":"string","description":"Replacement, for str_replace."},
            "insert_line":{"type":"integer","description":"Line to insert after, for insert."},
            "insert_text":{"type":"string","description":"Text to insert, for insert."}},
            "required":["command","path"]}"#,
    },
    ClientTool {
        kind: "memory_",
        description: "Remember across conversations, in files below /memories. View /memories \
                      before you begin a task.",
        parameters: r#"{"type":"object","properties":{
            "command":{"type":"string",
                "enum":["view","create","str_replace","insert","delete","rename"]},
            "path":{"type":"string","description":"Path below /memories."},
            "view_range":{"type":"array","items":{"type":"integer"},
                "description":"First and last line, for view."},
            "file_text":{"type":"string","description":"Content, for create."},
            "old_str":{"type":"string","description":"Text to replace, for str_replace."},
            "new_str":{"type":"string","description":"Replacement, for str_replace."},
            "insert_line":{"type":"integer","description":"Line to insert after, for insert."},
            "insert_text":{"type":"string","description":"Text to insert, for insert."},
            "old_path":{"type":"string","description":"Path to rename from, for rename."},
            "new_path":{"type":"string","description":"Path to rename to, for rename."}},
            "required":["command"]}"#,
    },
];

/// The function tool that replaces a tool of Anthropic's, by its type, such as `bash_20250124`.
pub(super) fn as_function(kind: &str, name: &str) -> Option<Tool> {
    let tool = TOOLS.iter().find(|tool| kind.starts_with(tool.kind))?;
    Some(Tool {
        name: name.to_owned(),
        description: Some(tool.description.to_owned()),
        parameters: RawValue::from_string(tool.parameters.to_owned()).ok(),
        ..Tool::default()
    })
}
