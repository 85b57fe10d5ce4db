//! SIGTERM and SIGINT: the first one asks the node to stop, the second one ends the process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::super::output::print_error;

/// Receives the request to stop.
pub(super) struct Stop(Receiver<()>);

impl Stop {
    /// Listens on a separate thread, so that the second signal ends the process at any time.
    pub(super) fn on_signals() -> Result<Stop, String> {
        let (sender, receiver) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        // The handlers are registered before this returns, so that no signal is missed.
        let guard = runtime.enter();
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
        drop(guard);
        let listen = move || {
            runtime.block_on(async {
                for is_second in [false, true] {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    if is_second {
                        print_error("stopped at once: the gateway was not told\n");
                        std::process::exit(1);
                    }
                    // The node may have ended by itself.
                    let _ = sender.send(());
                }
            });
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .map_err(|error| error.to_string())?;
        Ok(Stop(receiver))
    }

    /// Returns whether the node has to stop.
    pub(super) fn wait(&self, wait: Duration) -> bool {
        !matches!(self.0.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }
}
