//! Several gateways on one database: what one of them does holds on all.

mod clocks;
mod gateways;
mod gateways_share;
mod lost_answers;
mod standby;
