//! The binary as a command: run to its end, with exactly these arguments and variables.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How a command ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Ran {
    /// What it said, once it is known to have gone well.
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.error);
        self.out
    }

    /// The same with what it wrote to standard error.
    pub fn well_told(self) -> (String, String) {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.error);
        (self.out, self.error)
    }

    /// What it wrote all the same.
    pub fn partly(self, code: i32, word: &str) -> String {
        self.failed(code, word);
        self.out
    }

    pub fn failed(&self, code: i32, word: &str) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.error);
        assert!(self.error.contains(word), "no {word} in {}", self.error);
    }
}

/// Runs the binary.
pub async fn run(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    run_with(dir, arguments, environment, "").await
}

/// The same with something to read.
pub async fn run_with(
    dir: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    input: &str,
) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    command
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = input.to_owned();
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        // It may not read.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output()
    });
    let Output { status, stdout, stderr } = ended.await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), out: text(stdout), error: text(stderr) }
}
