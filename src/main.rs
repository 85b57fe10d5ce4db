//! The binary: a thin `main` on the library.

fn main() {}
