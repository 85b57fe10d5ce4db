//! Watches the file of the routing document. The tests call the checks themselves, so nothing
//! waits.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use crate::reload::{WATCH_EQUAL_READS, Watcher};
use rerouter_routing::health::{AttemptOutcome, AttemptPermit};

/// A gateway with a routing document in a file, and a watcher that has read the file.
struct Watched {
    app: Arc<App>,
    faults: Faults,
    watcher: Watcher,
    dir: TempDir,
    _data: TempDir,
}

impl Watched {
    async fn start(text: &str) -> Watched {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("routing.yaml"), text).unwrap();
        let server = format!("routing: {{ file: {:?} }}", dir.path().join("routing.yaml"));
        let TestApi { app, faults, _dir } = world_with(&server).await;
        let app = Arc::new(app);
        let mut watched =
            Watched { watcher: Watcher::new(app.clone()), app, faults, dir, _data: _dir };
        watched.looks(WATCH_EQUAL_READS).await;
        assert_eq!(watched.app.revision(), revision(text));
        watched
    }

    async fn looks(&mut self, count: u32) {
        for _ in 0..count {
            self.watcher.check().await;
        }
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("routing.yaml")
    }

    fn metric(&self, series: &str) -> u64 {
        let text = self.app.metrics.render();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("rerouter_{series} ")))
            .unwrap_or_else(|| panic!("{series}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn reloads(&self, result: &str) -> u64 {
        self.metric(&format!("reloads_total{{result=\"{result}\"}}"))
    }
}

fn document(latency: &str) -> String {
    config::demo_routing().replace("latency: 20ms", &format!("latency: {latency}"))
}

fn revision(text: &str) -> String {
    let server = config::read_server("test", "", &|_| None).unwrap();
    config::read_routing("test", text, &server, &|_| None, None).unwrap().revision().to_owned()
}

/// Writes the file in place.
fn put(file: &Path, text: &str, modified: Option<SystemTime>) {
    std::fs::write(file, text).unwrap();
    if let Some(modified) = modified {
        std::fs::File::options().write(true).open(file).unwrap().set_modified(modified).unwrap();
    }
}

#[tokio::test]
async fn no_beginning_of_a_document_is_taken_that_stands_for_less_than_all_looks() {
    let mut watched = Watched::start(&document("20ms")).await;
    let (file, before) = (watched.file(), watched.app.revision());
    let whole = document("30ms");
    for (end, _) in whole.match_indices('\n').rev() {
        put(&file, &whole[..end], None);
        watched.looks(WATCH_EQUAL_READS - 1).await;
        assert_eq!(watched.app.revision(), before, "after {end} bytes");
    }
    put(&file, &whole, None);
    watched.looks(WATCH_EQUAL_READS - 1).await;
    assert_eq!(
        (watched.app.revision(), watched.reloads("success"), watched.reloads("failure")),
        (before, 0, 0)
    );
    watched.looks(1).await;
    assert_eq!(
        (watched.app.revision(), watched.reloads("success"), watched.reloads("failure")),
        (revision(&whole), 1, 0)
    );
}

#[tokio::test]
async fn what_is_written_anew_with_the_same_size_and_time_is_read_anew() {
    let mut watched = Watched::start(&document("20ms")).await;
    let (file, before, then) =
        (watched.file(), watched.app.revision(), SystemTime::now() - Duration::from_secs(60));
    put(&file, &document("30ms"), Some(then));
    watched.looks(WATCH_EQUAL_READS - 1).await;
    put(&file, &document("40ms"), Some(then));
    watched.looks(1).await;
    assert_eq!(watched.app.revision(), before, "what the first look read is there no more");
    watched.looks(WATCH_EQUAL_READS).await;
    assert_eq!(
        (watched.app.revision(), watched.reloads("success")),
        (revision(&document("40ms")), 1)
    );
}

#[tokio::test]
async fn a_change_that_is_taken_back_is_none_and_a_mistake_is_told_once() {
    let mut watched = Watched::start(&document("20ms")).await;
    let (file, before) = (watched.file(), watched.app.revision());
    let then = std::fs::metadata(&file).unwrap().modified().unwrap();
    put(&file, &document("30ms"), None);
    watched.looks(WATCH_EQUAL_READS - 1).await;
    put(&file, &document("20ms"), Some(then));
    watched.looks(2 * WATCH_EQUAL_READS).await;
    std::fs::remove_file(&file).unwrap();
    watched.looks(2 * WATCH_EQUAL_READS).await;
    put(&file, &document("soon"), None);
    watched.looks(3 * WATCH_EQUAL_READS).await;
    assert_eq!(
        (watched.app.revision(), watched.reloads("success"), watched.reloads("failure")),
        (before, 0, 1)
    );
}

#[tokio::test]
async fn a_hangup_reads_at_once_but_not_what_is_being_written() {
    let mut watched = Watched::start(&document("20ms")).await;
    let file = watched.file();
    put(&file, &document("30ms"), None);
    watched.watcher.reload().await;
    assert_eq!(watched.app.revision(), revision(&document("30ms")));
    watched.watcher.reload().await;
    watched.looks(2 * WATCH_EQUAL_READS).await;
    assert_eq!(
        (watched.reloads("success"), watched.reloads("unchanged")),
        (1, 1),
        "what is taken is not taken again"
    );
    let (path, ended) = (file.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let end = ended.clone();
    let writer = std::thread::spawn(move || {
        while !end.load(std::sync::atomic::Ordering::Acquire) {
            put(&path, &document("40ms"), None);
            put(&path, &format!("{}# more\n", document("40ms")), None);
        }
        put(&path, &document("50ms"), None);
    });
    watched.watcher.reload().await;
    ended.store(true, std::sync::atomic::Ordering::Release);
    writer.join().unwrap();
    assert_eq!(
        (watched.app.revision(), watched.reloads("failure")),
        (revision(&document("30ms")), 0)
    );
    watched.looks(WATCH_EQUAL_READS).await;
    assert_eq!(watched.app.revision(), revision(&document("50ms")));
}

#[tokio::test]
async fn names_that_are_gone_are_counted() {
    let mut watched = Watched::start(config::demo_routing()).await;
    assert_eq!(watched.metric("names_gone_total"), 0);
    put(&watched.file(), &config::demo_routing().replace("  gpt-4o-mini: balanced\n", ""), None);
    watched.looks(WATCH_EQUAL_READS).await;
    assert_eq!((watched.metric("names_gone_total"), watched.reloads("success")), (1, 1));
}

#[tokio::test]
async fn a_document_that_the_store_could_not_keep_is_taken_as_soon_as_it_can() {
    let mut watched = Watched::start(&document("20ms")).await;
    let before = watched.app.revision();
    put(&watched.file(), &document("30ms"), None);
    watched.faults.fail_writes(1);
    watched.looks(WATCH_EQUAL_READS).await;
    assert_eq!(watched.app.revision(), before, "no capture may name what is not kept");
    watched.looks(WATCH_EQUAL_READS).await;
    assert_ne!(watched.app.revision(), before, "though the file is as it was");
}

#[tokio::test]
async fn a_value_behind_a_variable_that_is_another_starts_health_afresh() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("routing.yaml");
    let text = "providers: { p: { protocol: openai, base_url: 'http://127.0.0.1:9', \
        api_key: '${P_API_KEY}' } }\nmodels: { p/m: {} }\nrecipes: {}\naliases: {}\n";
    std::fs::write(&file, text).unwrap();
    let TestApi { mut app, _dir, .. } = world_with(&format!("routing: {{ file: {file:?} }}")).await;
    let key = Arc::new(std::sync::Mutex::new("sk-1"));
    let read = key.clone();
    app.variables =
        Arc::new(move |name| (name == "P_API_KEY").then(|| (*read.lock().unwrap()).to_owned()));
    let app = Arc::new(app);
    let mut watcher = Watcher::new(app.clone());
    watcher.reload().await;
    let known = || app.health.snapshot(&app.live().routing, app.clock.now()).len();
    let wait = AttemptOutcome::Limited(Some(Duration::from_secs(60)));
    let live = app.live();
    let limited =
        AttemptPermit::take(live.routing.target("p/m").unwrap(), app.clock.now(), None).unwrap();
    limited.end(wait, Duration::ZERO, app.clock.now());
    watcher.reload().await;
    assert_eq!(known(), 1, "the same key is limited still");
    *key.lock().unwrap() = "sk-2";
    watcher.reload().await;
    assert_eq!(known(), 0, "the document says what it said, and the key is another");
}
