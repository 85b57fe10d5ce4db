//! Captures on the disk and in object stores, and their replays and evaluations.

/// Traffic to nodes and agents, evaluated while they exist, after they changed, and after they are
/// gone.
mod agents_on_nodes;
mod caches;
/// Bytes of captures that are damaged on disk, with or without their index: only the captures in
/// them are lost.
mod damage;
mod evaluate;
mod long_evaluations;
mod memory;
mod object_stores;
/// Captures on disk: after a kill, with a damaged index, under a disk that hangs. Also what is kept
/// out of captures, and who may read them.
pub mod on_disk;
mod property;
/// `rerouter replay`: lists, reroutes, gates and corpora by the command line.
pub mod replay_cli;
/// Output of `rerouter replay`: to full disks, to readers that stop early, and on a terminal. Also
/// corpora.
mod replay_output;
mod replays;
pub mod reroute_answers;
mod secrets;
mod shared;
