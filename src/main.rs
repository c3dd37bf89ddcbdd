//! The `acp-gateway` command.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// The allocator of Rust and C code in every build. The static binaries would otherwise use that of musl, which has one
/// lock for all threads.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    acp_gateway::cli::main()
}
