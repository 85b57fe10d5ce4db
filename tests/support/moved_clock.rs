//! A clock of one process that a test moves, by a library that is loaded before others.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The wall clock (`CLOCK_REALTIME`).
pub const WALL: &str = "0";
/// The clock that timers go by (`CLOCK_MONOTONIC`).
pub const TIMERS: &str = "1";

/// It moves one clock by as many seconds as a file says, and no other. A process that sleeps until
/// a time sees soon that it has come.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    const char *path = getenv("AHEAD_FILE");
    const char *moved = getenv("AHEAD_CLOCK");
    if (result == 0 && path && moved && id == atoi(moved)) {
        char text[32] = {0};
        int file = open(path, O_RDONLY);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) at->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
int epoll_wait(int epoll, struct epoll_event *events, int most, int ms) {
    int (*real)(int, struct epoll_event *, int, int) =
        (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return real(epoll, events, most, ms < 0 || ms > 100 ? 100 : ms);
}
"#;

pub struct MovedClock {
    library: PathBuf,
    file: PathBuf,
    clock: &'static str,
}

impl MovedClock {
    /// A clock that is `ahead` by so many seconds. It has its files in `dir`, by this name.
    pub fn new(dir: &Path, name: &str, clock: &'static str, ahead: i64) -> Self {
        let library = dir.join("ahead.so");
        if !library.exists() {
            std::fs::write(dir.join("ahead.c"), SOURCE).unwrap();
            let arguments = ["-shared", "-fPIC", "-o", "ahead.so", "ahead.c", "-ldl"];
            let made = Command::new("cc").args(arguments).current_dir(dir).status();
            assert!(made.expect("a C compiler").success());
        }
        let moved = MovedClock { library, file: dir.join(name), clock };
        moved.set(ahead);
        moved
    }

    /// From now on it is ahead by so many seconds.
    pub fn set(&self, ahead: i64) {
        // At once, so that it is read whole.
        let next = self.file.with_extension("next");
        std::fs::write(&next, ahead.to_string()).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }

    /// The environment of the process.
    pub fn environment(&self) -> [(&str, &str); 3] {
        [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("AHEAD_FILE", self.file.to_str().unwrap()),
            ("AHEAD_CLOCK", self.clock),
        ]
    }
}
