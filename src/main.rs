//! The binary, which calls the library.

// A proxy allocates and frees small buffers on every request, which takes glibc an eighth of its
// CPU more. Threads of jemalloc give back what is free for ten seconds: bodies are allocated on one
// thread and freed on another, and mimalloc kept their memory after a burst.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    rerouter::main()
}
