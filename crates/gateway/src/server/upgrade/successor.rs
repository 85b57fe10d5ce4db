//! The new process's part in an upgrade: it takes over from a running gateway.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::wire::{receive, send, why};
use super::{ANSWER_TIME, HELLO, MORE, Offer, Offered, READY, Reports, socket_path};
use crate::server::BootError;
use rerouter_base::blocking::blocking;
use rerouter_core::app::App;
use rerouter_store::DataDir;

pub(in crate::server) struct Takeover {
    stream: std::os::unix::net::UnixStream,
    pub(super) process: u32,
    pub(in crate::server) sockets: Vec<(SocketAddr, TcpListener)>,
}

/// Asks the gateway that uses the data directory for its listeners and locks.
pub(in crate::server) async fn take_over(
    data_dir: &Path,
) -> Result<(DataDir, Takeover), BootError> {
    ask(data_dir).await.map_err(|why| {
        BootError(format!(
            "no upgrade of the gateway with the data directory {}: {why}",
            data_dir.display()
        ))
    })
}

async fn ask(data_dir: &Path) -> Result<(DataDir, Takeover), String> {
    let stream = UnixStream::connect(socket_path(data_dir))
        .await
        .map_err(|error| format!("none answers there ({error}); start without --upgrade"))?;
    let peer = stream.peer_cred().map_err(|error| error.to_string())?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it runs as user {}: start as that one", peer.uid()));
    }
    let ask = move || {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        send(&stream, HELLO, &[])?;
        let (text, mut descriptors) = receive(&stream, ANSWER_TIME)?;
        let offer = serde_json::from_str::<Offer>(&text);
        let more = offer.as_ref().map_or(0, |offer| offer.as_ref().map_or(0, |it| it.more));
        for _ in 0..more {
            send(&stream, MORE, &[])?;
            descriptors.extend(receive(&stream, ANSWER_TIME)?.1);
        }
        Ok::<_, io::Error>((stream, offer, descriptors))
    };
    let asked = blocking(ask).await.map_err(|lost| lost.to_string())?;
    let (stream, offer, descriptors) =
        asked.map_err(|error| why(error, ANSWER_TIME).to_string())?;
    let offer = offer.map_err(|_| "its version upgrades in another way".to_owned())?;
    let Offered { listeners, process, name, .. } = offer?;
    let mut descriptors = descriptors.into_iter();
    let sockets = listeners.into_iter().zip(descriptors.by_ref().map(TcpListener::from)).collect();
    let locks: Vec<File> = descriptors.map(File::from).collect();
    if locks.is_empty() {
        return Err("descriptors are missing: see `ulimit -n`".to_owned());
    }
    Ok((DataDir::handed_over(data_dir, locks, name), Takeover { stream, process, sockets }))
}

impl Takeover {
    /// Tells the running gateway that this process can serve, and returns once the gateway has
    /// handed over. Blocking.
    pub(in crate::server) fn begin(&self, app: &App) -> Result<(), BootError> {
        let given =
            send(&self.stream, READY, &[]).and_then(|()| receive(&self.stream, ANSWER_TIME));
        let reports: Reports = given
            .map_err(|error| why(error, ANSWER_TIME))
            .and_then(|(given, _)| Ok(serde_json::from_str(&given)?))
            .map_err(|error| BootError(format!("no upgrade of the running gateway: {error}")))?;
        let now = app.clock.now();
        for (report, age) in &reports {
            app.nodes.learn(report, *age, now);
        }
        if !app.store.is_shared() {
            app.nodes.refuse_signatures_until(now);
        }
        Ok(())
    }

    pub(super) async fn ended(self) {
        let ended = async {
            self.stream.set_nonblocking(true)?;
            UnixStream::from_std(self.stream)?.read(&mut [0]).await
        };
        // An error also means that the process has ended.
        let _ended = ended.await;
    }
}
