//! Who may call what, and how that begins and ends: identity, keys, users, logins, sessions.

/// Who did what: the rows of the audit, and who reads them.
mod audit;
mod browsers;
mod climb;
/// Every end of a key or a session, while clients ask with it.
mod endings;
mod entrances;
/// Captures that are erased by key, user or time, and users who are deleted with theirs.
mod erasure;
mod identity;
/// Users, sessions, keys that keys made and agents after `kill -9`, against what clients were told
/// of them.
mod journal;
/// Keys changed, ended with their descent, made once, under load and `kill -9`.
mod keys;
mod lines;
mod logins;
/// Every route by every method, by other spellings of its path, over HTTP/2: nobody gets further
/// than by its own.
mod routes;
pub mod secrets;
mod tour;
mod users;
