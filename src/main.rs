//! The binary, which calls the library.

// A proxy allocates and frees small buffers on every request, and mimalloc saved 12 % of its CPU.
// Huge pages are off: with them, two dozen idle threads would hold two megabytes each for a few
// KiB.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    rerouter::main()
}
