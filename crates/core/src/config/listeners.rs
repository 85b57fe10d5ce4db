//! Reads listeners, the metrics listener, and the values that they consist of.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::diagnostics::Diagnostics;
use super::net::Net;
use super::read::{Field, Section};
use super::settings::{Listener, TlsFiles};
use rerouter_base::interface::Interface;
use rerouter_routing::BaseUrl;

/// Entries of any list in the server document.
pub(super) const SERVER_LIST: usize = 256;

pub(super) fn path(field: &Field<'_>, faults: &mut Diagnostics) -> Option<PathBuf> {
    let text = field.text(faults)?;
    if text.is_empty() || text.contains('\0') {
        field.reject(faults, "must be the path of a file or directory", "for example `./data`");
        return None;
    }
    Some(PathBuf::from(text))
}

fn address(field: &Field<'_>, faults: &mut Diagnostics) -> Option<SocketAddr> {
    let found = field.text(faults)?.parse().ok();
    if found.is_none() {
        field.reject(
            faults,
            "must be an address and a port",
            "for example `127.0.0.1:8080` or `[::]:8080`",
        );
    }
    found
}

/// Whether two listeners cannot have these addresses. With port 0 each gets its own port. On Linux,
/// `[::]` includes IPv4.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

pub(super) fn net(field: &Field<'_>, faults: &mut Diagnostics) -> Option<Net> {
    let found = Net::parse(field.text(faults)?);
    if found.is_none() {
        field.reject(faults, "must be a network", "for example `10.0.0.0/8`");
    }
    found
}

pub(super) fn host(field: &Field<'_>, faults: &mut Diagnostics) -> Option<String> {
    let text = field.text(faults)?;
    let authority = text
        .parse::<http::uri::Authority>()
        .ok()
        .filter(|authority| !authority.as_str().contains('@'));
    if authority.is_none() {
        field.reject(
            faults,
            "must be a host name, with a port unless it is the default",
            "for example `gw.example.com`",
        );
    }
    authority.map(|authority| authority.as_str().to_ascii_lowercase())
}

pub(super) fn public_url(field: &Field<'_>, faults: &mut Diagnostics) -> Option<String> {
    let found = BaseUrl::parse(field.text(faults)?);
    let wrong = match &found {
        Ok(base) if base.path.is_empty() => None,
        Ok(_) => Some("must not have a path"),
        Err(wrong) => Some(*wrong),
    };
    if let Some(wrong) = wrong {
        field.reject(faults, format!("the URL {wrong}"), "for example `https://gw.example.com`");
    }
    found
        .ok()
        .map(|base| format!("{}://{}", if base.tls { "https" } else { "http" }, base.authority()))
}

pub(super) fn listeners(top: &mut Section<'_>, faults: &mut Diagnostics) -> Vec<Listener> {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let Some(field) = top.take("listeners") else {
        return vec![Listener {
            path: "listeners[0]".to_owned(),
            address: default,
            tls: None,
            interfaces: Interface::ALL.to_vec(),
        }];
    };
    let mut seen = Vec::new();
    let read = field.each(faults, SERVER_LIST, |field, faults| {
        let mut section = field.section(faults)?;
        let address = section.read("address", faults, address);
        section.require("address", faults);
        if address.is_some_and(|address| seen.iter().any(|other| collide(*other, address))) {
            field.reject(faults, "another listener has this address", "give each its own port");
        }
        seen.extend(address);
        let tls = section.read("tls", faults, tls);
        let interfaces = section.read("interfaces", faults, |field, faults| {
            let words = Interface::ALL.map(|interface| (interface.as_str(), interface));
            let found =
                field.each(faults, Interface::ALL.len(), |item, faults| item.word(faults, &words));
            if field.is_empty_list() {
                field.reject(
                    faults,
                    "a listener must serve at least one interface",
                    "without `interfaces` it serves all",
                );
            }
            Some(found)
        });
        section.finish(faults);
        let interfaces = interfaces.unwrap_or_else(|| Interface::ALL.to_vec());
        Some(Listener { path: field.path.clone(), address: address?, tls, interfaces })
    });
    if field.is_empty_list() {
        field.reject(
            faults,
            "at least one listener is needed",
            "without `listeners` there is one on 127.0.0.1:8080",
        );
    }
    read
}

fn tls(field: &Field<'_>, faults: &mut Diagnostics) -> Option<TlsFiles> {
    let mut section = field.section(faults)?;
    let (cert, key) = (section.read("cert", faults, path), section.read("key", faults, path));
    for name in ["cert", "key"] {
        section.require(name, faults);
    }
    section.finish(faults);
    Some(TlsFiles { cert: cert?, key: key? })
}

/// Metrics need no credential, so they never share an address with clients.
pub(super) fn metrics(
    top: &mut Section<'_>,
    listeners: &[Listener],
    faults: &mut Diagnostics,
) -> (SocketAddr, Vec<String>) {
    let mut section = top.below("metrics", faults);
    let written = section.take("address");
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090));
    let found = written.as_ref().map_or(Some(default), |field| address(field, faults));
    if found.is_some_and(|found| listeners.iter().any(|listener| collide(listener.address, found)))
    {
        let place = written.or_else(|| top.take("listeners"));
        faults.extend(place.map(|field| {
            field
                .fault("a listener has the address of metrics")
                .hint(Some("give each its own port"))
        }));
    }
    let hosts = section
        .read("hosts", faults, |f, p| Some(f.each(p, SERVER_LIST, host)))
        .unwrap_or_default();
    section.finish(faults);
    (found.unwrap_or(default), hosts)
}
