//! Counts answers that come late for no reason. A request that is held back until a timer of the
//! kernel lets it go shows as a wait of 40 or 200 ms. The provider answers some requests before it
//! has read them, fails some, and closes some connections; some clients leave at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Result;
use crate::load::{chat_bodies, connect, content_length, exchange, head_end};
use crate::process::Process;
use crate::sides::{self, Start};

/// Waits that are counted.
const WAITS: [Duration; 3] =
    [Duration::from_millis(40), Duration::from_millis(150), Duration::from_millis(1_000)];
/// Answers of a provider, in turn.
const TURNS: u64 = 16;
/// One of so many requests is sent by a client that leaves at once.
const LEAVING: usize = 32;
/// Time until the gateway has read its routing document again.
const RELOAD: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
    late: [AtomicU64; WAITS.len()],
}

/// Sends `requests` over `connections`, and prints how many waited. `other`: another binary of the
/// gateway.
pub fn measure(
    requests: u64,
    connections: u16,
    (threads, captures): (u16, bool),
    other: Option<&Path>,
) -> Result<()> {
    let upstream = upstream()?;
    let binary = other.map_or_else(sides::timed, Path::to_owned);
    let gateway = sides::gateway(&Start::Plain, "rerouter", &binary, upstream, threads, captures)?;
    gateway.write("routing.yaml", &routing(upstream))?;
    std::thread::sleep(RELOAD);
    let mut bodies = chat_bodies(600);
    for bytes in [8 << 10, 100 << 10] {
        bodies.extend(chat_bodies(bytes).into_iter().take(bodies.len() / 14));
    }
    let sent = gateway.requests(&bodies);
    let (counts, each) = (Counts::default(), requests / u64::from(connections));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..usize::from(connections) {
            let (counts, sent, gateway) = (&counts, &sent, &gateway);
            scope.spawn(move || {
                let own = sent.iter().cycle().skip(number * 17).enumerate();
                for (number, request) in own.take(usize::try_from(each).unwrap_or(usize::MAX)) {
                    ask(gateway, counts, number, request);
                }
            });
        }
    });
    let count = |count: &AtomicU64| count.load(Ordering::Acquire);
    println!(
        "{} requests answered with 200 in {:.0} s, {} refused, {} left by their clients",
        count(&counts.answered),
        began.elapsed().as_secs_f64(),
        count(&counts.refused),
        count(&counts.left),
    );
    for (wait, late) in WAITS.iter().zip(&counts.late) {
        println!("  waited over {wait:?}: {}", count(late));
    }
    Ok(())
}

thread_local! {
    static CONNECTION: std::cell::RefCell<Option<TcpStream>> =
        const { std::cell::RefCell::new(None) };
}

fn ask(gateway: &Process, counts: &Counts, number: usize, request: &[u8]) {
    CONNECTION.with_borrow_mut(|held| {
        let mut stream = match held.take() {
            Some(stream) => stream,
            None => match connect(gateway.address()) {
                Ok(stream) => stream,
                Err(_) => return,
            },
        };
        if number % LEAVING == LEAVING - 1 {
            let _sent = stream.write_all(request);
            counts.left.fetch_add(1, Ordering::AcqRel);
            return;
        }
        let began = Instant::now();
        let answer = exchange(&mut stream, request);
        let took = began.elapsed();
        for (wait, late) in WAITS.iter().zip(&counts.late) {
            late.fetch_add(u64::from(took > *wait), Ordering::AcqRel);
        }
        match answer {
            Ok(answer) if answer.status == 200 => {
                counts.answered.fetch_add(1, Ordering::AcqRel);
                *held = Some(stream);
            }
            _ => _ = counts.refused.fetch_add(1, Ordering::AcqRel),
        }
    });
}

fn routing(upstream: SocketAddr) -> String {
    let provider = |name: &str| {
        format!(
            "{name}: {{ protocol: openai, base_url: \"http://{upstream}/v1\", api_key: sk-bench }}"
        )
    };
    format!(
        "providers: {{ {}, {} }}\n\
         recipes: {{ main: {{ rules: [ {{ name: default, \
         targets: [ {{ target: up/fixed }}, {{ target: other/fixed }} ] }} ] }} }}\n\
         aliases: {{ auto: main }}\n",
        provider("up"),
        provider("other")
    )
}

/// Starts the provider. Its threads end with their connections, or with the process.
fn upstream() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, turns) = (listener.local_addr()?, Arc::<AtomicU64>::default());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let turns = turns.clone();
            std::thread::spawn(move || serve(stream, &turns));
        }
    });
    Ok(address)
}

/// Serves a connection until an error or a turn ends it.
fn serve(mut stream: TcpStream, turns: &AtomicU64) -> std::io::Result<()> {
    const BODY: &str = concat!(
        r#"{"id":"c","object":"chat.completion","created":1,"model":"fixed","choices":["#,
        r#"{"index":0,"message":{"role":"assistant","content":"well"},"finish_reason":"stop"}],"#,
        r#""usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#
    );
    stream.set_nodelay(true)?;
    let answer = |status: u16| {
        format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n\
             {BODY}",
            BODY.len()
        )
    };
    let mut came = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let (mut whole, mut answered, mut turn) = (None, false, 0);
        let length = loop {
            if whole.is_none()
                && let Some(end) = head_end(&came)
            {
                let head = came.get(..end).unwrap_or_default();
                whole = Some(end + content_length(head).unwrap_or_default());
                turn = turns.fetch_add(1, Ordering::AcqRel) % TURNS;
                if turn == 7 {
                    stream.write_all(answer(200).as_bytes())?;
                    answered = true;
                }
            }
            if let Some(length) = whole.filter(|length| came.len() >= *length) {
                break length;
            }
            let read = stream.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            came.extend_from_slice(piece.get(..read).unwrap_or_default());
        };
        // The next request may follow an early answer at once.
        came.drain(..length);
        match turn {
            3 => stream.write_all(answer(500).as_bytes())?,
            11 => return Ok(()),
            _ if !answered => stream.write_all(answer(200).as_bytes())?,
            _ => {}
        }
    }
}
