//! A process that dies amid the change to another master key, at each place where it writes: a library in its address space counts
//! them and ends it there, before the write or in the middle of its bytes. So each kind of death is there, and again the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::master_keys::{
    CLOUD_KEY, FIRST, SECOND, THIRD, document, give, log_in, make, status, user,
};
use crate::support::documents::chat_body;
use crate::support::full;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::provider::{self as scripted, Provider};

/// Counts what is written to `accounts.db`, its journals and the files of master keys, names each in `KILL_LOG`, and ends the process
/// before the one of the number `KILL_AT`; of a write, where `KILL_TORN` is set, after half of it.
const SHIM: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    static int places;

    static int dies(const char *what, const char *path) {
        const char *name = strstr(path, "/data/");
        if (!name || !getenv("KILL_LOG")) return 0;
        name += 6;
        if (strncmp(name, "accounts.db", 11) && strncmp(name, "master.key", 10) && strncmp(name, "master.new", 10)) return 0;
        int now = __sync_add_and_fetch(&places, 1);
        char line[300];
        int length = snprintf(line, sizeof line, "%d %s %s\n", now, what, name);
        int log = syscall(SYS_openat, AT_FDCWD, getenv("KILL_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        syscall(SYS_write, log, line, length);
        syscall(SYS_close, log);
        return now == atoi(getenv("KILL_AT"));
    }

    static void end(void) {
        for (;;) syscall(SYS_kill, getpid(), SIGKILL);
    }

    static int file_dies(const char *what, int file) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 0) return 0;
        path[length] = 0;
        return dies(what, path);
    }

    ssize_t write(int file, const void *bytes, size_t count) {
        if (file > 2 && file_dies("write", file)) {
            if (getenv("KILL_TORN")) syscall(SYS_write, file, bytes, count / 2);
            end();
        }
        return syscall(SYS_write, file, bytes, count);
    }

    ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
        if (file_dies("write", file)) {
            if (getenv("KILL_TORN")) syscall(SYS_pwrite64, file, bytes, count / 2, at);
            end();
        }
        return syscall(SYS_pwrite64, file, bytes, count, at);
    }

    ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

    int fsync(int file) {
        if (file_dies("sync", file)) end();
        return syscall(SYS_fsync, file);
    }

    int fdatasync(int file) {
        if (file_dies("sync", file)) end();
        return syscall(SYS_fdatasync, file);
    }

    int ftruncate64(int file, off64_t length) {
        if (file_dies("cut", file)) end();
        return syscall(SYS_ftruncate, file, length);
    }

    int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

    int rename(const char *from, const char *to) {
        if (dies("rename", to)) end();
        return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    }
"#;

fn shim(dir: &Path) {
    std::fs::write(dir.join("kills.c"), SHIM).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "kills.so", "kills.c"])
        .current_dir(dir)
        .status();
    assert!(made.expect("a C compiler").success());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let next = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &next);
        } else {
            std::fs::copy(entry.path(), next).unwrap();
        }
    }
}

/// How far a change was when its process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Death {
    /// Nothing of it was written.
    Before,
    /// Some of it was, and it is not done.
    Within,
    /// It is done, whether or not anybody was told.
    After,
}

/// A gateway that is to go over to another master key, with what it has under the one before, as it lies on the disk.
struct Scene {
    gateway: Gateway,
    _upstream: Provider,
    aside: tempfile::TempDir,
    /// Whether keys are files, and the next one is made by the start.
    files: bool,
    good: Vec<(&'static str, String)>,
    dead: Key,
    cookie: String,
    node: Node,
    capture: (String, Value),
}

impl Scene {
    async fn new(files: bool) -> Scene {
        let upstream = Provider::always(scripted::completion("a word")).await;
        let mut gateway = Setup::new(&document(&upstream.url()))
            .env("AGENT_CLOUD_API_KEY", CLOUD_KEY)
            .start()
            .await;
        if !files {
            // The key of the file that was made becomes the variable's.
            gateway.kill_9();
            std::fs::remove_dir_all(gateway.dir().join("data")).unwrap();
            give(&mut gateway, FIRST, None);
            gateway.start_again().await;
        }
        let admin = gateway.admin_key.clone();
        user(&gateway, "ann@example.com").await;
        let login = log_in(&gateway, "ann@example.com").await;
        let token = login.json()["token"].as_str().unwrap().to_owned();
        let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let mut good = vec![("/v1/auth/me", token.clone())];
        for (path, probe, by) in [
            ("/v1/apikeys", "/v1/auth/me", &token),
            ("/v1/api-keys", "/v1/agents", &CLOUD_KEY.to_owned()),
            ("/v1/router/keys", "/v1/models", &admin),
        ] {
            let key = make(&gateway, path, by, json!({})).await;
            let next = make(
                &gateway,
                &format!("{path}/{}/rotate", key.id),
                by,
                json!({"grace_period_seconds": 6_000}),
            )
            .await;
            good.extend([(probe, key.secret), (probe, next.secret)]);
        }
        let dead = make(&gateway, "/v1/router/keys", &admin, json!({})).await;
        assert_eq!(
            gateway
                .manage("DELETE", &format!("/v1/router/keys/{}", dead.id), &admin, None)
                .await
                .status,
            204
        );
        let node = Node::enrol(&gateway, "rack", json!({})).await;
        let chat = Key { id: String::new(), secret: good[5].1.clone() };
        let id = gateway.chat(&chat, chat_body("auto", false).as_bytes()).await.request_id();
        let capture = (id.clone(), gateway.capture(&id).await);
        gateway.kill_9();
        let aside = tempfile::tempdir().unwrap();
        copy(&gateway.dir().join("data"), &aside.path().join("data"));
        shim(aside.path());
        gateway.set_env("KILL_LOG", aside.path().join("places").to_str().unwrap());
        Scene { gateway, _upstream: upstream, aside, files, good, dead, cookie, node, capture }
    }

    fn data(&self) -> PathBuf {
        self.gateway.dir().join("data")
    }

    /// As it was when the operator wants another key.
    fn restore(&mut self) {
        std::fs::remove_dir_all(self.data()).unwrap();
        copy(&self.aside.path().join("data"), &self.data());
        if self.files {
            std::fs::rename(self.data().join("master.key"), self.data().join("master.key.old"))
                .unwrap();
        } else {
            give(&mut self.gateway, SECOND, Some(FIRST));
        }
    }

    fn arm(&mut self, at: usize, torn: bool) {
        let _none = std::fs::remove_file(self.aside.path().join("places"));
        let library = self.aside.path().join("kills.so");
        self.gateway.set_env("LD_PRELOAD", library.to_str().unwrap());
        self.gateway.set_env("KILL_AT", &at.to_string());
        match torn {
            true => self.gateway.set_env("KILL_TORN", "1"),
            false => self.gateway.unset_env("KILL_TORN"),
        }
    }

    /// What was written, one line each.
    fn places(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.aside.path().join("places")).unwrap();
        log.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// The places of a start that nobody ends, until it serves.
    async fn count(&mut self) -> Vec<String> {
        self.restore();
        self.arm(0, false);
        self.gateway.start_again().await;
        let places = self.places();
        self.gateway.kill_9();
        places
    }

    /// Ends a start at a place, and finds out how far the change was; then the pair opens the store, and the new key alone.
    async fn kill(&mut self, at: usize, torn: bool) -> Death {
        self.restore();
        self.arm(at, torn);
        let ended = self.gateway.try_start_again().await;
        assert!(ended.is_err() || full(), "it did not come to its place {at}");
        self.gateway.kill_9();
        let written = self.places().iter().any(|place| place == "write accounts.db-wal");
        let first =
            self.places().iter().filter(|place| *place == "write accounts.db-wal").count() == 1;
        self.gateway.set_env("LD_PRELOAD", "");
        let death = match (self.masters(), written && (!first || torn)) {
            (2, _) => Death::After,
            (1, true) => Death::Within,
            (1, false) => Death::Before,
            (other, _) => panic!("the store has had {other} master keys"),
        };
        // Every other time by what else may be tried first.
        if !self.files && at % 2 == 1 {
            self.try_others(death).await;
        }
        let made = std::fs::read(self.data().join("master.key")).ok();
        self.gateway.start_again().await;
        self.gateway.kill_9();
        if self.files {
            let now = std::fs::read(self.data().join("master.key")).unwrap();
            assert!(
                made.is_none_or(|made| made == now),
                "a key that was made is the one that is taken"
            );
            std::fs::remove_file(self.data().join("master.key.old")).unwrap();
        } else {
            give(&mut self.gateway, SECOND, None);
        }
        self.gateway.start_again().await;
        self.check().await;
        self.gateway.kill_9();
        death
    }

    /// How many master keys the store has had, by a copy of it.
    fn masters(&self) -> u32 {
        let copied = tempfile::tempdir().unwrap();
        for name in ["accounts.db", "accounts.db-wal"] {
            // A journal may not be there yet.
            let _none = std::fs::copy(self.data().join(name), copied.path().join(name));
        }
        let file = rusqlite::Connection::open(copied.path().join("accounts.db")).unwrap();
        file.query_row("SELECT count(*) FROM master_keys", [], |row| row.get(0)).unwrap()
    }

    /// A wrong pair opens nothing, whatever was done; the one before alone opens what is not done, and nothing else.
    async fn try_others(&mut self, death: Death) {
        give(&mut self.gateway, THIRD, Some(SECOND));
        if death == Death::After {
            give(&mut self.gateway, THIRD, Some(FIRST));
        }
        assert!(self.gateway.try_start_again().await.is_err());
        give(&mut self.gateway, FIRST, None);
        match self.gateway.try_start_again().await {
            Ok(()) => assert!(death < Death::After),
            Err(told) => assert!(
                death == Death::After && told.contains("gave this master key up"),
                "{death:?}: {told}"
            ),
        }
        self.gateway.kill_9();
        give(&mut self.gateway, SECOND, Some(FIRST));
    }

    /// Everything of the time before opens, and what had ended has.
    async fn check(&self) {
        let gateway = &self.gateway;
        for (probe, secret) in &self.good {
            assert_eq!(status(gateway, probe, secret).await, 200, "{probe}");
        }
        assert_eq!(status(gateway, "/v1/models", &self.dead.secret).await, 401);
        assert_eq!(
            gateway.send("GET", "/v1/auth/me", &[("cookie", &self.cookie)], None).await.status,
            200
        );
        log_in(gateway, "ann@example.com").await;
        assert_eq!(self.node.call(gateway, "events", &json!({"events": []})).await.status, 202);
        assert_eq!(gateway.capture(&self.capture.0).await, self.capture.1);
        let rows = gateway
            .manage("GET", "/v1/audit?action=master_key.change", &gateway.admin_key, None)
            .await
            .json();
        assert_eq!(rows["data"].as_array().unwrap().len(), 1, "one change, one row: {rows}");
        let row = &rows["data"][0];
        assert_eq!(
            (&row["actor"]["type"], &row["target"]),
            (&json!("operator"), &json!({"type": "master_key", "id": "2"}))
        );
        assert_eq!((&row["request_id"], &row["address"]), (&Value::Null, &Value::Null));
    }
}

/// How often each kind of death was.
type Deaths = BTreeMap<Death, usize>;

/// The place at which the change is not written yet, and the first at which it is done: found by halves.
async fn halves(scene: &mut Scene, deaths: &mut Deaths, places: &[String]) {
    let first = 1 + places
        .iter()
        .position(|place| place == "write accounts.db-wal")
        .expect("a change is written");
    let (mut not, mut done) = (first, places.len());
    *deaths.entry(scene.kill(not, false).await).or_default() += 1;
    while done - not > 1 {
        let middle = not.midpoint(done);
        let death = scene.kill(middle, middle % 2 == 0).await;
        *deaths.entry(death).or_default() += 1;
        if death == Death::After { done = middle } else { not = middle }
    }
}

#[tokio::test]
async fn a_death_at_any_place_of_a_change_leaves_a_store_that_the_new_key_opens() {
    let mut scene = Scene::new(false).await;
    let (places, mut deaths) = (scene.count().await, Deaths::new());
    if full() {
        for at in 1..=places.len() {
            for torn in [false, true] {
                if !torn || places[at - 1].starts_with("write") {
                    *deaths.entry(scene.kill(at, torn).await).or_default() += 1;
                }
            }
        }
    } else {
        halves(&mut scene, &mut deaths, &places).await;
    }
    eprintln!("{} places; {deaths:?}", places.len());
    assert_eq!(deaths.len(), 3, "before, within and after: {deaths:?} of {places:?}");
}

#[tokio::test]
async fn a_death_when_the_next_key_is_made_loses_neither() {
    let mut scene = Scene::new(true).await;
    let (places, mut deaths) = (scene.count().await, Deaths::new());
    let named = |word: &str| {
        1 + places
            .iter()
            .position(|place| place.starts_with(word))
            .unwrap_or_else(|| panic!("no {word}: {places:?}"))
    };
    let (made, known) = (named("rename master.key"), named("write accounts.db-wal"));
    assert!(made < known, "it is durable before the store hears of it: {places:?}");
    // Its bytes half written, whole and without their name, and with it.
    let few = vec![(named("write master.new"), true), (made, false), (known, true)];
    let all = (1..=places.len())
        .flat_map(|at| [(at, false), (at, true)])
        .filter(|(at, torn)| !torn || places[at - 1].starts_with("write"));
    for (at, torn) in if full() { all.collect() } else { few } {
        *deaths.entry(scene.kill(at, torn).await).or_default() += 1;
    }
    eprintln!("{} places; {deaths:?}", places.len());
    assert!(deaths.len() == if full() { 3 } else { 2 }, "{deaths:?}");
}
