//! What a running gateway does for the next one.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use log::{info, warn};
use pingora::server::ShutdownWatch;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::wire::{Line, is_open};
use super::{ANSWER_TIME, HELLO, Handover, LOAD_TIME, Offer, READY, socket_path};
use crate::server::systemd;
use rerouter_base::blocking::blocking;
use rerouter_core::app::App;
use rerouter_store::DataLocks;

/// What a running gateway needs for an upgrade.
pub(in crate::server) struct Offering {
    pub(in crate::server) app: Arc<App>,
    pub(in crate::server) sockets: HashMap<SocketAddr, TcpListener>,
    /// The connections to the processes before this one.
    pub(in crate::server) before: Vec<std::os::unix::net::UnixStream>,
    /// The program of the next process and its arguments, for SIGQUIT.
    pub(in crate::server) next: (PathBuf, Vec<OsString>),
    /// Set when another process has taken over.
    pub(in crate::server) handed_over: watch::Sender<bool>,
}

/// Waits for a new process, and hands over to it. SIGQUIT starts one.
pub(in crate::server) async fn run(offering: Offering, mut shutdown: ShutdownWatch) {
    let Ok(mut quit) = signal(SignalKind::quit()) else {
        warn!("SIGQUIT cannot be received: it ends this process");
        return;
    };
    let path = socket_path(offering.app.store.dir());
    let socket = listen(&path).inspect_err(|error| {
        warn!("no upgrade is possible: cannot listen on {}: {error}", path.display());
    });
    loop {
        let came = tokio::select! {
            _ = shutdown.changed() => return,
            _ = quit.recv() => {
                start(&offering.next);
                continue;
            }
            came = accept(socket.as_ref().ok()) => came,
        };
        let offered = tokio::select! {
            // The new process sees that nobody answers any more.
            _ = shutdown.changed() => return,
            offered = offer(&offering, came) => offered,
        };
        match offered.and_then(|(line, process)| hand_over(&offering, line, process)) {
            Ok(line) => {
                let Offering { sockets, handed_over, .. } = offering;
                drop((socket, sockets));
                handed_over.send_replace(true);
                // Open until the end of this process, which it tells the new one of.
                let _line = line;
                return std::future::pending().await;
            }
            Err(why) => {
                warn!("no upgrade: {why}");
                take_back(&offering.app).await;
            }
        }
    }
}

/// Listens for new processes of this user. The data directory is locked, so a file of this name is
/// left from a process before.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

async fn accept(socket: Option<&UnixListener>) -> UnixStream {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        match socket.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}

/// Starts the next process from the program on the disk, which may be another version by now.
fn start((program, arguments): &(PathBuf, Vec<OsString>)) {
    if std::process::id() == 1 {
        // The container would end with this process, and the new one with it.
        return warn!("SIGQUIT: the first process of a container is not upgraded: replace it");
    }
    info!("SIGQUIT: starting {} to take over", program.display());
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            // Its reason is in the log already. If it takes over, it outlives this process.
            drop(blocking(move || child.wait()));
        }
        Err(error) => warn!("no upgrade: {} cannot be started: {error}", program.display()),
    }
}

/// Hands listeners and locks to a new process, and waits until it can serve. Returns its id, where
/// the system tells.
async fn offer(offering: &Offering, stream: UnixStream) -> Result<(Line, Option<i32>), String> {
    let peer = stream.peer_cred().map_err(|error| error.to_string())?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("user {} asked for it", peer.uid()));
    }
    let line = stream.into_std().and_then(Line::new).map_err(|error| error.to_string())?;
    let line = receive(line, HELLO, ANSWER_TIME).await?;
    let app = &offering.app;
    if let Err(why) = prepare(app).await {
        let refused = Offer::Refused(why.clone());
        let _left = line.send(&serde_json::to_string(&refused).map_err(|error| error.to_string())?);
        return Err(why);
    }
    let (app, sockets) = (app.clone(), again(&offering.sockets)?);
    let send = move || {
        let (addresses, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
        let DataLocks { file, dir } = app.store.data_locks();
        let mut descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        descriptors.extend([file.as_fd()].into_iter().chain(dir.as_ref().map(AsFd::as_fd)));
        line.send_with(&serde_json::to_string(&Offer::Taken(addresses))?, &descriptors)?;
        Ok::<_, io::Error>(line)
    };
    let sent = blocking(send).await.map_err(|lost| lost.to_string())?;
    let line = sent.map_err(|error| format!("the new process has left: {error}"))?;
    Ok((receive(line, READY, LOAD_TIME).await?, peer.pid()))
}

fn again(
    sockets: &HashMap<SocketAddr, TcpListener>,
) -> Result<Vec<(SocketAddr, TcpListener)>, String> {
    let again = sockets.iter().map(|(address, socket)| Ok((*address, socket.try_clone()?)));
    again.collect::<io::Result<_>>().map_err(|error| error.to_string())
}

/// Waits for a line of the new process that says this.
async fn receive(
    mut line: Line,
    wanted: &'static str,
    patience: std::time::Duration,
) -> Result<Line, String> {
    let receive = move || line.receive(patience).map(|came| (line, came));
    match blocking(receive).await.map_err(|lost| lost.to_string())? {
        Ok((line, came)) if came == wanted => Ok(line),
        Ok(_) => Err("the new process is of a version that upgrades in another way".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(format!("the new process said nothing for {} s", patience.as_secs()))
        }
        Err(_) => Err("the new process has left".to_owned()),
    }
}

/// From here on nothing changes what the new process loads.
async fn prepare(app: &App) -> Result<(), String> {
    if app.auth.unsaved_revocations() + app.auth.unsaved_disablings() > 0 {
        return Err("revocations are not durable yet: see the log".to_owned());
    }
    app.store.freeze().await.map_err(|error| error.to_string())?;
    app.limits.share(&app.store).await.map_err(|error| error.to_string())
}

/// Goes on as before.
async fn take_back(app: &App) {
    app.hand_over(false);
    app.store.thaw();
    if let Err(error) = app.limits.stop_sharing(&app.store, app.clock.now()).await {
        warn!("budgets are granted in small parts until the next start: {error}");
    }
}

/// The new process serves from here on.
fn hand_over(offering: &Offering, line: Line, process: Option<i32>) -> Result<Line, String> {
    let Offering { app, before, .. } = offering;
    // Before it does: from its first change on, credentials are checked by what it has stored.
    app.hand_over(true);
    let (reports, processes) = (app.nodes.reports(app.clock.now()), app.store.processes());
    let handover = Handover { reports, processes };
    let text = serde_json::to_string(&handover).map_err(|error| error.to_string())?;
    let living: Vec<BorrowedFd<'_>> =
        before.iter().filter(|line| is_open(line)).map(AsFd::as_fd).collect();
    let sent = line.send_with(&text, &living);
    sent.map_err(|error| format!("the new process has left: {error}"))?;
    let process = process.and_then(|id| u32::try_from(id).ok());
    match process {
        Some(id) => info!("process {id} has taken over"),
        None => info!("a new process has taken over"),
    }
    process.into_iter().for_each(systemd::main_process_is);
    Ok(line)
}
