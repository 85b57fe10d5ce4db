//! Notifications of the database. They only save time: a task that is woken reads the database
//! itself, and it also reads regularly without being woken.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::connection::{Wire, connect};
use super::url::PostgresUrl;
use crate::{Result, StoreError};

/// Wait before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Wakes each of `wakes` on the notifications of its channel, until `stopping`. Every `check`, the
/// connection must still answer. `heard` is set by the first notification.
pub(crate) async fn listen(
    url: PostgresUrl,
    wakes: Vec<(&'static str, Arc<Notify>)>,
    check: Duration,
    heard: Arc<AtomicBool>,
    mut stopping: watch::Receiver<bool>,
) {
    while !*stopping.borrow_and_update() {
        let session = async {
            let ended = hear(&url, &wakes, check, &heard).await;
            log::debug!("no notifications of the database for now: {ended:?}");
            sleep(PAUSE).await;
        };
        tokio::select! {
            () = session => {}
            _ = stopping.changed() => {}
        }
    }
}

async fn hear(
    url: &PostgresUrl,
    wakes: &[(&'static str, Arc<Notify>)],
    check: Duration,
    heard: &AtomicBool,
) -> Result<()> {
    let (client, mut wire) = connect(url, check).await?;
    let channels: String = wakes.iter().map(|(name, _)| format!("LISTEN {name};")).collect();
    let checks = async {
        client.batch_execute(&channels).await?;
        // Earlier notifications are lost.
        wakes.iter().for_each(|(_, wake)| wake.notify_one());
        loop {
            sleep(check).await;
            match timeout(check, client.batch_execute("")).await {
                Ok(answered) => answered?,
                Err(_) => return Err(StoreError::unavailable("the database does not answer")),
            }
        }
    };
    tokio::select! {
        ended = checks => ended,
        ended = take_in(&mut wire, wakes, heard) => ended,
    }
}

/// Drives the connection, and wakes the listeners of its notifications.
async fn take_in(
    wire: &mut Wire,
    wakes: &[(&'static str, Arc<Notify>)],
    heard: &AtomicBool,
) -> Result<()> {
    while let Some(message) = poll_fn(|context| wire.poll_message(context)).await {
        if let AsyncMessage::Notification(told) = message? {
            heard.store(true, Ordering::Relaxed);
            let woken = wakes.iter().filter(|(name, _)| *name == told.channel());
            woken.for_each(|(_, wake)| wake.notify_one());
        }
    }
    Err(StoreError::unavailable("the database ended the connection"))
}
