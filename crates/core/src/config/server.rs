//! Reads the server document. Each key has its default here or in `listeners` and `limits`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::authorities;
use super::diagnostics::Diagnostics;
use super::limits;
use super::listeners::{SERVER_LIST, host, listeners, metrics, net, path, public_url};
use super::net::Net;
use super::positions::Positions;
use super::read::{Field, Section, to_usize};
use super::settings::{
    AuditRetention, CaptureSettings, Retention, RoutingFile, Server, SessionSettings,
};
use super::telemetry::{access_log, log, telemetry};
use rerouter_captures::archive::ObjectTarget;
use rerouter_captures::redaction::{Expression, Redactor};
use rerouter_routing::Authorities;
use rerouter_store::{OnLeaseLost, PostgresTarget, StoreSettings, StoreUrl, TargetError};

/// Smallest `audit.retention.rows`: what led to a change can still be seen.
const AUDIT_ROWS_MIN: u64 = 100;
/// Largest `audit.retention.rows`: more than a disk holds.
const AUDIT_ROWS_MAX: u64 = 1_000_000_000;
/// Shortest and longest `store.lease`. A shorter one would be lost with each pause of a busy
/// machine; a longer one lets a revocation wait for so long for a gateway that has gone.
const LEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(600));
/// Expressions of `capture.redact`: each is searched for in every text of a capture.
const REDACT_EXPRESSIONS: usize = 32;
/// Headers that conditions may look at: each is copied into every capture.
const SIGNAL_HEADERS: usize = 32;

/// Variables that a routing document may use.
const ENV_ALLOW: [&str; 2] = ["*_API_KEY", "*_BASE_URL"];
/// Headers that conditions never see: they would be copied into captures.
const CREDENTIAL_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"];

/// Reads the document from its expanded tree.
pub(super) fn read(root: &Field<'_>, faults: &mut Diagnostics) -> Option<Server> {
    let mut top = root.section(faults)?;
    let listeners = listeners(&mut top, faults);
    let (metrics, metrics_hosts) = metrics(&mut top, &listeners, faults);
    let loopback_only =
        listeners.iter().all(|listener| listener.address.ip().to_canonical().is_loopback());
    let (store, may_be_shared) = store(&mut top, faults);
    let server = Server {
        public_url: top.read("public_url", faults, public_url),
        hosts: top
            .read("hosts", faults, |f, p| Some(f.each(p, SERVER_LIST, host)))
            .unwrap_or_default(),
        metrics,
        metrics_hosts,
        threads: top.read("threads", faults, |f, p| f.whole(p, 0, 1024)).map_or(0, to_usize),
        data_dir: top.read("data_dir", faults, path).unwrap_or_else(|| PathBuf::from("./data")),
        routing: routing_file(&mut top, faults),
        capture: capture(&mut top, faults, may_be_shared),
        registration_open: registration(&mut top, faults).unwrap_or(loopback_only),
        call_untrusted: call_untrusted(&mut top, faults).unwrap_or(false) || loopback_only,
        console: top.read("console", faults, |f, p| f.bool(p)).unwrap_or(true),
        session: session(&mut top, faults),
        limits: limits::read(&mut top, faults),
        node_authorities: nodes(&mut top, faults),
        egress_deny: egress(&mut top, faults),
        trusted_proxies: top
            .read("trusted_proxies", faults, |f, p| Some(f.each(p, SERVER_LIST, net)))
            .unwrap_or_default(),
        audit: audit(&mut top, faults),
        log: log(&mut top, faults),
        access_log: access_log(&mut top, faults),
        telemetry: telemetry(&mut top, faults),
        store,
        listeners,
        positions: Positions::default(),
    };
    top.finish(faults);
    Some(server)
}

fn call_untrusted(top: &mut Section<'_>, faults: &mut Diagnostics) -> Option<bool> {
    let mut agent = top.below("agent", faults);
    let call_untrusted = agent.read("call_untrusted", faults, |field, faults| field.bool(faults));
    agent.finish(faults);
    call_untrusted
}

/// The settings, and whether other gateways may share the store: also where the variables of its
/// URL are not known.
fn store(top: &mut Section<'_>, faults: &mut Diagnostics) -> (StoreSettings, bool) {
    let usual = StoreSettings::default();
    let mut section = top.below("store", faults);
    let url = section.read("url", faults, |field, faults| database(field, faults, StoreUrl::parse));
    let may_be_shared = match &url {
        Some(url) => matches!(url, StoreUrl::Postgres(_)),
        None => section.is_set("url"),
    };
    let found = StoreSettings {
        url: url.unwrap_or(usual.url),
        direct_url: section.read("direct_url", faults, |field, faults| {
            database(field, faults, PostgresTarget::parse)
        }),
        lease: section.read("lease", faults, |f, p| f.duration_in(p, LEASE)).unwrap_or(usual.lease),
        on_lease_lost: section
            .read("on_lease_lost", faults, |f, p| {
                let (refuse, stale) = (OnLeaseLost::Refuse, OnLeaseLost::ServeStale);
                f.word(p, &[("refuse", refuse), ("serve_stale", stale)])
            })
            .unwrap_or(usual.on_lease_lost),
    };
    if let (StoreUrl::Postgres(target), Some(field)) = (&found.url, section.take("url"))
        && target.is_exposed()
    {
        let warning = field.fault("the database's certificate and name are not checked");
        faults
            .warnings
            .push(warning.hint(Some("use `sslmode=verify-full` unless the network is yours")));
    }
    section.finish(faults);
    (found, may_be_shared)
}

fn database<T>(
    field: &Field<'_>,
    faults: &mut Diagnostics,
    parse: fn(&str) -> Result<T, TargetError>,
) -> Option<T> {
    match parse(field.text(faults)?) {
        Ok(found) => return Some(found),
        Err(TargetError::Url(why)) => {
            field.reject(faults, why, "see docs/reference/server-document.md");
        }
        Err(TargetError::Machine(why)) => {
            faults.push_local(field.fault(why).hint(Some("the path of a PEM file of certificates")))
        }
    }
    None
}

fn routing_file(top: &mut Section<'_>, faults: &mut Diagnostics) -> RoutingFile {
    let mut section = top.below("routing", faults);
    let file = section.read("file", faults, path);
    let stored = section.read("store", faults, |field, faults| {
        let stored = field.bool(faults)?;
        if stored && file.is_some() {
            let fault = field.fault("conflicts with `routing.file`");
            faults.push(fault.hint(Some("remove one of them")));
        }
        Some(stored)
    });
    let found = RoutingFile {
        file,
        stored: stored.unwrap_or(false),
        made: None,
        env_allow: section
            .read("env_allow", faults, |f, p| {
                Some(f.each(p, SERVER_LIST, |item, p| item.text(p).map(str::to_owned)))
            })
            .unwrap_or_else(|| ENV_ALLOW.map(str::to_owned).to_vec()),
        signal_headers: section
            .read("signal_headers", faults, |f, p| Some(f.each(p, SIGNAL_HEADERS, header)))
            .unwrap_or_default(),
    };
    section.finish(faults);
    found
}

fn header(field: &Field<'_>, faults: &mut Diagnostics) -> Option<String> {
    let Ok(name) = field.text(faults)?.parse::<http::HeaderName>() else {
        field.reject(faults, "must be the name of a header", "for example `x-tier`");
        return None;
    };
    if CREDENTIAL_HEADERS.contains(&name.as_str()) {
        field.reject(
            faults,
            "holds credentials: conditions must not see it",
            "name a header that holds no secret",
        );
        return None;
    }
    Some(name.as_str().to_owned())
}

fn capture(top: &mut Section<'_>, faults: &mut Diagnostics, shared: bool) -> CaptureSettings {
    let mut section = top.below("capture", faults);
    let flag = |section: &mut Section<'_>, key, faults: &mut Diagnostics| {
        section.read(key, faults, |f, p| f.bool(p)).unwrap_or(true)
    };
    let found = CaptureSettings {
        enabled: flag(&mut section, "enabled", faults),
        bodies: flag(&mut section, "bodies", faults),
        encrypt: flag(&mut section, "encrypt", faults),
        client_opt_out: flag(&mut section, "client_opt_out", faults),
        max_body: section.read("max_body", faults, |f, p| f.size(p)).map_or(8 << 20, to_usize),
        retention: retention(&mut section, faults),
        redactor: Redactor::new(
            section
                .read("redact", faults, |f, p| Some(f.each(p, REDACT_EXPRESSIONS, expression)))
                .unwrap_or_default(),
        ),
        objects: section.read("objects", faults, |field, faults| {
            let found = ObjectTarget::parse(field.text(faults)?);
            let target =
                found.map_err(|why| field.reject(faults, why, "for example `s3://bucket/folder`"));
            if !shared {
                let hint = "only gateways that share PostgreSQL read it: set `store.url`";
                field.reject(faults, "has no use with SQLite", hint);
            }
            target.ok()
        }),
    };
    section.finish(faults);
    found
}

fn expression(field: &Field<'_>, faults: &mut Diagnostics) -> Option<Expression> {
    let wrong = |why| {
        field.fault(format!("invalid pattern: {why}")).hint(Some("for example `\\b\\d{16}\\b`"))
    };
    Expression::new(field.text(faults)?).map_err(|why| faults.push(wrong(why))).ok()
}

fn retention(capture: &mut Section<'_>, faults: &mut Diagnostics) -> Retention {
    let mut section = capture.below("retention", faults);
    let found = Retention {
        age: section
            .read("age", faults, |f, p| f.duration(p))
            .unwrap_or(Duration::from_secs(7 * 24 * 3600)),
        size: section.read("size", faults, |f, p| f.size(p)).unwrap_or(10 << 30),
    };
    section.finish(faults);
    found
}

fn audit(top: &mut Section<'_>, faults: &mut Diagnostics) -> AuditRetention {
    let mut audit = top.below("audit", faults);
    let mut section = audit.below("retention", faults);
    let found = AuditRetention {
        age: section
            .read("age", faults, |f, p| f.positive_duration(p))
            .unwrap_or(Duration::from_secs(400 * 24 * 3600)),
        rows: section
            .read("rows", faults, |f, p| f.whole(p, AUDIT_ROWS_MIN, AUDIT_ROWS_MAX))
            .unwrap_or(1_000_000),
    };
    section.finish(faults);
    audit.finish(faults);
    found
}

fn registration(top: &mut Section<'_>, faults: &mut Diagnostics) -> Option<bool> {
    let mut section = top.below("pin", faults);
    let found = section
        .read("registration", faults, |f, p| f.word(p, &[("open", true), ("closed", false)]));
    section.finish(faults);
    found
}

fn session(top: &mut Section<'_>, faults: &mut Diagnostics) -> SessionSettings {
    let mut section = top.below("session", faults);
    let idle = section
        .read("idle", faults, |f, p| f.positive_duration(p))
        .unwrap_or(Duration::from_secs(30 * 60));
    let absolute = section
        .read("absolute", faults, |f, p| f.positive_duration(p))
        .unwrap_or(Duration::from_secs(12 * 3600));
    if let Some(field) = section.take("idle").filter(|_| idle > absolute) {
        field.reject(faults, "longer than `absolute`", "shorten it, or lengthen `absolute`");
    }
    section.finish(faults);
    SessionSettings { idle, absolute }
}

fn nodes(top: &mut Section<'_>, faults: &mut Diagnostics) -> Option<Arc<Authorities>> {
    let mut section = top.below("nodes", faults);
    let found =
        section.read("ca", faults, |field, faults| match authorities::load(field.text(faults)?) {
            Ok(found) => Some(Arc::new(found)),
            Err(why) => {
                faults.push_local(
                    field.fault(why).hint(Some("the path of a PEM file of certificates")),
                );
                None
            }
        });
    section.finish(faults);
    found
}

fn egress(top: &mut Section<'_>, faults: &mut Diagnostics) -> Vec<Net> {
    let mut section = top.below("egress", faults);
    let found = section.read("deny", faults, |f, p| Some(f.each(p, SERVER_LIST, net)));
    section.finish(faults);
    found.unwrap_or_else(Net::denied_by_default)
}
