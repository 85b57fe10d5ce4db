//! Several gateways on one database: a change at one of them holds at all.

mod clocks;
mod connections;
mod gateways;
mod gateways_share;
mod lost_answers;
mod standby;
