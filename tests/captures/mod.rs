//! What is kept of calls: captures on the disk and in object stores, replayed and evaluated.

/// Traffic of nodes and agents, evaluated while they are there, changed and gone.
mod agents_on_nodes;
/// Bytes of captures that go bad on the disk, with their index or without: what they held is lost,
/// and nothing else.
mod damage;
mod evaluate;
mod long_evaluations;
mod memory;
mod object_stores;
/// Captures after a kill, a damaged index, under a disk that hangs, and as they lie on it; what is
/// kept out of them, and who.
pub mod on_disk;
mod property;
/// `rerouter replay`: lists, reroutes, gates and corpora by the command line.
pub mod replay_cli;
/// What the command line writes: to full disks, to who reads the beginning only, over a corpus, on
/// a terminal.
mod replay_output;
mod replays;
pub mod reroute_answers;
mod secrets;
mod shared;
