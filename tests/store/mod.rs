//! The store and the data directory: what holds when they fail, move or change their key.

mod data_directory;
mod down;
/// Another master key for a store that has one: what is kept, and what moves when.
mod master_keys;
mod postgres;
/// Every route that asks the store, with one that cannot be read, and what goes on without it.
mod reads;
mod steps;
