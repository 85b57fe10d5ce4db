//! Measures the cost of a budget: the instructions of a request whose key has a budget, beside
//! those of a request without, in this gateway and in another one.

use std::path::Path;

use serde_json::json;

use crate::instructions::{Asked, Kind, count};
use crate::load::chat_bodies;
use crate::sides::{self, Start};
use crate::upstream::Upstream;
use crate::{Flags, Result};

/// Prints a table with a row for each body size and gateway.
pub fn measure(flags: &Flags, requests: u64) -> Result<()> {
    let upstream = Upstream::start()?;
    println!("instructions of the data path a request, over {requests} requests");
    println!("{:>8} {:<10} {:>14} {:>14} {:>8}", "body", "gateway", "no budget", "budget", "more");
    let own = ("rerouter", Path::new(env!("CARGO_BIN_EXE_rerouter")));
    let beside = flags.beside.as_deref().map(|binary| ("beside", binary));
    for bytes in &flags.bodies {
        let bodies = chat_bodies(*bytes as usize);
        for (name, binary) in std::iter::once(own).chain(beside) {
            let data_path = |limits: &serde_json::Value| {
                let counts = count(&Asked::chat(&bodies), requests, &|start: &Start| {
                    let to = upstream.address();
                    sides::gateway_limited(start, name, binary, to, (1, true), ("", limits))
                })?;
                Ok::<_, Box<dyn std::error::Error>>(counts.of(Kind::DataPath).instructions)
            };
            let without = data_path(&json!({}))?;
            let with = data_path(&json!({ "budget": { "usd": 1000, "per": "month" } }))?;
            let more = with.saturating_sub(without);
            println!("{bytes:>8} {name:<10} {without:>14} {with:>14} {more:>8}");
        }
    }
    Ok(())
}
