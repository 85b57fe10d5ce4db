//! Kinds of values that occur only in the server document.

use std::net::SocketAddr;
use std::sync::Arc;

use super::authorities;
use super::net::Net;
use rerouter_base::log::LogFormat;
use rerouter_captures::archive::ObjectLocation;
use rerouter_captures::redaction::{Expression, Redactor};
use rerouter_document::ValueKind;
use rerouter_document::kinds::{each, mapped, text_as, words, written};
use rerouter_routing::{Authorities, BaseUrl};

/// Most expressions in `capture.redact`: every text of a capture is searched for each of them.
const REDACT_EXPRESSIONS: usize = 32;
/// Headers that conditions may not test, because they would be copied into captures.
const CREDENTIAL_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"];

pub(super) fn address() -> impl ValueKind<Value = SocketAddr> {
    let kind = text_as(r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5}$", |field, faults| {
        let found = field.text(faults)?.parse().ok();
        if found.is_none() {
            let hint = "for example `127.0.0.1:8080` or `[::]:8080`";
            field.reject(faults, "must be an address and a port", hint);
        }
        found
    });
    written(kind, SocketAddr::to_string)
}

/// A network in CIDR notation, or one address.
pub(super) fn network() -> impl ValueKind<Value = Net> {
    text_as("", |field, faults| {
        let found = Net::parse(field.text(faults)?);
        if found.is_none() {
            field.reject(faults, "must be a network", "for example `10.0.0.0/8`");
        }
        found
    })
}

/// The value of a `Host` header, in lower case.
pub(super) fn host() -> impl ValueKind<Value = String> {
    text_as("", |field, faults| {
        let authority = field.text(faults)?.parse::<http::uri::Authority>().ok();
        let authority = authority.filter(|authority| !authority.as_str().contains('@'));
        if authority.is_none() {
            let message = "must be a host name, with a port unless it is the default";
            field.reject(faults, message, "for example `gw.example.com`");
        }
        authority.map(|authority| authority.as_str().to_ascii_lowercase())
    })
}

/// Scheme and authority of the gateway.
pub(super) fn public_url() -> impl ValueKind<Value = String> {
    text_as("^[Hh][Tt][Tt][Pp][Ss]?://", |field, faults| {
        let found = BaseUrl::parse(field.text(faults)?);
        let wrong = match &found {
            Ok(base) if base.path.is_empty() => None,
            Ok(_) => Some("must not have a path"),
            Err(wrong) => Some(*wrong),
        };
        if let Some(wrong) = wrong {
            let hint = "for example `https://gw.example.com`";
            field.reject(faults, format!("the URL {wrong}"), hint);
        }
        let base = found.ok()?;
        Some(format!("{}://{}", if base.tls { "https" } else { "http" }, base.authority()))
    })
}

/// The name of a header without credentials, in lower case.
pub(super) fn signal_header() -> impl ValueKind<Value = String> {
    text_as("", |field, faults| {
        let Ok(name) = field.text(faults)?.parse::<http::HeaderName>() else {
            field.reject(faults, "must be the name of a header", "for example `x-tier`");
            return None;
        };
        if CREDENTIAL_HEADERS.contains(&name.as_str()) {
            let message = "holds credentials: conditions must not see it";
            field.reject(faults, message, "name a header that holds no secret");
            return None;
        }
        Some(name.as_str().to_owned())
    })
}

/// Regular expressions for text that captures leave out.
pub(super) fn expressions() -> impl ValueKind<Value = Redactor> {
    let list = each(
        text_as("", |field, faults| match Expression::new(field.text(faults)?) {
            Ok(expression) => Some(expression),
            Err(why) => {
                let hint = "for example `\\b\\d{16}\\b`";
                field.reject(faults, format!("invalid pattern: {why}"), hint);
                None
            }
        }),
        REDACT_EXPRESSIONS,
    );
    mapped(list, Redactor::new)
}

pub(super) fn objects() -> impl ValueKind<Value = ObjectLocation> {
    text_as("^(s3|gs|az|file)://", |field, faults| {
        let found = ObjectLocation::parse(field.text(faults)?);
        found.map_err(|why| field.reject(faults, why, "for example `s3://bucket/folder`")).ok()
    })
}

/// A PEM file of certificates.
pub(super) fn node_authorities() -> impl ValueKind<Value = Arc<Authorities>> {
    text_as("", |field, faults| {
        let found = authorities::load(field.text(faults)?).map(Authorities::new);
        let hint = "the path of a PEM file of certificates";
        found.map(Arc::new).map_err(|why| faults.push_local(field.fault(why).hint(Some(hint)))).ok()
    })
}

/// The format of the access log. `off` is text in YAML 1.2, unlike in YAML 1.1.
pub(super) fn access_format() -> impl ValueKind<Value = Option<LogFormat>> {
    let [auto, text, json] = LogFormat::WORDS.map(|(word, format)| (word, Some(format)));
    words([auto, text, json, ("off", None)])
}
