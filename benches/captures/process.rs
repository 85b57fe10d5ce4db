//! Measures this process: CPU time of its threads, memory, files.

use std::path::Path;

/// CPU seconds of this process's threads, and seconds that they waited for a CPU. Threads with this
/// name are left out.
pub fn cpu_but(name: &str) -> (f64, f64) {
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("/proc")
        .filter_map(|task| Some(task.ok()?.path()));
    let others = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() != name)
    });
    others.fold((0.0, 0.0), |(used, waited), task| {
        let times = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let mut times =
            times.split_whitespace().filter_map(|nanos| Some(nanos.parse::<f64>().ok()? / 1e9));
        (used + times.next().unwrap_or(0.0), waited + times.next().unwrap_or(0.0))
    })
}

/// Resident memory in bytes.
pub fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Bytes of segments and of the index in a data directory, and the number of segments.
pub fn disk(dir: &Path) -> (u64, u64, usize) {
    let files = |path: &Path| -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(path).expect("the directory").filter_map(Result::ok);
        entries
            .filter_map(|entry| {
                Some((entry.file_name().to_str()?.to_owned(), entry.metadata().ok()?.len()))
            })
            .collect()
    };
    let segments = files(&dir.join("captures"));
    let index = files(dir)
        .into_iter()
        .filter(|(name, _)| name.starts_with("captures.db"))
        .map(|(_, bytes)| bytes)
        .sum();
    (segments.iter().map(|(_, bytes)| bytes).sum(), index, segments.len())
}

pub fn median(times: &[std::time::Duration]) -> std::time::Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The median, the 99 % quantile and the maximum, in milliseconds.
pub fn spread(mut times: Vec<std::time::Duration>) -> String {
    times.sort_unstable();
    let at = |part: f64| {
        times
            .get(((times.len().max(1) - 1) as f64 * part).round() as usize)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    format!("median {:.2} ms, 99 % {:.2} ms, most {:.2} ms", at(0.5), at(0.99), at(1.0))
}
