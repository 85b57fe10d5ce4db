//! One gateway as a process: settings, logs and metrics, panics, upgrades.

mod access_log;
mod compose;
mod panic_canaries;
mod panics;
pub mod plugin;
mod prometheus;
mod settings;
mod systemd;
mod traces;
mod upgrades;
