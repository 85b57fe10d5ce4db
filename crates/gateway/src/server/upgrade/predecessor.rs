//! The running gateway's part in an upgrade.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use log::{info, warn};
use pingora::server::ShutdownWatch;
use tokio::net::UnixListener;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;

use super::successor::Takeover;
use super::wire::DESCRIPTORS;
use super::wire::{self, why};
use super::{ANSWER_TIME, HELLO, LOAD_TIME, MORE, Offer, Offered, READY, Reports, socket_path};
use crate::server::systemd;
use rerouter_base::atomic_file::allow_absent;
use rerouter_base::blocking::blocking;
use rerouter_core::app::App;

pub(in crate::server) struct Offering {
    pub(in crate::server) app: Arc<App>,
    pub(in crate::server) sockets: Vec<(SocketAddr, TcpListener)>,
    /// SIGQUIT, since the start of the process.
    pub(in crate::server) quit: Option<Signal>,
    /// The socket on which new processes ask, unless it could not be bound.
    pub(in crate::server) socket: Option<StdUnixListener>,
    /// The connection to the process before this one, if that still runs.
    pub(in crate::server) before: Option<Takeover>,
    /// The program of the next process and its arguments, for SIGQUIT.
    pub(in crate::server) next: (PathBuf, Vec<OsString>),
    pub(in crate::server) handed_over: Arc<Notify>,
}

/// Waits for a new process and hands over to it, but only after the process before this one has
/// ended. SIGQUIT starts a new process.
pub(in crate::server) async fn run(mut offering: Offering, mut shutdown: ShutdownWatch) {
    let Some(mut quit) = offering.quit.take() else { return };
    let registered = offering.socket.take().map(UnixListener::from_std).transpose();
    let socket = registered.unwrap_or_else(|error| {
        warn!("no upgrade is possible: {error}");
        None
    });
    // The id of the process before this one, until that has ended.
    let mut before = offering.before.as_ref().map(|before| before.process);
    let mut ended = pin!(OptionFuture::from(offering.before.take().map(Takeover::ended)));
    loop {
        let came = tokio::select! {
            // The end of the process before must be noted before a new process is answered.
            biased;
            _ = shutdown.changed() => break,
            _ = &mut ended, if before.is_some() => {
                before = None;
                offering.app.store.predecessor_ended();
                offering.app.limits.draw_alone();
                info!("the process before this one has ended");
                continue;
            }
            _ = quit.recv() => {
                start(&offering.next);
                continue;
            }
            came = accept(socket.as_ref()) => came,
        };
        let offered = tokio::select! {
            // The new process sees that its connection closes.
            _ = shutdown.changed() => break,
            offered = offer(&offering, came, before) => offered,
        };
        match offered.and_then(|(stream, process)| hand_over(&offering.app, stream, process)) {
            Ok(stream) => {
                let Offering { sockets, handed_over, .. } = offering;
                drop((socket, sockets));
                handed_over.notify_one();
                // Kept open until this process ends, so that the new one sees its end.
                let _open = stream;
                return std::future::pending().await;
            }
            Err(why) => {
                warn!("no upgrade: {why}");
                // This process goes on as before.
                offering.app.store.take_back();
                if before.is_none() {
                    offering.app.limits.draw_alone();
                }
            }
        }
    }
    // Waits even while this process drains: whether the process before has ended decides if this
    // one, as the last, uploads captures when it ends.
    if before.is_some() {
        // While any descriptor of a listener is open, the kernel accepts connections for nobody.
        drop((socket, std::mem::take(&mut offering.sockets)));
        ended.await;
        offering.app.store.predecessor_ended();
    }
}

/// Listens for new processes of this user. The data directory is locked, so a socket file that
/// exists was left by an earlier process.
pub(in crate::server) fn listen(data_dir: &Path) -> Option<StdUnixListener> {
    let path = socket_path(data_dir);
    let listen = || {
        allow_absent(std::fs::remove_file(&path))?;
        let socket = StdUnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    listen()
        .inspect_err(|error| {
            warn!("no upgrade is possible: cannot listen on {}: {error}", path.display());
        })
        .ok()
}

async fn accept(socket: Option<&UnixListener>) -> tokio::net::UnixStream {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        match socket.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// Starts the next process from the program on disk, which may be another version by now.
fn start((program, arguments): &(PathBuf, Vec<OsString>)) {
    if std::process::id() == 1 {
        // The container, and the new process with it, would end with this process.
        return warn!("SIGQUIT: the first process of a container is not upgraded: replace it");
    }
    info!("SIGQUIT: starting {} to take over", program.display());
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            // The new process has logged the reason. If it takes over, it outlives this process.
            drop(blocking(move || child.wait()));
        }
        Err(error) => warn!("no upgrade: {} cannot be started: {error}", program.display()),
    }
}

/// Offers listeners and locks to a new process, and waits until that can serve. Returns the id of
/// the new process, if the system knows it. `before`: the earlier process that has to end first.
async fn offer(
    offering: &Offering,
    stream: tokio::net::UnixStream,
    before: Option<u32>,
) -> io::Result<(UnixStream, Option<i32>)> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("user {} asked for it", peer.uid())));
    }
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let stream = receive(stream, HELLO, ANSWER_TIME).await?;
    if let Err(why) = prepare(&offering.app, before).await {
        let _left = wire::send(&stream, &serde_json::to_string(&Offer::Err(why.clone()))?, &[]);
        return Err(io::Error::other(why));
    }
    let stream = send(offering, stream).await?;
    Ok((receive(stream, READY, LOAD_TIME).await?, peer.pid()))
}

/// Sends the offer, and the descriptors that do not fit into its message.
async fn send(offering: &Offering, mut stream: UnixStream) -> io::Result<UnixStream> {
    let Offering { app, sockets, .. } = offering;
    let listeners = sockets.iter().map(|(_, socket)| socket.as_fd());
    let locks = app.store.data_locks().iter().map(AsFd::as_fd);
    let descriptors: Vec<BorrowedFd<'_>> = listeners.chain(locks).collect();
    let mut parts = descriptors.chunks(DESCRIPTORS);
    let offer: Offer = Ok(Offered {
        listeners: sockets.iter().map(|(address, _)| *address).collect(),
        more: parts.len().saturating_sub(1),
        process: std::process::id(),
        name: app.store.process().map(str::to_owned),
    });
    let first = parts.next().unwrap_or_default();
    wire::send(&stream, &serde_json::to_string(&offer)?, first)?;
    for part in parts {
        // The new process reads one line at a time, so that no descriptor is lost.
        stream = receive(stream, MORE, ANSWER_TIME).await?;
        wire::send(&stream, MORE, part)?;
    }
    Ok(stream)
}

async fn receive(
    stream: UnixStream,
    wanted: &'static str,
    patience: Duration,
) -> io::Result<UnixStream> {
    let receive = move || wire::receive(&stream, patience).map(|(came, _)| (stream, came));
    let came = blocking(receive).await.map_err(io::Error::other)?;
    match came.map_err(|error| why(error, patience))? {
        (stream, came) if came == wanted => Ok(stream),
        _ => Err(io::Error::other("the new process is of a version that upgrades in another way")),
    }
}

/// Stops all changes to what the new process loads.
async fn prepare(app: &App, before: Option<u32>) -> Result<(), String> {
    if let Some(process) = before {
        return Err(format!(
            "process {process} still ends its requests after the last upgrade: try again when it \
             has ended"
        ));
    }
    if app.auth.unsaved_revocations() + app.auth.unsaved_disablings() > 0 {
        return Err("revocations are not durable yet: see the log".to_owned());
    }
    app.store.freeze().await.map_err(|error| error.to_string())?;
    app.limits.set_shared(true);
    Ok(())
}

fn hand_over(app: &App, stream: UnixStream, process: Option<i32>) -> io::Result<UnixStream> {
    // Done before the new process serves: credentials are checked against the store from its first
    // change on.
    app.store.hand_over();
    let reports: Reports = app.nodes.reports(app.clock.now());
    wire::send(&stream, &serde_json::to_string(&reports)?, &[])
        .map_err(|error| why(error, ANSWER_TIME))?;
    let process = process.and_then(|id| u32::try_from(id).ok());
    match process {
        Some(id) => info!("process {id} has taken over"),
        None => info!("a new process has taken over"),
    }
    process.into_iter().for_each(systemd::main_process_is);
    Ok(stream)
}
