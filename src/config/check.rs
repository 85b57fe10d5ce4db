//! Both documents looked at, with everything that is found in them, and nothing done.

use std::path::Path;

use super::routing::Credentials;
use super::{
    Env, Problem, Reading, Server, allowed, load, load_routing, look_at_routing, look_at_server,
    read_server,
};
use super::{server_source, stored_routing};

/// What was found in the documents.
#[derive(Debug, Default)]
pub struct Checked {
    /// What keeps them from being served.
    pub problems: Vec<Problem>,
    /// What does not, but is most likely not meant.
    pub warnings: Vec<Problem>,
    /// A line for each document that is right.
    pub good: Vec<String>,
    /// Why the routing document was not looked at, where it was not.
    pub unchecked: Option<String>,
    /// The server document, beside its problems as much of it as could be read.
    pub server: Option<Server>,
    file: String,
    is_right: bool,
}

/// Gives the routing document that the store holds, if there is one, or says why it cannot be read.
pub(super) type Stored<'a> = dyn Fn(&Server) -> Result<Option<String>, String> + 'a;

impl Checked {
    /// Checks the server document. Without `env` the environment is not looked at: a variable
    /// without a default may hold anything, and what this machine lacks is only a warning.
    pub fn server(path: Option<&Path>, env: Option<&Env<'_>>) -> Checked {
        let (file, reading) = match server_source(path) {
            Ok(source) => (source.file.clone(), look_at_server(&source, env)),
            Err(problems) => (
                problems.first().map(|problem| problem.file.clone()).unwrap_or_default(),
                Reading::refused(problems),
            ),
        };
        let Reading { document, problems, warnings } = reading;
        let is_right = problems.is_empty();
        Checked { problems, warnings, server: document, file, is_right, ..Checked::default() }
    }

    /// Goes on to the routing document. Problems of the server document do not keep it from being
    /// checked; only where that does not say for sure which it is, none is looked at unless `path`
    /// names it. `stored` gives the one of the store.
    pub fn and_routing(&mut self, path: Option<&Path>, env: Option<&Env<'_>>, stored: &Stored<'_>) {
        let file = &self.file;
        if self.is_right {
            self.good.push(format!("{file}: good"));
        }
        let source = match (path, &self.server) {
            (Some(path), _) => load(path),
            (None, Some(server)) if self.is_right && server.knows("routing.file") => {
                match server.routing.stored {
                    true => match stored(server) {
                        Ok(kept) => Ok(stored_routing(kept)),
                        Err(why) => {
                            self.unchecked =
                                Some(format!("it is in the store, and cannot be read here: {why}"));
                            return;
                        }
                    },
                    false => load_routing(server),
                }
            }
            (None, Some(server)) if server.names_its_routing() => load_routing(server),
            _ => {
                let why = if self.is_right {
                    "names it by a variable"
                } else {
                    "has problems, and may name any"
                };
                self.unchecked = Some(format!("{file} {why}; check it with `--routing FILE`"));
                return;
            }
        };
        let settings = self.server.clone().or_else(|| read_server("defaults", "", &|_| None).ok());
        match (source, settings) {
            (Ok(source), Some(server)) => {
                let lookup =
                    |name: &str| allowed(name, &server).map(|()| env.and_then(|env| env(name)));
                let credentials = Credentials {
                    lookup: &lookup,
                    given: false,
                    expanded: true,
                    no_env: env.is_none(),
                };
                let reading =
                    look_at_routing(&source.file, &source.text, &server, &credentials, None);
                let right = reading.document.filter(|_| reading.problems.is_empty());
                self.good.extend(right.map(|routing| {
                    format!("{}: good, revision {}", source.file, routing.revision())
                }));
                self.problems.extend(reading.problems);
                self.warnings.extend(reading.warnings);
            }
            (Err(problems), _) => self.problems.extend(problems),
            _ => {}
        }
    }
}

impl Server {
    /// Whether a document with problems says all the same which file the routing document is, and
    /// what that may use.
    fn names_its_routing(&self) -> bool {
        self.written.has("routing.file") && self.written.knows_all_of("routing")
    }
}
