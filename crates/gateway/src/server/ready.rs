//! Checks what a start needs of this machine: certificates, addresses, data directory, master key.
//! The checks use the functions of the start itself, change nothing, and do not disturb a running
//! gateway.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::master::MasterKeys;
use super::tls::{self, TlsFilesError};
use super::{BootError, Environment};
use rerouter_base::id::Random;
use rerouter_base::secret::Purpose;
use rerouter_core::config::{Problem, Server};
use rerouter_store::{self as store, DataDir, Opening, StoreError, StoreUrl};

const MASTER_KEY_HINT: &str = "use the master key that the store was last started with";

/// The result of the checks for a start on this machine.
#[derive(Debug, Default)]
pub struct Readiness {
    /// Problems that prevent a start.
    pub problems: Vec<Problem>,
    /// Addresses in use, perhaps by the gateway with these documents.
    pub in_use: Vec<Problem>,
}

/// Checks what the server document needs of this machine, as far as the document is valid. With an
/// environment, also checks the master key of the store. Blocking.
pub fn check(server: &Server, environment: Option<&Environment>) -> Readiness {
    let mut found = Readiness::default();
    for listener in &server.listeners {
        let of = |key: &str| format!("{}.{key}", listener.place.path);
        found.address(server, &of("address"), listener.address);
        let Some(files) = listener.tls.as_ref() else { continue };
        let Err(TlsFilesError { setting, why }) = tls::check(files) else { continue };
        let hint = "a PEM file that this user may read: the certificate chain, or its key";
        found.problem(server, &of(setting), why, hint);
    }
    found.address(server, "metrics.address", server.metrics.address);
    if let Err(why) = tls::check_authorities() {
        let hint = "install ca-certificates; SSL_CERT_FILE or SSL_CERT_DIR name others";
        found.problem(server, "", why, hint);
    }
    if server.knows("data_dir") {
        match (DataDir::try_out(&server.data_dir), environment) {
            (Err(why), _) => {
                let hint = "a directory that this user may create and write to";
                found.problem(server, "data_dir", why, hint);
            }
            (Ok(()), Some(environment)) => found.store(server, environment),
            (Ok(()), None) => {}
        }
    }
    found
}

impl Readiness {
    fn problem(&mut self, server: &Server, path: &str, message: String, hint: &str) {
        if server.knows(path) {
            self.problems.push(server.problem(path, message, hint));
        }
    }

    /// Checks that the store, if there is one, opens with the given master key.
    fn store(&mut self, server: &Server, environment: &Environment) {
        if !server.knows("store.url") {
            return;
        }
        let keys = master_keys(server, environment);
        let opens = |opening: &Opening<'_>| {
            let row = opening.root_key()?;
            Ok::<_, StoreError>(keys.try_unlock(row.as_ref()).map(drop))
        };
        let opened = match store::inspect(&server.store.url, &server.data_dir, opens) {
            // There is no store yet, but the given master key must be well-formed.
            Ok(opened) => opened.unwrap_or_else(|| keys.try_unlock(None).map(drop)),
            Err(error) => match server.store.url {
                StoreUrl::Sqlite => Err(error.into()),
                StoreUrl::Postgres(_) => {
                    let hint = "a database that this machine reaches, and this user may write to";
                    return self.problem(server, "store.url", error.to_string(), hint);
                }
            },
        };
        if let Err(error) = opened {
            self.problem(server, "data_dir", error.to_string(), MASTER_KEY_HINT);
        }
    }

    fn address(&mut self, server: &Server, path: &str, address: SocketAddr) {
        match bind(address) {
            Err((ErrorKind::AddrInUse, why)) if server.knows(path) => {
                self.in_use.push(server.problem(
                    path,
                    why,
                    "it is used by a running gateway or by another process",
                ));
            }
            Err((_, why)) => self.problem(
                server,
                path,
                why,
                "an address of this machine, with a port that this user may open",
            ),
            Ok(_free) => {}
        }
    }
}

/// Binds an address in the same way as a start.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener, (ErrorKind, String)> {
    TcpListener::bind(address)
        .map_err(|error| (error.kind(), format!("cannot listen on {address}: {error}")))
}

/// Whether the database has no store yet, and one can be made. Blocking.
pub fn is_empty(server: &Server) -> bool {
    let look = |_: &Opening<'_>| Ok::<_, StoreError>(());
    matches!(store::inspect(&server.store.url, &server.data_dir, look), Ok(None))
}

/// The routing document in the store, `None` if there is none. The error tells why it cannot be
/// read. Blocking.
pub fn stored_document(
    server: &Server,
    environment: &Environment,
) -> Result<Option<String>, String> {
    let master_keys = master_keys(server, environment);
    let read = |opening: &Opening<'_>| -> Result<_, BootError> {
        match master_keys.try_unlock(opening.root_key()?.as_ref())? {
            Some(keys) => Ok(opening.live_document(&keys.derive(Purpose::Documents, b""))?),
            None => Ok(None),
        }
    };
    let url = &server.store.url;
    let found = store::inspect(url, &server.data_dir, read).map_err(|why| why.to_string())?;
    match (found, url) {
        (Some(document), _) => Ok(document),
        (None, StoreUrl::Sqlite) if server.data_dir.join("accounts.db").exists() => {
            Err("the store there was written by another build".to_owned())
        }
        (None, _) => Ok(None),
    }
}

fn master_keys(server: &Server, environment: &Environment) -> MasterKeys {
    let (key, old) = (environment.master_key.clone(), environment.master_key_old.clone());
    let (dir, now) = (server.data_dir.clone(), environment.clock.now());
    MasterKeys { dir, key, old, random: Random::System, now }
}
