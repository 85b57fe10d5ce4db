//! The sources of documents.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::problem::{Problem, problems};
use super::settings::Server;
use rerouter_base::bounds;
use rerouter_document::{Finding, Position};

/// Default path of the server document.
pub(super) const SERVER_FILE: &str = "conf/rerouter.yaml";
/// Default path of the routing document.
pub(super) const ROUTING_FILE: &str = "conf/routing.yaml";

/// The name of the server document if there is no file.
const BUILT_IN: &str = "built-in defaults";
/// The name of the server document if options of the command line set some of its keys.
pub const OPTIONS: &str = "options of the command line";

/// The file name of a document without a file. Its problems have only line and column.
pub const NO_FILE: &str = "";

/// The demo document, which is used if there is no file. Its mock provider needs no credential.
pub fn demo_routing() -> &'static str {
    include_str!("../../../../conf/routing.yaml")
}

/// The text of a document, with the name for its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSource {
    /// File name, or a description.
    pub file: String,
    pub text: String,
}

impl DocumentSource {
    /// The default server document, or `text` with keys that options of the command line set.
    pub fn built_in(text: String) -> DocumentSource {
        let file = if text.is_empty() { BUILT_IN } else { OPTIONS };
        DocumentSource { file: file.to_owned(), text }
    }
}

/// The server document at `path`, else `conf/rerouter.yaml` if it exists, else the defaults.
pub fn server_source(path: Option<&Path>) -> Result<DocumentSource, Vec<Problem>> {
    match path {
        Some(path) => load(path),
        None if Path::new(SERVER_FILE).exists() => load(Path::new(SERVER_FILE)),
        None => Ok(DocumentSource::built_in(String::new())),
    }
}

/// Path of the routing document: `routing.file`, else [`ROUTING_FILE`] if it exists.
pub fn routing_path(server: &Server) -> Option<PathBuf> {
    if server.routing.store {
        return None;
    }
    server
        .routing
        .file
        .clone()
        .or_else(|| Path::new(ROUTING_FILE).exists().then(|| PathBuf::from(ROUTING_FILE)))
}

/// The routing document of [`routing_path`], else the one made at the start, else the demo.
pub fn load_routing(server: &Server) -> Result<DocumentSource, Vec<Problem>> {
    match (routing_path(server), &server.made_routing) {
        (Some(path), _) => load(&path),
        (None, Some(text)) => Ok(DocumentSource {
            file: "document of the providers found".to_owned(),
            text: text.clone(),
        }),
        (None, None) => Ok(demo_source()),
    }
}

pub const DEMO: &str = "built-in demo document";

fn demo_source() -> DocumentSource {
    DocumentSource { file: DEMO.to_owned(), text: demo_routing().to_owned() }
}

/// The routing document of the store, or the demo until the API receives a document.
pub fn stored_routing(kept: Option<String>) -> DocumentSource {
    match kept {
        Some(text) => DocumentSource { file: "stored document".to_owned(), text },
        None => demo_source(),
    }
}

/// Reads a file, up to [`bounds::DOCUMENT_BYTES`].
pub fn load(path: &Path) -> Result<DocumentSource, Vec<Problem>> {
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    let limit = bounds::DOCUMENT_BYTES as u64 + 1;
    let read =
        std::fs::File::open(path).and_then(|opened| opened.take(limit).read_to_end(&mut bytes));
    let refused = |message: String| {
        let hint = Some("it has to be a YAML file that this user may read".to_owned());
        problems(
            &file,
            vec![Finding {
                path: String::new(),
                at: Position { line: 1, column: 1 },
                message,
                hint,
            }],
        )
    };
    read.map_err(|error| refused(format!("cannot be read: {error}")))?;
    let text =
        String::from_utf8(bytes).map_err(|_| refused("is not UTF-8, or too long".to_owned()))?;
    Ok(DocumentSource { file, text })
}
