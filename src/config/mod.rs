//! The two documents: read, checked against each other, and every problem of them reported at once, with its place.
//! The only door to the YAML parser and, through the lookup handed in, to the environment.

mod authorities;
mod check;
mod egress;
mod expand;
mod limits;
mod net;
mod reach;
mod read;
mod routing;
mod server;
mod tree;
mod written;

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use check::Checked;
pub use egress::{Denied, Egress, Whose};
pub use limits::LimitSettings;
pub use net::Net;
pub use read::Problem;
pub use server::{
    CaptureSettings, Listener, Retention, RoutingFile, Server, SessionSettings, TlsFiles,
};

use crate::bounds;
use crate::routing::{BuildContext, Finding, Position, Routing};
use read::{Faults, Field, problems};
use routing::{Credentials, placeholder};
use written::Written;

/// Reads a variable of the environment.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;
/// The same, kept for as long as documents are read again.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where the server document is looked for when none is named.
pub const SERVER_FILE: &str = "conf/rerouter.yaml";
/// Where the routing document is looked for when none is named.
pub const ROUTING_FILE: &str = "conf/routing.yaml";

/// The name of a document that has no file: its problems say line and column only.
pub const NO_FILE: &str = "";

/// The demo document that runs when there is no file: a mock provider, so that everything can be tried without a credential.
pub fn demo_routing() -> &'static str {
    include_str!("../../conf/routing.yaml")
}

/// A document with the name that its problems carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, or what stands for it.
    pub file: String,
    /// The text.
    pub text: String,
}

/// The server document: `path`, else [`SERVER_FILE`] if it is there, else nothing but defaults.
pub fn load_server(path: Option<&Path>, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    let source = server_source(path)?;
    read_server(&source.file, &source.text, env)
}

fn server_source(path: Option<&Path>) -> Result<Source, Vec<Problem>> {
    match path {
        Some(path) => load(path),
        None if Path::new(SERVER_FILE).exists() => load(Path::new(SERVER_FILE)),
        None => Ok(Source { file: "built-in defaults".to_owned(), text: String::new() }),
    }
}

/// Where the routing document is: the server document's file, else [`ROUTING_FILE`] if it is there.
pub fn routing_path(server: &Server) -> Option<PathBuf> {
    if server.routing.stored {
        return None;
    }
    server
        .routing
        .file
        .clone()
        .or_else(|| Path::new(ROUTING_FILE).exists().then(|| PathBuf::from(ROUTING_FILE)))
}

/// The text of the routing document: the server document's file, else [`ROUTING_FILE`] if it is there, else the demo.
pub fn load_routing(server: &Server) -> Result<Source, Vec<Problem>> {
    match routing_path(server) {
        Some(path) => load(&path),
        None => Ok(Source {
            file: "built-in demo document".to_owned(),
            text: demo_routing().to_owned(),
        }),
    }
}

/// The routing document that the store holds, else the demo, until the first that comes by the API.
pub fn stored_routing(kept: Option<String>) -> Source {
    match kept {
        Some(text) => Source { file: "stored document".to_owned(), text },
        None => {
            Source { file: "built-in demo document".to_owned(), text: demo_routing().to_owned() }
        }
    }
}

/// A document's text from its file, bounded.
pub fn load(path: &Path) -> Result<Source, Vec<Problem>> {
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    let limit = bounds::DOCUMENT_BYTES as u64 + 1;
    let read =
        std::fs::File::open(path).and_then(|opened| opened.take(limit).read_to_end(&mut bytes));
    let refused = |message: String| {
        let hint = Some("it has to be a file of YAML that this user may read".to_owned());
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
    Ok(Source { file, text })
}

/// A document that was read, and everything that was found in it.
struct Reading<T> {
    /// It, or as much of it as could be read beside the problems.
    document: Option<T>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<T> Reading<T> {
    fn refused(problems: Vec<Problem>) -> Self {
        Reading { document: None, problems, warnings: Vec::new() }
    }

    /// It, if nothing is wrong with it.
    fn taken(self) -> Result<T, Vec<Problem>> {
        self.document.filter(|_| self.problems.is_empty()).ok_or(self.problems)
    }
}

/// The path of every key that a server document may have, by the reader itself: `listeners[].address`, `session.idle`, …
pub fn server_keys() -> Vec<String> {
    // What is read only where it is written: the items of the list, and the mapping in them.
    let Ok(document) = tree::parse("listeners: [{ tls: {} }]") else { return Vec::new() };
    let mut faults = Faults::default();
    // What it makes of the document is of no interest here, nor what is missing.
    let _server = server::read(&Field::root(&document.root), &mut faults);
    faults.keys()
}

/// Reads a server document.
pub fn read_server(file: &str, text: &str, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    look_at_server(&Source { file: file.to_owned(), text: text.to_owned() }, Some(env)).taken()
}

/// The same with everything that is found. Without an environment, a variable that has no default
/// holds anything.
fn look_at_server(source: &Source, env: Option<&Env<'_>>) -> Reading<Server> {
    let file = &source.file;
    let written = match tree::parse(&source.text) {
        Ok(written) => written,
        Err(faults) => return Reading::refused(problems(file, faults)),
    };
    let mut faults = Faults::new(env.is_none());
    faults.extend(written.twice);
    let lookup = |name: &str| Ok(env.and_then(|env| env(name)));
    let expanded = expand::expand_tree(&written.root, "", &lookup, &mut faults);
    let document = server::read(&Field::root(&expanded), &mut faults);
    let document = document
        .map(|server| Server { written: Written::new(file, &written.root, &faults), ..server });
    let warnings = read::warnings(file, std::mem::take(&mut faults.warnings));
    Reading { document, problems: problems(file, faults), warnings }
}

/// Reads a routing document. `mock` is where the in-process mock listens; a check without a server has none.
pub fn read_routing(
    file: &str,
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    let credentials = Credentials { lookup: &lookup, given: false, expanded: true, no_env: false };
    look_at_routing(file, text, server, &credentials, mock).taken()
}

/// What a routing document that can run hardly means.
pub fn warnings(file: &str, routing: &Routing) -> Vec<Problem> {
    read::warnings(file, routing.warnings().to_vec())
}

/// Reads a routing document that came by the API, to run: its credentials may stand in it as `${…}` only.
pub fn read_given(
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    let credentials = Credentials { lookup: &lookup, given: true, expanded: true, no_env: false };
    look_at_routing(NO_FILE, text, server, &credentials, mock).taken()
}

/// Reads a routing document that came by the API, to look at: no variable is read, so that nothing can be learnt of the
/// environment by asking. What comes of it must not be run.
pub fn read_unexpanded(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    look_unexpanded(text, server, mock).taken()
}

fn look_unexpanded(text: &str, server: &Server, mock: Option<SocketAddr>) -> Reading<Routing> {
    // By name, so that two variables are not taken for the same credential.
    let lookup = |name: &str| allowed(name, server).map(|()| Some(placeholder(name)));
    let credentials = Credentials { lookup: &lookup, given: true, expanded: false, no_env: false };
    look_at_routing(NO_FILE, text, server, &credentials, mock)
}

/// Everything that is found in a routing document that came by the API: its problems, and its
/// warnings. No variable is read.
pub fn validate(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> (Vec<Problem>, Vec<Problem>) {
    let reading = look_unexpanded(text, server, mock);
    (reading.problems, reading.warnings)
}

/// Reads a routing document that was live once, to compare with: nothing is expanded, and what comes of it must not be run.
pub fn read_remembered(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| Ok(Some(placeholder(name)));
    let credentials = Credentials { lookup: &lookup, given: false, expanded: false, no_env: false };
    look_at_routing(NO_FILE, text, server, &credentials, mock).taken()
}

/// The document as it may be shown: as written, unless a credential stands in it in clear; then as JSON without it.
pub fn shown(text: &str) -> String {
    let Ok(tree::Parsed { root: mut written, twice }) = tree::parse(text) else {
        return String::new();
    };
    if !twice.is_empty() {
        // Of a key that is there twice only one is in the tree: the other may hold a credential.
        return String::new();
    }
    if !routing::hide_credentials(&mut written) {
        return text.to_owned();
    }
    let canonical =
        serde_json::from_str::<serde_json::Value>(&tree::canonical(&written)).unwrap_or_default();
    serde_json::to_string_pretty(&canonical).unwrap_or_default()
}

fn look_at_routing(
    file: &str,
    text: &str,
    server: &Server,
    credentials: &Credentials<'_>,
    mock: Option<SocketAddr>,
) -> Reading<Routing> {
    let written = match tree::parse(text) {
        Ok(written) => written,
        Err(faults) => return Reading::refused(problems(file, faults)),
    };
    let root = &written.root;
    if matches!(&root.value, tree::Value::Null)
        || matches!(&root.value, tree::Value::Map(entries) if entries.is_empty())
    {
        // Most likely a file caught between being cut and being written: no reason to serve nothing.
        let hint = Some("it needs `providers`, `recipes` and `aliases`".to_owned());
        let fault = Finding {
            path: String::new(),
            at: root.at,
            message: "the document is empty".to_owned(),
            hint,
        };
        return Reading::refused(problems(file, vec![fault]));
    }
    let mut faults = Faults::new(credentials.no_env);
    faults.extend(written.twice.iter().cloned());
    let Some(spec) = routing::read(&Field::root(root), credentials, &mut faults) else {
        return Reading::refused(problems(file, faults));
    };
    let revision = revision(&tree::canonical(root));
    let origin = BuildContext {
        revision: &revision,
        text,
        mock,
        signal_headers: &server.routing.signal_headers,
    };
    match Routing::build(spec, &origin) {
        Ok(routing) => {
            let warnings = warnings(file, &routing);
            Reading { document: Some(routing), problems: problems(file, faults), warnings }
        }
        Err(found) => {
            faults.extend(found.faults);
            Reading {
                document: None,
                problems: problems(file, faults),
                warnings: read::warnings(file, found.warnings),
            }
        }
    }
}

/// Whether a routing document may use a variable: our own credentials never, whatever the patterns say.
fn allowed(name: &str, server: &Server) -> Result<(), String> {
    let ours =
        matches!(name, "ADMIN_API_KEY" | "AGENT_CLOUD_API_KEY") || name.starts_with("REROUTER_");
    if ours {
        return Err(format!("the variable `{name}` is never given to a routing document"));
    }
    if !server.routing.env_allow.iter().any(|pattern| expand::fits(pattern, name)) {
        return Err(format!(
            "the variable `{name}` fits no pattern of `routing.env_allow` in the server document"
        ));
    }
    Ok(())
}

/// First 12 hex digits of the hash of a canonical document.
fn revision(canonical: &str) -> String {
    Sha256::digest(canonical.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
