//! Who may call what, and how access begins and ends: identity, keys, users, logins, sessions.

/// The audit: its rows, and who may read them.
mod audit;
mod browsers;
mod climb;
/// Every way in which a key or a session ends, while clients use it.
mod endings;
mod entrances;
/// Captures that are erased by key, user or time, and users who are deleted with their captures.
mod erasure;
mod identity;
/// Users, sessions, descendant keys and agents after `kill -9`, compared with the journals of
/// clients.
mod journal;
/// Keys that are changed, ended with their descendants, or created once, under load and `kill -9`.
mod keys;
mod lines;
mod logins;
/// Every route with every method, with other spellings of its path, and over HTTP/2: nobody gets
/// further than by the path itself.
mod routes;
pub mod secrets;
mod tour;
mod users;
