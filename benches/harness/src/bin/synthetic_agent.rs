//! An ACP agent on stdio with minimal cost.

use std::io;

fn main() -> io::Result<()> {
    // Some servers query the version of an agent first.
    if std::env::args().any(|arg| arg == "--version") {
        println!("synthetic-agent 0.0.0");
        return Ok(());
    }
    harness::play_agent()
}
