//! Runs `answers` of `targets.rs` under libFuzzer.
#![no_main]

#[path = "../targets.rs"]
#[expect(dead_code, reason = "the other targets are programs of their own")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answers(data));
