//! Measures the cost of a lease. A gateway that shares its store checks its lease for each request.
//! Its instructions per request are compared with those of a gateway that has its own store.

use std::path::Path;

use crate::instructions::{Asked, Kind, count};
use crate::load::chat_bodies;
use crate::postgres::Cluster;
use crate::sides::{self, Start};
use crate::upstream::Upstream;
use crate::{Flags, Result};

/// Prints a table with a row for each body size, without and with a lease.
pub fn measure(flags: &Flags, requests: u64) -> Result<()> {
    let (upstream, cluster) = (Upstream::start()?, Cluster::start(&[]));
    // The lease is long, as callgrind slows down renewals too.
    let store = format!("store: {{ url: \"{}\", lease: 30s }}\n", cluster.url("postgres"));
    println!("instructions of the data path a request, over {requests} requests");
    println!("{:>8} {:>14} {:>14} {:>8}", "body", "without lease", "with lease", "ratio");
    for bytes in &flags.bodies {
        let bodies = chat_bodies(*bytes as usize);
        let data_path = |more: &str| {
            let counts = count(&Asked::chat(&bodies), requests, &|start: &Start| {
                let binary = Path::new(env!("CARGO_BIN_EXE_rerouter"));
                sides::gateway_with(start, "rerouter", binary, upstream.address(), (1, true), more)
            })?;
            Ok::<_, Box<dyn std::error::Error>>(counts.of(Kind::DataPath).instructions)
        };
        let (without, with) = (data_path("")?, data_path(&store)?);
        let ratio = with as f64 / without.max(1) as f64;
        println!("{bytes:>8} {without:>14} {with:>14} {ratio:>8.4}");
    }
    Ok(())
}
