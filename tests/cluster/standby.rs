//! The database of several gateways is lost, and a synchronous standby takes over. The gateways
//! recover without a restart, and nothing that was acknowledged is lost.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::cluster::gateways::{BUSY, asked, managed};
use crate::support::fleet::{pause, setup};
use crate::support::gateway::{Gateway, Key};
use crate::support::postgres::{self, Cluster};
use crate::support::until;

const KEYS: &str = "/v1/router/keys";

/// Makes a standby of a cluster. From then on, each commit of the cluster waits for the standby.
async fn synchronous_standby(primary: &Cluster) -> Cluster {
    let standby = primary.standby();
    // Only now: an earlier setting would be copied to the standby, which would later wait for its
    // own standby.
    primary.run("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
    primary.run("postgres", "SELECT pg_reload_conf()").await;
    until("the standby to be synchronous", async || {
        let state = primary.run("postgres", "SELECT sync_state FROM pg_stat_replication").await;
        (state == ["sync"]).then_some(())
    })
    .await;
    standby
}

/// Kills a database server with SIGKILL.
async fn kill_9(cluster: &Cluster) {
    let file = std::fs::read_to_string(cluster.dir().join("data/postmaster.pid")).unwrap();
    let id = file.lines().next().unwrap();
    assert!(Command::new("kill").args(["-9", id]).status().unwrap().success());
    until("the server to be gone", async || {
        let connected = tokio::net::TcpStream::connect(("127.0.0.1", cluster.port())).await;
        connected.is_err().then_some(())
    })
    .await;
}

/// The last change of a key, whose creation was acknowledged.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Alive,
    /// Its revocation was not answered, so it may be alive or dead.
    Either,
    Dead,
}

#[derive(Default)]
struct Journal {
    keys: Mutex<HashMap<String, (Arc<Key>, Fate)>>,
    made: AtomicUsize,
    ended: AtomicBool,
    accepted_dead: AtomicUsize,
}

impl Journal {
    fn note(&self, key: &Arc<Key>, fate: Fate) {
        self.keys.lock().unwrap().insert(key.id.clone(), (Arc::clone(key), fate));
    }

    fn all(&self, fate: Fate) -> Vec<Arc<Key>> {
        let keys = self.keys.lock().unwrap();
        keys.values().filter(|(_, own)| *own == fate).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Makes keys and revokes most of them, to stay below the limit of keys per user. Notes what is
    /// acknowledged.
    async fn work(&self, gateways: &[Gateway]) {
        for turn in 0.. {
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let gateway = &gateways[turn % gateways.len()];
            let made = managed(gateway, "POST", KEYS).await;
            let Some(made) = made.filter(|answer| answer.status == 201) else {
                pause(20).await;
                continue;
            };
            let key = Arc::new(Key::of(&made));
            self.note(&key, Fate::Alive);
            self.made.fetch_add(1, Ordering::AcqRel);
            if turn % 8 != 0 {
                self.note(&key, Fate::Either);
                let other = &gateways[(turn + 1) % gateways.len()];
                let path = format!("{KEYS}/{}", key.id);
                let ended = managed(other, "DELETE", &path).await;
                if ended.is_some_and(|answer| answer.status == 204) {
                    self.note(&key, Fate::Dead);
                }
            }
        }
    }

    /// Tries revoked keys all the time.
    async fn try_dead_keys(&self, gateways: &[Gateway]) {
        while !self.ended.load(Ordering::Acquire) {
            for key in self.all(Fate::Dead).iter().rev().take(4) {
                for gateway in gateways {
                    if asked(gateway, key, BUSY).await == Some(200) {
                        self.accepted_dead.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
            pause(10).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_takes_over_and_all_that_was_acknowledged_holds() {
    let primary = Cluster::start(&[]);
    let standby = synchronous_standby(&primary).await;
    let url = primary.database().await;
    let [first, second] = [&primary, &standby].map(Cluster::port);
    let both = url.replace(&format!(":{first}/"), &format!(":{first},127.0.0.1:{second}/"));
    let both = format!("{both}?target_session_attrs=read-write");
    let gateways = [setup(&both, "4s", "").start().await, setup(&both, "4s", "").start().await];
    let journal = Journal::default();
    let run = async {
        until("keys of both fates", async || {
            let many = |fate| journal.all(fate).len() > 2;
            (many(Fate::Alive) && many(Fate::Dead)).then_some(())
        })
        .await;
        let before = journal.made.load(Ordering::Acquire);
        let lost = Instant::now();
        kill_9(&primary).await;
        // Nothing can be written before the standby is promoted.
        pause(1_000).await;
        let promoted = postgres::run(&standby.url("postgres"), "SELECT pg_promote()").await;
        assert_eq!(promoted, ["t"]);
        let during = journal.made.load(Ordering::Acquire);
        until("a change after the fail-over", async || {
            (journal.made.load(Ordering::Acquire) > during + 2).then_some(())
        })
        .await;
        eprintln!("fail-over: {before} keys before, the next change {:?} after", lost.elapsed());
        for gateway in &gateways {
            until("the gateway to serve again", async || {
                let key = journal.all(Fate::Alive).pop()?;
                (asked(gateway, &key, BUSY).await == Some(200)).then_some(())
            })
            .await;
        }
        pause(500).await;
        journal.ended.store(true, Ordering::Release);
    };
    tokio::join!(run, journal.work(&gateways), journal.try_dead_keys(&gateways));
    assert_eq!(journal.accepted_dead.load(Ordering::Acquire), 0, "a revoked key was accepted");
    let (alive, dead) = (journal.all(Fate::Alive), journal.all(Fate::Dead));
    for gateway in &gateways {
        for (keys, status) in [(&alive, 200), (&dead, 401)] {
            for key in keys {
                assert_eq!(asked(gateway, key, BUSY).await, Some(status), "{}", key.id);
            }
        }
    }
    let rows = standby.run(url.rsplit('/').next().unwrap(), "SELECT count(*) FROM keys").await;
    assert!(rows[0].parse::<usize>().unwrap() >= alive.len() + dead.len());
}
