//! What providers are sent, how they are reached, and what of their answers passes.

mod answers;
mod connections;
mod endpoints;
mod faults;
mod fidelity;
mod presets;
