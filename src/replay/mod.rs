//! What can be learnt from captures that are there: how two of them differ, and what another document would have decided.

pub mod compare;
pub mod cost;
pub mod evaluate;
pub mod explain;
pub mod report;
pub mod share;
