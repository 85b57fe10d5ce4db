//! The binary: a thin `main` on the library.

// A proxy allocates and frees small buffers on every request; mimalloc took 12 % off the CPU of
// one. Without huge pages: two dozen threads at rest would hold two megabytes each for a few KiB.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    rerouter::main()
}
