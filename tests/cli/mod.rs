//! The command line: each command as people run it, with files and gateways.

mod check;
/// The commands that are clients of a gateway: keys, users, agents, nodes, usage, configuration,
/// logs, profiles.
mod clients;
mod doctor;
mod first_start;
mod litellm;
mod litellm_shapes;
mod serve;
