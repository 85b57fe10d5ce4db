//! Measures an index of millions of captures: lists and reads, the work of a start, and the removal
//! of a day while captures are written.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use jiff::{Span, Timestamp};
use rerouter::internals::archive::Archive;
use rerouter::internals::bounds;
use rerouter::internals::capture::record::{Bodies, Capture, CaptureState, Served};
use rerouter::internals::clock::Clock;
use rerouter::internals::id::{KeyId, Random, RequestId, UserId};
use rerouter::internals::secret::SecretBytes;
use rerouter::internals::store::{CaptureFilter, Reach, StoreError};
use tokio::task::JoinHandle;

use crate::prose::Prose;
use crate::{directory, open, process, queue};

/// Promised median time of a list of fifty captures, and of reading one capture.
const PROMISED: Duration = Duration::from_millis(5);
/// Promised longest time of a batch that is written while a day is removed. Captures wait as long
/// for a batch anyway.
const STALL: Duration = bounds::CAPTURE_LINGER;
/// Number of consecutive captures with bodies around each capture that is read. They fill more than
/// a block.
const BODIED: u64 = 64;
/// Bytes of the bodies of such a capture.
const BODIES: usize = 6144;
/// Number of captures that are read.
const READS: u64 = 400;
/// Captures per write.
const BATCH: usize = 1_000;
/// Number of users. Each has two keys.
const USERS: u64 = 1_000;
/// A user with an average number of captures.
const SOMEBODY: u64 = 17;
/// Number of times that each query runs.
const TIMES: usize = 20;
/// One in so many captures has a rare status, and one a rare model.
const RARE: u64 = 100_000;

#[derive(Args)]
pub struct Load {
    /// Number of captures in the index.
    #[arg(long, default_value_t = 5_000_000)]
    pub heads: u64,
    /// Number of days that the captures are spread over.
    #[arg(long, default_value_t = 30)]
    pub days: u64,
}

/// Generates the captures in the order of time.
struct Traffic {
    begin: Timestamp,
    apart: Duration,
    prose: Prose,
    random: Random,
    /// One in so many captures is read.
    every: u64,
}

impl Traffic {
    fn at(&self, number: u64) -> Timestamp {
        self.begin
            .saturating_add(self.apart * u32::try_from(number).unwrap_or(u32::MAX))
            .expect("a time")
    }

    fn is_read(&self, number: u64) -> bool {
        number % self.every == self.every / 2
    }

    /// Most captures have no bodies, as lists ignore bodies. Captures that are read have bodies,
    /// and so do those around them.
    fn capture(&mut self, number: u64) -> Capture {
        let draw = self.prose.next();
        let user = draw % USERS;
        let bodied = (number % self.every).abs_diff(self.every / 2) < BODIED / 2;
        let bodies =
            if bodied { queue::bodies(BODIES, "", &mut self.prose) } else { Bodies::default() };
        let mut made = queue::capture(self.at(number), user_id(user), bodies, &self.random);
        let head = &mut made.head;
        head.key = Some(key_id(user, draw >> 20 & 1));
        let model = if number % RARE == RARE / 2 {
            "rare"
        } else {
            self.prose.one(&["gpt-5", "gpt-5-mini", "claude-opus-5", "o5", "mistral-large"])
        };
        head.served = Some(Served { provider: "openai".into(), model: model.into(), node: None });
        (head.status, head.state) = match draw >> 32 & 0xff {
            _ if number % RARE == RARE / 4 => (418, CaptureState::Failed),
            0..4 => (429, CaptureState::Failed),
            4 => (502, CaptureState::Failed),
            5 => (200, CaptureState::Aborted),
            _ => (200, CaptureState::Completed),
        };
        made
    }
}

fn user_id(user: u64) -> UserId {
    UserId::known(&format!("usr_{user:026}"))
}

fn key_id(user: u64, which: u64) -> KeyId {
    KeyId::known(&format!("key_{:026}", user * 2 + which))
}

async fn archive(dir: &Path, clock: Clock) -> Archive {
    let (store, _) = open(dir).await;
    Archive::new(store, &SecretBytes::new([7; 32]), Random::System, true).with_clock(clock)
}

/// Returns the promises that were broken.
pub async fn measure(load: &Load) -> Vec<String> {
    let dir = directory();
    let begin = Timestamp::now() - Span::new().hours(i64::try_from(load.days * 24).expect("days"));
    let clock = Clock::manual(begin);
    let apart = Duration::from_secs(load.days * 24 * 3600)
        / u32::try_from(load.heads.max(1)).expect("fewer heads");
    let mut traffic = Traffic {
        begin,
        apart,
        prose: Prose::new(5),
        random: Random::seeded(6),
        every: (load.heads / READS).max(1),
    };
    let filled = archive(dir.path(), clock.clone()).await;
    let sample = fill(&filled, &clock, &mut traffic, load.heads).await;
    // As after a kill, the open segment is not closed.
    drop(filled);
    let (segments, index, count) = process::disk(dir.path());
    println!(
        "{} captures of {} days, few with bodies: {count} segments of {segments} bytes, \
         an index of {index} bytes",
        load.heads, load.days
    );
    let start = Instant::now();
    let begun = archive(dir.path(), clock.clone()).await;
    let opened = start.elapsed();
    let recovered = begun.recover().await.expect("recovered");
    println!(
        "start after a kill: the store opens in {:.0?}, segments are listed in {:.0?}",
        opened,
        start.elapsed() - opened
    );
    assert!((recovered.missing, recovered.unknown) == (0, 0));
    let mut broken = Vec::from_iter(ask(&begun, &traffic, load.heads).await);
    broken.extend(read(&begun, &sample).await);
    broken.extend(retire(&begun, &mut traffic, load).await);
    broken
}

/// Reads each of these captures with its bodies.
async fn read(archive: &Archive, sample: &[RequestId]) -> Option<String> {
    let mut reads = Vec::new();
    for id in sample {
        let from = Instant::now();
        let capture = archive.get(id).await.expect("read").expect("it is there");
        reads.push(from.elapsed());
        assert!(
            capture.bodies.request.len() + capture.bodies.response.len() > BODIES / 2,
            "with its bodies"
        );
    }
    let median = process::median(&reads);
    println!(
        "one capture with its bodies, {} of them once each: {} (promised: {PROMISED:?})",
        sample.len(),
        process::spread(reads)
    );
    (median > PROMISED).then(|| format!("a capture is read in {median:.1?}"))
}

/// Fills the archive as a gateway does over time. Returns some of the ids.
async fn fill(
    archive: &Archive,
    clock: &Clock,
    traffic: &mut Traffic,
    heads: u64,
) -> Vec<RequestId> {
    let (start, mut sample) = (Instant::now(), Vec::new());
    let mut writing: Option<JoinHandle<Result<usize, StoreError>>> = None;
    for first in (0..heads).step_by(BATCH) {
        let batch: Vec<Capture> = (first..heads.min(first + BATCH as u64))
            .map(|number| traffic.capture(number))
            .collect();
        sample.extend(
            (first..)
                .zip(&batch)
                .filter(|(number, _)| traffic.is_read(*number))
                .map(|(_, made)| made.head.id.clone()),
        );
        if let Some(writing) = writing.take() {
            writing.await.expect("joined").expect("appended");
        }
        let now = traffic.at(first);
        clock.advance(now.duration_since(clock.now()).unsigned_abs());
        let archive = archive.clone();
        writing = Some(tokio::spawn(async move { archive.append(Arc::new(batch)).await }));
    }
    if let Some(writing) = writing {
        writing.await.expect("joined").expect("appended");
    }
    println!("filled in {:.0} s", start.elapsed().as_secs_f64());
    sample
}

/// Lists the newest fifty captures by various filters.
async fn ask(archive: &Archive, traffic: &Traffic, heads: u64) -> Option<String> {
    let all = CaptureFilter::default;
    let (reach, us) =
        (Reach::Owner(user_id(SOMEBODY)), |number: u64| Some(traffic.at(number).as_microsecond()));
    let of = |statuses: &[(u16, u16)]| CaptureFilter { statuses: statuses.to_vec(), ..all() };
    let questions = [
        ("all", all()),
        ("one of five models", CaptureFilter { model: Some("o5".into()), ..all() }),
        ("up to the middle", CaptureFilter { until_us: us(heads / 2), ..all() }),
        (
            "a span, a model",
            CaptureFilter {
                since_us: us(heads / 4),
                until_us: us(heads / 2),
                model: Some("o5".into()),
                ..all()
            },
        ),
        ("a user", CaptureFilter { reach: reach.clone(), ..all() }),
        (
            "a user, a model",
            CaptureFilter { reach: reach.clone(), model: Some("o5".into()), ..all() },
        ),
        (
            "a user, a key",
            CaptureFilter { reach: reach.clone(), key: Some(key_id(SOMEBODY, 1)), ..all() },
        ),
        (
            "a user, status 4xx,5xx",
            CaptureFilter { reach: reach.clone(), ..of(&[(400, 499), (500, 599)]) },
        ),
        (
            "a user, a rare model",
            CaptureFilter { reach: reach.clone(), model: Some("rare".into()), ..all() },
        ),
        ("a user, aborted", CaptureFilter { reach, state: Some("aborted".into()), ..all() }),
        ("a key", CaptureFilter { key: Some(key_id(SOMEBODY, 0)), ..all() }),
        ("status 502", of(&[(502, 502)])),
        ("status 418, 1 of 100,000", of(&[(418, 418)])),
        ("aborted, 1 of 256", CaptureFilter { state: Some("aborted".into()), ..all() }),
        ("a rare model, 1 of 100,000", CaptureFilter { model: Some("rare".into()), ..all() }),
        ("nothing has it", CaptureFilter { recipe: Some("none".into()), ..all() }),
    ];
    println!("the newest 50 by filter, {TIMES} times each (promised: {PROMISED:?})");
    let mut over = Vec::new();
    for (name, filter) in questions {
        let (mut times, mut found, mut more) = (Vec::new(), 0, false);
        for _ in 0..TIMES {
            let from = Instant::now();
            let page = archive.page(filter.clone(), 50, None).await.expect("a page");
            times.push(from.elapsed());
            (found, more) = (page.heads.len(), page.next.is_some());
        }
        if process::median(&times) > PROMISED {
            over.push(name);
        }
        println!(
            "  {name:<28} {found:>2} found{}: {}",
            if more { ", more" } else { "" },
            process::spread(times)
        );
    }
    (!over.is_empty())
        .then(|| format!("lists longer than {PROMISED:?} by their median: {}", over.join(", ")))
}

/// Removes a day while captures are written.
async fn retire(archive: &Archive, traffic: &mut Traffic, load: &Load) -> Option<String> {
    let (mut next, mut most) = (load.heads, Duration::ZERO);
    for tending in [false, true] {
        let done = Arc::new(AtomicBool::new(!tending));
        let work = tokio::spawn({
            let (archive, done) = (archive.clone(), done.clone());
            let before = traffic
                .begin
                .saturating_add(Duration::from_secs(24 * 3600))
                .expect("a time")
                .as_microsecond();
            async move {
                let from = Instant::now();
                if tending {
                    archive.retain(before, u64::MAX).await.expect("removed");
                    done.store(true, Ordering::Release);
                }
                from.elapsed()
            }
        });
        let (mut times, from) = (Vec::new(), Instant::now());
        let least =
            if load.heads < RARE { Duration::from_millis(50) } else { Duration::from_secs(3) };
        while !done.load(Ordering::Acquire) || from.elapsed() < least {
            let batch: Vec<Capture> =
                (0..100).map(|number| traffic.capture(next + number)).collect();
            next += 100;
            let began = Instant::now();
            archive.append(Arc::new(batch)).await.expect("appended");
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = work.await.expect("joined");
        let what = if tending {
            format!("while a day leaves, which takes {took:.1?}")
        } else {
            "with nothing else to do".to_owned()
        };
        most = most.max(times.iter().copied().max().unwrap_or_default());
        println!(
            "100 captures at a time are written, {what}: {} (promised: {STALL:?} at most)",
            process::spread(times)
        );
    }
    let oldest = CaptureFilter {
        until_us: Some(traffic.begin.as_microsecond() + 23 * 3600 * 1_000_000),
        ..CaptureFilter::default()
    };
    let left = archive.page(oldest, 50, None).await.expect("a page");
    assert!(left.heads.is_empty(), "the day has left");
    (most > STALL).then(|| format!("the writer waited for {most:.1?}"))
}
