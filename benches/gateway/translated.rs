//! Measures the cost of translation: instructions of the data path for an exchange and for an event
//! of a stream. A client of messages is compared with a client of chat completions. The provider
//! speaks chat completions, so it answers both with the same bytes.

use std::path::Path;
use std::time::Duration;

use crate::instructions::{Asked, Kind, count};
use crate::load::{CHAT, several};
use crate::sides::{self, Start};
use crate::upstream::{Shape, Upstream};
use crate::{Flags, Result};

const MESSAGES: &str = "/v1/messages";
/// Number of events in long streams. Short streams have a single event.
const EVENTS: u32 = 101;
/// Longer than the gateway takes for an event under callgrind, so that each event arrives alone.
const GAP: Duration = Duration::from_millis(10);
/// Bytes of a request for a stream.
const STREAM_REQUEST: usize = 600;

/// A kind of client: its name, its path, and the beginning of its requests up to the text.
struct Client {
    name: &'static str,
    path: &'static str,
    whole: &'static str,
    stream: &'static str,
}

const CLIENTS: [Client; 2] = [
    Client {
        name: "chat, passed",
        path: CHAT,
        whole: r#"{"model":"auto","temperature":0.2,"messages":[{"role":"user","content":""#,
        stream: r#"{"model":"auto","stream":true,"messages":[{"role":"user","content":""#,
    },
    Client {
        name: "messages, translated",
        path: MESSAGES,
        whole: concat!(
            r#"{"model":"auto","max_tokens":99,"temperature":0.2,"#,
            r#""messages":[{"role":"user","content":""#,
        ),
        stream: concat!(
            r#"{"model":"auto","max_tokens":99,"stream":true,"#,
            r#""messages":[{"role":"user","content":""#,
        ),
    },
];

/// Prints a table with a row for an exchange of each size and for an event.
pub fn measure(flags: &Flags, requests: u64) -> Result<()> {
    let upstream = Upstream::start()?;
    let data_path = |client: &Client, begin: &str, bytes: usize, requests: u64| {
        let bodies = several(bytes, begin);
        let asked = Asked { path: client.path, bodies: &bodies, warm_up: requests.min(200) };
        let binary = Path::new(env!("CARGO_BIN_EXE_rerouter"));
        let counts = count(&asked, requests, &|start: &Start| {
            sides::gateway(start, "rerouter", binary, upstream.address(), 1, true)
        })?;
        Ok::<u64, Box<dyn std::error::Error>>(counts.of(Kind::DataPath).instructions)
    };
    println!("instructions of the data path, over {requests} requests on one connection");
    for bytes in flags.bodies.iter().map(|bytes| *bytes as usize) {
        let of = |client: &Client| data_path(client, client.whole, bytes, requests);
        compare(&format!("an exchange of {bytes} B"), &of)?;
    }
    let streams = (requests / 50).max(10);
    let of = |client: &Client| {
        let mut taken = [0; 2];
        for (taken, events) in taken.iter_mut().zip([1, EVENTS]) {
            upstream.set_shape(Shape { events, gap: GAP });
            *taken = data_path(client, client.stream, STREAM_REQUEST, streams)?;
        }
        let [short, long] = taken;
        Ok(long.saturating_sub(short) / u64::from(EVENTS - 1))
    };
    compare("an event of a stream", &of)
}

/// Prints the instructions of each client, and the ratio.
fn compare(what: &str, of: &dyn Fn(&Client) -> Result<u64>) -> Result<()> {
    let mut taken = [0; 2];
    for (taken, client) in taken.iter_mut().zip(&CLIENTS) {
        *taken = of(client)?;
        println!("{what:<24} {:<24} {taken:>10}", client.name);
    }
    let [passed, translated] = taken;
    let ratio = translated as f64 / passed.max(1) as f64;
    println!("{what:<24} {:<24} {ratio:>10.3}", "translated ÷ passed");
    Ok(())
}
