//! A stdio ACP agent that costs almost nothing.

use std::io;

fn main() -> io::Result<()> {
    // Some servers ask an agent for its version before they use it.
    if std::env::args().any(|arg| arg == "--version") {
        println!("synthetic-agent 0.0.0");
        return Ok(());
    }
    harness::play_agent()
}
