//! Which PostgreSQL to use, from a URL. Nothing here quotes the URL: it holds the password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Verification};

/// Longest wait for the TCP connection to one address of PostgreSQL, before the next is tried.
const DATABASE_CONNECT: Duration = Duration::from_secs(3);
/// How long data to PostgreSQL may be unacknowledged before the connection counts as lost.
const DATABASE_UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long a connection to PostgreSQL may be silent before it is probed.
const DATABASE_KEEPALIVE: Duration = Duration::from_secs(5);

/// The parameters of a URL, besides `sslmode`, `sslrootcert` and `target_session_attrs`.
const PARAMETERS: [&str; 11] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "user",
];

#[derive(Clone)]
pub struct PostgresUrl {
    pub(super) config: Box<Config>,
    pub(super) tls: MakeRustlsConnect,
    verification: Verification,
    /// Whether a transaction pooler is behind it: a setting of a session would reach others.
    pub(crate) is_pooled: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum StoreUrlError {
    /// The URL itself is wrong.
    Url(&'static str),
    /// This machine lacks something that the URL needs.
    Machine(String),
}

impl fmt::Debug for PostgresUrl {
    /// Hides everything: any part may be from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl").finish_non_exhaustive()
    }
}

impl PostgresUrl {
    pub(crate) fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Reads a URL as libpq does, and the file of authorities that it names.
    pub fn parse(url: &str) -> Result<PostgresUrl, StoreUrlError> {
        const MALFORMED: StoreUrlError = StoreUrlError::Url(
            "must be `postgres://user:password@host/database`, with special characters as `%XX`",
        );
        let (url, ours) = split_parameters(url)?;
        // The message of the driver may quote a part of a password that is not encoded.
        let mut config: Config = url.parse().map_err(|_| MALFORMED)?;
        // The rest of a password with an `@` would be looked up as a host.
        let is_odd = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        let has_host = !(config.get_hosts().is_empty() && config.get_hostaddrs().is_empty());
        if !has_host || config.get_hosts().iter().any(is_odd) {
            return Err(MALFORMED);
        }
        let (mode, verification) = ours.tls()?;
        config.ssl_mode(mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(DATABASE_CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("rerouter");
        }
        let tls = tls::connector(verification, ours.authorities.as_deref());
        let tls = tls.map_err(StoreUrlError::Machine)?;
        Ok(PostgresUrl { config: config.into(), tls, verification, is_pooled: false })
    }

    /// Number of servers to try, one after the other. The driver could try them itself, but waits
    /// forever for a server that accepts the connection and then does not answer.
    pub(super) fn servers(&self) -> u32 {
        let count = self.config.get_hosts().len().max(self.config.get_hostaddrs().len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The configuration for one of its servers, with at most `time` to connect.
    pub(super) fn server(&self, index: u32, time: Duration) -> Config {
        let (all, index) = (&self.config, index as usize);
        let mut config = Config::new();
        match all.get_hosts().get(index) {
            Some(Host::Tcp(name)) => _ = config.host(name),
            Some(Host::Unix(directory)) => _ = config.host_path(directory),
            None => {}
        }
        let ports = all.get_ports();
        _ = all.get_hostaddrs().get(index).map(|address| config.hostaddr(*address));
        _ = ports.get(index).or(ports.first()).map(|port| config.port(*port));
        _ = all.get_user().map(|user| config.user(user));
        _ = all.get_password().map(|password| config.password(password));
        _ = all.get_dbname().map(|name| config.dbname(name));
        _ = all.get_options().map(|options| config.options(options));
        _ = all.get_application_name().map(|name| config.application_name(name));
        config
            .ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .channel_binding(all.get_channel_binding())
            // A standby answers too, but it may be behind and takes no writes.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(all.get_connect_timeout().map_or(time, |timeout| time.min(*timeout)))
            .tcp_user_timeout(DATABASE_UNACKNOWLEDGED)
            .keepalives_idle(DATABASE_KEEPALIVE)
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(3);
        config
    }

    /// Whether others on the network could read or change what is sent: the server is on another
    /// machine, and its certificate and name are not checked.
    pub(crate) fn is_exposed(&self) -> bool {
        let local = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost"
                    || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
            }
        };
        let all_local = self.config.get_hosts().iter().all(local)
            && self.config.get_hostaddrs().iter().all(|address| address.is_loopback());
        self.verification != Verification::Full && !all_local
    }
}

/// The parameters that the driver does not know.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    authorities: Option<PathBuf>,
    /// The authorities of the system are named (`sslrootcert=system`).
    names_system: bool,
}

impl TlsParameters {
    /// What libpq does for each value of `sslmode`.
    fn tls(&self) -> Result<(SslMode, Verification), StoreUrlError> {
        let usual = if self.names_system { "verify-full" } else { "prefer" };
        let mode = self.mode.as_deref().unwrap_or(usual);
        if self.names_system && mode != "verify-full" {
            return Err(StoreUrlError::Url(
                "with `sslrootcert=system` needs `sslmode=verify-full`",
            ));
        }
        Ok(match (mode, &self.authorities) {
            ("disable", _) => (SslMode::Disable, Verification::Nothing),
            ("prefer", _) => (SslMode::Prefer, Verification::Nothing),
            ("require", None) => (SslMode::Require, Verification::Nothing),
            ("require", Some(_)) | ("verify-ca", _) => (SslMode::Require, Verification::Authority),
            ("verify-full", _) => (SslMode::Require, Verification::Full),
            _ => {
                return Err(StoreUrlError::Url(
                    "`sslmode` must be `disable`, `prefer`, `require`, `verify-ca` or \
                     `verify-full`",
                ));
            }
        })
    }
}

/// Splits a URL: the URL without the parameters that the driver does not know, and these
/// parameters.
fn split_parameters(url: &str) -> Result<(String, TlsParameters), StoreUrlError> {
    let mut ours = TlsParameters::default();
    // The driver takes everything before the first `@` for user and password.
    let from = url.find('@').unwrap_or(0);
    let Some(at) = url.get(from..).and_then(|rest| rest.find('?')).map(|at| from + at) else {
        return Ok((url.to_owned(), ours));
    };
    let (base, query) = url.split_at(at);
    let mut kept = Vec::new();
    for pair in query.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = || percent_decode_str(value).decode_utf8_lossy().into_owned();
        match name {
            "sslmode" => ours.mode = Some(decoded()),
            "sslrootcert" if value == "system" => ours.names_system = true,
            "sslrootcert" => ours.authorities = Some(decoded().into()),
            // Only such servers are ever used.
            "target_session_attrs" if ["read-write", "primary"].contains(&value) => {}
            name if PARAMETERS.contains(&name) => kept.push(pair),
            _ => return Err(StoreUrlError::Url("has a parameter that is not supported")),
        }
    }
    let kept = kept.join("&");
    Ok((if kept.is_empty() { base.to_owned() } else { format!("{base}?{kept}") }, ours))
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
