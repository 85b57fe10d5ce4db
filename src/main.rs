//! The binary, which calls the library.

// A proxy allocates and frees small buffers on every request, and glibc's allocator takes a
// seventh more of its CPU. Threads of jemalloc give back what has been free for ten seconds:
// bodies are allocated on one thread and freed on another, and mimalloc kept their memory after a
// burst.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    rerouter::main()
}
