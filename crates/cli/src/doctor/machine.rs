//! Checks of this machine (store, disk, certificates), and of its lease and object store.

use std::path::Path;

use jiff::Timestamp;

use super::report::DoctorReport;
use rerouter_base::bounds;
use rerouter_base::clock::Clock;
use rerouter_core::config::Server;
use rerouter_gateway::server::Environment;
use rerouter_gateway::server::ready::{self, Readiness};
use rerouter_store::{self as store, StoreUrl};

/// Checks that the store opens with the master key, and that this build can read it.
pub(super) fn store(
    report: &mut DoctorReport,
    server: &Server,
    readiness: &Readiness,
    environment: &Environment,
) {
    let is_local = matches!(server.store.url, StoreUrl::Sqlite);
    let of_store = |path: &str| matches!(path, "data_dir" | "store.url");
    if let Some(problem) = readiness.problems.iter().find(|problem| of_store(&problem.path)) {
        report.fail("store", &problem.message, problem.hint.as_deref().unwrap_or_default());
        return;
    }
    let dir = server.data_dir.display().to_string();
    let place = if is_local { &dir } else { "PostgreSQL" };
    let is_empty = match server.store.url {
        StoreUrl::Sqlite => !server.data_dir.join("accounts.db").exists(),
        StoreUrl::Postgres(_) => ready::is_empty(server),
    };
    if is_empty {
        report.ok("store", &format!("{place} has no tables yet: the first start makes them"));
        report.ok("schema", "the first start makes it");
        return;
    }
    report.ok("store", &format!("{place} opens with its master key"));
    match ready::stored_document(server, environment) {
        Ok(_) => report.ok("schema", "up to date with this build"),
        Err(why) => report.fail("schema", &why, "run the build that wrote it, or a newer one"),
    }
}

/// Checks that there is room on disk for captures and accounts.
pub(super) fn disk(report: &mut DoctorReport, server: &Server) {
    let mut dir: &Path = &server.data_dir;
    while !dir.exists() {
        dir = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
    let Some(free) = store::free_bytes(dir) else {
        report.warn("disk", "its free space cannot be read", "look with df");
        return;
    };
    let mib = free >> 20;
    let kept = server.capture.retention.size;
    let told = format!("{mib} MiB free for {}", server.data_dir.display());
    if free < bounds::DOCTOR_DISK_LEAST {
        report.fail("disk", &told, "free some: a full disk stops captures and changes of keys");
    } else if free < kept && server.capture.enabled {
        let remedy = "captures may take `capture.retention.size`: make it smaller, or free some";
        report.warn("disk", &told, remedy);
    } else {
        report.ok("disk", &told);
    }
}

/// Checks that the certificates of listeners are usable, and for how long.
pub(super) fn certificates(report: &mut DoctorReport, server: &Server, readiness: &Readiness) {
    let of_tls = readiness.problems.iter().filter(|problem| problem.path.contains(".tls."));
    let mut any = false;
    for problem in of_tls {
        any = true;
        report.fail("tls", &problem.message, problem.hint.as_deref().unwrap_or_default());
    }
    if any {
        return;
    }
    let now = Clock::System.now();
    for listener in &server.listeners {
        let Some(files) = &listener.tls else { continue };
        any = true;
        let end =
            std::fs::read(&files.cert).ok().and_then(|pem| rerouter_core::config::expiry(&pem));
        expires(report, &files.cert.display().to_string(), end, now);
    }
    if !any {
        report.ok("tls", "no listener uses it");
    }
}

fn expires(report: &mut DoctorReport, file: &str, end: Option<Timestamp>, now: Timestamp) {
    const RENEW: &str = "renew it; the gateway reads the new file by itself";
    let Some(end) = end else {
        report.warn("tls", &format!("{file}: the end of its certificate is unknown"), RENEW);
        return;
    };
    let days = (end.as_second() - now.as_second()) / 86_400;
    let told = format!("{file}: valid until {end:.0}");
    match days {
        _ if end <= now => report.fail("tls", &format!("{file}: ended at {end:.0}"), RENEW),
        0..bounds::DOCTOR_CERTIFICATE_DAYS => report.warn("tls", &told, RENEW),
        _ => report.ok("tls", &told),
    }
}

/// Reports the lease, which every gateway on a PostgreSQL database needs.
pub(super) fn lease(report: &mut DoctorReport, server: &Server, running: bool) {
    let told = match (&server.store.url, running) {
        (StoreUrl::Sqlite, _) => "not needed with SQLite",
        (StoreUrl::Postgres(_), true) => "the readiness above says whether the gateway has one",
        (StoreUrl::Postgres(_), false) => "the gateway takes one when it starts",
    };
    report.ok("lease", told);
}

/// Checks that segments of captures can be written to the object store, read and deleted.
pub(super) fn objects(report: &mut DoctorReport, server: &Server, environment: &Environment) {
    const REMEDY: &str = "check the bucket, its region, and the variables of its credentials, \
                          which need to write, read and delete";
    let Some(location) = &server.capture.objects else {
        return match server.store.url {
            StoreUrl::Sqlite => report.ok("objects", "captures are in the data directory"),
            StoreUrl::Postgres(_) => report.warn(
                "objects",
                "each gateway has the bodies of its captures alone",
                "set `capture.objects`, so that every gateway reads them",
            ),
        };
    };
    let probe = format!("doctor-{}", std::process::id());
    let tried = location
        .open(&*environment.variables)
        .and_then(|objects| objects.probe(&probe).map_err(|error| error.to_string()));
    match tried {
        Ok(()) => report
            .ok("objects", &format!("{location}: an object could be written, read and deleted")),
        Err(why) => report.fail("objects", &format!("{location}: {why}"), REMEDY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_of_before_it_ends() {
        let now = rerouter_base::clock::fixtures::at(0);
        for (days, word) in [(-1, "fail"), (1, "warn"), (13, "warn"), (15, "ok")] {
            let end = Timestamp::from_second(now.as_second() + days * 86_400).ok();
            let mut report = DoctorReport::default();
            expires(&mut report, "tls.crt", end, now);
            assert!(report.text(false).starts_with(word), "{days}: {}", report.text(false));
        }
    }
}
