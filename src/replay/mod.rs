//! What can be learnt from captures that are there: how two of them differ.

pub mod compare;
