//! What a new process does to take over from a running gateway.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;

use log::{info, warn};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::wire::Line;
use super::{ANSWER_TIME, HELLO, Handover, Offer, READY, socket_path};
use crate::server::BootError;
use rerouter_base::blocking::blocking;
use rerouter_core::app::App;
use rerouter_store::{DataDir, DataLocks};

/// What a new process has of the running gateway.
pub(in crate::server) struct Takeover {
    line: Line,
    pub(in crate::server) sockets: HashMap<SocketAddr, TcpListener>,
}

/// Asks the gateway that uses the data directory for its listeners and locks.
pub(in crate::server) async fn take_over(
    data_dir: &Path,
) -> Result<(DataDir, Takeover), BootError> {
    let told = |why: String| {
        BootError(format!(
            "no upgrade of the gateway with the data directory {}: {why}",
            data_dir.display()
        ))
    };
    let stream = UnixStream::connect(socket_path(data_dir))
        .await
        .map_err(|error| told(format!("none answers there ({error}); start without --upgrade")))?;
    let peer = stream.peer_cred().map_err(|error| told(error.to_string()))?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(told(format!("it runs as user {}: start as that one", peer.uid())));
    }
    let ask = move || {
        let mut line = Line::new(stream.into_std()?)?;
        line.send(HELLO)?;
        let (text, descriptors) = line.receive_with(ANSWER_TIME)?;
        Ok::<_, io::Error>((line, text, descriptors))
    };
    let asked = blocking(ask).await.map_err(|lost| told(lost.to_string()))?;
    let (line, text, descriptors) = asked.map_err(|error| told(why(&error)))?;
    let addresses = match serde_json::from_str(&text) {
        Ok(Offer::Taken(addresses)) => addresses,
        Ok(Offer::Refused(why)) => return Err(told(why)),
        Err(_) => return Err(told("its version upgrades in another way".to_owned())),
    };
    let (locks, sockets) = sort(descriptors, addresses)
        .ok_or_else(|| told("descriptors are missing: see `ulimit -n`".to_owned()))?;
    Ok((DataDir::handed_over(data_dir, locks), Takeover { line, sockets }))
}

/// Locks and listeners; `None` if some are missing.
fn sort(
    descriptors: Vec<OwnedFd>,
    addresses: Vec<SocketAddr>,
) -> Option<(DataLocks, HashMap<SocketAddr, TcpListener>)> {
    let mut descriptors = descriptors.into_iter();
    let mut sockets = HashMap::new();
    for address in addresses {
        sockets.insert(address, TcpListener::from(descriptors.next()?));
    }
    let file = File::from(descriptors.next()?);
    Some((DataLocks { file, dir: descriptors.next().map(File::from) }, sockets))
}

/// Why the other process did not answer.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            format!("it did not answer within {} s", ANSWER_TIME.as_secs())
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            "it goes on by itself; its log says why".to_owned()
        }
        _ => error.to_string(),
    }
}

impl Takeover {
    /// Tells the running gateway that this process can serve, and returns when it has to, with the
    /// connections to it and to the processes before it. Blocking.
    pub(in crate::server) fn begin(
        self,
        app: &App,
    ) -> Result<Vec<std::os::unix::net::UnixStream>, BootError> {
        let mut line = self.line;
        let told = |why| BootError(format!("no upgrade of the running gateway: {why}"));
        let given = line.send(READY).and_then(|()| line.receive_with(ANSWER_TIME));
        let (given, before) = given.map_err(|error| told(why(&error)))?;
        let handover: Handover =
            serde_json::from_str(&given).map_err(|error| told(error.to_string()))?;
        let now = app.clock.now();
        for (report, age) in &handover.reports {
            app.nodes.learn(report, *age, now);
        }
        if !app.store.is_shared() {
            app.nodes.refuse_signatures_before(now);
        }
        app.store.took_over_from(handover.processes);
        info!("took over from the running gateway");
        let mut all = vec![line.into_stream()];
        all.extend(before.into_iter().map(Into::into));
        Ok(all)
    }
}

/// Waits for the ends of the processes before this one, and then has the store for itself.
pub(in crate::server) async fn await_end(
    app: &App,
    connections: Vec<std::os::unix::net::UnixStream>,
) {
    for stream in connections {
        let ended = async {
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)?.read(&mut [0]).await
        };
        // Also an error means that it is gone.
        let _ended = ended.await;
    }
    app.store.predecessor_ended();
    match app.limits.stop_sharing(&app.store, app.clock.now()).await {
        Ok(()) => info!("the process before this one has ended"),
        Err(error) => warn!("budgets are granted in small parts until the next start: {error}"),
    }
}
