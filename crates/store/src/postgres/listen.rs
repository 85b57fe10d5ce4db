//! Notifications of the database. They only save time: a task that is woken reads the database
//! itself, and it also reads regularly without being woken.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::connection::Wire;

/// Whom the notifications of channels wake.
#[derive(Clone)]
pub(crate) struct Listening {
    pub(crate) wakes: Vec<(&'static str, Arc<Notify>)>,
    /// Set by the first notification.
    pub(crate) heard: Arc<AtomicBool>,
}

impl Listening {
    pub(super) fn statements(&self) -> String {
        self.wakes.iter().map(|(name, _)| format!("LISTEN {name};")).collect()
    }

    pub(super) fn wake_all(&self) {
        self.wakes.iter().for_each(|(_, wake)| wake.notify_one());
    }

    fn wake(&self, channel: &str) {
        self.heard.store(true, Ordering::Relaxed);
        let woken = self.wakes.iter().filter(|(name, _)| *name == channel);
        woken.for_each(|(_, wake)| wake.notify_one());
    }
}

/// Drives a connection to its end, and passes on its notifications.
pub(super) async fn drive(mut wire: Wire, listening: Option<Listening>) {
    while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
        if let (AsyncMessage::Notification(told), Some(listening)) = (message, &listening) {
            listening.wake(told.channel());
        }
    }
}
